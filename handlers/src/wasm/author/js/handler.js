// {{name}}: answers the level that it was given.
import host from "device:handler/host@0.1.0";

// QuickJS has no TextDecoder and no TextEncoder; these two do for the JSON text of a call.
const textOf = (bytes) => decodeURIComponent(Array.from(bytes, (byte) => `%${byte.toString(16).padStart(2, "0")}`).join(""));
const bytesOf = (text) => Uint8Array.from(unescape(encodeURIComponent(text)), (char) => char.charCodeAt(0));

export function invoke(args) {
  const { level } = JSON.parse(textOf(args)); // within the bounds of the manifest, or it would not have come here
  host.log("info", `level ${level}`);
  // A failure is told by: throw { code: "lamp_off", message: "the lamp has no power" };
  return bytesOf(JSON.stringify({ level }));
}
