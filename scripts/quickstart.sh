#!/usr/bin/env bash
# Install nmt, train a small model on the built-in corpus, translate a sentence and compute BLEU.
# Run the script again to resume after an interruption. Completed steps are not repeated.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then usage_error "unknown argument '$1'"; fi
activate

nmt() {
  { printf '\n$ nmt'; printf ' %q' "$@"; printf '\n'; } >&2
  command nmt "$@"
}

run="${NMT_RUNS:-runs}/quickstart"
if [ -f "$run/config.yaml" ]; then
  nmt train --run "$run" --resume # returns at once if the run is finished
else
  nmt train
fi
nmt translate --model "$run" "im thirsty"
nmt evaluate --model "$run" --bleu
