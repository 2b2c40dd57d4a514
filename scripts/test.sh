#!/usr/bin/env bash
# Runs the tests of every workspace module, one module after the other, and repeats what failed at
# the end, where a reader looks first. Arguments go to go test.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

failed=()
for module in $(go list -m -f '{{.Dir}}'); do
  name=${module#"$PWD"/}
  # go test calls a module without packages a failure. A broken one must still get as far as go test.
  [ -n "$(find "$module" -name '*.go' -print -quit)" ] || continue
  echo "== $name"
  go test "$@" "$module/..." 2>&1 | tee -a "$log" | grep --line-buffered -v -F '[no test files]'
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed+=("$name")
done

if [ ${#failed[@]} -eq 0 ]; then
  echo "== all tests passed"
  exit 0
fi
echo "== FAILED in: ${failed[*]}"
grep -E '^[[:space:]]*--- FAIL|^FAIL[[:space:]]|^panic: |^WARNING: DATA RACE' "$log"
exit 1
