#!/usr/bin/env bash
# BLEU of each position encoding on sentences longer than those in training: up to 12 words (as in training), 13 to 16,
# 17 to 20, and more than 20 words.
#
#   scripts/experiments/extrapolation.sh data/corpora/multi30k/train
#   CONFIG=quickstart SEEDS=1 LIMIT=2m SIZE=50 POSITIONS=rotary,none scripts/experiments/extrapolation.sh my/corpus
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
[ $# -ge 1 ] || usage_error "expected the path of a corpus without .en and .de, optionally followed by options of nmt sweep"
case "$1" in /*) prefix="$1" ;; *) prefix="$here/$1" ;; esac
require_parallel prefix
shift
directory="${NMT_RUNS:-runs}/experiments/extrapolation"
text="$directory.data"
check_settings "$directory.settings" "$prefix" "${SIZE:-500}"
scripts/experiments/by_length.py "$prefix" "$text" --limits 12 16 20 --size "${SIZE:-500}" >&2
names="${POSITIONS:-sinusoidal,learned,floater,rotary,shaw,transformer_xl,t5,deberta,alibi,none}"
sweep extrapolation --set "data.train=files(train='$text/train', valid='$text/valid', test='$text/to-12')" \
  --set train.max_length=20 --grid "model.position_encoding=$names" "$@" >&2

python - "$text" "$directory"/position_encoding=* << 'PY'
import sys
from pathlib import Path

from nmt.evaluate.evaluation import translate_test_set
from nmt.evaluate.metrics import bleu
from nmt.evaluate.test_sets import corpus_test_set
from nmt.translation.translator import Translator

text, *runs = sys.argv[1:]
print("| position encoding, seed | up to 12 words | 13-16 | 17-20 | more than 20 |")
print("|---|---|---|---|---|")
for run in runs:
    translator = Translator.load(run)
    # nmt evaluate would translate lines that are longer than those in training in segments.
    translator.segmenter.max_source_length = translator.segmenter.max_sentences_per_line = 1000
    cells = []
    data, search = translator.config.data, translator.config.search
    for name in ("to-12", "to-16", "to-20", "longer"):
        test = corpus_test_set(f"files(test={f'{text}/{name}'!r})", data.src, data.tgt)
        cells.append(f"{bleu(translate_test_set(translator, test, search), test.references).value:.1f}")
    print("|", " | ".join([Path(run).name, *cells]), "|", flush=True)
PY
