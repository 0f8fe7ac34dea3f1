#!/usr/bin/env bash
# What the scripts that train and score share; sourced by them, before they do anything else.
#
# Goes to the repository and puts its environment first. Files that are at hand may be named from where one stands: these
# variables are made absolute before.
set -euo pipefail
trap 'exit 130' INT # nmt saves and ends well when it is interrupted; what follows must not
trap 'exit 143' TERM

for variable in TATOEBA EUROPARL MULTI30K NEWSTEST; do
  case "${!variable:-}" in
    "" | /*) ;;
    *) export "$variable=$PWD/${!variable}" ;;
  esac
done

here="$PWD"
case "$0" in /*) script="$0" ;; *) script="$here/$0" ;; esac
# Print what the comment at the beginning of the script says, and end as wrong arguments do.
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script" >&2
  exit 2
}
case "${1:-}" in -h | --help) usage ;; esac

CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
scripts/venv.sh
export PATH="$PWD/.venv/bin:$PATH"
