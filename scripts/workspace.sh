#!/usr/bin/env bash
# workspace.sh verify: go.work lists exactly the modules of the tree (tools/ is not part of it), and
# every module asks for the same Go version. workspace.sh fix: makes it so.
set -euo pipefail
cd "$(dirname "$0")/.."

go_line() { sed -n 's/^go //p' "$1"; }
modules=$(find . -name go.mod -not -path './tools/*' -not -path '*/testdata/*' -printf '%h\n' | sort)
wanted_go=$(go_line go.work)

case "${1:-}" in
verify)
  listed=$(sed -n 's/^\t\(\.\/.*\)$/\1/p; s/^use \(\.\/.*\)$/\1/p' go.work | sort)
  bad=$(diff <(echo "$modules") <(echo "$listed") | sed -n 's/^</not in go.work:/p; s/^>/in go.work, but no such module:/p') || true
  for module in $modules; do
    has=$(go_line "$module/go.mod")
    [ "$has" = "$wanted_go" ] || bad+=$'\n'"$module/go.mod says go $has, go.work says go $wanted_go"
  done
  [ -z "$bad" ] || { echo "$bad" >&2; echo "repair with: make fix-workspace" >&2; exit 1; }
  ;;
fix)
  {
    echo "go $wanted_go"
    echo
    echo "use ("
    sed 's/^/\t/' <<<"$modules"
    echo ")"
  } > go.work.new && mv go.work.new go.work
  for module in $modules; do
    GOWORK=off go mod edit -go="$wanted_go" "$module/go.mod"
  done
  ;;
*)
  echo "usage: $0 verify|fix" >&2
  exit 2
  ;;
esac
