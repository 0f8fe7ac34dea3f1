#!/usr/bin/env bash
# Distill a small, fast student from a teacher and print a table with speed and BLEU of both. Run the script again to
# resume after an interruption.
#
#   scripts/student.sh runs/multi30k multi30k           # the second argument is a corpus with validation and test sets
#   SELECT=bleu scripts/student.sh runs/multi30k multi30k                # sequence-level interpolation
#   scripts/student.sh en-de tatoeba --set train.steps=5000 --set model.dim=128
#   TO=firefox scripts/student.sh runs/teacher my-corpus                 # a student for the engine of Firefox
#
# The student has six encoder layers and one decoder layer, and is decoded in int8. SELECT is the option --select of
# nmt distill, CONFIG the config of the student (default multi30k). Further arguments are passed to nmt train; only
# --set is supported.
# With TO=firefox, the student has the shape of the config firefox. Then it is trained for ROUNDED_STEPS (default 2000)
# further updates with weights rounded to 8 bits, gets a lexical shortlist from its training data, and is exported.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -lt 2 ]; then usage_error "expected a teacher and a corpus"; fi
teacher="$1" corpus="$2"
shift 2
case "${1:-}" in "" | --set | --set=*) ;; *) usage_error "unknown argument '$1'" ;; esac
if [ -e "$here/$teacher" ]; then teacher="$here/$teacher"; fi
case "${TO:-}" in
  "") config="${CONFIG:-multi30k}" shape=(--set model.encoder_layers=6 --set model.decoder_layers=1) ;;
  firefox) config="${CONFIG:-firefox}" shape=() ;;
  *) usage_error "unknown format TO=$TO" "TO=firefox, or leave it out" ;;
esac
activate
student="${NMT_RUNS:-runs}/students/$(basename -- "$teacher")"
distilled="${NMT_RUNS:-runs}/students/$(basename -- "$teacher")-distilled"
info="$(nmt info "$teacher" --json)"
nmt config "$config" "$@" > /dev/null # an invalid option must fail before the settings are saved
check_settings "$student.settings" "$teacher" "$corpus" "${SELECT:-}" "$config" "${TO:-}" "$@"

languages="$(python -c 'import json, sys; info = json.load(sys.stdin); print(info["source"], info["target"])' <<< "$info")"
nmt distill --model "$teacher" --data "$corpus" --output "$distilled" --resume ${SELECT:+--select "$SELECT"} > /dev/null
options=(
  --config "$config" --set "data.src=${languages% *}" --set "data.tgt=${languages#* }"
  --set "data.train=files(train='$distilled/train', hold_out=False)" --set "data.valid=$corpus"
  --set "data.test=$corpus" ${shape[@]+"${shape[@]}"} "$@"
)
train_or_resume "$student" "${options[@]}" > /dev/null

if [ "${TO:-}" = firefox ]; then
  trained="$student" student="$student-rounded"
  train_or_resume "$student" "${options[@]}" --set "train.init_from=$trained" \
    --set train.weight_rounding=firefox --set "train.steps=${ROUNDED_STEPS:-2000}" \
    --set "train.schedule=linear(peak=2e-4, warmup=100)" --set train.replay_share=0 > /dev/null
  nmt tokenizer shortlist --model "$student" > /dev/null
  if [ ! -d "$student/firefox" ]; then nmt export "$student" --to firefox --output "$student/firefox" >&2; fi
fi
scripts/student_table.py "$corpus" "$teacher" "$student"
