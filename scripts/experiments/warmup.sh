#!/usr/bin/env bash
# Effect of the number of warmup updates.
#
#   scripts/experiments/warmup.sh
#   CONFIG=quickstart SEEDS=1 LIMIT=2m scripts/experiments/warmup.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
sweep warmup --grid "train.schedule=linear(peak=3e-3, warmup=50),linear(peak=3e-3, warmup=300),linear(peak=3e-3, warmup=1000)" "$@"
