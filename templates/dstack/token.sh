# Writes Ray's token. All nodes derive the same one from the SSH key that dstack creates for this run.
if ((NODES > 1)) && [[ ! -s ~/.ssh/dstack_job ]]; then
	echo "slurmray: ~/.ssh/dstack_job, needed for Ray's token, is missing. Update dstack, or set ray.auth: none" >&2
	exit "$CONFIG"
fi
unset RAY_AUTH_TOKEN # of the image; it would win over RAY_AUTH_TOKEN_PATH
(
	umask 077
	set -o pipefail
	mkdir -p "${RAY_AUTH_TOKEN_PATH%/*}"
	secret=/dev/urandom
	((NODES == 1)) || secret=~/.ssh/dstack_job
	head -c 4096 "$secret" | sha256sum | cut -c -64 >"$RAY_AUTH_TOKEN_PATH"
) || exit "$BRING_UP"
if [[ $AUTH == token ]] && ! python3 -c '
import importlib.metadata, re, sys
numbers = lambda version: tuple(map(int, re.findall("[0-9]+", version)[:2]))
sys.exit(numbers(importlib.metadata.version("ray")) < numbers(sys.argv[1]))' "$TOKEN_SINCE"; then
	echo "slurmray: ray.auth: token needs an image with Ray $TOKEN_SINCE or later" >&2
	exit "$CONFIG"
fi
