#!/usr/bin/env bash
# Build the training data of the pretrained models in data/everyday, without the sentences of the test set:
#   everyday          Tatoeba, 20,000 pairs of Europarl and the phrasebook
#   both              the same pairs and their reverse: each file has both languages
#   courtesies-en-de  greetings and courtesies in their usual spellings, one file pair per direction
#   courtesies-de-en
#
#   scripts/build_pretraining_data.sh
#   TATOEBA=deu-eng.zip EUROPARL=europarl/train scripts/build_pretraining_data.sh      # with local files
#   SAMPLE=2000 scripts/build_pretraining_data.sh     # at most 2,000 pairs of each corpus, to test the scripts
#
# Existing data is rebuilt only if this script, the courtesies or the local files have changed.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then usage_error "unknown argument '$1'"; fi
if [ -n "${EUROPARL:-}" ]; then require_parallel EUROPARL .gz; fi
activate
data="${NMT_DATA:-data}"
text="$data/everyday"
recipe="$(cat scripts/build_pretraining_data.sh scripts/courtesies.py data/courtesies.tsv | cksum) ${TATOEBA:-} ${EUROPARL:-} ${SAMPLE:-}"
if [ -f "$text/recipe" ] && [ "$(cat "$text/recipe")" = "$recipe" ]; then exit; fi
mkdir -p "$text"
nmt data download tatoeba ${TATOEBA:+--from "$TATOEBA"}
if [ -z "${EUROPARL:-}" ]; then
  nmt data download europarl
  EUROPARL="$data/corpora/europarl/train"
fi
# nmt data check drops pairs that overlap with the test set, but ignores single sides of fewer than four words; drop them here.
python - "$EUROPARL" "$text" "${SAMPLE:-1000000000}" <<'PY'
import sys
from itertools import chain, islice
from pathlib import Path

from nmt.data.pairs import write_pairs
from nmt.data.sources import open_split
from nmt.data.sources.holdout import sentence_key

europarl, directory, sample = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
tatoeba, parliament, phrasebook = (
    islice(open_split(corpus, "train", "en", "de").pairs(), sample)
    for corpus in ("tatoeba", f"files(train={europarl!r}, hold_out=False)", "phrasebook")
)
test = {sentence_key(side) for pair in open_split("tatoeba", "test", "en", "de").pairs() for side in pair}
joined = chain(tatoeba, islice(parliament, 20_000), phrasebook)
write_pairs(directory / "joined.en", directory / "joined.de", (pair for pair in joined if not {*map(sentence_key, pair)} & test))
PY
nmt data check "$text/joined.en" "$text/joined.de" --test tatoeba --fix "$text/everyday" || case $? in
  3 | 4) ;; # problems were found and fixed
  *) exit 1 ;;
esac
scripts/courtesies.py en de "$text/courtesies-en-de" --test tatoeba --times 5
scripts/courtesies.py de en "$text/courtesies-de-en" --test tatoeba --times 5
cat "$text/everyday.en" "$text/everyday.de" > "$text/both.en"
cat "$text/everyday.de" "$text/everyday.en" > "$text/both.de"
echo "$recipe" > "$text/recipe"
