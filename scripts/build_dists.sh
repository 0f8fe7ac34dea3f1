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

python="${PYTHON:-python3}"
if .venv/bin/python -c 'import hatchling' 2>/dev/null; then
  python="$PWD/.venv/bin/python"
elif ! "$python" -c 'import hatchling' 2>/dev/null; then
  "$python" -m venv "$work/venv"
  python="$work/venv/bin/python"
  "$python" -m pip install --quiet hatchling >&2
fi

"$python" scripts/dists.py "$work"
compiler="${CC:-cc}"
if command -v "${compiler%% *}" >/dev/null; then
  export NMT_BUILD_ENGINES=1
else
  printf 'build_dists: no C compiler, so the engine is compiled on first use\n' >&2
fi
for name in nmtkit-core nmtkit; do
  (cd -- "$work/$name" && "$python" -m hatchling build --directory "$output") >&2
done
