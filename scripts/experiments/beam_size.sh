#!/usr/bin/env bash
# BLEU of a trained run by beam size and length penalty.
#
#   scripts/experiments/beam_size.sh runs/multi30k
#   SIZES="1 4" PENALTIES="1.0" scripts/experiments/beam_size.sh runs/quickstart
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
[ $# -eq 1 ] || usage_error "expected one run directory"
run="$(CDPATH='' cd -- "$here" && CDPATH='' cd -- "$1" 2> /dev/null && pwd)" || usage_error "$1 is not a run directory"
sizes="${SIZES:-1 2 4 8 16}"
penalties="${PENALTIES:-0.0 0.6 1.0 1.4}"

printf '| beam size |'
for penalty in $penalties; do printf ' length penalty %s |' "$penalty"; done
printf '\n|---|'
for penalty in $penalties; do printf -- '---|'; done
printf '\n'
for size in $sizes; do
  row="| $size |"
  for penalty in $penalties; do
    bleu="$(score --model "$run" --search "beam(beam_size=$size, length_penalty=$penalty)" --output "$run/eval/beam-$size-$penalty")"
    row+=" $bleu |"
  done
  printf '%s\n' "$row"
done
