#!/usr/bin/env bash
# BLEU by the size of the training data: a config trained on 25, 50 and 100 percent of the pairs of two aligned files.
#
#   cat data/general/clean/*.en > all.en && cat data/general/clean/*.de > all.de
#   CONFIG=general LIMIT=4m scripts/experiments/data_size.sh all.en all.de --set tokenizer.model=data/general/spm.model
#
# The first file is in the language of data.src. Further arguments are options of nmt sweep.
# SIZES="25 50" trains only these sizes: several processes or machines can share the work.
: "${CONFIG:=multi30k}"
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -lt 2 ]; then usage_error "the two files of the corpus are missing"; fi
read -ra sizes <<< "${SIZES:-25 50 100}"
for percent in "${sizes[@]}"; do
  case "$percent" in
    1 | 2 | 4 | 5 | 10 | 20 | 25 | 50 | 100) ;;
    *) usage_error "SIZES has '$percent', which does not divide 100" 'SIZES="25 50 100"' ;;
  esac
done
cd "$here"
files=("$(realpath -- "$1")" "$(realpath -- "$2")")
cd - > /dev/null
parts="${NMT_DATA:-$PWD/data}/data_size"
mkdir -p "$parts"
for percent in "${sizes[@]}"; do
  # Every fourth, every second or every pair: each size has the same mixture of text.
  for i in 0 1; do
    awk -v step=$((100 / percent)) 'NR % step == 0' "${files[i]}" > "$parts/$percent.$i"
  done
  corpus="files(train=('$parts/$percent.0', '$parts/$percent.1'), hold_out=False)"
  sweep "data_size/$percent" --set "data.train=$corpus" --grid train.label_smoothing=0.1 "${@:3}"
done
