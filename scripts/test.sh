#!/usr/bin/env bash
# Runs the tests of every workspace module and repeats what failed at the end, where a reader looks first. Arguments go
# to go test.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# A program with the race detector sleeps for a second when it ends; 70 test binaries and what they start do not need to.
export GORACE="atexit_sleep_ms=20 ${GORACE:-}"

# go test repeats the result of a package that has not changed, and does not see what a test builds programs of. With this
# variable it does (see SourcesEnv in test/cluster).
export RACKBUS_SOURCES=$(find . -path ./bin -prune -o -path ./.git -prune -o -name node_modules -prune -o -type f -print0 |
  sort -z | xargs -0 sha256sum | sha256sum)

# One go test for all, so that the binaries of one module are built while the tests of another wait. Tests wait more than
# they compute: two packages more than there are processors.
go test -p $(($(nproc) + 2)) "$@" $(go list -m -f '{{.Dir}}/...') 2>&1 | tee "$log" |
  grep --line-buffered -v -F -e '[no test files]' -e 'matched no packages'
if [ "${PIPESTATUS[0]}" -eq 0 ]; then
  echo "== all tests passed"
  exit 0
fi
echo "== FAILED"
grep -E '^[[:space:]]*--- FAIL|^FAIL[[:space:]]|^panic: |^WARNING: DATA RACE' "$log"
exit 1
