#!/usr/bin/env bash
# Runs the tests of all workspace modules, and repeats what failed at the end, where a reader looks
# first. Arguments go to go test.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

packages=()
for module in $(go list -m -f '{{.Dir}}'); do
  # go test calls a module without packages a failure. A broken one must still get as far as go test.
  [ -n "$(find "$module" -name '*.go' -print -quit)" ] && packages+=("$module/...")
done

# One more package at a time than there are processors: many tests wait for a timer or a process.
go test -p $(($(nproc) + 1)) "$@" "${packages[@]}" 2>&1 | tee "$log" | grep -v -F '[no test files]'
if [ "${PIPESTATUS[0]}" -eq 0 ]; then
  echo "== all tests passed"
  exit 0
fi
echo "== FAILED"
grep -E '^[[:space:]]*--- FAIL|^FAIL[[:space:]]|^panic: |^WARNING: DATA RACE' "$log"
exit 1
