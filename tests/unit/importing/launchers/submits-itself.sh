#!/bin/bash
# In the style of scripts that are called on the login node, and submit themselves.
#SBATCH --job-name=selfmade
#SBATCH --gpus-per-node=8
#SBATCH --time=2-00:00:00
if [ -z "$SLURM_JOB_ID" ]; then
    mkdir -p slurm-logs
    sbatch --nodes="${NODES:-2}" --partition="${PARTITION:-h100}" --output=slurm-logs/%j.log "$0" "$@"
    exit $?
fi
set -eo pipefail
MODEL=$1
DATA=$2
: "${DATA:?usage: $0 MODEL DATA}"

HEAD_IP=$(srun -N1 -n1 hostname -I | awk '{print $1}')
srun -N1 -n1 -r 0 ray start --head --node-ip-address="$HEAD_IP" --block &
sleep 10
srun -N$((SLURM_NNODES - 1)) -n$((SLURM_NNODES - 1)) -r 1 ray start --address="$HEAD_IP:6379" --block &
sleep 10
python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path="$MODEL" data.train_files="$DATA" \
    trainer.n_gpus_per_node=8 trainer.nnodes="$SLURM_NNODES"
