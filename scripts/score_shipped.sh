#!/usr/bin/env bash
# Score the models that come with nmt, in Markdown: on text like their own, on text of other kinds, and on sentences as
# people type them.
#
#   scripts/score_shipped.sh
#   TATOEBA=deu-eng.zip NEWSTEST=newstest2013 MULTI30K=multi30k scripts/score_shipped.sh
#                                                                        # at hand: archive, prefix of .en and .de, folder
#   MODELS="runs/a runs/b" scripts/score_shipped.sh                      # other models
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then usage; fi
if [ -n "${NEWSTEST:-}" ] && [ ! -f "$NEWSTEST.en" ]; then
  echo "no such text: NEWSTEST=$NEWSTEST (.en and .de)" >&2
  exit 2
fi
data="${NMT_DATA:-data}" runs="${NMT_RUNS:-runs}"
work="$runs/scores"
mkdir -p "$work"

for corpus in tatoeba multi30k; do
  if [ ! -d "$data/corpora/$corpus" ]; then
    from=()
    if [ "$corpus" = multi30k ] && [ -n "${MULTI30K:-}" ]; then from=(--from "$MULTI30K"); fi
    if [ "$corpus" = tatoeba ] && [ -n "${TATOEBA:-}" ]; then from=(--from "$TATOEBA"); fi
    nmt data download "$corpus" ${from[@]+"${from[@]}"} > /dev/null
  fi
done

# Print a row: the test set's name, and scores of a model with their 95 % intervals.
row() {
  local name="$1" model="$2"
  shift 2
  local found
  found="$(nmt evaluate --model "$model" --output "$work/$(basename "$model")" --bleu --chrf --json "$@")"
  python -c '
import json, sys
(found,) = json.loads(sys.argv[2])
cells = ["{value:.1f} ± {confidence:.1f}".format(**score) for score in found["scores"]]
print("|", sys.argv[1], "|", " | ".join(cells), "|")
print(found["scores"][0]["signature"], file=sys.stderr)' "$name" "$found"
}

for model in ${MODELS:-en-de-small de-en-small}; do
  case "$model" in
    /*) ;;
    *) if [ -e "$here/$model" ]; then model="$here/$model"; fi ;;
  esac
  found="$(nmt info "$model" --json)"
  languages="$(python -c 'import json, sys; found = json.loads(sys.argv[1]); print(found["source"], found["target"])' "$found")"
  case "$languages" in
    "de en") src=de tgt=en noises="no_umlauts" ;;
    "en de") src=en tgt=de noises="no_apostrophes" ;;
    *)
      echo "$model translates $languages, not between English and German" >&2
      exit 1
      ;;
  esac
  printf '\n| %s | BLEU | chrF2 |\n|---|---|---|\n' "$model"
  tatoeba="$data/corpora/tatoeba/test"
  row "Tatoeba, test split" "$model" --src "$tatoeba.$src" --ref "$tatoeba.$tgt"
  for kind in lowercase uppercase no_punctuation $noises sloppy typos; do
    scripts/noisy.py "$kind" < "$tatoeba.$src" > "$work/$kind.$src"
    row "… with \`$kind\`" "$model" --src "$work/$kind.$src" --ref "$tatoeba.$tgt"
  done
  row "Multi30k, test_2016_flickr" "$model" --src "$data/corpora/multi30k/test.$src" --ref "$data/corpora/multi30k/test.$tgt"
  if [ -n "${NEWSTEST:-}" ]; then
    row "newstest2013" "$model" --src "$NEWSTEST.$src" --ref "$NEWSTEST.$tgt"
  else
    row "newstest2013" "$model" --test wmt13
  fi
done
