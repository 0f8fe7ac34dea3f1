#!/usr/bin/env bash
# Build the image of the server and try it: its size, and as a container without network its user, health check and a
# translation.
#
#   scripts/container/check.sh
#   ENGINE=podman BUILD_OPTIONS="--isolation chroot" scripts/container/check.sh
#
# BUILD_OPTIONS and RUN_OPTIONS are further words for the commands build and run of the engine.
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
MAX_MEGABYTES=400
engine="${ENGINE:-docker}"

die() {
  printf 'check: error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}
command -v "$engine" >/dev/null || die "there is no command $engine" "install Docker, or set ENGINE=podman"

# Print the response of the server in the container to the path $1, with the body $2 of a POST request if given.
request() {
  "$engine" exec "$container" python -c '
import sys, urllib.request
url, *bodies = sys.argv[1:]
data = bodies[0].encode() if bodies else None
print(urllib.request.urlopen(f"http://127.0.0.1:5000{url}", data, timeout=20).read().decode())
' "$@"
}

# shellcheck disable=SC2086 # the options are words
"$engine" build ${BUILD_OPTIONS:-} --file scripts/container/serve.Dockerfile --tag nmt-serve .
megabytes="$(($("$engine" image inspect --format '{{.Size}}' nmt-serve) / 1000000))"
[ "$megabytes" -le "$MAX_MEGABYTES" ] || die "the image has $megabytes MB, more than $MAX_MEGABYTES" "find what grew"

# shellcheck disable=SC2086
container="$("$engine" run ${RUN_OPTIONS:-} --detach --read-only --tmpfs /tmp --network none --cap-drop ALL nmt-serve)"
trap '"$engine" rm --force "$container" >/dev/null' EXIT
for _ in {1..60}; do
  health="$(request /health 2>/dev/null)" && break
  sleep 1
done
[ -n "$health" ] || die "the server does not answer" "$engine run --read-only --tmpfs /tmp nmt-serve"
[ "$("$engine" exec "$container" id -u)" = 10001 ] || die "the server runs as another user" "see USER in the Dockerfile"
translation="$(request /translate 'q=The house is big.&source=en&target=de')"
case "$translation" in
  *Haus*) ;;
  *) die "a wrong translation: $translation" "$engine logs $container" ;;
esac
"$engine" stop --time 60 "$container" >/dev/null
code="$("$engine" inspect --format '{{.State.ExitCode}}' "$container")"
[ "$code" = 0 ] || die "the server stopped with exit code $code" "$engine logs $container"
printf '%s\n' "$megabytes MB, $health, $translation"
