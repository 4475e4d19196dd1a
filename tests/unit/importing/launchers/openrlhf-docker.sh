#!/bin/bash
# In the style of OpenRLHF on nodes with Docker: a container that stays on each node, and docker exec.
#SBATCH -J ppo-docker -N 2 --gres=gpu:a100:8 -c 64 -t 2-0 -p a100
IMAGE=registry.example.org/rl/openrlhf:0.8
NAME=rlhf_$SLURM_JOB_ID
export WANDB_API_KEY=$(cat ~/.wandb_key)

srun --ntasks-per-node=1 docker run -d --rm --name $NAME --gpus all --network=host --ipc=host \
    --ulimit memlock=-1 --ulimit stack=67108864 --shm-size=64g \
    -v /data/models:/models:ro -v "$HOME/runs":/runs -e WANDB_API_KEY -e NCCL_IB_DISABLE=0 \
    $IMAGE sleep infinity

HEAD=$(scontrol show hostname $SLURM_JOB_NODELIST | head -n 1)
srun -w $HEAD -N1 -n1 docker exec $NAME ray start --head --port 6380
srun -N1 -n1 -x $HEAD docker exec $NAME ray start --address $HEAD:6380

srun -w $HEAD -N1 -n1 docker exec -w /runs $NAME \
    ray job submit --address http://127.0.0.1:8265 \
    --runtime-env-json '{"working_dir": "/runs", "env_vars": {"VLLM_USE_V1": "1"}}' -- \
    python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 2 --actor_num_gpus_per_node 8 \
    --colocate_all_models --vllm_num_engines 8 --vllm_tensor_parallel_size 2 \
    --pretrain /models/llama-3-8b --use_wandb $WANDB_API_KEY
srun docker rm -f $NAME
