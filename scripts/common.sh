#!/usr/bin/env bash
# Shared functions. Experiments and other scripts that run nmt source this file first.
#
# Changes to the repository root, after making paths in environment variables absolute.
set -euo pipefail
trap 'exit 130' INT # stop the script, too, when Ctrl-C stops an nmt command
trap 'exit 143' TERM

for variable in NMT_DATA NMT_RUNS PRETRAINED_DIR TATOEBA EUROPARL SOFTWARE MULTI30K; do
  case "${!variable:-}" in
    "" | /*) ;;
    *) export "$variable=$PWD/${!variable}" ;;
  esac
done
here="$PWD" script="$0"
if [ -f "$PWD/${CONFIG:-}" ]; then export CONFIG="$PWD/$CONFIG"; fi
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# Print a usage error with a hint and exit.
usage_error() {
  printf '%s: error: %s\n     hint: %s\n' "${script##*/}" "$1" "${2:-$script --help}" >&2
  exit 2
}

# Check that the files PREFIX.en and PREFIX.de exist; $1 is the name of the variable with the prefix, and the other
# arguments are additional extensions such as .gz.
require_parallel() {
  local language ending
  for language in en de; do
    for ending in "" "${@:2}"; do
      if [ -f "${!1}.$language$ending" ]; then continue 2; fi
    done
    usage_error "${!1}.$language does not exist" "$1 must be the path without .en and .de, such as my/corpus"
  done
}

# Save settings in the file $1, or check that it has the same ones: the results of other settings must not be reused.
check_settings() {
  local settings="${*:2}"
  if [ -e "${1%.settings}" ] && [ -f "$1" ] && [ "$(cat "$1")" != "$settings" ]; then
    usage_error "${1%.settings} was made with other settings: $(cat "$1")" "set NMT_RUNS to another directory"
  fi
  mkdir -p "$(dirname -- "$1")"
  printf '%s\n' "$settings" > "$1"
}

# Train the run $1 with the other options, resume it without them, or return at once if it is finished.
train_or_resume() {
  if [ -f "$1/config.yaml" ]; then set -- "$1" --resume; fi
  nmt train --run "$@"
}

# Create nmt's virtual environment if necessary and activate it. Arguments go to scripts/venv.sh. With SKIP_VENV=1, the
# script uses the python and the nmt of the current environment, for machines without network.
activate() {
  if [ -n "${SKIP_VENV:-}" ]; then return; fi
  scripts/venv.sh "$@"
  export PATH="$PWD/.venv/bin:$PATH"
}

case "${1:-}" in
  -h | --help) # print the header comment of the script
    case "$script" in /*) ;; *) script="$here/$script" ;; esac
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script"
    exit
    ;;
esac
