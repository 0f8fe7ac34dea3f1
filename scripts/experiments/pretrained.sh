#!/usr/bin/env bash
# Training methods for the pretrained English-German model, compared at equal numbers of updates. Prints a table of scores
# with beam search. Takes two hours on two CPU cores. Completed training runs are not repeated.
#
#   scripts/experiments/pretrained.sh
#   scripts/experiments/pretrained.sh base bpe_dropout                           # selected methods
#   TATOEBA=deu-eng.zip EUROPARL=europarl/train scripts/experiments/pretrained.sh # use local data
#   STEPS=100 PAIRS=1000 scripts/experiments/pretrained.sh                       # fewer updates and synthetic pairs
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
steps="${STEPS:-800}" pairs="${PAIRS:-60000}"
data="${NMT_DATA:-data}" runs="${NMT_RUNS:-runs}/experiments/pretrained/$steps-$pairs"
text="$data/everyday"

# Train a model with this name and these options.
train_model() {
  local name="$1"
  shift
  if [ -f "$runs/$name/done" ]; then return; fi
  rm -rf "${runs:?}/$name"
  nmt train --run "$runs/$name" --config everyday --set train.batch_tokens=2048 --set train.valid_every=5000 \
    --set "data.train=$everyday" "$@" > "$runs/$name.log" 2>&1 || {
    tail -n 2 "$runs/$name.log" >&2
    return 1
  }
  touch "$runs/$name/done"
}
# Fine-tune model $2.
fine_tune() { train_model "$1" --init-from "$2" --set "train.steps=$steps" "${@:3}"; }
decaying() { echo "train.schedule=linear(peak=$1, warmup=$((steps / 8)))"; }
constant() { echo "train.schedule=constant(peak=$1, warmup=$((steps / 8)))"; }

# Translate a sample of the data in language $2 into language $3, and write both to $1.$2 and $1.$3.
translate_sample() {
  local prefix="$1" src="$2" tgt="$3"
  if [ -f "$prefix.$tgt" ]; then return; fi
  python -c '
import random, sys
lines = sys.stdin.buffer.readlines()
sys.stdout.buffer.writelines(random.Random(1).sample(lines, min(int(sys.argv[1]), len(lines))))' "$pairs" \
    < "$text/everyday.$src" > "$prefix.$src"
  nmt translate --input "$prefix.$src" --output "$prefix.$tgt.part" "${@:4}"
  mv "$prefix.$tgt.part" "$prefix.$tgt"
}
add_corpus() { echo "data.train=[\"$everyday\", \"files(train='$1', hold_out=False)\"]"; }

train() {
  case "$1" in
    # Regularization, from the pretrained model.
    base) fine_tune "$1" en-de-small --set "$(decaying 5e-4)" ;;
    bpe_dropout) fine_tune "$1" en-de-small --set "$(decaying 5e-4)" --set "train.subword_regularization=bpe_dropout(p=0.1)" ;;
    no_dropout) fine_tune "$1" en-de-small --set "$(decaying 5e-4)" --set model.dropout=0 ;;
    no_noise) fine_tune "$1" en-de-small --set "$(decaying 5e-4)" --set train.source_noise= ;;
    # Weight averaging instead of a decaying learning rate.
    ema) fine_tune "$1" en-de-small --set "$(constant 5e-4)" --set train.ema=0.995 ;;
    constant)
      fine_tune "$1" en-de-small --set "$(constant 5e-4)" --set "train.valid_every=$((steps / 10 + 1))" \
        --set train.valid_pairs=100 --set train.keep_last=5
      ;;
    constant/average-5)
      train constant
      if [ ! -d "$runs/$1" ]; then nmt average "$runs/constant" --last 5 > /dev/null; fi
      ;;
    # Synthetic data: translations of an ensemble of three models (distillation), and back-translation.
    distilled)
      for teacher in base bpe_dropout no_dropout; do train "$teacher"; done
      translate_sample "$runs/distilled" en de -m "$runs/base" -m "$runs/bpe_dropout" -m "$runs/no_dropout"
      fine_tune "$1" en-de-small --set "$(decaying 5e-4)" --set "$(add_corpus "$runs/distilled")"
      ;;
    back_translated)
      translate_sample "$runs/back_translated" de en -m de-en-small --search "sample(temperature=0.8)"
      fine_tune "$1" en-de-small --set "$(decaying 5e-4)" --set "$(add_corpus "$runs/back_translated")"
      ;;
    *) usage_error "unknown method '$1'" "one of ${all[*]}" ;;
  esac
}

all=(base bpe_dropout no_dropout no_noise constant ema constant/average-5 distilled back_translated)
names=("$@")
if [ "$#" -eq 0 ]; then names=("${all[@]}"); fi
for name in "${names[@]}"; do
  case " ${all[*]} " in *" $name "*) ;; *) train "$name" ;; esac
done
scripts/build_pretraining_data.sh >&2
everyday="files(train='$text/everyday', hold_out=False)"
mkdir -p "$runs"
for name in "${names[@]}"; do train "$name"; done

typos="$runs/typos"
scripts/add_noise.py typos < "$data/corpora/tatoeba/test.en" > "$typos.en"
cp "$data/corpora/tatoeba/test.de" "$typos.de"
echo "| method | validation BLEU | test BLEU | … with typos |"
echo "|---|---|---|---|"
for name in "${names[@]}"; do
  scores=()
  model="$runs/$name"
  for step in "$model"/step-*; do # the latest checkpoint, not the best one
    if [ -d "$step" ]; then model="$step"; fi
  done
  for prefix in "$data/corpora/tatoeba/valid" "$data/corpora/tatoeba/test" "$typos"; do
    scores+=("$(score --model "$model" --src "$prefix.en" --ref "$prefix.de")")
  done
  echo "| $name | ${scores[0]} | ${scores[1]} | ${scores[2]} |"
done
