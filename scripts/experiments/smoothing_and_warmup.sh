#!/usr/bin/env bash
# An ablation: label smoothing and warm-up, everything else as in a config. One run each, resumable.
#
#   scripts/experiments/smoothing_and_warmup.sh                       the quickstart config
#   CONFIG=multi30k STEPS=1500 scripts/experiments/smoothing_and_warmup.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
config="${CONFIG:-quickstart}"
steps="${STEPS:-600}"
smoothings="${SMOOTHINGS:-0.0 0.1 0.2}"
warmups="${WARMUPS:-50 200}"

printf '| label smoothing | warm-up | validation loss | BLEU |\n|---|---|---|---|\n'
for smoothing in $smoothings; do
  for warmup in $warmups; do
    run="${NMT_RUNS:-runs}/ablation/$(basename "$config" .yaml)-$steps-$smoothing-$warmup"
    train "$run" --config "$config" --set "train.steps=$steps" --set "train.valid_every=$steps" \
      --set "train.label_smoothing=$smoothing" --set "train.schedule=linear(peak=2e-3, warmup=$warmup)"
    loss="$(metric "$run" valid_loss)"
    bleu="$(score --model "$run")"
    printf '| %s | %s | %s | %s |\n' "$smoothing" "$warmup" "$loss" "$bleu"
  done
done
