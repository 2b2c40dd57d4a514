#!/usr/bin/env bash
# fuzz.sh TIME [TARGET...]: fuzzes for TIME each, for example 5s or 60s, the targets of these names, or
# all of the workspace. An input that fails is written below the package's testdata/fuzz, where every
# later test run finds it. Seeds and such inputs need no fuzzing: go test runs them all.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:?usage: $0 TIME [TARGET...]}
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# "FOLDER TARGET" a line. Found in the text: asking go test would build every package.
grep -rEo --include='*_test.go' '^func Fuzz[A-Z]\w*' . | sed -E 's|^\./(.*)/[^/]*:func |\1 |' | sort >"$work/found"
for target in "$@"; do
  grep -q " $target\$" "$work/found" || { echo "no fuzz target $target" >&2; exit 2; }
  grep " $target\$" "$work/found" >>"$work/asked"
done
[ $# -gt 0 ] || cp "$work/found" "$work/asked"

failed=() count=0 built=
while read -r dir target; do
  echo "== $target in $dir for $time"
  if [ "$dir" != "$built" ]; then
    # Built once for all targets of the package, with the counters that guide the fuzzer.
    go test -c -fuzz . -o "$work/test" "./$dir"
    built=$dir
    cache=$(go env GOCACHE)/fuzz/$(go list "./$dir")
  fi
  count=$((count + 1))
  # Ten runs to make an interesting input smaller; a minute for each, as is usual, leaves none for the search.
  if ! (cd "$dir" && "$work/test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" \
    -test.fuzzminimizetime 10x -test.fuzzcachedir "$cache") >"$work/log" 2>&1; then
    cat "$work/log"
    failed+=("$target")
  fi
done <"$work/asked"

if [ ${#failed[@]} -gt 0 ]; then
  echo "== fuzzing FAILED: ${failed[*]}"
  exit 1
fi
echo "== $count fuzz targets found nothing"
