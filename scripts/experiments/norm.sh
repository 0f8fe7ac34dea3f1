#!/usr/bin/env bash
# Where layer normalization stands: after each sub-layer, as in the paper, or before it, at the learning rates each bears.
#
#   scripts/experiments/norm.sh
#   CONFIG=quickstart SEEDS=1 LIMIT=2m scripts/experiments/norm.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
sweep norm --grid model.norm_position=pre,post --grid "train.schedule=linear(peak=3e-3, warmup=300),linear(peak=1e-3, warmup=300)" "$@"
