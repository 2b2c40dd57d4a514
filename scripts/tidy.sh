#!/usr/bin/env bash
# tidy.sh verify: go.mod and go.sum of every module are what go mod tidy would write. tidy.sh fix:
# writes them. Each module is looked at alone, as somebody who imports only that one sees it.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off

case "${1:-}" in
verify) flag=-diff ;;
fix) flag= ;;
*) echo "usage: $0 verify|fix" >&2; exit 2 ;;
esac

untidy=()
# Siblings first: what a module requires decides what those above it require.
for module in proto pkg $(find . -name go.mod -not -path '*/testdata/*' -printf '%P\n' | sed 's|/go.mod$||' | grep -vx -e proto -e pkg | sort); do
  go -C "$module" mod tidy $flag || untidy+=("$module")
done
[ ${#untidy[@]} -eq 0 ] || { echo "not tidy: ${untidy[*]}; repair with: make fix-tidy" >&2; exit 1; }
