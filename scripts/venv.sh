#!/usr/bin/env bash
# Create the virtual environment .venv and install the locked dependencies. Returns at once if it is up to date.
#
#   scripts/venv.sh              runtime dependencies
#   scripts/venv.sh dev          runtime and test dependencies
# PYTHON=python3.12 scripts/venv.sh chooses the interpreter of a new .venv.
#
# Prints messages on stderr only, because scripts that call it print results on stdout. The output of pip is in
# .venv.log.
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

say() { printf 'venv: %s\n' "$*" >&2; }
die() { say "error: $1"; say "hint: $2"; exit 1; }

# Run the command $2... with its output in the log, and print the line $1 with its time in seconds.
step() {
  printf 'venv: %s ... ' "$1" >&2
  SECONDS=0
  if ! "${@:2}" >>"$log" 2>&1; then
    printf 'failed\n' >&2
    tail -n 5 "$log" >&2
    return 1
  fi
  printf '%s s\n' "$SECONDS" >&2
}

case "${1:-}" in
  '') kind=runtime lock=requirements.lock ;;
  dev) kind=dev lock=requirements-dev.lock ;;
  *) die "unknown argument '$1'" "scripts/venv.sh, or scripts/venv.sh dev" ;;
esac
python=.venv/bin/python log=.venv.log

# Print the first interpreter that is new enough and can create virtual environments.
find_python() {
  local name old='' no_venv=''
  if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3 python3.12 python3.13 python3.14 python3.11; fi
  for name; do
    "$name" -c '' 2>/dev/null || continue
    "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { old="${old:-$name}"; continue; }
    "$name" -c 'import ensurepip, venv' 2>/dev/null || { no_venv="${no_venv:-$name}"; continue; }
    printf '%s\n' "$name"
    return
  done
  if [ -n "$no_venv" ]; then
    die "$no_venv cannot create virtual environments" "install its venv package (Debian, Ubuntu: apt install python3-venv)"
  fi
  die "no Python 3.11 or newer among $*${old:+; $old is $("$old" -V 2>&1)}" \
    "install one, or set PYTHON=/path/to/python3"
}

# An environment breaks when its directory moves or its interpreter is replaced.
location() { "$python" -c 'import sys, pip; print(*sys.version_info[:2], sys.argv[1])' "$PWD" 2>/dev/null; }
usable() {
  local current
  current="$(location)" && { [ ! -f .venv/.location ] || [ "$(cat .venv/.location)" = "$current" ]; }
}

# Print a hash of the files that the installation depends on.
dependencies_hash() { cat pyproject.toml requirements.lock requirements-dev.lock | cksum; }

# Exit if the environment has the locked dependencies.
exit_if_current() {
  local stamp
  usable || return 0
  for stamp in ".venv/.installed-$kind" .venv/.installed-dev; do
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(dependencies_hash)" ]; then
      say ".venv is up to date"
      exit 0
    fi
  done
}

exit_if_current
# One process installs, and the others wait for it, such as the jobs of an array.
exec 9>>"$log"
if command -v flock >/dev/null; then # not on macOS
  flock 9
  exit_if_current
fi
: >"$log"

if ! usable; then
  interpreter="$(find_python)"
  if [ -L .venv ]; then rm .venv; fi # --clear would empty the target of the link
  step "creating .venv with $("$interpreter" -V)" "$interpreter" -m venv --clear .venv ||
    die "$interpreter could not create .venv" "see all of its output in $PWD/$log, then run this again"
fi

{
  step "installing $lock (a few minutes the first time)" "$python" -m pip install -r "$lock" &&
    step "installing nmt" "$python" -m pip install --no-deps --no-build-isolation -e .
} || die "pip could not install the locked dependencies" "see all of its output in $PWD/$log, then run this again"
location >.venv/.location
dependencies_hash >".venv/.installed-$kind"
