#!/usr/bin/env bash
# proto.sh fix: formats the .proto files and generates their Go code. proto.sh verify: lints them and
# compares the generated code, so that it can neither be edited nor go stale. Both generate in a copy
# without any generated file, so that nothing survives the .proto file it came from.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off

buf() { go tool -modfile=../tools/buf/go.mod buf "$@"; }
generated() { (cd "$1" && find . -name '*.pb.go' | sort); }

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
generate() {
  cp -r proto tools "$copy/"
  find "$copy/proto" -name '*.pb.go' -delete
  (cd "$copy/proto" && buf generate)
}

case "${1:-}" in
fix)
  (cd proto && buf format -w)
  generate
  for file in $(generated "$copy/proto"); do
    cmp -s "$copy/proto/$file" "proto/$file" || install -D -m 644 "$copy/proto/$file" "proto/$file"
  done
  for stale in $(comm -13 <(generated "$copy/proto") <(generated proto)); do
    rm "proto/$stale"
  done
  ;;
verify)
  (cd proto && buf lint)
  (cd proto && buf format -d --exit-code) || { echo "repair with: make fix-proto" >&2; exit 1; }
  generate
  diff -r -q "$copy/proto" proto >&2 || {
    echo "generated code differs from the .proto files; repair with: make fix-proto" >&2
    exit 1
  }
  ;;
*)
  echo "usage: $0 verify|fix" >&2
  exit 2
  ;;
esac
