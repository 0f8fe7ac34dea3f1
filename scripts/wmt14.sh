#!/usr/bin/env bash
# The base experiment of "Attention Is All You Need" (Vaswani et al. 2017), table 2, from the download to the score:
# WMT 2014 English-German, 100,000 updates of 25,000 tokens, the last five checkpoints averaged, newstest2014 with beam 4
# and a length penalty of 0.6. The paper has 27.3 BLEU, of tokenized text with compounds split; sacrebleu's, of the text
# as it is, come out about half a point lower.
#
#   scripts/wmt14.sh                  on all GPUs there are, eight at most: 12 hours on the paper's eight P100
#   GPUS=2 scripts/wmt14.sh           on so many: an update has 25,000 tokens in any case
#   scripts/wmt14.sh --stand-in       every step in some minutes, without GPU or network: the phrasebook, a tiny model
#
# Needs 10 GB of disk and a network. Run it again and it goes on where it was interrupted.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case "$*" in
  "")
    experiment=wmt14-base options=(--config wmt14-base --set train.keep_last=5) tokens=25000
    if ! found="$(nvidia-smi --list-gpus 2> /dev/null | wc -l)"; then found=0; fi
    if [ "${GPUS:=$((found > 8 ? 8 : found))}" = 0 ]; then
      echo "no GPU: this would take months; scripts/wmt14.sh --stand-in tries the steps" >&2
      exit 1
    fi
    ;;
  --stand-in)
    experiment=wmt14-stand-in tokens=512 GPUS="${GPUS:-2}"
    options=(--config wmt14-base --set train.keep_last=5 --set "data.train=phrasebook" --set tokenizer.vocab_size=500
      --set model.dim=32 --set model.heads=2 --set model.ffn_dim=64 --set model.encoder_layers=1 --set model.decoder_layers=1
      --set train.steps=20 --set train.valid_every=4 --set train.valid_pairs=20 --set train.log_every=4)
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    ;;
  *) refuse "unknown arguments: $*" ;;
esac
case "$GPUS" in
  [1-8]) ;;
  *) refuse "GPUS=$GPUS is not a number from 1 to 8" ;;
esac
run="${NMT_RUNS:-runs}/$experiment"

environment
step() {
  { printf '\n$'; printf ' %q' "$@"; printf '\n'; } >&2
  "$@"
}

options+=(--set "train.batch_tokens=$((tokens / GPUS))")
if [ "$experiment" = wmt14-base ]; then step nmt data download wmt14; fi
step nmt data prepare "${options[@]}"
resume=()
if [ -f "$run/config.yaml" ]; then resume=(--resume); fi
step torchrun --standalone --nproc-per-node "$GPUS" -m nmt -- train "${options[@]}" --run "$run" ${resume[@]+"${resume[@]}"}
step nmt average "$run" --last 5
step nmt evaluate --model "$run/average-5" --bleu --chrf
