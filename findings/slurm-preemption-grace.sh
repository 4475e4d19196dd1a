#!/usr/bin/env bash
# Slurm 22.05.8 and 24.11.5: the grace period of preemption warns the job's steps, not its batch script.
#
# Guess: with GraceTime=12 on the partition, the batch script gets SIGTERM when another job takes the node, and SIGKILL
#        12 s later; and `--signal=B:USR1@60` warns it, as before the time limit.
# Seen:  when the grace period begins, only the tasks of steps get SIGTERM and SIGCONT. The batch script gets its first
#        SIGTERM when the period is over, KillWait before SIGKILL, so a trap in it has no time to save. USR1 never comes.
#        In 24.11 PreemptParameters=send_user_signal brings USR1 at the beginning, but then in place of the steps' SIGTERM,
#        which comes with that of the batch script; 22.05 has no such parameter. As root, with mmdebstrap.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# signals SUITE VERSION [LINE]: each signal of batch script and task; "later": first seen ten seconds after the first of all.
signals() {
	with_slurm "$1" "$2" 'NodeName=n1 CPUs=2' PreemptType=preempt/partition_prio PreemptMode=CANCEL \
		'PartitionName=low Nodes=n1 Default=YES PriorityTier=1 GraceTime=12' \
		'PartitionName=high Nodes=n1 PriorityTier=2 PreemptMode=OFF' "${@:3}" <<-'END' 2>/dev/null
			cat >job.sh <<-'JOB'
				#!/bin/bash
				watch_signals() {
					for signal in TERM USR1; do trap "echo \$EPOCHSECONDS $1 $signal >>/tmp/seen" "$signal"; done
					for _ in {1..200}; do sleep 0.3; done
				}
				export -f watch_signals
				srun --ntasks 1 bash -c 'watch_signals task' &
				watch_signals batch
			JOB
			sbatch --quiet --cpus-per-task 2 --signal B:USR1@60 --time 30 job.sh
			until squeue --steps --noheader | grep --quiet '\.0'; do sleep 0.3; done
			sleep 3
			sbatch --quiet --wait --partition high --cpus-per-task 2 --output /dev/null --wrap true
			sleep 1
			awk 'NR == 1 { first = $1 } !known[$2, $3]++ { print $2, $3 ($1 >= first + 10 ? " later" : "") }' /tmp/seen | sort
		END
}

expect 'Slurm 22.05' $'batch TERM later\ntask TERM' "$(signals bookworm 22.05.8)"
expect 'Slurm 24.11' $'batch TERM later\ntask TERM' "$(signals trixie 24.11.5)"
expect 'Slurm 24.11 with send_user_signal' $'batch TERM later\nbatch USR1\ntask TERM later' \
	"$(signals trixie 24.11.5 PreemptParameters=send_user_signal)"
