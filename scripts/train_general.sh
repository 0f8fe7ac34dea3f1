#!/usr/bin/env bash
# Train the two pretrained models for running text, from the corpora of a config to the directories in the package:
#   1. clean the corpora, write short texts and pairs with numbers and rare names, train a tokenizer
#   2. train a model for each direction
#   3. with monolingual text, ROUNDS times: translate it in both directions, and train the models further with these
#      translations, as sources of one direction (back-translation) and as targets of the other
#   4. export the models in int8
# Run the script again to resume after an interruption.
#
#   scripts/train_general.sh                                  # config general; MONO=my/news adds my/news.en, my/news.de
#   CONFIG=my/corpora.yaml scripts/train_general.sh           # your own corpora, also in other languages
#   TRAIN="--time-limit 4m --set train.batch_tokens=25600" PARALLEL=1 scripts/train_general.sh
#   TESTS="tatoeba wmt14" scripts/train_general.sh            # test sets to leave out of the training data
#
# TRAIN are options of nmt train for each round, PARALLEL=1 trains both directions at a time, MIN_AGREEMENT=0.7 accepts
# exports with fewer identical translations than 80%.
# scripts/score_pretrained.py evaluates the models.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then usage_error "unknown argument '$1'"; fi
if [ -n "${MONO:-}" ]; then require_parallel MONO .gz .xz .bz2 .zst; fi
config="${CONFIG:-general}" rounds="${ROUNDS:-1}"
read -ra tests <<< "${TESTS-tatoeba multi30k}"
read -ra train_options <<< "${TRAIN:-}"
text="${NMT_DATA:-data}/general" runs="${NMT_RUNS:-runs}/general"
pretrained="${PRETRAINED_DIR:-nmt/runs/pretrained}"
activate
languages="$(nmt config "$config" | python -c 'import sys, yaml; data = yaml.safe_load(sys.stdin)["data"]; print(data["src"], data["tgt"])')"
src="${languages% *}" tgt="${languages#* }"
check_settings "$runs.settings" "$config" "${MONO:-}" "$rounds" "${tests[@]}" "${TRAIN:-}"
if [ -z "${MONO:-}" ]; then rounds=0; fi

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

# Print the option that adds a corpus to the training data, if it exists: its path and further arguments of files().
corpus_option() {
  if [ -f "$1.$src" ]; then printf '%s\n' --set "data.train+=files(train='$1', hold_out=False$2)"; fi
}

# Translate the monolingual text in language $1 into $2, with the model of the round before round $3.
translate() {
  nmt backtranslate --input "$(mono_file "$1")" --model "$runs/$(($3 - 1))/$1-$2" --search greedy \
    --output "$text/round-$3-$1" --resume > /dev/null
}

# Train round $3 of a direction.
train() {
  local options=(--set "data.src=$1" --set "data.tgt=$2" --set "data.train=$corpora" --set "tokenizer.model=$text/spm.model")
  mapfile -t -O "${#options[@]}" options < <(
    corpus_option "$text/short-$1-$2" ", license='Apache-2.0'"
    corpus_option "$text/numbers" ", weight=4, license='Apache-2.0'"
    corpus_option "$text/names" ""
    corpus_option "$text/round-$3-$2/train" ", tag=True"
    corpus_option "$text/round-$3-$1/train" ", weight=0.5"
  )
  if [ "$3" -gt 0 ]; then
    options+=(--set "train.init_from=$runs/$(($3 - 1))/$1-$2" --set "train.schedule=linear(peak=2e-3, warmup=100)")
  fi
  train_or_resume "$runs/$3/$1-$2" --config "$config" "${options[@]}" ${train_options[@]+"${train_options[@]}"} > /dev/null
}

# Export a model of the last round in int8, without local paths in its config.
package() {
  local run="$runs/$rounds/$1-$2" directory="$pretrained/$1-$2"
  rm -rf "$directory.new"
  nmt export "$run" --to "safetensors(weights='int8')" --min-agreement "${MIN_AGREEMENT:-0.8}" --output "$directory.new"
  sed -e "s|^  model: .*spm.model\$|  model: ''|" -e "s|^  init_from: .*|  init_from: ''|" -e "s|$text/|data/general/|g" \
    "$run/config.yaml" > "$directory.new/config.yaml"
  if [ -f "$directory/README.md" ]; then cp "$directory/README.md" "$directory.new/"; fi
  rm -rf "$directory"
  mv "$directory.new" "$directory"
}

write_short_texts() {
  scripts/short_texts.py "$1" "$2" "$text/short-$1-$2" ${tests[@]+"${tests[@]/#/--test=}"} > /dev/null
}

# 1. Clean the corpora, write short texts, numbers and names, train the tokenizer.
corpora="$(scripts/clean_corpora.py "$config" "$text/clean" ${tests[@]+"${tests[@]/#/--test=}"})"
if [ "$src $tgt" = "en de" ]; then
  if [ ! -f "$text/short-de-en.en" ]; then both_directions write_short_texts; fi
  if [ ! -f "$text/numbers.en" ]; then scripts/number_pairs.py --output "$text/numbers" > /dev/null; fi
  if [ -n "${MONO:-}" ] && [ ! -f "$text/names.en" ]; then
    cleaned=("$text"/clean/*.en)
    scripts/name_pairs.py "${cleaned[@]%.en}" --mono "$MONO" --output "$text/names" > /dev/null
  fi
fi
if [ ! -f "$text/spm.model" ]; then
  tokenizer_text=("$text"/clean/*."$src" "$text"/clean/*."$tgt")
  if [ -n "${MONO:-}" ]; then tokenizer_text+=("$(mono_file "$src")" "$(mono_file "$tgt")"); fi
  nmt tokenizer train "${tokenizer_text[@]}" --tag --placeholders --output "$text/spm.model" \
    --vocab-size "$(nmt config "$config" | sed -n 's/^  vocab_size: //p')" > /dev/null
fi

# 2. Train a model for each direction on the corpora.
both_directions train 0

# 3. Train it further on translations of the monolingual text.
for ((round = 1; round <= rounds; round++)); do
  both_directions translate "$round"
  both_directions train "$round"
done

# 4. Export the models.
package "$src" "$tgt"
package "$tgt" "$src"
