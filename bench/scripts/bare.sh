#!/bin/bash
#SBATCH --job-name=bare
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=8
#SBATCH --time=10
# The minimum that starts a Ray cluster: one srun, workers wait for the head node's port, one readiness probe. Without
# checks, without values from a job spec, and with clean-up only after success.
set -euo pipefail

probe='
import sys, time, ray
while not ray.is_initialized():
    try:
        ray.init(address="auto", log_to_driver=False)
    except ConnectionError:
        time.sleep(0.1)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    time.sleep(0.1)
'

# shellcheck disable=SC2329 # the step calls it
# usage: node HEAD IMAGE NAME
node() {
	local ray=(ray start --block --num-cpus=4 --num-gpus=8)
	if ((SLURM_NODEID == 0)); then
		ray+=(--head --port=6379)
	else
		until (: <>"/dev/tcp/$1/6379") 2>/dev/null; do sleep 0.1; done
		ray+=(--address="$1:6379")
	fi
	trap 'podman rm --force --time 0 "$3"' TERM
	# Without it, a file ~/.ray/auth_token in the image would turn tokens on for the head alone (Ray 2.60).
	podman run --rm --name "$3" --env RAY_AUTH_MODE=disabled --network host --shm-size 8g -v "$PWD:$PWD" -w "$PWD" "$2" "${ray[@]}" &
	wait
}

name=bare-$SLURM_JOB_ID
read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
srun --overlap --cpus-per-task=4 bash -c "$(declare -f node); node \"\$@\"" node "$head" "$IMAGE" "$name" &
until (: <>"/dev/tcp/$head/6379") 2>/dev/null; do sleep 0.1; done
podman exec "$name" python3 -c "$probe" "$SLURM_NNODES"
code=0
podman exec "$name" python3 trainer.py "$SLURM_NNODES" || code=$?
scancel --signal=TERM "$SLURM_JOB_ID.0"
wait
exit "$code"
