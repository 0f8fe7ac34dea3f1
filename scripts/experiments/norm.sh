#!/usr/bin/env bash
# Pre-norm and post-norm (the choice of the paper) at two learning rates.
#
#   scripts/experiments/norm.sh
#   CONFIG=quickstart SEEDS=1 LIMIT=2m scripts/experiments/norm.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
sweep norm --grid model.norm_position=pre,post --grid "train.schedule=linear(peak=3e-3, warmup=300),linear(peak=1e-3, warmup=300)" "$@"
