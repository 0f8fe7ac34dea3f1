#!/usr/bin/env bash
# Install the test dependencies, then run the linters, the type checker and all tests.
# --fast skips tests marked `slow` and takes under two minutes. Other arguments go to pytest:
# scripts/test.sh --fast -k beam
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

[[ ${1-} == --fast ]] && set -- -m 'not slow' "${@:2}"

scripts/venv.sh dev
export PATH="$PWD/.venv/bin:$PATH"

ruff check
ruff format --check
mypy
lint-imports --no-logo
# Workers have one thread each, because the threads of PyTorch would compete for the cores. Three keep two cores busy,
# also while tests wait for other processes. `worksteal` gives each worker a third of the files, so that most module
# fixtures run once.
OMP_NUM_THREADS=1 exec pytest -n 3 --dist worksteal "$@"
