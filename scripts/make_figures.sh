#!/usr/bin/env bash
# Draw the figures of docs/ and README.md, and take the screenshots (in an installed Chromium). First trains three small models on the phrasebook unless they exist (a
# few minutes each on two cores): the quickstart model, one with learned positions and one with T5 positions.
#
#   scripts/make_figures.sh
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then usage_error "unknown argument '$1'"; fi
activate dev # includes matplotlib
figures=docs/guide/figures runs="${NMT_RUNS:-runs}"

scripts/figures.py "$figures"

nmt plot positions sinusoidal rotary alibi -o "$figures/positions.png"
train_or_resume "$runs/quickstart" > /dev/null
train_or_resume "$runs/guide-learned" --set "model.position_encoding=learned(max_positions=64)" \
  --set train.max_length=64 > /dev/null
train_or_resume "$runs/guide-t5" --set model.position_encoding=t5 > /dev/null
nmt plot positions --model "$runs/guide-learned" --length 20 -o "$figures/learned.png"
nmt plot positions --model "$runs/guide-t5" --length 20 -o "$figures/t5.png"
nmt plot curves "$runs/quickstart" -o "$figures/curves.png"
for part in encoder cross; do
  nmt attention "The children are playing in the garden." --target "Die Kinder spielen im Garten." \
    --model "$runs/quickstart" --part "$part" -o "$figures/$part.png"
done

# The figures of README.md
scripts/record_terminal.py -o docs/figures/terminal.svg
nmt attention "She didn't cross the street because she was too tired." --model en-de -o docs/figures/attention.png

# The screenshots of docs/server.md, docs/data-check.md and docs/documents.md
scripts/screenshots.py docs/figures

# The figure of docs/architecture.md
scripts/architecture.py docs/figures/architecture.svg
