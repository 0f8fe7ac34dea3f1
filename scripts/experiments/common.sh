# Shared functions of the experiment scripts, which source this file.
. "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"
activate

# Run `nmt evaluate` and print the first score of each test set with one decimal, as cells of a table.
score() {
  local tests
  tests="$(nmt evaluate "$@" --resamples 0 --json)" || return # without -e in $(score ...)
  python -c 'import json, sys; print(" | ".join("%.1f" % test["scores"][0]["value"] for test in json.load(sys.stdin)))' \
    <<< "$tests"
}

# Run or resume `nmt sweep` in a directory named after the experiment.
sweep() {
  local name="$1"
  shift
  nmt sweep --config "${CONFIG:-multi30k}" --seeds "${SEEDS:-3}" --time-limit "${LIMIT:-10m}" \
    --run "${NMT_RUNS:-runs}/experiments/$name" "$@"
}
