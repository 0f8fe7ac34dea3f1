#!/usr/bin/env bash
# Effect of the size of the joint vocabulary.
#
#   scripts/experiments/vocabulary.sh
#   CONFIG=quickstart SEEDS=1 LIMIT=2m scripts/experiments/vocabulary.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
sweep vocabulary --grid tokenizer.vocab_size=2000,4000,8000,16000 "$@"
