#!/usr/bin/env bash
# Train the two pretrained models for everyday English and German on Tatoeba, a part of Europarl, the phrasebook and
# short texts, and write them to nmt/runs/pretrained. Takes minutes on a GPU and an estimated ten hours or more on two
# CPU cores. Run the script again to resume after an interruption. scripts/score_pretrained.py evaluates the models.
#
#   scripts/train_pretrained.sh
#   TATOEBA=deu-eng.zip EUROPARL=europarl/train scripts/train_pretrained.sh   # use local data
#   SOFTWARE=my/manuals SOFTWARE_LICENSE=MPL-2.0 scripts/train_pretrained.sh  # more text; see build_pretraining_data.sh
#   scripts/train_pretrained.sh --set train.steps=1000 --set model.dim=128    # another number of updates and model
#
# Options are passed to nmt train; only --set is supported.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
case "${1:-}" in "" | --set | --set=*) ;; *) usage_error "unknown argument '$1'" ;; esac
if [ -n "${SOFTWARE:-}" ] && [ -z "${SOFTWARE_LICENSE:-}" ]; then
  usage_error "the license of SOFTWARE is missing" "name it, for example SOFTWARE_LICENSE=MPL-2.0"
fi
activate
text="${NMT_DATA:-data}/everyday" runs="${NMT_RUNS:-runs}"
pretrained="${PRETRAINED_DIR:-nmt/runs/pretrained}"

options=("$@")
nmt config everyday ${options[@]+"${options[@]}"} > /dev/null # fail early if an option is invalid

# 1. Prepare the data.
scripts/build_pretraining_data.sh >&2

# 2. Train each direction, resume it, or return at once if it is finished; export the weights in int8.
license="CC BY 2.0 FR (tatoeba.org), Europarl${SOFTWARE:+, $SOFTWARE_LICENSE}"
for direction in en-de de-en; do
  run="$runs/everyday/$direction" resume=()
  if [ -f "$run/config.yaml" ]; then resume=(--resume); fi
  everyday="\"files(train='$text/everyday', hold_out=False, license='$license')\""
  short="\"files(train='$text/short-$direction', hold_out=False, license='Apache-2.0')\""
  nmt train --run "$run" --config everyday --set "data.train=[$everyday, $short]" --set "data.src=${direction%-*}" \
    --set "data.tgt=${direction#*-}" ${options[@]+"${options[@]}"} ${resume[@]+"${resume[@]}"}
  directory="$pretrained/$direction-small"
  rm -rf "$directory.new"
  nmt export "$run" --to "safetensors(weights='int8')" --min-agreement 0.8 --output "$directory.new"
  sed -e "s|^  model: .*spm.model\$|  model: ''|" -e "s|^  init_from: .*|  init_from: ''|" -e "s|$text/|data/everyday/|g" \
    "$run/config.yaml" > "$directory.new/config.yaml" # remove local paths
  if [ -f "$directory/README.md" ]; then cp "$directory/README.md" "$directory.new/"; fi
  rm -rf "$directory"
  mv "$directory.new" "$directory"
done
