#!/usr/bin/env bash
# Get the text of the models that come with nmt: Tatoeba, 20,000 pairs of Europarl and the phrasebook, without what is in the
# test set, in data/everyday/everyday; all of it in both directions in data/everyday/both; and greetings and courtesies, as
# people type them in either language, in data/everyday/courtesies-en-de and courtesies-de-en.
#
#   scripts/everyday_text.sh
#   TATOEBA=deu-eng.zip EUROPARL=europarl/train scripts/everyday_text.sh      # from files that are at hand
#
# What is there stays; it is made anew when this script, the courtesies or the files at hand are others than before.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then usage_error "unknown argument '$1'"; fi
if [ -n "${EUROPARL:-}" ]; then require_parallel EUROPARL .gz; fi
activate
data="${NMT_DATA:-data}"
text="$data/everyday"
recipe="$(cat scripts/everyday_text.sh scripts/courtesies.py data/courtesies.tsv | cksum) ${TATOEBA:-} ${EUROPARL:-}"
if [ -f "$text/recipe" ] && [ "$(cat "$text/recipe")" = "$recipe" ]; then exit; fi
mkdir -p "$text"
nmt data download tatoeba ${TATOEBA:+--from "$TATOEBA"}
if [ -z "${EUROPARL:-}" ]; then
  nmt data download europarl
  EUROPARL="$data/corpora/europarl/train"
fi
# nmt data check takes out what is like a test sentence; one side alone counts from four words on, so shorter ones go here.
python - "$EUROPARL" "$text" <<'PY'
import sys
from itertools import chain, islice
from pathlib import Path

from nmt.data.pairs import write_pairs
from nmt.data.sources import open_split
from nmt.data.sources.holdout import key

europarl, folder = sys.argv[1], Path(sys.argv[2])
tatoeba, proceedings, phrasebook = (
    open_split(corpus, "train", "en", "de").pairs()
    for corpus in ("tatoeba", f"files(train={europarl!r}, hold_out=False)", "phrasebook")
)
test = {key(side) for pair in open_split("tatoeba", "test", "en", "de").pairs() for side in pair}
joined = chain(tatoeba, islice(proceedings, 20_000), phrasebook)
write_pairs(folder / "joined.en", folder / "joined.de", (pair for pair in joined if not {*map(key, pair)} & test))
PY
nmt data check "$text/joined.en" "$text/joined.de" --test tatoeba --fix "$text/everyday" || case $? in
  3 | 4) ;; # it says what it has taken out
  *) exit 1 ;;
esac
scripts/courtesies.py en de "$text/courtesies-en-de" --test tatoeba --times 5
scripts/courtesies.py de en "$text/courtesies-de-en" --test tatoeba --times 5
cat "$text/everyday.en" "$text/everyday.de" > "$text/both.en"
cat "$text/everyday.de" "$text/everyday.en" > "$text/both.de"
echo "$recipe" > "$text/recipe"
