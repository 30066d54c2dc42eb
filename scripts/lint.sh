#!/usr/bin/env bash
# lint.sh: format, clippy, and where they are installed shellcheck and cargo-deny.
# What is not installed is named in the file LATCHKEY_SKIPS points to.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() { printf '%s\n' "$*" | tee -a "${LATCHKEY_SKIPS:-/dev/null}"; }

echo '== format'
cargo fmt --all --check

echo '== clippy'
cargo clippy --locked --workspace --all-targets -- -D warnings

if command -v shellcheck >/dev/null; then
  echo '== shellcheck'
  shellcheck scripts/*.sh .ci/run
else
  skip 'shellcheck: not installed, so the scripts were not checked'
fi

# The advisories are kept elsewhere; without the network only they are left out.
advisories() {
  local said code=0
  said=$(cargo deny --locked check advisories 2>&1) || code=$?
  if grep -q 'failed to fetch advisory database' <<<"$said"; then
    skip 'advisories: the list of known ones could not be fetched'
  else
    printf '%s\n' "$said"
    return "$code"
  fi
}

if cargo deny --version >/dev/null 2>&1; then
  echo '== cargo deny'
  cargo deny --locked check --hide-inclusion-graph bans licenses sources
  advisories
else
  skip 'cargo-deny: not installed, so licences and advisories were not checked (arrows and homes are, by a test)'
fi
