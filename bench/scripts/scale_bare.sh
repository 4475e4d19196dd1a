#!/bin/bash
#SBATCH --job-name=bare
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=10
# The minimum that starts a cluster of the stand-in for Ray: one srun, one readiness probe, the trainer. Without checks,
# without values from a job spec, and with clean-up only after success.
set -euo pipefail

probe='
import sys, time
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions
state = GlobalState()
while True:
    try:
        state._initialize_global_state(GcsClientOptions.create(sys.argv[1], None))
        break
    except OSError:
        time.sleep(0.05)
while len(state.node_table()) < int(sys.argv[2]):
    time.sleep(0.05)
'

# shellcheck disable=SC2329 # the step calls it
# usage: node HEAD
node() {
	local ray=(ray start --block --num-cpus=1 "--node-name=$SLURMD_NODENAME")
	if ((SLURM_NODEID == 0)); then
		exec "${ray[@]}" --head --node-ip-address=0.0.0.0 --port=6379
	fi
	exec "${ray[@]}" --address="$1:6379"
}

read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
srun --overlap bash -c "$(declare -f node); node \"\$@\"" node "$head" &
python3 -c "$probe" "$head:6379" "$SLURM_NNODES"
code=0
bash scale_trainer.sh || code=$?
scancel --signal=TERM "$SLURM_JOB_ID.0"
wait
echo "done: trainer exited with $code"
exit "$code"
