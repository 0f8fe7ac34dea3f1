#!/usr/bin/env bash
# Check and benchmark nmt on a GPU, and print a Markdown report for docs/benchmarks.md. Takes about five minutes.
#
#   scripts/gpu_check.sh > report.md
#   MULTI30K=directory scripts/gpu_check.sh > report.md    also train to a score on Multi30k
#   scripts/gpu_check.sh --emulate                         try the script without a GPU
#
#   EOLE=python scripts/gpu_check.sh > report.md           also train the same model with Eole on the same GPU
#
# EOLE is the interpreter of an environment with Eole 0.6.4.
# MULTI30K is a directory with train.en.gz, val.en.gz, test_2016_flickr.en.gz and the same files in German.
# PYTHON is the interpreter of an environment with nmt's dependencies (default: that of .venv, else python3).
set -euo pipefail
case "${PYTHON:-}" in /*) ;; */*) PYTHON="$PWD/$PYTHON" ;; esac
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
python="${PYTHON:-python3}"
if [ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ]; then python=.venv/bin/python; fi
if ! reason="$("$python" -c "import numpy, sacrebleu, safetensors, sentencepiece, torch, typer, yaml" 2>&1)"; then
  usage_error "nmt does not run with $python: ${reason##*$'\n'}" "set PYTHON, or unset it and run scripts/venv.sh"
fi
PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" exec "$python" scripts/gpu_check.py "$@"
