#!/usr/bin/env bash
# What the scripts that train and score share; sourced by them, before they do anything else.
#
# Goes to the repository. What the environment names may be named from where one stands: it is made absolute before.
set -euo pipefail
trap 'exit 130' INT # nmt saves and ends well when it is interrupted; what follows must not
trap 'exit 143' TERM

for variable in NMT_DATA NMT_RUNS PRETRAINED_DIR TATOEBA EUROPARL MULTI30K NEWSTEST; do
  case "${!variable:-}" in
    "" | /*) ;;
    *) export "$variable=$PWD/${!variable}" ;;
  esac
done
here="$PWD" script="$0"
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# Refuse what is asked for: one line, and a hint.
refuse() {
  printf '%s: error: %s\n     hint: %s\n' "${script##*/}" "$1" "${2:-$script --help}" >&2
  exit 2
}

# Refuse a variable's text unless both languages of it are there, plain or with one of these endings.
both_languages() {
  local language ending
  for language in en de; do
    for ending in "" "${@:2}"; do
      if [ -f "${!1}.$language$ending" ]; then continue 2; fi
    done
    refuse "no such text: ${!1}.$language" "$1 is what .en and .de come after, such as my/text"
  done
}

# Put nmt's environment first; it is made where there is none. Arguments go to scripts/venv.sh.
environment() {
  scripts/venv.sh "$@"
  export PATH="$PWD/.venv/bin:$PATH"
}

case "${1:-}" in
  -h | --help) # the comment that a script begins with
    case "$script" in /*) ;; *) script="$here/$script" ;; esac
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script"
    exit
    ;;
esac
