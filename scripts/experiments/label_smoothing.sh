#!/usr/bin/env bash
# Effect of label smoothing (Szegedy et al. 2016). The Transformer paper uses 0.1.
#
#   scripts/experiments/label_smoothing.sh
#   CONFIG=quickstart SEEDS=1 LIMIT=2m scripts/experiments/label_smoothing.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
sweep label_smoothing --grid train.label_smoothing=0,0.1,0.2 "$@"
