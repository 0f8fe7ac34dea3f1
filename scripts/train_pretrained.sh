#!/usr/bin/env bash
# Train the two models that come with nmt and write them to nmt/runs/pretrained: everyday English and German, from Tatoeba and the
# beginning of Europarl. Takes some five hours on two cores; interrupt it and it goes on. scripts/score_pretrained.sh tells how
# good they are.
#
#   scripts/train_pretrained.sh
#   TATOEBA=deu-eng.zip EUROPARL=europarl/train scripts/train_pretrained.sh      # from files that are at hand
#   STEPS=... TUNE=... scripts/train_pretrained.sh --set model.dim=128           # other numbers of updates, another model
#
# Of nmt train's options it takes --set.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
case "${1:-}" in "" | --set | --set=*) ;; *) refuse "unknown argument '$1'" ;; esac
environment
text="${NMT_DATA:-data}/everyday" runs="${NMT_RUNS:-runs}"
pretrained="${PRETRAINED_DIR:-nmt/runs/pretrained}"

options=("$@")
nmt config everyday ${options[@]+"${options[@]}"} > /dev/null # a mistake shows before hours of work

# 1. Text.
scripts/everyday_text.sh >&2

# Train a model of this name unless it is there; one that was stopped goes on.
trained() {
  local run="$runs/everyday/$1" resume=()
  shift
  if [ -f "$run/config.yaml" ]; then resume=(--resume); fi
  nmt train --run "$run" --config everyday "$@" ${options[@]+"${options[@]}"} ${resume[@]+"${resume[@]}"}
}

license="CC BY 2.0 FR (tatoeba.org), Europarl"

# 2. One model that translates either language into the other: each direction learns from both.
trained both --set "data.train=files(train='$text/both', hold_out=False)" --set "train.steps=${STEPS:-5500}"

# 3. From there a model for each direction.
for direction in en-de de-en; do
  everyday="\"files(train='$text/everyday', hold_out=False, license='$license')\""
  courtesies="\"files(train='$text/courtesies-$direction', hold_out=False, license='its own')\""
  trained "$direction" --set "train.init_from=$runs/everyday/both" --set "tokenizer.model=$runs/everyday/both/spm.model" \
    --set "data.train=[$everyday, $courtesies]" --set "data.src=${direction%-*}" --set "data.tgt=${direction#*-}" \
    --set "train.steps=${TUNE:-14300}" --set train.batch_tokens=2048 --set "train.schedule=linear(peak=1.5e-3, warmup=300)"
  folder="$pretrained/$direction-small"
  rm -rf "$folder.new"
  nmt export "$runs/everyday/$direction" --to "safetensors(weights='int8')" --min-agreement 0.8 --output "$folder.new"
  sed -e "s|^  model: .*spm.model\$|  model: ''|" -e "s|^  init_from: .*|  init_from: ''|" -e "s|$text/|data/everyday/|g" \
    "$runs/everyday/$direction/config.yaml" > "$folder.new/config.yaml" # it names no one's folders
  if [ -f "$folder/README.md" ]; then cp "$folder/README.md" "$folder.new/"; fi
  rm -rf "$folder"
  mv "$folder.new" "$folder"
done
