#!/usr/bin/env bash
# ray 2.60.0: how long the GCS takes to count a raylet as dead depends on how its health checks fail.
#
# Guess: health_check_failure_threshold (5) checks of health_check_timeout_ms (10 s) each and health_check_period_ms (3 s)
#        between them, some 65 seconds, so that a network that is away for 20 costs no node.
# Seen:  50 to 80 seconds only where a check gets no answer, as from a stopped raylet. Where it fails at once, as with a
#        killed raylet, only the periods count: 10 to 25 seconds. The same holds for a host without a route: after the cut
#        its raylet exits, "mistakenly marked as dead". A launcher that lets nodes come back has to raise the threshold
#        for the faster case, and can lower the timeout so that the slower one does not become longer.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
make_venv ray==2.60.0
export RAY_TMPDIR=$SCRATCH # else later programs would look for this cluster

seen=$(
	python 2>/dev/null - <<-'END' | grep -E '^(killed|stopped) '
		import os
		import signal
		import time

		import ray
		from ray.cluster_utils import Cluster

		cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
		ray.init(address=cluster.address, log_to_driver=False, logging_level="error")

		def is_alive(node):
		    return any(each["Alive"] and each["NodeID"] == node.node_id for each in ray.nodes())

		def lose(number):
		    """Send a signal to the raylet of a new node; return the seconds until it counts as dead."""
		    node = cluster.add_node(num_cpus=1)
		    while not is_alive(node):
		        time.sleep(0.5)
		    time.sleep(8)  # the first check comes after 5 seconds
		    pid = node.all_processes["raylet"][0].process.pid
		    then = time.monotonic()
		    os.kill(pid, number)
		    while is_alive(node):
		        time.sleep(0.5)
		    seconds = time.monotonic() - then
		    if number == signal.SIGSTOP:
		        os.kill(pid, signal.SIGKILL)
		    return seconds

		killed, stopped = lose(signal.SIGKILL), lose(signal.SIGSTOP)
		print("killed", "10 to 25 s" if 10 <= killed < 25 else killed)
		print("stopped", "50 to 80 s" if 50 <= stopped < 80 else stopped)
	END
)
expect 'seconds until a raylet counts as dead' $'killed 10 to 25 s\nstopped 50 to 80 s' "$seen"
