#!/usr/bin/env bash
# demo.sh: a device and an agent on this machine, from nothing to two pictures and a handler, through the two programs alone.
#
# The device is simulated and lives, like the agent, in a temporary folder that is gone afterwards; what is worth keeping goes to
# demo/. At a terminal the device goes on running until Ctrl-C; elsewhere it is stopped and this ends with 0. Any step that does
# not end as it should ends the demo with a sentence and 1.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

AGENT=kitchen-bot@home.example.org
DEVICE=kitchen
OUT=demo
READY_S=20    # a start takes milliseconds; the rest is for a loaded machine
CLAIM_S=20    # so does a claim, and hearing that it was approved
DROP_S=20     # and compiling a small handler
STOP_S=15     # the device gives running work ten seconds

folder='' device_pid='' claim_pid='' tail_pid='' seen=0

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' plain=$'\e[0m'
else
  bold='' dim='' red='' plain=''
fi

fail() {
  printf '\n%sdemo: %s%s\n' "$red" "$*" "$plain" >&2
  if [ -n "$folder" ] && [ -s "$folder/device.log" ]; then
    printf 'demo: the last lines of the device:\n' >&2
    tail -n 15 "$folder/device.out" "$folder/device.log" >&2
  fi
  exit 1
}

ended() { ! kill -0 "$1" 2>/dev/null; }

end_process() { # end_process PID: ends it, and does not wait for ever
  [ -n "$1" ] || return 0
  kill "$1" 2>/dev/null || return 0
  local left
  for ((left = STOP_S * 10; left > 0; left--)); do
    if ended "$1"; then return 0; fi
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null || true
}

clean() {
  trap '' INT TERM HUP
  end_process "$tail_pid"
  end_process "$claim_pid"
  end_process "$device_pid"
  [ -z "$folder" ] || rm -rf "$folder"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# ---- how a step is told ---------------------------------------------------------------------------------------------

number=0
step() { # step WHY
  number=$((number + 1))
  printf '\n%s%d. %s%s\n' "$bold" "$number" "$1" "$plain"
}

typed() { # typed WHERE COMMAND...: the command as one would type it
  local where=$1 word line=''
  shift
  for word in "$@"; do
    if [[ $word =~ ^[A-Za-z0-9@%+=:,./_-]+$ ]]; then line+=" $word"; else line+=" '${word//\'/\'\\\'\'}'"; fi
  done
  printf '%s%s$%s%s\n' "$dim" "$where" "$plain" "$line"
}

# What the terminal of `latchkeyd run` has printed since this was last asked.
device_says() {
  local all
  all=$(wc -l <"$folder/device.out")
  if [ "$all" -gt "$seen" ]; then
    sed -n "$((seen + 1)),${all}p" "$folder/device.out" | sed "s/^/  $dim|$plain /"
    seen=$all
  fi
}

run() { # run WHERE COMMAND...: shows it, does it, and fails with it
  typed "$@"
  local code=0
  "${@:2}" 2>&1 </dev/null || code=$?
  [ "$code" = 0 ] || fail "\"${*:2}\" ended with $code; it should have worked"
  device_says
}

refused() { # refused WHERE COMMAND...: shows it, and expects exit code 3
  typed "$@"
  local code=0
  "${@:2}" 2>&1 </dev/null || code=$?
  [ "$code" != 0 ] || fail "\"${*:2}\" worked, though nothing was granted yet"
  [ "$code" = 3 ] || fail "\"${*:2}\" ended with $code; a refusal is 3"
  printf '%s(exit code 3: refused)%s\n' "$dim" "$plain"
  device_says
}

until_true() { # until_true SECONDS COMMAND...
  local left
  for ((left = $1 * 10; left > 0; left--)); do
    if "${@:2}"; then return 0; fi
    sleep 0.1
  done
  return 1
}

member() { # member NAME: of a flat JSON document on stdin
  sed -n "s/.*\"$1\": *\"\\([^\"]*\\)\".*/\\1/p" | head -n 1
}

handler_is() { # handler_is STATE on|off: does the device list the handler so?
  local on=true
  [ "$2" = on ] || on=false
  latchkeyd handlers --json 2>/dev/null | tr -d ' \n' | grep -q "\"state\":\"$1\",\"on\":$on"
}

# ---- build ----------------------------------------------------------------------------------------------------------

echo "Building the two programs, without optimisation as that is quicker. The first time it takes a few minutes."
target=$(cargo metadata --locked --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
cargo build --locked -p latchkey-runtime -p latchkey-controller --bins || fail 'the build failed; see above'
PATH="$target/debug:$PATH"
hash -r
for program in latchkeyd latchkey; do
  [ "$(command -v "$program")" = "$target/debug/$program" ] || fail "the build made no $program in $target/debug"
done

# ---- folders --------------------------------------------------------------------------------------------------------

folder=$(mktemp -d "${TMPDIR:-/tmp}/latchkey-demo.XXXXXX")
handlers=$folder/settings/handlers
mkdir -m 700 "$folder/device" "$folder/settings"
mkdir -m 755 "$handlers"
mkdir -p "$OUT"
rm -f "$OUT"/kitchen-1.jpg "$OUT"/kitchen-2.jpg "$OUT"/kitchen.receipts
export LATCHKEY_STATE_DIR=$folder/device LATCHKEY_CONFIG_DIR=$folder/settings LATCHKEY_CONTROLLER_DIR=$folder/agent
export LATCHKEY_SET_DEVICE__NAME=$DEVICE LATCHKEY_SET_LINK__DIRECT__LISTEN=127.0.0.1:0 LATCHKEY_SET_KEEPER__LISTEN=127.0.0.1:0
unset LATCHKEY_LOG

cat <<TEXT

Two people act below. "device$" is what the keeper types at the device, "agent$" what runs where the agent lives.
Lines after "|" are what the device itself prints meanwhile. The folders are named in the environment:
  LATCHKEY_STATE_DIR=$LATCHKEY_STATE_DIR         the device's key, state and records
  LATCHKEY_CONTROLLER_DIR=$LATCHKEY_CONTROLLER_DIR     the agent's key and its list of devices
TEXT

# ---- the story ------------------------------------------------------------------------------------------------------

step 'The device starts. Its camera, sign and screen are simulated, so that this works anywhere.'
typed device latchkeyd run --simulate
latchkeyd run --simulate >"$folder/device.out" 2>"$folder/device.log" </dev/null &
device_pid=$!
ready() { grep -q '^  owner ' "$folder/device.out" || ended "$device_pid"; }
until_true "$READY_S" ready || fail "the device was not ready after $READY_S s"
if ended "$device_pid"; then fail 'the device ended at once'; fi
device_says

step 'An agent is made: an address, and a key that never leaves its folder.'
run agent latchkey agent new "$AGENT"

step 'The keeper opens pairing. The link carries the key of the device, so that nobody can stand in between.'
typed device latchkeyd pair
code=0
latchkeyd pair >"$folder/pair" 2>&1 </dev/null || code=$?
cat "$folder/pair"
[ "$code" = 0 ] || fail "pairing could not be opened ($code)"
device_says
link=$(grep -o 'https\?://[^ ]*#[^ '"'"']*' "$folder/pair" | head -n 1)
[ -n "$link" ] || fail 'no pairing link was printed'

step 'The agent asks for the device and waits. Both sides compute the same code, from both keys.'
typed agent latchkey claim "$link"
latchkey claim "$link" >"$folder/claim" 2>&1 </dev/null &
claim_pid=$!
until_true "$CLAIM_S" grep -q 'latchkeyd approve' "$folder/claim" || { cat "$folder/claim"; fail 'the claim got no code'; }
shown=$(wc -l <"$folder/claim")
head -n "$shown" "$folder/claim"
device_says
run device latchkeyd claims
of_agent=$(sed -n 's/^code \([0-9]* [0-9]*\)$/\1/p' "$folder/claim")
of_device=$(latchkeyd claims --json | member code)
[ -n "$of_agent" ] || fail 'the agent shows no code'
[ "$of_agent" = "$of_device" ] || fail "the codes differ: the agent shows \"$of_agent\", the device \"$of_device\""

step "The codes are the same, so the keeper approves. From now on the device obeys this agent's key, and no other."
run device latchkeyd approve "${of_agent/ /}"
code=0
until_true "$CLAIM_S" ended "$claim_pid" || fail 'the agent did not notice the approval'
wait "$claim_pid" || code=$?
claim_pid=''
printf '%sagent$%s %s(the claim that waited goes on)%s\n' "$dim" "$plain" "$dim" "$plain"
tail -n "+$((shown + 1))" "$folder/claim"
[ "$code" = 0 ] || fail "the claim ended with $code"

step 'To own a device is not to use it: everything but its health is off until the keeper allows it.'
run agent latchkey capabilities "$DEVICE"
refused agent latchkey snapshot "$DEVICE" -o "$OUT/kitchen-1.jpg"
[ ! -e "$OUT/kitchen-1.jpg" ] || fail 'a refused snapshot left a picture'

step 'The keeper allows the camera. The in-use sign goes on before the first frame, and stays on for three seconds at least.'
run device latchkeyd grant camera
run agent latchkey snapshot "$DEVICE" -o "$OUT/kitchen-1.jpg"
run agent latchkey snapshot "$DEVICE" -o "$OUT/kitchen-2.jpg"
for picture in "$OUT/kitchen-1.jpg" "$OUT/kitchen-2.jpg"; do
  [ "$(head -c 3 "$picture" | od -An -tx1 | tr -d ' \n')" = ffd8ff ] || fail "$picture is not a JPEG picture"
done

step 'The keeper allows texts on the screen, and the agent shows one.'
run device latchkeyd grant display.text
run agent latchkey show "$DEVICE" 'Dinner is ready.'

step 'The keeper makes a handler and drops it into the handlers folder: one file, and what it may do beside it.'
run device latchkeyd handler new acme.lamp --lang wat --dir "$folder/lamp"
run device latchkeyd handler run "$folder/lamp/custom.acme.lamp.wat" level=40
run device install -m 644 "$folder/lamp/custom.acme.lamp.wat" "$folder/lamp/custom.acme.lamp.toml" "$handlers"
until_true "$DROP_S" handler_is ready off || fail 'the device did not take the handler'
run device latchkeyd handlers

step 'It is a capability now, and off like every other. The keeper grants it, for this content alone.'
refused agent latchkey call "$DEVICE" custom.acme.lamp level=40
run device latchkeyd grant custom.acme.lamp
run agent latchkey call "$DEVICE" custom.acme.lamp level=40

step 'The file changes, so the grant is off again, until the keeper has looked.'
run device sed -i 's/that it was given/that it was given, or so it says/' "$handlers/custom.acme.lamp.wat"
until_true "$DROP_S" handler_is ready off || fail 'the device did not notice that the file changed'
refused agent latchkey call "$DEVICE" custom.acme.lamp level=40
run device latchkeyd handlers

step 'Everything is on record, the refusals too, each record with the hash of the one before it.'
run device latchkeyd receipts
run device latchkeyd receipts --verify

step 'The records leave the device as one signed file, which anybody who has the key of the device can check.'
run device latchkeyd receipts --export "$OUT/kitchen.receipts"
key=$(latchkeyd key --json | member key)
[ -n "$key" ] || fail 'the device did not name its key'
run agent latchkeyd verify-export "$OUT/kitchen.receipts" --key "$key"

# ---- the end --------------------------------------------------------------------------------------------------------

printf '\n%sDone.%s In %s/:\n' "$bold" "$plain" "$OUT"
for file in "$OUT"/kitchen-1.jpg "$OUT"/kitchen-2.jpg "$OUT"/kitchen.receipts; do
  printf '  %s  %d bytes\n' "$file" "$(wc -c <"$file")"
done

if ! [ -t 0 ] || ! [ -t 1 ]; then
  kill "$device_pid"
  until_true "$STOP_S" ended "$device_pid" || fail "the device did not stop within $STOP_S s"
  code=0
  wait "$device_pid" || code=$?
  device_pid=''
  device_says
  [ "$code" = 0 ] || fail "the device ended with $code when it was told to stop"
  exit 0
fi

display=$(latchkeyd status --json | grep -o 'http://[^"]*/display' | head -n 1)
cat <<TEXT

The device goes on running. Its screen, for a browser on this machine:

  $bold$display$plain

To try more, in another terminal, first:

  export PATH=$target/debug:\$PATH \\
    LATCHKEY_STATE_DIR=$LATCHKEY_STATE_DIR \\
    LATCHKEY_CONFIG_DIR=$LATCHKEY_CONFIG_DIR \\
    LATCHKEY_CONTROLLER_DIR=$LATCHKEY_CONTROLLER_DIR

then for example:

  latchkeyd status                          how the device stands
  latchkeyd grant display.image             allow pictures on the screen
  latchkey show $DEVICE $OUT/kitchen-1.jpg    show the picture that was taken
  latchkeyd handlers                        what lies in $handlers
  latchkeyd revoke camera                   and try latchkey snapshot $DEVICE -o again.jpg
  latchkeyd receipts --follow               records as they come
  latchkeyd release                         take the device from its owner

${bold}Ctrl-C ends the device and removes its folders.${plain} What it says meanwhile:

TEXT
tail -n "+$((seen + 1))" -f "$folder/device.out" &
tail_pid=$!
trap 'echo; exit 0' INT
wait "$device_pid" || true
device_pid=''
