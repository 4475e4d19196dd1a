"""Services outside of this container: scripts for the task of the node, which runs them."""

import os
import shlex

import surroundings

# Ends with its input, as the containers do; $1 is the submit folder. In POSIX words, as an image of its own
# may have no bash. The variables of the job are for the service alone.
TETHERED = """exec 3<&0 </dev/null
(
	{}
	cd "$1" || exit
	exec {}
) 3<&- &
service=$!
(
	while read -r _; do :; done
	trap : TERM
	kill -TERM 0
	sleep 2
	kill -KILL 0
) <&3 &
exec 3<&-
trap : TERM
wait "$service"
code=$?
if kill -0 "$service" 2>/dev/null; then # it was a signal that ended the wait
	wait "$service"
	code=$?
fi
exit "$code"
"""


def hand_out(member, item, env):
    """Writes the script of a service; the task looks for it. item: as the job spec has it."""
    env = {**dict(pair.split("=", 1) for pair in member.conf.get("env", [])), **env}
    script = TETHERED.format(surroundings.exports(env), " ".join(map(shlex.quote, item["run"])))
    name = item["name"]
    path = os.path.join(member.temp_dir, f"new-{name}")
    with open(path, "wb") as file:
        file.write(os.fsencode(script))
    os.chmod(path, 0o644)  # the folder above keeps others out
    os.rename(path, os.path.join(member.temp_dir, f"begin-{name}"))
