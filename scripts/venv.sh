#!/usr/bin/env bash
# Make .venv beside this folder and install the locked dependencies; returns at once when that is done already.
#
#   scripts/venv.sh              what nmt needs to run
#   scripts/venv.sh dev          and what its tests need
# PYTHON=python3.12 scripts/venv.sh makes a new .venv with that interpreter.
#
# Everything is said on stderr: stdout belongs to the results of whoever calls this.
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

say() { printf 'venv: %s\n' "$*" >&2; }
die() { say "error: $1"; say "hint: $2"; exit 1; }

case "${1:-}" in
  '') kind=runtime lock=requirements.lock ;;
  dev) kind=dev lock=requirements-dev.lock ;;
  *) die "unknown argument '$1'" "scripts/venv.sh, or scripts/venv.sh dev" ;;
esac
python=.venv/bin/python

# Print the first interpreter that is new enough and can make environments.
find_python() {
  local name old='' bare=''
  if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3 python3.12 python3.13 python3.11; fi
  for name; do
    "$name" -c '' 2>/dev/null || continue
    "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { old="${old:-$name}"; continue; }
    "$name" -c 'import ensurepip, venv' 2>/dev/null || { bare="${bare:-$name}"; continue; }
    printf '%s\n' "$name"
    return
  done
  if [ -n "$bare" ]; then
    die "$bare cannot make virtual environments" "install its venv package (Debian, Ubuntu: apt install python3-venv)"
  fi
  die "no Python 3.11 or newer among $*${old:+; $old is $("$old" -V 2>&1)}" \
    "install one, or name it: PYTHON=/path/to/python3"
}

# An environment serves one place and one Python: it breaks when the folder moves or its interpreter is replaced.
place() { "$python" -c 'import sys, pip; print(*sys.version_info[:2], sys.argv[1])' "$PWD" 2>/dev/null; }
usable() {
  local here
  here="$(place)" && { [ ! -f .venv/.place ] || [ "$(cat .venv/.place)" = "$here" ]; }
}

# What an installation depends on, in one word.
wanted() {
  "$python" - pyproject.toml requirements.lock requirements-dev.lock <<'PY'
import hashlib, pathlib, sys

print(hashlib.sha256(b"\0".join(pathlib.Path(name).read_bytes() for name in sys.argv[1:])).hexdigest())
PY
}

if ! usable; then
  found="$(find_python)"
  say "making .venv with $("$found" -V)"
  "$found" -m venv --clear .venv
fi

for stamp in ".venv/.installed-$kind" .venv/.installed-dev; do
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted)" ]; then
    say ".venv is up to date"
    exit 0
  fi
done

say "installing $lock into .venv (minutes the first time, most of them PyTorch)"
{
  "$python" -m pip install -r "$lock" && "$python" -m pip install --no-deps --no-build-isolation -e .
} >&2 || die "pip could not install the locked dependencies" "its own words stand above; run this again to go on"
place >.venv/.place
wanted >".venv/.installed-$kind"
say ".venv is ready"
