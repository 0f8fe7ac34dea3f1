#!/usr/bin/env bash
# Get the text of the models that come with nmt: Tatoeba, 20,000 pairs of Europarl and the phrasebook, without what is in the
# test set, in data/everyday/everyday; all of it in both directions in data/everyday/both; and greetings and courtesies, as
# people type them in either language, in data/everyday/courtesies-en-de and courtesies-de-en.
#
#   scripts/everyday_text.sh
#   TATOEBA=deu-eng.zip EUROPARL=europarl/train scripts/everyday_text.sh      # from files that are at hand
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then usage; fi
data="${NMT_DATA:-data}"
text="$data/everyday"
if [ -f "$text/both.de" ]; then exit; fi
mkdir -p "$text"
nmt data download tatoeba ${TATOEBA:+--from "$TATOEBA"}
if [ -z "${EUROPARL:-}" ]; then
  nmt data download europarl
  EUROPARL="$data/corpora/europarl/train"
fi
python -c '
from nmt.data.sources import open_split
for pair in open_split("phrasebook", "train", "en", "de").pairs():
    print(*pair, sep="\t")' > "$text/phrasebook.tsv"
for language in en de; do
  if [ -f "$EUROPARL.$language.gz" ]; then gzip -dc "$EUROPARL.$language.gz"; else cat "$EUROPARL.$language"; fi |
    sed -n '1,20000p' |
    cat "$data/corpora/tatoeba/train.$language" - <(cut -f "$([ $language = en ] && echo 1 || echo 2)" "$text/phrasebook.tsv") \
      > "$text/joined.$language"
done
nmt data check "$text/joined.en" "$text/joined.de" --test tatoeba --fix "$text/everyday" || case $? in
  3 | 4) ;; # it says what it has taken out
  *) exit 1 ;;
esac
scripts/courtesies.py en de "$text/courtesies-en-de" --test tatoeba --times 5
scripts/courtesies.py de en "$text/courtesies-de-en" --test tatoeba --times 5
cat "$text/everyday.en" "$text/everyday.de" > "$text/both.en"
cat "$text/everyday.de" "$text/everyday.en" > "$text/both.de.part"
mv "$text/both.de.part" "$text/both.de"
