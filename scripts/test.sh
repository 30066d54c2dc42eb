#!/usr/bin/env bash
# test.sh: everything that CI runs, in the order in which it is cheapest to fail.
#
#   LATCHKEY_SKIPS    set here: the file to which a test or script that must skip appends one line, "KIND: why"
#   LATCHKEY_BIN_DIR  set here: the folder where whole-system tests find the programs
#   LATCHKEY_RECOGNISER  set here: the Python that has a speech recogniser, or empty
#   CI=true           a skip of the kinds vm, sandbox, browser and speech is a failure
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

started=$SECONDS
step() { printf '\n== %s  (%d s)\n' "$*" $((SECONDS - started)); }

step 'system packages'
scripts/setup.sh test

target=$(cargo metadata --locked --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
mkdir -p "$target"
export LATCHKEY_SKIPS=$target/latchkey-skips.txt
export LATCHKEY_BIN_DIR=$target/debug
: >"$LATCHKEY_SKIPS"
closing=$(mktemp "$target/latchkey-closing.XXXXXX")
trap 'rm -f "$closing" "$closing.log"' EXIT

failed=()

# Runs a command, shows what it prints, and keeps the lines that say how it ended.
watch() { # watch NAME CLOSING-PATTERN COMMAND...
  local name=$1 pattern=$2 code=0
  shift 2
  "$@" </dev/null 2>&1 | tee "$closing.log" || code=$?
  # A crate without a single test of a kind has nothing to say.
  { grep -E "$pattern" "$closing.log" | grep -v ' 0 passed; 0 failed; 0 ignored;' | tail -n 40 || true; } | sed "s/^ */$name: /" >>"$closing"
  [ "$code" = 0 ] || failed+=("$name")
}

finish() {
  printf '\n== skipped\n'
  if [ -s "$LATCHKEY_SKIPS" ]; then sort -u "$LATCHKEY_SKIPS" | sed 's/^/  /'; else echo '  nothing'; fi
  if [ "${CI:-}" = true ] && grep -qE '^(vm|sandbox|browser|speech):' "$LATCHKEY_SKIPS"; then
    echo '  In CI nothing of the kinds vm, sandbox, browser and speech may be skipped.'
    failed+=('skips')
  fi
  printf '\n== in the end  (%d s)\n' $((SECONDS - started))
  sed 's/\x1b\[[0-9;]*m//g' "$closing"
  if [ ${#failed[@]} -gt 0 ]; then
    echo "FAILED: ${failed[*]}"
    exit 1
  fi
  echo 'all passed'
}

LATCHKEY_RECOGNISER=$(scripts/recogniser.sh "$target/latchkey-recogniser") || true
export LATCHKEY_RECOGNISER

step 'format and lints'
watch lint '^(error|Diff in)' scripts/lint.sh
if [ ${#failed[@]} -gt 0 ]; then finish; fi

step 'build: all programs and all tests, once'
watch build '^error' cargo build --locked --workspace --all-targets
if [ ${#failed[@]} -gt 0 ]; then finish; fi

if cargo nextest --version >/dev/null 2>&1; then
  step 'tests, by cargo-nextest'
  profile=default
  [ "${CI:-}" != true ] || profile=ci
  watch tests '^ +(Summary|FAIL|TIMEOUT|SIGABRT|SIGSEGV)|^error' cargo nextest run --locked --workspace --profile "$profile"
else
  step 'tests, by cargo test (cargo-nextest would be faster)'
  watch tests '^(test result:|error|test .*FAILED)' cargo test --locked --workspace --no-fail-fast --lib --bins --tests
fi

step 'examples in the documentation'
watch doc-tests '^(test result:|error|test .*FAILED)' cargo test --locked --workspace --no-fail-fast --doc

step 'virtual machine: cameras, lights, sound cards and a GPIO line of a real kernel'
watch vm '^test-vm: ' scripts/test-vm.sh

finish
