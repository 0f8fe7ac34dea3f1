# What the experiment scripts share; sourced by them.
. "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"
environment

# Print the first score of `nmt evaluate` with these arguments, to one decimal.
score() {
  nmt evaluate "$@" --resamples 0 --json |
    python -c 'import json, sys; print("%.1f" % json.load(sys.stdin)[0]["scores"][0]["value"])'
}

# Sweep over a grid, in a folder named after the experiment; what is trained already is not trained again.
sweep() {
  local name="$1"
  shift
  nmt sweep --config "${CONFIG:-multi30k}" --seeds "${SEEDS:-3}" --time-limit "${LIMIT:-10m}" \
    --run "${NMT_RUNS:-runs}/experiments/$name" "$@"
}
