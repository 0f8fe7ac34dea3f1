#!/usr/bin/env bash
# Score the models that come with nmt, in Markdown: on text like their own, on text of other kinds, and on sentences as
# people type them.
#
#   scripts/score_shipped.sh
#   NEWSTEST=newstest2013 MULTI30K=multi30k scripts/score_shipped.sh     # prefix of .en and .de, and a folder, at hand
#   MODELS="runs/a runs/b" scripts/score_shipped.sh                      # other models
set -euo pipefail
trap 'exit 130' INT
trap 'exit 143' TERM
absolute() { case "$1" in "" | /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac; }
NEWSTEST="$(absolute "${NEWSTEST:-}")"
MULTI30K="$(absolute "${MULTI30K:-}")"
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
scripts/venv.sh
export PATH="$PWD/.venv/bin:$PATH"
data="${NMT_DATA:-data}" runs="${NMT_RUNS:-runs}"
work="$runs/scores"
mkdir -p "$work"

for corpus in tatoeba multi30k; do
  if [ ! -d "$data/corpora/$corpus" ]; then
    from=()
    if [ "$corpus" = multi30k ] && [ -n "$MULTI30K" ]; then from=(--from "$MULTI30K"); fi
    nmt data download "$corpus" ${from[@]+"${from[@]}"} > /dev/null
  fi
done

# Print a row: the test set's name, scores of a model with their 95 % intervals, lines.
row() {
  local name="$1" model="$2"
  shift 2
  nmt evaluate --model "$model" --output "$work/$(basename "$model")" --bleu --chrf --json "$@" | python -c '
import json, sys
(found,) = json.load(sys.stdin)
cells = ["{value:.1f} ± {confidence:.1f}".format(**score) for score in found["scores"]]
print("|", sys.argv[1], "|", " | ".join(cells), "|")
print(found["scores"][0]["signature"], file=sys.stderr)' "$name"
}

for model in ${MODELS:-en-de-small de-en-small}; do
  case "$(nmt info "$model" --json | python -c 'import json, sys; print(json.load(sys.stdin)["target"])')" in
    en) src=de tgt=en noises="no_umlauts" ;;
    *) src=en tgt=de noises="no_apostrophes" ;;
  esac
  printf '\n| %s | BLEU | chrF2 |\n|---|---|---|\n' "$model"
  tatoeba="$data/corpora/tatoeba/test"
  row "Tatoeba, test split" "$model" --src "$tatoeba.$src" --ref "$tatoeba.$tgt"
  for kind in lowercase uppercase no_punctuation $noises sloppy typos; do
    scripts/noisy.py "$kind" < "$tatoeba.$src" > "$work/$kind.$src"
    row "  with $kind" "$model" --src "$work/$kind.$src" --ref "$tatoeba.$tgt"
  done
  row "Multi30k, test_2016_flickr" "$model" --src "$data/corpora/multi30k/test.$src" --ref "$data/corpora/multi30k/test.$tgt"
  if [ -n "$NEWSTEST" ]; then
    row "newstest2013" "$model" --src "$NEWSTEST.$src" --ref "$NEWSTEST.$tgt"
  else
    row "newstest2013" "$model" --test wmt13
  fi
done
