// custom.example.thermometer: reads the one-wire thermometers in the first folder of its reach, as the kernel's w1_therm shows them.
//
// A folder "28-..." is one thermometer. Newer kernels give thousandths of a degree in "temperature"; older ones end the second line of
// "w1_slave" with them, and the first with YES if the checksum held.
import host from "device:handler/host@0.1.0";
import preopens from "wasi:filesystem/preopens@0.2.9";

// QuickJS has no TextDecoder and no TextEncoder; these two do for JSON text and what the kernel says.
const textOf = (bytes) => decodeURIComponent(Array.from(bytes, (byte) => `%${byte.toString(16).padStart(2, "0")}`).join(""));
const bytesOf = (text) => Uint8Array.from(unescape(encodeURIComponent(text)), (char) => char.charCodeAt(0));

export function invoke() {
  const reach = preopens.getDirectories();
  if (reach.length === 0) throw { code: "no_reach", message: "the manifest names no folder to read" };
  const [bus] = reach[0];
  const thermometers = [];
  for (const id of names(bus).filter((name) => name.startsWith("28-")).sort()) {
    const millicelsius = newer(bus, id) ?? older(bus, id);
    if (millicelsius === undefined) host.log("warn", `${id} gives no temperature`);
    else thermometers.push({ id, millicelsius });
  }
  if (thermometers.length === 0) throw { code: "no_thermometer", message: "nothing on the bus gives a temperature" };
  return bytesOf(JSON.stringify({ thermometers }));
}

function names(folder) {
  const found = [];
  const entries = folder.readDirectory();
  for (let entry = entries.readDirectoryEntry(); entry; entry = entries.readDirectoryEntry()) found.push(entry.name);
  return found;
}

// What a small file says; undefined if it cannot be read.
function read(folder, path) {
  try {
    const [bytes] = folder.openAt({}, path, {}, { read: true }).read(4096, 0);
    return textOf(bytes).trim();
  } catch {
    return undefined;
  }
}

function newer(bus, id) {
  const text = read(bus, `${id}/temperature`);
  return text && /^-?\d+$/.test(text) ? Number(text) : undefined;
}

function older(bus, id) {
  const said = read(bus, `${id}/w1_slave`)?.match(/YES\n.* t=(-?\d+)$/);
  return said ? Number(said[1]) : undefined;
}
