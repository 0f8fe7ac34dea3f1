#!/usr/bin/env bash
# Resolve the dependencies in pyproject.toml and update requirements.lock and requirements-dev.lock.
# Arguments are additional requirements: scripts/lock.sh 'torch==2.13.0'
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

scripts/venv.sh dev
exec .venv/bin/python scripts/lock.py "$@"
