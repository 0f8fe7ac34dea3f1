#!/usr/bin/env bash
# Train the two pretrained models for everyday English and German on Tatoeba, a part of Europarl, the phrasebook and
# data/courtesies.tsv, and write them to nmt/runs/pretrained. Takes about five hours on two CPU cores. Run the script again to resume after an interruption.
# scripts/score_pretrained.sh evaluates the models.
#
#   scripts/train_pretrained.sh
#   TATOEBA=deu-eng.zip EUROPARL=europarl/train scripts/train_pretrained.sh   # use local data
#   STEPS=1000 TUNE_STEPS=2000 scripts/train_pretrained.sh --set model.dim=128   # another number of updates and model
#
# STEPS is the number of updates for both directions together (default 5500), TUNE_STEPS that of the fine-tuning for each
# direction (default 14300).
#
# Options are passed to nmt train; only --set is supported.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
case "${1:-}" in "" | --set | --set=*) ;; *) usage_error "unknown argument '$1'" ;; esac
activate
text="${NMT_DATA:-data}/everyday" runs="${NMT_RUNS:-runs}"
pretrained="${PRETRAINED_DIR:-nmt/runs/pretrained}"

options=("$@")
nmt config everyday ${options[@]+"${options[@]}"} > /dev/null # fail early if an option is invalid

# 1. Prepare the data.
scripts/build_pretraining_data.sh >&2

# Train a model with this name, resume it, or return at once if it is finished.
train() {
  local run="$runs/everyday/$1" resume=()
  shift
  if [ -f "$run/config.yaml" ]; then resume=(--resume); fi
  nmt train --run "$run" --config everyday "$@" ${options[@]+"${options[@]}"} ${resume[@]+"${resume[@]}"}
}

license="CC BY 2.0 FR (tatoeba.org), Europarl"

# 2. Train one model for both directions.
train both --set "data.train=files(train='$text/both', hold_out=False)" --set "train.steps=${STEPS:-5500}"

# 3. Fine-tune it for each direction and export the weights in int8.
for direction in en-de de-en; do
  everyday="\"files(train='$text/everyday', hold_out=False, license='$license')\""
  courtesies="\"files(train='$text/courtesies-$direction', hold_out=False, license='Apache-2.0')\""
  train "$direction" --set "train.init_from=$runs/everyday/both" --set "tokenizer.model=$runs/everyday/both/spm.model" \
    --set "data.train=[$everyday, $courtesies]" --set "data.src=${direction%-*}" --set "data.tgt=${direction#*-}" \
    --set "train.steps=${TUNE_STEPS:-14300}" --set train.batch_tokens=2048 --set "train.schedule=linear(peak=1.5e-3, warmup=300)"
  directory="$pretrained/$direction-small"
  rm -rf "$directory.new"
  nmt export "$runs/everyday/$direction" --to "safetensors(weights='int8')" --min-agreement 0.8 --output "$directory.new"
  sed -e "s|^  model: .*spm.model\$|  model: ''|" -e "s|^  init_from: .*|  init_from: ''|" -e "s|$text/|data/everyday/|g" \
    "$runs/everyday/$direction/config.yaml" > "$directory.new/config.yaml" # remove local paths
  if [ -f "$directory/README.md" ]; then cp "$directory/README.md" "$directory.new/"; fi
  rm -rf "$directory"
  mv "$directory.new" "$directory"
done
