#!/usr/bin/env bash
# Build the training data of the pretrained models in data/everyday, without the sentences of the test set:
#   everyday     Tatoeba, 20,000 pairs of Europarl, a third of the phrasebook, with various names and numbers
#   short-en-de  greetings, commands and words in their usual spellings, one file pair per direction
#   short-de-en
#
#   scripts/build_pretraining_data.sh
#   TATOEBA=deu-eng.zip EUROPARL=europarl/train scripts/build_pretraining_data.sh      # with local files
#   SOFTWARE=my/manuals scripts/build_pretraining_data.sh      # adds pairs of at most 12 words, such as software manuals
#   SAMPLE=2000 scripts/build_pretraining_data.sh     # at most 2,000 pairs of each corpus, to test the scripts
#
# Existing data is rebuilt only if the scripts, the files in data, the phrasebook or the paths of local files have changed.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then usage_error "unknown argument '$1'"; fi
if [ -n "${EUROPARL:-}" ]; then require_parallel EUROPARL .gz; fi
if [ -n "${SOFTWARE:-}" ]; then require_parallel SOFTWARE .gz; fi
activate
data="${NMT_DATA:-data}"
text="$data/everyday"
parts=(scripts/{build_pretraining_data.sh,short_texts.py,aligned_words.py,vary_names.py} data/*.{tsv,txt}
  nmt/data/sources/phrasebook.tsv.bz2)
recipe="$(cat "${parts[@]}" | cksum) ${TATOEBA:-} ${EUROPARL:-} ${SOFTWARE:-} ${SAMPLE:-}"
if [ -f "$text/recipe" ] && [ "$(cat "$text/recipe")" = "$recipe" ]; then exit; fi
mkdir -p "$text"
rm -f "$text/recipe" # until the data is complete
nmt data download tatoeba ${TATOEBA:+--from "$TATOEBA" --force}
if [ -z "${EUROPARL:-}" ]; then
  nmt data download europarl
  EUROPARL="$data/corpora/europarl/train"
fi
# nmt data check drops pairs that overlap with the test set, but ignores single sides of fewer than four words; drop them here.
python - "$text" "${SAMPLE:-1000000000}" "$EUROPARL" "${SOFTWARE:-}" <<'PY'
import sys
from itertools import chain, islice
from pathlib import Path

from nmt.data.pairs import write_pairs
from nmt.data.sources import open_split
from nmt.data.sources.holdout import sentence_key

directory, sample, europarl, software = Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]


def pairs(corpus, limit=sample, step=1):
    return islice(open_split(corpus, "train", "en", "de").pairs(), 0, min(limit, sample) * step, step)


def file(prefix):
    return f"files(train={prefix!r}, hold_out=False)"


test = {sentence_key(side) for pair in open_split("tatoeba", "test", "en", "de").pairs() for side in pair}
corpora = [pairs("tatoeba"), pairs(file(europarl), 20_000), pairs("phrasebook", step=3)]
if software:
    corpora.append(pair for pair in pairs(file(software)) if all(len(side.split()) <= 12 for side in pair))
unseen = (pair for pair in chain(*corpora) if not {*map(sentence_key, pair)} & test)
write_pairs(directory / "joined.en", directory / "joined.de", unseen)
PY
nmt data check "$text/joined.en" "$text/joined.de" --test tatoeba --fix "$text/checked" || case $? in
  3 | 4) ;; # problems were found and fixed
  *) exit 1 ;;
esac
scripts/vary_names.py "$text/checked" "$text/everyday" --test tatoeba > /dev/null
scripts/short_texts.py en de "$text/short-en-de" --test tatoeba --lexicon "$text/checked"
scripts/short_texts.py de en "$text/short-de-en" --test tatoeba --lexicon "$text/checked"
echo "$recipe" > "$text/recipe"
