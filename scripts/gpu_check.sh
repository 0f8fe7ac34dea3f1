#!/usr/bin/env bash
# Check and benchmark nmt on a GPU, and print a Markdown report for docs/benchmarks.md. Takes about 20 minutes.
#
#   scripts/gpu_check.sh > report.md
#   MULTI30K=directory scripts/gpu_check.sh > report.md    also train to a score on Multi30k
#   scripts/gpu_check.sh --emulate                         try the script without a GPU
#
# MULTI30K is a directory with train.en.gz, val.en.gz, test_2016_flickr.en.gz and the same files in German.
# PYTHON is the interpreter of an environment with nmt's dependencies (default: that of .venv, else python3).
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
python="${PYTHON:-python3}"
if [ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ]; then python=.venv/bin/python; fi
if ! "$python" -c "import sacrebleu, safetensors, sentencepiece, torch, typer" 2> /dev/null; then
  usage_error "$python lacks nmt's dependencies" "set PYTHON, or run scripts/venv.sh"
fi
PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" exec "$python" scripts/gpu_check.py "$@"
