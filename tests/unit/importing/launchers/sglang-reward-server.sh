#!/bin/bash
# In the style of verl with a reward model in a server of its own, on two of the node's GPUs.
#SBATCH --job-name=verl-rm --partition=gpu --nodes=1 --gpus-per-node=8 --time=24:00:00

source /opt/conda/etc/profile.d/conda.sh
conda activate verl
RM=/models/reward-7b

CUDA_VISIBLE_DEVICES=6,7 python -m sglang.launch_server --model-path $RM --is-embedding --tp 2 --port 30000 > rm.log 2>&1 &
SERVER=$!
for i in $(seq 1 60); do
    curl -s http://127.0.0.1:30000/health && break
    sleep 5
done

CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 ray start --head --num-gpus=6
python -m verl.trainer.main_ppo \
    data.train_files=/data/train.parquet \
    actor_rollout_ref.model.path=/models/policy-7b \
    reward_model.server=http://127.0.0.1:30000 \
    trainer.n_gpus_per_node=6 \
    trainer.nnodes=1
kill $SERVER
ray stop
