# What the experiment scripts share; sourced by them.
set -euo pipefail
trap 'exit 130' INT # nmt saves and ends well when it is interrupted; the experiment must not go on
trap 'exit 143' TERM
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

scripts/venv.sh
nmt() { .venv/bin/nmt "$@"; }

# Print the first score of `nmt evaluate` with these arguments, to one decimal.
score() {
  nmt evaluate "$@" --json | .venv/bin/python -c 'import json, sys; print("%.1f" % json.load(sys.stdin)[0]["value"])'
}

# Print the value that the last line of a run's metrics.jsonl having it gives to a key.
metric() {
  .venv/bin/python - "$1" "$2" <<'PY'
import json, pathlib, sys

lines = map(json.loads, pathlib.Path(sys.argv[1], "metrics.jsonl").read_text().splitlines())
print(f"{[line[sys.argv[2]] for line in lines if sys.argv[2] in line][-1]:.3f}")
PY
}

# Train a run unless it is finished; an interrupted one goes on. The first argument is its folder.
train() {
  local run="$1"
  shift
  if [ -f "$run/config.yaml" ]; then nmt train --run "$run" --resume; else nmt train --run "$run" "$@"; fi >/dev/null
}
