#!/usr/bin/env bash
# From a fresh clone to a translation and its BLEU: an environment, a small model of the built-in corpus, a sentence.
# Run it again and nothing is installed or trained twice; interrupt it and the next run goes on from there.
set -euo pipefail
trap 'exit 130' INT # nmt saves and ends well when it is interrupted; what follows must not
trap 'exit 143' TERM
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

nmt() {
  { printf '\n$ nmt'; printf ' %q' "$@"; printf '\n'; } >&2
  .venv/bin/nmt "$@"
}

scripts/venv.sh

run="${NMT_RUNS:-runs}/quickstart"
if [ -f "$run/config.yaml" ]; then
  nmt train --run "$run" --resume # returns at once when it is finished
else
  nmt train
fi
nmt translate --model "$run" "im thirsty"
nmt evaluate --model "$run" --bleu
