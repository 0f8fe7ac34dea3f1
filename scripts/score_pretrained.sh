#!/usr/bin/env bash
# Evaluate the pretrained models on in-domain and out-of-domain test sets and on noisy input, and print Markdown tables.
#
#   scripts/score_pretrained.sh
#   TATOEBA=deu-eng.zip NEWSTEST=newstest2013 MULTI30K=multi30k scripts/score_pretrained.sh
#       # local data: TATOEBA is an archive or directory, NEWSTEST a path without .en and .de, MULTI30K a directory
#   scripts/score_pretrained.sh runs/a runs/b                               # evaluate other models
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
case "${1:-}" in -*) usage_error "unknown option '$1'" ;; esac
if [ "$#" -eq 0 ]; then set -- en-de-small de-en-small; fi
if [ -n "${NEWSTEST:-}" ]; then require_parallel NEWSTEST; fi
activate
data="${NMT_DATA:-data}" runs="${NMT_RUNS:-runs}"
work="$runs/scores"
mkdir -p "$work"

nmt data download tatoeba ${TATOEBA:+--from "$TATOEBA"} > /dev/null
nmt data download multi30k ${MULTI30K:+--from "$MULTI30K"} > /dev/null

# Print a table row: the name of the test set, and the scores of a model with 95% confidence intervals.
row() {
  local name="$1" model="$2"
  shift 2
  local evaluation
  evaluation="$(nmt evaluate --model "$model" --output "$work/$(basename "$model")" --bleu --chrf --json "$@")"
  python -c '
import json, sys
(evaluation,) = json.loads(sys.argv[2])
cells = ["{value:.1f} ± {confidence:.1f}".format(**score) for score in evaluation["scores"]]
print("|", sys.argv[1], "|", " | ".join(cells), "|")
print(evaluation["scores"][0]["signature"], file=sys.stderr)' "$name" "$evaluation"
}

for model; do
  case "$model" in
    /*) ;;
    *) if [ -e "$here/$model" ]; then model="$here/$model"; fi ;;
  esac
  info="$(nmt info "$model" --json)"
  languages="$(python -c 'import json, sys; info = json.loads(sys.argv[1]); print(info["source"], info["target"])' "$info")"
  case "$languages" in
    "de en") src=de tgt=en noises="no_umlauts" ;;
    "en de") src=en tgt=de noises="no_apostrophes" ;;
    *)
      usage_error "$model does not translate between English and German: $languages" "choose another model"
      ;;
  esac
  printf '\n| %s | BLEU | chrF2 |\n|---|---|---|\n' "$model"
  tatoeba="$data/corpora/tatoeba/test"
  row "Tatoeba, test split" "$model" --src "$tatoeba.$src" --ref "$tatoeba.$tgt"
  for kind in lowercase uppercase no_punctuation $noises lowercase_no_punctuation typos; do
    scripts/add_noise.py "$kind" < "$tatoeba.$src" > "$work/$kind.$src"
    row "… with \`$kind\`" "$model" --src "$work/$kind.$src" --ref "$tatoeba.$tgt"
  done
  row "Multi30k, test_2016_flickr" "$model" --src "$data/corpora/multi30k/test.$src" --ref "$data/corpora/multi30k/test.$tgt"
  if [ -n "${NEWSTEST:-}" ]; then
    row "newstest2013" "$model" --src "$NEWSTEST.$src" --ref "$NEWSTEST.$tgt"
  else
    row "newstest2013" "$model" --test wmt13
  fi
done
