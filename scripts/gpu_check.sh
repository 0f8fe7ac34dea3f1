#!/usr/bin/env bash
# Check and benchmark nmt on a GPU, and print a Markdown report for docs/benchmarks.md. Takes about 20 minutes.
#
#   scripts/gpu_check.sh > report.md
#   MULTI30K=directory scripts/gpu_check.sh > report.md    also train to a score on Multi30k
#   scripts/gpu_check.sh --emulate                         try the script without a GPU
#
# MULTI30K is a directory with train.en.gz, val.en.gz, test_2016_flickr.en.gz and the same files in German.
# PYTHON is the interpreter of an environment with nmt's dependencies (default: python3).
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-python3}" scripts/gpu_check.py "$@"
