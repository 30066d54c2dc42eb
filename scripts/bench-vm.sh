#!/usr/bin/env bash
# bench-vm.sh [OPTION...]: the third table of the benchmark, camera, sound and idling, on devices of a real kernel, in a throw-away virtual
# machine (scripts/vm.sh): a camera (vivid), a USB light (hid-led), two sound cards (snd-aloop), and espeak-ng. Its processor is mostly
# emulated, so what counts are the ratios to the bare devices in the same run. The options are those of latchkey-bench, as in --json. Needs the
# built latchkeyd and latchkey-bench, in LATCHKEY_BENCH_DIR or target/release, and vm_guest, in LATCHKEY_BIN_DIR or target/debug.
set -euo pipefail
cd "$(dirname "$0")/.."

TARGET=${CARGO_TARGET_DIR:-target}
MEASURED=${LATCHKEY_BENCH_DIR:-$TARGET/release}
BIN=${LATCHKEY_BIN_DIR:-$TARGET/debug}
TIMEOUT_S=540 # about one minute where nothing else runs
CAMERA='vivid n_devs=1 node_types=0x1 num_inputs=1 input_types=0 vid_cap_nr=0'
SOUND='snd-aloop index=0,1 enable=1,1 id=Loopback,Single pcm_substreams=1,1'
ALSA=/usr/share/alsa
VOICES=$(find /usr/lib/*/espeak-ng-data /usr/share/espeak-ng-data -maxdepth 0 2>/dev/null | head -n 1 || true)

for program in "$MEASURED/latchkeyd" "$MEASURED/latchkey-bench" "$BIN/vm_guest"; do
  if [ ! -x "$program" ]; then
    echo "bench-vm: $program is not there; make bench-vm builds it" >&2
    exit 1
  fi
done
if [ -z "$VOICES" ] || [ ! -x /usr/bin/espeak-ng ]; then
  echo 'bench-vm: espeak-ng is not installed; scripts/setup.sh test installs it' >&2
  exit 1
fi

card=$(mktemp)
trap 'rm -f "$card"' EXIT
echo 'pcm.!default "plughw:CARD=Loopback"' >"$card"
scripts/vm.sh --timeout "$TIMEOUT_S" \
  --module "$CAMERA" --module "$SOUND" --module hid-led --module uhid \
  --put "$MEASURED/latchkeyd" /bin/latchkeyd --put "$MEASURED/latchkey-bench" /bin/latchkey-bench --put "$BIN/vm_guest" /bin/vm_guest \
  --put "$ALSA/alsa.conf" "$ALSA/alsa.conf" --put "$ALSA/cards" "$ALSA/cards" --put "$ALSA/pcm" "$ALSA/pcm" --put "$card" /etc/asound.conf \
  --put /usr/bin/espeak-ng /usr/bin/espeak-ng --put "$VOICES" "$VOICES" \
  -- vm_guest bench "$@"
