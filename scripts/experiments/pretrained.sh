#!/usr/bin/env bash
# What helps a model such as those that come with nmt, English to German: trainings of equally many updates, and their scores
# by beam search as a table. All of it takes two hours on two cores; what is trained is not trained again.
#
#   scripts/experiments/pretrained.sh
#   scripts/experiments/pretrained.sh base bpe_dropout                           # some of them
#   TATOEBA=deu-eng.zip EUROPARL=europarl/train scripts/experiments/pretrained.sh # from files that are at hand
#   STEPS=100 PAIRS=1000 scripts/experiments/pretrained.sh                       # fewer updates, less text by models
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
steps="${STEPS:-800}" pairs="${PAIRS:-60000}"
data="${NMT_DATA:-data}" runs="${NMT_RUNS:-runs}/experiments/pretrained/$steps-$pairs"
text="$data/everyday"

# Train a model of this name, as its config and the options say.
trained() {
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
# The same, learning on from another model.
tuned() { trained "$1" --init-from "$2" --set "train.steps=$steps" "${@:3}"; }
falling() { echo "train.schedule=linear(peak=$1, warmup=$((steps / 8)))"; }
constant() { echo "train.schedule=constant(peak=$1, warmup=$((steps / 8)))"; }

# Translate some of the text of a language, $2, into the file $1.$3, by the models that the options name.
translated() {
  local prefix="$1" other="$2" into="$3"
  if [ -f "$prefix.$into" ]; then return; fi
  python -c '
import random, sys
lines = sys.stdin.buffer.readlines()
sys.stdout.buffer.writelines(random.Random(1).sample(lines, min(int(sys.argv[1]), len(lines))))' "$pairs" \
    < "$text/everyday.$other" > "$prefix.$other"
  nmt translate --input "$prefix.$other" --output "$prefix.$into.part" "${@:4}"
  mv "$prefix.$into.part" "$prefix.$into"
}
with() { echo "data.train=[\"$everyday\", \"files(train='$1', hold_out=False)\"]"; }

train() {
  case "$1" in
    # Regularisation, on from the trained model.
    base) tuned "$1" en-de-small --set "$(falling 5e-4)" ;;
    bpe_dropout) tuned "$1" en-de-small --set "$(falling 5e-4)" --set "train.subword_regularization=bpe_dropout(p=0.1)" ;;
    no_dropout) tuned "$1" en-de-small --set "$(falling 5e-4)" --set model.dropout=0 ;;
    no_noise) tuned "$1" en-de-small --set "$(falling 5e-4)" --set train.source_noise= ;;
    # Averages instead of a falling rate.
    ema) tuned "$1" en-de-small --set "$(constant 5e-4)" --set train.ema=0.995 ;;
    constant)
      tuned "$1" en-de-small --set "$(constant 5e-4)" --set "train.valid_every=$((steps / 10 + 1))" \
        --set train.valid_pairs=100 --set train.keep_last=5
      ;;
    constant/average-5)
      train constant
      if [ ! -d "$runs/$1" ]; then nmt average "$runs/constant" --last 5 > /dev/null; fi
      ;;
    # What models have translated, as more text: an ensemble of three (distillation), and one of the other direction.
    distilled)
      for teacher in base bpe_dropout no_dropout; do train "$teacher"; done
      translated "$runs/distilled" en de -m "$runs/base" -m "$runs/bpe_dropout" -m "$runs/no_dropout"
      tuned "$1" en-de-small --set "$(falling 5e-4)" --set "$(with "$runs/distilled")"
      ;;
    back_translated)
      translated "$runs/back_translated" de en -m de-en-small --search "sample(temperature=0.8)"
      tuned "$1" en-de-small --set "$(falling 5e-4)" --set "$(with "$runs/back_translated")"
      ;;
    # From nothing: one direction by itself, or half the updates for both directions, from which one learns on.
    alone) trained "$1" --set "train.steps=$((2 * steps))" --set "train.schedule=linear(peak=2e-3, warmup=$((steps / 4)))" ;;
    two_way)
      trained "$1" --set "train.steps=$steps" --set "train.schedule=constant(peak=2e-3, warmup=$((steps / 4)))" \
        --set "data.train=files(train='$text/both', hold_out=False)"
      ;;
    from_two_way)
      train two_way
      tuned "$1" "$runs/two_way" --set "$(falling 2e-3)"
      ;;
    *) refuse "unknown training '$1'" "one of ${all[*]}" ;;
  esac
}

all=(base bpe_dropout no_dropout no_noise constant ema constant/average-5 distilled back_translated alone two_way from_two_way)
names=("$@")
if [ "$#" -eq 0 ]; then names=("${all[@]}"); fi
for name in "${names[@]}"; do
  case " ${all[*]} " in *" $name "*) ;; *) train "$name" ;; esac
done
scripts/everyday_text.sh >&2
everyday="files(train='$text/everyday', hold_out=False)"
mkdir -p "$runs"
for name in "${names[@]}"; do train "$name"; done

typos="$runs/typos"
scripts/noisy.py typos < "$data/corpora/tatoeba/test.en" > "$typos.en"
cp "$data/corpora/tatoeba/test.de" "$typos.de"
echo "| training | validation BLEU | test BLEU | … with typing errors |"
echo "|---|---|---|---|"
for name in "${names[@]}"; do
  scores=()
  model="$runs/$name"
  for step in "$model"/step-*; do # the last, not the best by its own validation
    if [ -d "$step" ]; then model="$step"; fi
  done
  for prefix in "$data/corpora/tatoeba/valid" "$data/corpora/tatoeba/test" "$typos"; do
    scores+=("$(score --model "$model" --src "$prefix.en" --ref "$prefix.de")")
  done
  echo "| $name | ${scores[0]} | ${scores[1]} | ${scores[2]} |"
done
