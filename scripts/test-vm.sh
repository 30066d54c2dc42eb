#!/usr/bin/env bash
# test-vm.sh: the two programs with cameras, lights, sound cards and a GPIO line of a real kernel, in a throw-away virtual machine
# (scripts/vm.sh), and then the adapters' own tests against the faults of such cameras and sound cards. What happens in it is told by
# tests/src/bin/vm_guest, by handlers/src/camera/{vivid,webcam} and by handlers/src/sound/card/{loopback,usb}.rs. Needs the built programs,
# in LATCHKEY_BIN_DIR or target/debug, and the tests of `handlers` beside them.
# Where this computer cannot run the machine it says why in LATCHKEY_SKIPS and ends well; with CI=true that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

BIN=${LATCHKEY_BIN_DIR:-${CARGO_TARGET_DIR:-target}/debug}
TIMEOUT_S=1800 # five to nine minutes on two emulated processors; the rest is for loaded machines

end() { printf 'test-vm: %s\n' "$*"; }

skip() {
  printf 'vm: %s\n' "$*" >>"${LATCHKEY_SKIPS:-/dev/null}"
  end "skipped: $*"
  if [ "${CI:-}" = true ]; then end 'in CI that is a failure'; exit 1; fi
  exit 0
}

for program in latchkeyd latchkey vm_guest usb_device controller_in_a_server; do
  if [ ! -x "$BIN/$program" ]; then
    end "$BIN/$program is not there; make test-vm builds it"
    exit 1
  fi
done

# Of several builds the newest.
handlers_tests=$(find "$BIN/deps" -maxdepth 1 -type f -executable -name 'latchkey_handlers-*' -printf '%T@ %p\n' | sort -rn | sed -n '1s/^[^ ]* //p')
if [ -z "$handlers_tests" ]; then
  end "the tests of latchkey-handlers are not built; make test-vm builds them"
  exit 1
fi

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
code=0
scripts/vm.sh --fetch 2> >(tee "$errors" >&2) || code=$?
wait # for tee
if [ "$code" = 77 ]; then skip "$(tail -n 1 "$errors" | sed 's/^vm: //')"; fi

# Two webcams, an input that scales to any size, and a camera by the interface for pictures in pieces. One start of the machine serves all.
CAMERA='vivid n_devs=4 node_types=0x1,0x1,0x1,0x1 num_inputs=1,1,1,1 input_types=0,0,3,0 vid_cap_nr=0,1,2,3 ccs_cap_mode=-1,-1,4,-1 multiplanar=1,1,1,2'
# The drivers of webcams and of sound cards on USB, and a controller into whose ports the tests plug their own.
USB=(--module uvcvideo --module snd-usb-audio --module vhci-hcd)
# Two sound cards: one with two places on each side, one with one.
SOUND='snd-aloop index=0,1 enable=1,1 id=Loopback,Single pcm_substreams=2,1'
ALSA=/usr/share/alsa # what alsa-lib knows of cards; comes with the library
# alsa-lib's own default mixes what several programs play, which the loopback does not take.
default_card=$(mktemp)
trap 'rm -f "$errors" "$default_card"' EXIT
echo 'pcm.!default "plughw:CARD=Loopback"' >"$default_card"
started=$SECONDS
code=0
scripts/vm.sh --timeout "$TIMEOUT_S" \
  --module "$CAMERA" "${USB[@]}" --module "$SOUND" --module uinput --module hid-led --module hid-cp2112 --module uhid \
  --put "$BIN/latchkeyd" /bin/latchkeyd --put "$BIN/latchkey" /bin/latchkey --put "$BIN/vm_guest" /bin/vm_guest \
  --put "$BIN/usb_device" /bin/usb_device \
  --put "$BIN/controller_in_a_server" /bin/controller_in_a_server \
  --put "$handlers_tests" /bin/handlers_tests \
  --put "$ALSA/alsa.conf" "$ALSA/alsa.conf" --put "$ALSA/cards" "$ALSA/cards" --put "$ALSA/pcm" "$ALSA/pcm" \
  --put "$default_card" /etc/asound.conf \
  -- sh -c 'vm_guest && exec handlers_tests --ignored --test-threads=1 camera::vivid camera::webcam sound::card::loopback sound::card::usb' || code=$?
if [ "$code" != 0 ]; then
  end "FAILED ($code)"
  exit "$code"
fi
end 'passed: pictures of a random colour from a real camera, under a real light; a USB webcam, a USB sound card, a USB light and a USB chip with a light on a GPIO line pulled out, plugged in again, and another in its place'
end 'passed: each format and coding of colours, odd sizes, each failure, a pulled cable, another user and changed numbers of a real camera'
end 'passed: any bytes that a USB webcam sends, its second node, and its cable'
end 'passed: a tone through a real sound card and back, a card pulled out, busy, absent and added later; USB sound cards told apart by serial number and port'
end "$((SECONDS - started)) s"
