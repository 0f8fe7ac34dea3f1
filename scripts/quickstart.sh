#!/usr/bin/env bash
# Install nmt, train a small model on the built-in corpus, translate a sentence and compute BLEU.
# Run the script again to resume after an interruption. Completed steps are not repeated.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
if [ "$#" -gt 0 ]; then usage_error "unknown argument '$1'"; fi
activate

# Print a command as people type it, and run it.
nmt() {
  local argument line='$ nmt'
  for argument; do
    case "$argument" in
      *[\"\$\`\\\!]*) printf -v argument %q "$argument" ;;
      *[!A-Za-z0-9_./=-]*) argument="\"$argument\"" ;;
    esac
    line+=" $argument"
  done
  printf '\n%s\n' "$line" >&2
  command nmt "$@"
}

# 75: training was stopped and is saved; 130: Ctrl-C.
say_how_to_continue() {
  case "$?" in
    75 | 130) printf '     or run scripts/quickstart.sh again\n' >&2 ;;
  esac
}
trap say_how_to_continue EXIT

run="${NMT_RUNS:-runs}/quickstart"
if [ -f "$run/config.yaml" ]; then
  nmt train --run "$run" --resume # returns at once if the run is finished
else
  nmt train
fi
nmt translate --model "$run" "im thirsty"
nmt evaluate --model "$run" --bleu

printf '\nNext:\n' >&2
if [ -z "${SKIP_VENV:-}" ]; then printf '  source .venv/bin/activate\n' >&2; fi
cat >&2 << 'END'
  nmt translate "My mother is looking for her glasses."
  nmt attention "My mother is looking for her glasses."
  nmt data download multi30k && nmt train --config multi30k --time-limit 10m
END
