#!/bin/bash
#SBATCH --job-name=symmetric-run
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=8
#SBATCH --time=10
# Ray's own command for Slurm (docs.ray.io, "Deploying on Slurm"), in a container on every node.
set -euo pipefail

read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
srun --cpus-per-task=4 podman run --rm --env RAY_AUTH_MODE=disabled --network host --shm-size 8g \
	-v "$PWD:$PWD" -w "$PWD" "$IMAGE" \
	ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_NNODES" --num-cpus=4 --num-gpus=8 -- \
	python3 trainer.py "$SLURM_NNODES"
