#!/bin/bash
# The steps of xDAN-RL's guide to two nodes, with its start_ray_cluster.sh written out, as one batch script.
#SBATCH --job-name=xdan-rl-32b --nodes=2 --gres=gpu:8 --nodelist=gpu005,gpu004 --time=3-0
ROOT=/data/vayu/train
PORT=8100
mkdir -p $ROOT/ray
cd $ROOT/xDAN-RL-Training-GRPO
source $ROOT/venv/bin/activate
export PYTHONPATH=$ROOT/xDAN-RL-Training-GRPO
if [[ ! -f $ROOT/datasets/xDAN-Agentic-openMath-r1-chatml.json ]]; then
    echo "no data"; exit 1
fi
for node in gpu005 gpu004; do
    if [ "$node" = gpu005 ]; then
        srun -N1 -n1 -w gpu005 ray start --head --port=$PORT --dashboard-port=8101 --temp-dir=/data/ray --num-gpus=8 --block &
    else
        srun -N1 -n1 -w "$node" ray start --address=gpu005:$PORT --num-gpus=8 --block &
    fi
done
sleep 30
ray status --address=gpu005:8100
ARGS=(
    --ref_num_nodes 2
    --ref_num_gpus_per_node 4
    --actor_num_nodes 2
    --actor_num_gpus_per_node 4
    --colocate_actor_ref
)
ARGS+=(--vllm_num_engines 2 --vllm_tensor_parallel_size 4)
python3 -m openrlhf.cli.train_ppo_ray "${ARGS[@]}" \
    --advantage_estimator group_norm \
    --remote_rm_url $ROOT/reward_func.py \
    --pretrain "$ROOT/models/xDAN-L2-Qwen25-32b-Instruct" > train.log 2>&1 &
wait $!
