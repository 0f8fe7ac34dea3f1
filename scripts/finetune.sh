#!/usr/bin/env bash
# Fine-tune an English-German model on image captions (Multi30k) and on your text, each with and without replay, and print
# a table of BLEU before and after, in the domain and on other text. Run the script again to resume after an interruption;
# completed runs are not repeated.
#
#   scripts/finetune.sh runs/opus-mt-en-de my/software       # the second argument is a path without .en and .de
#   REPLAY=europarl GENERAL=tatoeba scripts/finetune.sh en-de my/software
#   MULTI30K=multi30k scripts/finetune.sh en-de my/software --set train.steps=500   # a local copy of Multi30k
#
# REPLAY is the corpus for replay (default news-commentary), GENERAL the test set on other text (default wmt13). Both can
# be files(...) with absolute paths. Further arguments are passed to nmt train; only --set is supported.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -lt 2 ]; then usage_error "expected a model and the path of a corpus without .en and .de"; fi
start="$1" software="$2"
shift 2
case "${1:-}" in "" | --set | --set=*) ;; *) usage_error "unknown argument '$1'" ;; esac
if [ -e "$here/$start" ]; then start="$here/$start"; fi
case "$software" in /*) ;; *) software="$here/$software" ;; esac
require_parallel software .gz .xz .bz2 .zst
replay="${REPLAY:-news-commentary}" general="${GENERAL:-wmt13}"
activate
runs="${NMT_RUNS:-runs}/finetune/$(basename -- "$start")"
options=("$@")
nmt config finetune "$@" > /dev/null # an invalid option must fail before the settings are saved
check_settings "$runs.settings" "$start" "$software" "$replay" "$general" "$@" ${MULTI30K:+"$MULTI30K"}

nmt data download multi30k ${MULTI30K:+--from "$MULTI30K" --force} > /dev/null

# Fine-tune a model with this name and these options, or resume it, unless it is finished.
train() {
  if [ -f "$runs/$1/comparison.json" ]; then return; fi
  train_or_resume "$runs/$1" --init-from "$start" --set "data.general_test=[\"$general\"]" "${@:2}" \
    ${options[@]+"${options[@]}"} > /dev/null
}

for domain in multi30k software; do
  corpus=multi30k
  if [ "$domain" = software ]; then corpus="files(train='$software')"; fi
  train "$domain" --set "data.train=$corpus"
  train "$domain-replay" --set "data.train=$corpus" --set "data.replay=$replay"
done

python - "$general" "$runs"/{multi30k,software}{,-replay} << 'PY'
import json
import sys
from pathlib import Path

general, *runs = sys.argv[1:]
print(f"| data | replay | BLEU in the domain before | after | BLEU on {general} before | after |")
print("|---|---|---|---|---|---|")
for run in map(Path, runs):
    tests = json.loads((run / "comparison.json").read_text(encoding="utf-8"))["tests"]
    scores = [metric for test in tests for metric in test["metrics"] if metric["name"] == "BLEU"]
    cells = [f"{score[system]:.1f}" for score in scores for system in ("first_score", "second_score")]
    if len(cells) < 4:
        sys.exit(f"finetune.sh: error: {run} was not compared on {general}\n     hint: nmt train --run {run} --resume")
    domain = run.name.removesuffix("-replay")
    print("|", " | ".join([domain, "no" if domain == run.name else "yes", *cells]), "|")
PY
