#!/usr/bin/env bash
# ray 2.60.0: `ray start --node-ip-address` takes a host's name, and keeps it as the node's address.
#
# Guess: a name is refused, or resolved once, so that the node's address is an IP address.
# Seen:  exit code 0. NodeManagerAddress is the name, the node's resource is node:NAME, and the hint for other nodes is
#        `ray start --address='NAME:6379'`. Whoever asks for the resource node:IP on that node, as launchers do that place
#        an actor on a host by the address of `hostname -I`, waits for ever. Runs in a network namespace, as root.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
make_venv ray==2.60.0
printf '%s\n' '127.0.0.1 localhost' '192.0.2.1 node-a' >"$SCRATCH/hosts"

seen=$(
	in_namespaces bash -c '
		mount --bind "$1/hosts" /etc/hosts
		ray start --head --node-ip-address=node-a --num-cpus=1 --include-dashboard=false --temp-dir="$1/ray" \
			2>&1 | grep --only-matching "ray start --address=.*"
		python -c "
import ray
ray.init(address=\"auto\", logging_level=\"error\")
(node,) = ray.nodes()
print(node[\"NodeManagerAddress\"], *sorted(name for name in node[\"Resources\"] if name.startswith(\"node:\")))
"' _ "$SCRATCH" 2>/dev/null
)
expect 'hint, address and resources' \
	"ray start --address='node-a:6379'"$'\nnode-a node:__internal_head__ node:node-a' "$seen"
