#!/usr/bin/env bash
# Build the distributions nmtkit-core and nmtkit, a wheel and an sdist of each, in a directory:
#
#   scripts/build_dists.sh dist
#
# The wheel of nmtkit-core contains the compiled engine if there is a C compiler. PYTHON=python3.12 scripts/build_dists.sh
# chooses the interpreter.
set -euo pipefail
[ "$#" = 1 ] || { printf 'build_dists: error: name one directory\nhint: scripts/build_dists.sh dist\n' >&2; exit 2; }
mkdir -p -- "$1"
output="$(CDPATH='' cd -- "$1" && pwd)"
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

work="$(mktemp -d)"
trap 'rm -rf -- "$work"' EXIT

# Run the command $2..., and print the line $1 with its time in seconds; on failure, also its output.
step() {
  printf 'build_dists: %s ... ' "$1" >&2
  SECONDS=0
  if ! "${@:2}" >"$work/log" 2>&1; then
    printf 'failed\n' >&2
    cat -- "$work/log" >&2
    exit 1
  fi
  printf '%s s\n' "$SECONDS" >&2
}

# Build the distribution $1.
build() {
  cd -- "$work/$1"
  "$python" -m hatchling build --directory "$output"
}

python="${PYTHON:-python3}"
if .venv/bin/python -c 'import hatchling' 2>/dev/null; then
  python="$PWD/.venv/bin/python"
elif ! "$python" -c 'import hatchling' 2>/dev/null; then
  "$python" -m venv "$work/venv"
  python="$work/venv/bin/python"
  step "installing hatchling" "$python" -m pip install --quiet hatchling
fi

step "copying the sources" "$python" scripts/dists.py "$work"
compiler="${CC:-cc}"
if command -v "${compiler%% *}" >/dev/null; then
  export NMT_BUILD_ENGINES=1
else
  printf 'build_dists: no C compiler, so the engine is compiled on first use\n' >&2
fi
for name in nmtkit-core nmtkit; do
  step "building $name" build "$name"
done
