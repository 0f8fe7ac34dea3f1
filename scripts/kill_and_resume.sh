#!/usr/bin/env bash
# Kill a training run with SIGKILL at random times, resume it each time, and check that the final weights are bitwise
# identical to those of an uninterrupted run.
#
#   scripts/kill_and_resume.sh        20 kills
#   scripts/kill_and_resume.sh 100    100 kills
set -euo pipefail
case "${1:-20}" in *[!0-9]* | 0) echo "usage: scripts/kill_and_resume.sh [KILLS]" >&2 && exit 2 ;; esac
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
scripts/venv.sh dev
KILLS="${1:-20}" OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q tests/cli/test_cli_train.py -k repeated_sigkill
