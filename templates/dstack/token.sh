# The token of this run. Each node makes the same one, of the key that dstack gives to the nodes of a run alone.
if ((NODES > 1)) && [[ ! -s ~/.ssh/dstack_job ]]; then
	echo "slurmray: no ~/.ssh/dstack_job to make Ray's token of: update dstack, or set ray.auth to none" >&2
	exit "$CONFIG"
fi
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
sys.exit(tuple(map(int, re.findall("[0-9]+", importlib.metadata.version("ray"))[:2])) < (2, 52))'; then
	echo "slurmray: ray.auth: token needs an image with Ray 2.52 or later" >&2
	exit "$CONFIG"
fi
