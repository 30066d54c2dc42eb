// Draws what the device says and confirms what is really on the screen. Every string is shown as text (textContent), never as markup.
"use strict";

const PAGE = document.body.dataset.page;
const BEAT_MS = 1000; // while the sign is lit, the page says so once a second
const SILENCE_MS = 6000; // the device ticks every two seconds; after three missed ticks it counts as lost
const LINGER_MS = 3000; // who acted stays readable for this long
const FONT_MIN = 8, FONT_MAX = 150;
const FONT_SMALL = 32; // below it, thin letters on more open lines read better

const at = (id) => document.getElementById(id);
let waiting = null; // the newest state that is not drawn yet
let drawing = false;
let drawn = null; // the last state that was drawn and confirmed
let content = 0; // number of the content on the stage
let heardAt = Date.now();
let lost = false;
let gone = false; // this page load is known to the device no more
let lastActing = null;

// ---- words -------------------------------------------------------------------------------------------------------------------------

const CAPTURES = { "camera.snapshot": "Camera", "microphone.listen": "Microphone" };
const DOING = {
  "camera.snapshot": "takes a picture", "microphone.listen": "listens", "display.text": "shows a text",
  "display.image": "shows a picture", "speaker.say": "speaks",
};

function list(names) {
  return names.length < 2 ? names.join("") : names.slice(0, -1).join(", ") + " and " + names.at(-1);
}

function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}

function show(id, text) {
  const element = at(id);
  element.textContent = text;
  element.hidden = text === "";
}

// ---- drawing -----------------------------------------------------------------------------------------------------------------------

function drawSign(state) {
  const sign = at("sign");
  sign.classList.remove("unknown");
  sign.hidden = !state.sign;
  if (!state.sign) return;
  const what = [...new Set(state.capturing.map((call) => CAPTURES[call.capability] || call.capability))];
  const who = [...new Set(state.capturing.map((call) => call.agent))];
  at("sign-what").textContent = (what.length > 0 ? list(what) : "Camera or microphone") + " in use";
  at("sign-who").textContent = who.length > 0 ? "by " + who.join(", ") : "";
  at("sign-simulated").hidden = !state.sign.simulated;
}

function drawFoot(state) {
  document.title = (state.sign ? "● " : "") + (state.name || "Latchkey display");
  show("foot-name", state.content ? state.name : "");
  at("foot-simulated").hidden = !state.simulated;
  const who = at("foot-who");
  if (state.acting.length > 0) {
    lastActing = { call: state.acting.at(-1), until: Date.now() + LINGER_MS };
    setTimeout(() => drawn && drawFoot(drawn), LINGER_MS + 50);
  }
  if (lastActing && Date.now() < lastActing.until) {
    who.classList.add("now");
    const { agent, capability } = lastActing.call;
    who.textContent = agent + " " + (DOING[capability] || "uses " + capability);
    return;
  }
  who.classList.remove("now");
  if (state.content) who.textContent = "from " + state.content.agent + ", " + clock(state.content.at_ms);
  else if (state.owner) who.textContent = "owner: " + state.owner;
  else who.textContent = "no owner yet";
}

function drawIdle(state) {
  at("idle-name").textContent = state.name;
  at("idle-waiting").replaceChildren(...state.waiting.map((change) => {
    const item = document.createElement("li"), code = document.createElement("b"), who = document.createElement("span");
    code.textContent = change.code || change.kind;
    who.textContent = change.agent + (change.kind === "release" ? " wants to give this device back" : " wants to own this device");
    item.append(code, who);
    return item;
  }));
  let now = "Nothing is on.", next = "", command = "";
  if (state.grants.length > 0) now = "Allowed: " + list(state.grants) + ".";
  if (state.waiting.length > 0) {
    const first = state.waiting[0];
    now = state.waiting.length === 1 ? "One request waits for you." : state.waiting.length + " requests wait for you.";
    next = first.code ? "Compare the code with the one your agent shows. If they are the same, run at this device:" : "To agree, run at this device:";
    command = "latchkeyd approve " + (first.code ? first.code.replace(/ /g, "") : first.id);
  } else if (!state.owner && state.pairing_until) {
    next = "Pairing is open until " + clock(state.pairing_until) + ". Give the link to your agent.";
  } else if (!state.owner) {
    next = "This device has no owner. To pair it with an agent, run at this device:";
    command = "latchkeyd pair";
  } else if (state.grants.length === 0) {
    next = state.owner + " owns this device and may use none of it. To allow something, run for example:";
    command = "latchkeyd grant display.text";
  } else {
    next = state.active ? state.owner + " has this device in use." : state.owner + " does not use this device now.";
  }
  at("idle-state").textContent = now;
  at("idle-changed").replaceChildren(...state.changed.map((told) => {
    const item = document.createElement("li");
    item.textContent = told;
    return item;
  }));
  show("idle-next", next);
  show("idle-command", command);
}

// The largest letters with which all of the text fits, with whole words as long as the letters stay large.
function fitText() {
  const box = at("text"), text = at("text-fit");
  if (box.hidden) return;
  const style = getComputedStyle(box);
  const width = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const height = box.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
  text.style.maxHeight = "none";
  const fits = (size) => {
    text.style.fontSize = size + "px";
    text.classList.toggle("small", size < FONT_SMALL);
    return text.scrollHeight <= height + 1 && text.scrollWidth <= width + 1;
  };
  const largest = (low, high) => {
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (fits(middle)) low = middle;
      else high = middle - 1;
    }
    return fits(low);
  };
  text.classList.remove("broken");
  let whole = largest(FONT_SMALL, FONT_MAX);
  if (!whole) {
    text.classList.add("broken");
    whole = largest(FONT_MIN, FONT_MAX);
  }
  text.style.maxHeight = height + "px";
  show("note", whole ? "" : "The end of this text does not fit on the screen.");
}

function showIdle() {
  at("text").hidden = at("image").hidden = at("note").hidden = true;
  at("text-fit").textContent = "";
  at("image").replaceChildren();
  at("idle").hidden = false;
}

async function drawContent(state) {
  const next = state.content;
  if (!next) {
    content = 0;
    showIdle();
    return;
  }
  if (next.number === content) return;
  if (next.text !== null) {
    at("idle").hidden = at("image").hidden = true;
    at("image").replaceChildren();
    at("text-fit").textContent = next.text;
    at("text").hidden = false;
    fitText();
  } else {
    const image = new Image();
    image.alt = "";
    image.src = next.picture;
    await image.decode();
    at("idle").hidden = at("text").hidden = at("note").hidden = true;
    at("text-fit").textContent = "";
    at("image").replaceChildren(image);
    at("image").hidden = false;
  }
  content = next.number;
}

// ---- confirming --------------------------------------------------------------------------------------------------------------------

const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));

// Two frames after a change it has been painted, if the page is in sight at all: browsers draw no frames for a hidden page.
async function painted() {
  await frame();
  await frame();
  return document.visibilityState === "visible";
}

// The sign is on the screen and nothing lies over it.
function signSeen() {
  const sign = at("sign"), box = sign.getBoundingClientRect();
  if (sign.hidden || box.width < innerWidth - 1 || box.height < 40 || box.top < 0 || box.bottom > innerHeight) return false;
  if (sign.checkVisibility && !sign.checkVisibility({ opacityProperty: true, visibilityProperty: true })) return false;
  return [0.1, 0.5, 0.9].every((part) => sign.contains(document.elementFromPoint(innerWidth * part, box.top + box.height / 2)));
}

// Each answer carries a growing number: answers may overtake one another on the way, and an older one must not count.
let answers = 0;

function say(word, nonce = "") {
  answers += 1;
  const body = JSON.stringify({ page: PAGE, count: answers, said: word, nonce });
  return fetch("/display/said", { method: "POST", headers: { "Content-Type": "application/json" }, body, keepalive: true }).catch(() => {});
}

async function drawAll() {
  if (drawing) return;
  drawing = true;
  while (waiting) {
    const state = waiting;
    waiting = null;
    drawSign(state);
    drawIdle(state);
    drawFoot(state);
    state.word = "drawn";
    try {
      await drawContent(state);
    } catch {
      state.word = "failed";
      showIdle();
      content = state.content.number;
    }
    if (Boolean(state.sign) !== Boolean(drawn?.sign)) fitText(); // the sign takes a part of the stage, or gave it back
    drawn = state;
    if (await painted() && (!state.sign || signSeen())) say(state.word, state.nonce);
  }
  drawing = false;
}

async function beat() {
  const state = drawn;
  if (state?.sign && !lost && !waiting && await painted() && drawn === state && signSeen()) say(state.word, state.nonce);
}

// ---- the stream --------------------------------------------------------------------------------------------------------------------

function setLost(now) {
  if (now === lost) return;
  lost = now;
  document.body.classList.toggle("stale", lost);
  show("lost", lost ? "No connection to the device program. What you see may be out of date." : "");
  if (lost && !at("sign").hidden) {
    at("sign").classList.add("unknown");
    at("sign-what").textContent = "Unknown whether still in use";
    at("sign-who").textContent = "";
  }
  fitText();
}

function heard() {
  heardAt = Date.now();
  if (!lost) return;
  setLost(false);
  drawAgain();
}

function drawAgain() {
  if (!drawn || waiting) return;
  waiting = drawn;
  drawAll();
}

const stream = new EventSource("/display/events/" + PAGE);
stream.addEventListener("state", (event) => {
  heard();
  const state = JSON.parse(event.data);
  // The path of a picture is told once, so a state that was not drawn in time hands it on.
  if (state.content && state.content.number === waiting?.content?.number) state.content.picture ??= waiting.content.picture;
  waiting = state;
  drawAll();
});
stream.addEventListener("tick", heard);
stream.addEventListener("error", () => {
  setLost(true);
  if (stream.readyState === EventSource.CLOSED) gone = true;
});

// A page that the device does not know any more (it was started anew) loads itself again as soon as the device answers.
async function look() {
  if (Date.now() - heardAt > SILENCE_MS) setLost(true);
  if (!gone) return;
  const answer = await fetch("/display/alive").catch(() => null);
  if (answer?.ok) location.reload();
}

setInterval(beat, BEAT_MS);
setInterval(look, BEAT_MS);
addEventListener("resize", fitText);
addEventListener("pagehide", () => say("hidden"));
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") say("hidden");
  else drawAgain();
});
