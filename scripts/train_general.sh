#!/usr/bin/env bash
# Train the two pretrained models for running text, from the corpora of a config to the directories in the package:
#   1. clean the corpora, train a tokenizer
#   2. train a teacher for each direction; with monolingual text, translate it back and train better teachers, ROUNDS times
#   3. let the teachers translate the corpora and the monolingual text, train the students on it, export them in int8
# Run the script again to resume after an interruption.
#
#   scripts/train_general.sh                                  # config general; MONO=my/news adds my/news.en, my/news.de
#   CONFIG=my/corpora.yaml scripts/train_general.sh           # your own corpora, also in other languages
#   TEACHER="--time-limit 4m --set train.batch_tokens=25600" STUDENT="--time-limit 5m" PARALLEL=1 scripts/train_general.sh
#   TESTS="tatoeba wmt14" scripts/train_general.sh            # test sets to leave out of the training data
#
# TEACHER and STUDENT are options of nmt train, PARALLEL=1 trains both directions at a time. scripts/score_pretrained.py
# evaluates the models.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then usage_error "unknown argument '$1'"; fi
if [ -n "${MONO:-}" ]; then require_parallel MONO .gz .xz .bz2 .zst; fi
config="${CONFIG:-general}" rounds="${ROUNDS:-2}"
read -ra tests <<< "${TESTS-tatoeba multi30k}"
read -ra teacher_options <<< "${TEACHER:-}"
read -ra student_options <<< "${STUDENT:-}"
text="${NMT_DATA:-data}/general" runs="${NMT_RUNS:-runs}/general"
pretrained="${PRETRAINED_DIR:-nmt/runs/pretrained}"
activate
languages="$(nmt config "$config" | python -c 'import sys, yaml; data = yaml.safe_load(sys.stdin)["data"]; print(data["src"], data["tgt"])')"
src="${languages% *}" tgt="${languages#* }"
check_settings "$runs.settings" "$config" "${MONO:-}" "$rounds" "${tests[@]}" "${TEACHER:-}" "${STUDENT:-}"

# Run a function for both directions, with source and target as arguments.
both_directions() {
  if [ -z "${PARALLEL:-}" ]; then
    "$1" "$src" "$tgt" "${@:2}"
    "$1" "$tgt" "$src" "${@:2}"
    return
  fi
  "$1" "$src" "$tgt" "${@:2}" &
  local first=$!
  "$1" "$tgt" "$src" "${@:2}" &
  wait $! && wait "$first"
}

# Print the existing file of a language of the monolingual text.
mono_file() {
  local path
  for path in "$MONO.$1" "$MONO.$1".{gz,xz,bz2,zst}; do
    if [ -f "$path" ]; then printf '%s\n' "$path"; fi
  done
}

# Train a run from source $1 to target $2 on the cleaned corpora and on further ones; options follow the run.
train() {
  local run="$3" data=(--set "data.src=$1" --set "data.tgt=$2" --set "data.train=$corpora")
  if [ -f "$text/short-$1-$2.$1" ]; then
    data+=(--set "data.train+=files(train='$text/short-$1-$2', hold_out=False, license='Apache-2.0')")
  fi
  train_or_resume "$run" --config "$config" "${data[@]}" --set "tokenizer.model=$text/spm.model" "${@:4}" > /dev/null
}

train_teacher() {
  local round="$3" synthetic=()
  if [ "$round" -gt 0 ]; then
    synthetic=(--set "data.train+=files(train='$text/back-$round-$1-$2/train', hold_out=False, tag=True)")
  fi
  train "$1" "$2" "$runs/teacher-$round/$1-$2" "${teacher_size[@]}" ${synthetic[@]+"${synthetic[@]}"} \
    ${teacher_options[@]+"${teacher_options[@]}"}
}

# Translate the monolingual text in the target language with the teacher of the other direction.
back_translate() {
  local round="$3"
  nmt backtranslate --input "$(mono_file "$2")" --model "$runs/teacher-$((round - 1))/$2-$1" --search greedy \
    --output "$text/back-$round-$1-$2" --resume > /dev/null
}

# Translate the cleaned corpora and the monolingual text in the source language with the last teacher.
distill() {
  local teacher="$runs/teacher-$rounds/$1-$2" data=()
  while IFS= read -r spec; do data+=(--data "$spec"); done < <(python -c '
import json, sys
print(*json.loads(sys.argv[1]), sep="\n")' "$corpora")
  nmt distill --model "$teacher" "${data[@]}" --output "$text/distilled-$1-$2" --resume > /dev/null
  if [ -n "${MONO:-}" ]; then
    nmt distill --model "$teacher" --input "$(mono_file "$1")" --output "$text/distilled-mono-$1-$2" --resume > /dev/null
  fi
}

train_student() {
  local data=() name
  for name in "distilled-$1-$2" "distilled-mono-$1-$2"; do
    if [ -d "$text/$name" ]; then data+=(--set "data.train+=files(train='$text/$name/train', hold_out=False)"); fi
  done
  train "$1" "$2" "$runs/student/$1-$2" "${data[@]}" ${student_options[@]+"${student_options[@]}"}
}

# Export a student in int8, without local paths in its config.
package() {
  local run="$runs/student/$1-$2" directory="$pretrained/$1-$2"
  rm -rf "$directory.new"
  nmt export "$run" --to "safetensors(weights='int8')" --min-agreement 0.8 --output "$directory.new"
  sed -e "s|^  model: .*spm.model\$|  model: ''|" -e "s|$text/|data/general/|g" "$run/config.yaml" \
    > "$directory.new/config.yaml"
  if [ -f "$directory/README.md" ]; then cp "$directory/README.md" "$directory.new/"; fi
  rm -rf "$directory"
  mv "$directory.new" "$directory"
}

write_short_texts() {
  scripts/short_texts.py "$1" "$2" "$text/short-$1-$2" ${tests[@]+--test "${tests[0]}"} > /dev/null
}

# 1. Clean the corpora; add greetings, commands and words in their usual spellings; train the tokenizer.
corpora="$(scripts/clean_corpora.py "$config" "$text/clean" ${tests[@]+"${tests[@]/#/--test=}"})"
if [ "$src $tgt" = "en de" ] && [ ! -f "$text/short-de-en.en" ]; then
  both_directions write_short_texts
fi
if [ ! -f "$text/spm.model" ]; then
  nmt tokenizer train "$text"/clean/*."$src" "$text"/clean/*."$tgt" --tag --placeholders --output "$text/spm.model" \
    --vocab-size "$(nmt config "$config" | sed -n 's/^  vocab_size: //p')" > /dev/null
fi

# 2. Train the teachers. Back-translation needs those of both directions.
teacher_size=(--set model.dim=512 --set model.heads=8 --set model.ffn_dim=2048 --set model.decoder_layers=4
  --set model.dropout=0.1)
if [ -z "${MONO:-}" ]; then rounds=0; fi
both_directions train_teacher 0
for ((round = 1; round <= rounds; round++)); do
  both_directions back_translate "$round"
  both_directions train_teacher "$round"
done

# 3. Train the students.
both_directions distill
both_directions train_student
package "$src" "$tgt"
package "$tgt" "$src"
