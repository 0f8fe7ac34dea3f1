#!/usr/bin/env bash
# Reproduce the base model of "Attention Is All You Need" (Vaswani et al. 2017), table 2: WMT 2014 English-German,
# 100,000 updates of 25,000 tokens, average of the last five checkpoints, newstest2014 with beam size 4 and length
# penalty 0.6. The paper reports 27.3 BLEU on tokenized text with split compounds. sacreBLEU scores of detokenized text
# are about 0.5 lower.
#
#   scripts/wmt14.sh                  use all GPUs, at most eight; 12 hours on the eight P100 of the paper
#   GPUS=2 scripts/wmt14.sh           use two GPUs; an update still has 25,000 tokens
#   scripts/wmt14.sh --stand-in       test all steps in a few minutes, with a tiny model and without GPU or network
#
# Needs 10 GB of disk space and a network connection. Run the script again to resume after an interruption.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case "$*" in
  "")
    experiment=wmt14-base options=(--config wmt14-base --set train.average_last=0) tokens=25000
    if ! gpus="$(nvidia-smi --list-gpus 2> /dev/null | wc -l)"; then gpus=0; fi
    if [ "${GPUS:=$((gpus > 8 ? 8 : gpus))}" = 0 ]; then
      echo "no GPU found; scripts/wmt14.sh --stand-in tests the steps without one" >&2
      exit 1
    fi
    ;;
  --stand-in)
    experiment=wmt14-stand-in tokens=4096 GPUS="${GPUS:-2}"
    options=(--config wmt14-base --set train.average_last=0 --set "data.train=phrasebook"
      --set tokenizer.vocab_size=500 --set model.dim=32 --set model.heads=2 --set model.ffn_dim=64
      --set model.encoder_layers=1 --set model.decoder_layers=1 --set train.steps=20 --set train.valid_every=4
      --set train.valid_pairs=20 --set train.calibration_pairs=0 --set train.log_every=4 --set train.max_length=64)
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    ;;
  *) usage_error "unknown arguments: $*" ;;
esac
case "$GPUS" in
  [1-8]) ;;
  *) usage_error "GPUS must be from 1 to 8, got $GPUS" ;;
esac
run="${NMT_RUNS:-runs}/$experiment"

activate
step() {
  { printf '\n$'; printf ' %q' "$@"; printf '\n'; } >&2
  "$@"
}

options+=(--set "train.batch_tokens=$((tokens / GPUS))")
if [ "$experiment" = wmt14-base ]; then
  step nmt data download wmt14
fi
step nmt data prepare "${options[@]}"
if [ ! -d "$run/average-5" ]; then # the last step of training
  resume=()
  if [ -f "$run/config.yaml" ]; then resume=(--resume); fi
  step torchrun --standalone --nproc-per-node "$GPUS" -m nmt -- \
    train "${options[@]}" --run "$run" ${resume[@]+"${resume[@]}"}
  step nmt average "$run" --last 5
fi
step nmt evaluate --model "$run/average-5" --bleu --chrf
