#!/usr/bin/env bash
# Comparison of position encodings.
#
#   scripts/experiments/positions.sh
#   CONFIG=quickstart SEEDS=1 LIMIT=2m scripts/experiments/positions.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
names=sinusoidal,sinusoidal_concatenated,learned,floater,rotary,shaw,transformer_xl,t5,deberta,alibi,none
sweep positions --grid "model.position_encoding=$names" "$@"
