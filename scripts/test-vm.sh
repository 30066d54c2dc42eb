#!/usr/bin/env bash
# test-vm.sh: the two programs with a real V4L2 camera and a real LED, in a throw-away virtual machine (scripts/vm.sh).
# What happens in it is told by tests/src/bin/vm_guest. Needs the built programs, in LATCHKEY_BIN_DIR or target/debug.
# Where this computer cannot run the machine it says why in LATCHKEY_SKIPS and ends well; with CI=true that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

BIN=${LATCHKEY_BIN_DIR:-${CARGO_TARGET_DIR:-target}/debug}
TIMEOUT_S=420 # about 40 s on two emulated processors; the rest is for loaded machines

end() { printf 'test-vm: %s\n' "$*"; }

skip() {
  printf 'vm: %s\n' "$*" >>"${LATCHKEY_SKIPS:-/dev/null}"
  end "skipped: $*"
  if [ "${CI:-}" = true ]; then end 'in CI that is a failure'; exit 1; fi
  exit 0
}

for program in latchkeyd latchkey vm_guest; do
  if [ ! -x "$BIN/$program" ]; then
    end "$BIN/$program is not there; make test-vm builds it"
    exit 1
  fi
done

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
code=0
scripts/vm.sh --fetch 2> >(tee "$errors" >&2) || code=$?
wait # for tee
if [ "$code" = 77 ]; then skip "$(tail -n 1 "$errors" | sed 's/^vm: //')"; fi

code=0
scripts/vm.sh --timeout "$TIMEOUT_S" \
  --module 'vivid n_devs=1 node_types=0x1 num_inputs=1 input_types=0' --module uinput \
  --put "$BIN/latchkeyd" /bin/latchkeyd --put "$BIN/latchkey" /bin/latchkey --put "$BIN/vm_guest" /bin/vm_guest \
  -- vm_guest || code=$?
if [ "$code" != 0 ]; then
  end "FAILED ($code)"
  exit "$code"
fi
end 'passed: pictures of a random colour from a real camera, under a real light'
