#!/usr/bin/env bash
# Install what the tests need; then style, types, import order and the whole suite.
# Arguments go to pytest: scripts/test.sh -k beam
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

scripts/venv.sh dev
export PATH="$PWD/.venv/bin:$PATH"

ruff check
ruff format --check
mypy
lint-imports --no-logo
# Two processes of one thread each: torch's own threads would fight over the cores. A file stays in one process,
# so that what its fixtures train is trained once.
OMP_NUM_THREADS=1 exec pytest -n 2 --dist loadfile "$@"
