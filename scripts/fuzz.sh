#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the workspace for TIME each, for example 5s or 60s. An
# input that fails is written below the package's testdata/fuzz, where every later test run finds it.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:?usage: $0 TIME}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

failed=() count=0
# Only packages with a target are built: asking all of them would take longer than fuzzing.
for dir in $(grep -rlE --include='*_test.go' '^func Fuzz[A-Z]' . | xargs -r -n 1 dirname | sort -u); do
  targets=$(go test -list '^Fuzz' "$dir") # by itself, so that a package which does not build ends the script
  for target in $(grep '^Fuzz' <<<"$targets"); do
    count=$((count + 1))
    echo "== $target in ${dir#./} for $time"
    if ! go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" >"$log" 2>&1; then
      cat "$log"
      failed+=("$target")
    fi
  done
done

if [ ${#failed[@]} -gt 0 ]; then
  echo "== fuzzing FAILED: ${failed[*]}"
  exit 1
fi
echo "== $count fuzz targets found nothing"
