#!/usr/bin/env bash
# recogniser.sh FOLDER: a small speech recogniser in FOLDER, for the test that listens to what the device says.
#
# It prints the Python that has it. pocketsphinx ships its English model in the package, so nothing else is fetched. Where it cannot be
# had, it says why on standard error and ends with 1; the test is then left out, which in CI is a failure.
set -euo pipefail

# One version: the recogniser of another hears other words.
PACKAGE='pocketsphinx==5.1.1'
folder=$1
python=$folder/bin/python

has() { [ -x "$python" ] && "$python" -c 'import pocketsphinx' 2>/dev/null; }

if ! has; then
  rm -rf "$folder"
  if ! { python3 -m venv "$folder" && "$folder/bin/pip" install --quiet --disable-pip-version-check "$PACKAGE"; } >&2; then
    rm -rf "$folder"
    echo "recogniser: $PACKAGE cannot be installed here" >&2
    exit 1
  fi
fi
has || { echo "recogniser: $PACKAGE was installed and does not start" >&2; exit 1; }
echo "$python"
