#!/usr/bin/env bash
# Import all models of Firefox between English and German from Mozilla's registry, translate FLORES+ (devtest) with each,
# and print a table with BLEU and the published score. The exit code is 1 if a model is more than 0.5 BLEU worse.
#
#   scripts/check_firefox_models.sh
#   scripts/check_firefox_models.sh --test own.csv                        # another test set, without a comparison
#   NMT_FIREFOX_SERVER=http://127.0.0.1:8000 scripts/check_firefox_models.sh       # another registry
#
# FLORES+ needs an account of the Hugging Face Hub: see docs/data.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
activate
exec python scripts/firefox_scores.py "$@"
