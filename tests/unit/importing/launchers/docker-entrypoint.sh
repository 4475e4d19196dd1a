#!/bin/bash
# In the style of clusters with Docker alone: one docker run for each node, with an entrypoint of its own.
#SBATCH --job-name=entry --nodes=2 --gpus-per-node=8 --exclusive --time=1-00:00:00
ulimit -l unlimited
IMG=nvcr.io/nvidia/pytorch:25.04-py3
DOCKER_ARGS=(
    --rm --gpus '"device=all"' --network host --ipc host --privileged
    --ulimit memlock=-1:-1 --ulimit nofile=1048576:1048576
    --mount type=bind,source=/mnt/data,target=/data,readonly
    -v "$PWD":/workspace/code -w /workspace/code
    --env-file ~/secrets/job.env -e NCCL_DEBUG=WARN -e HF_HUB_CACHE=/data/hub
    --user "$(id -u):$(id -g)"
)
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)
srun -w $HEAD -N1 -n1 docker run "${DOCKER_ARGS[@]}" --name head-$SLURM_JOB_ID --entrypoint /usr/local/bin/ray $IMG \
    start --head --port=6379 --block &
srun -x $HEAD -N1 -n1 docker run "${DOCKER_ARGS[@]}" --name worker-$SLURM_JOB_ID --entrypoint /usr/local/bin/ray $IMG \
    start --address=$HEAD:6379 --block &
sleep 60
srun --overlap -w $HEAD -N1 -n1 docker exec head-$SLURM_JOB_ID \
    python -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8 trainer.experiment_name=entry
docker stop head-$SLURM_JOB_ID
