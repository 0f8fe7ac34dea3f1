#!/usr/bin/env bash
# Install what the tests need; then style, types, import order and the whole suite.
# --fast leaves out the tests marked `slow`: it takes two minutes and covers the main path. Other arguments go to
# pytest: scripts/test.sh --fast -k beam
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

[[ ${1-} == --fast ]] && set -- -m 'not slow' "${@:2}"

scripts/venv.sh dev
export PATH="$PWD/.venv/bin:$PATH"

ruff check
ruff format --check
mypy
lint-imports --no-logo
# Two workers of one thread each: torch's own threads would compete for the cores. Each worker takes half of the files,
# so that most module fixtures are trained once, and the one that finishes first takes tests from the other.
OMP_NUM_THREADS=1 exec pytest -n 2 --dist worksteal "$@"
