#!/usr/bin/env bash
# ray[default] 2.60.0: the state API does not ask the cluster that this process uses, and leaves out what is over 100.
#
# Guess: in a process that has called ray.init(), ray.util.state asks that cluster, and lists all placement groups.
# Seen:  without an address it looks for gcs_server among all processes of the host. With two clusters there, it raises
#        ConnectionError "Found multiple active Ray instances", although ray.init() has succeeded in the same process.
#        With the address it returns 100 of 120 placement groups, without a warning, and all with limit=1000;
#        placement_group_table() has all. So code that counts nodes by list_nodes() stops at 100 of them.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
make_venv 'ray[default]==2.60.0'

seen=$(
	RAY_SCHEDULER_EVENTS=0 python - <<-'END' 2>/dev/null
		import subprocess, sys
		import ray
		from ray.util import placement_group, placement_group_table
		from ray.util.state import list_placement_groups

		other = "import ray, sys; ray.init(num_cpus=1, include_dashboard=False); print('up', flush=True); sys.stdin.read()"
		neighbour = subprocess.Popen(
		    [sys.executable, "-c", other], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
		)
		neighbour.stdout.readline()
		ray.init(address="local", num_cpus=1)
		groups = [placement_group([{"CPU": 64}]) for _ in range(120)]
		try:
		    print(len(list_placement_groups()), end=" ")
		except ConnectionError as error:
		    print(str(error).partition(":")[0], end=" ")
		neighbour.communicate()
		address = ray.get_runtime_context().gcs_address
		print(len(list_placement_groups(address=address)), end=" ")
		print(len(list_placement_groups(address=address, limit=1000)), len(placement_group_table()))
	END
)
expect 'beside another cluster; with the address; with a limit; the table' \
	'Found multiple active Ray instances 100 120 120' "$seen"
