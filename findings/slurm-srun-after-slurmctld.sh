#!/usr/bin/env bash
# Slurm 22.05.8: an srun in the first seconds of a slurmctld calls an idle node busy, and waits for two minutes.
#
# Guess: once `scontrol ping` says UP after a restart of slurmctld, a step in a running job starts at once.
# Seen:  srun in the first second after that answer says "Requested nodes are busy", though nothing else runs there, and
#        takes more than a minute; ten seconds later the same srun takes less than five seconds. So who restarts steps
#        after an outage waits until slurmctld has answered for some seconds. As root, with mmdebstrap.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# step SECONDS: how long srun takes that many seconds after slurmctld has answered again.
step() {
	with_slurm bookworm 22.05.8 'NodeName=n1 CPUs=2' 'PartitionName=main Nodes=n1 Default=YES' <<-END 2>/dev/null
		cat >job.sh <<-'JOB'
			#!/bin/bash
			until [[ -e /tmp/go ]]; do sleep 0.1; done
			begun=\$SECONDS
			srun --overlap --ntasks 1 true >/tmp/srun 2>&1
			seconds=\$((SECONDS - begun))
			((seconds < 5)) && echo 'at once' >/tmp/took || { ((seconds > 60)) && echo 'over a minute' >/tmp/took; }
		JOB
		sbatch --quiet --cpus-per-task 2 job.sh
		until squeue --noheader --states RUNNING | grep --quiet .; do sleep 0.3; done
		pid=\$(</run/slurmctld.pid)
		kill "\$pid" && tail --pid="\$pid" --follow /dev/null
		slurmctld
		until scontrol ping | grep --quiet 'is UP'; do sleep 0.1; done
		sleep $1
		touch /tmp/go
		until [[ -e /tmp/took ]]; do sleep 0.3; done
		cat /tmp/took /tmp/srun
	END
}

expect 'srun in the first second' "$(
	cat <<-'END'
		over a minute
		srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)
		srun: Step created for job 1
	END
)" "$(step 0)"
expect 'srun ten seconds later' 'at once' "$(step 10)"
