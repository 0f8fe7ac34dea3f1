# Shared functions of the experiment scripts, which source this file.
. "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"
activate

# Run `nmt evaluate` and print the first score with one decimal.
score() {
  nmt evaluate "$@" --resamples 0 --json |
    python -c 'import json, sys; print("%.1f" % json.load(sys.stdin)[0]["scores"][0]["value"])'
}

# Run or resume `nmt sweep` in a directory named after the experiment.
sweep() {
  local name="$1"
  shift
  nmt sweep --config "${CONFIG:-multi30k}" --seeds "${SEEDS:-3}" --time-limit "${LIMIT:-10m}" \
    --run "${NMT_RUNS:-runs}/experiments/$name" "$@"
}
