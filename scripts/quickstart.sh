#!/usr/bin/env bash
# From a fresh clone to a translation and its BLEU: an environment, a small model of the built-in corpus, a sentence.
# Run it again and nothing is installed or trained twice; interrupt it and the next run goes on from there.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then refuse "unknown argument '$1'"; fi
environment

nmt() {
  { printf '\n$ nmt'; printf ' %q' "$@"; printf '\n'; } >&2
  command nmt "$@"
}

run="${NMT_RUNS:-runs}/quickstart"
if [ -f "$run/config.yaml" ]; then
  nmt train --run "$run" --resume # returns at once when it is finished
else
  nmt train
fi
nmt translate --model "$run" "im thirsty"
nmt evaluate --model "$run" --bleu
