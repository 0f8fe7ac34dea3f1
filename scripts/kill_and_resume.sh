#!/usr/bin/env bash
# Kill a training with SIGKILL at random moments, resume it each time, and compare the end with an unbroken run, bit by bit.
#
#   scripts/kill_and_resume.sh        20 times
#   scripts/kill_and_resume.sh 100
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
scripts/venv.sh dev
KILLS="${1:-20}" OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q tests/test_cli_train.py -k killed_again_and_again
