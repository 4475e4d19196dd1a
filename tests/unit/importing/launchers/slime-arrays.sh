#!/bin/bash
# In the style of slime's run scripts: clean up first, arguments in groups, a runtime environment as JSON.
#SBATCH --job-name=slime-qwen3-4b
#SBATCH --nodes=1
#SBATCH --gres=gpu:8
#SBATCH --time=08:00:00

pkill -9 sglang
sleep 3
ray stop --force
pkill -9 ray
pkill -9 python

set -ex
export PYTHONBUFFERED=16

CKPT=(
   --hf-checkpoint /root/Qwen3-4B
   --ref-load /root/Qwen3-4B_torch_dist
   --save-interval 20
)
ROLLOUT=(
   --prompt-data /root/math.jsonl
   --input-key prompt
   --n-samples-per-prompt 8
   # --debug-rollout-only
)
SGLANG=(--rollout-num-gpus-per-engine 2 --sglang-mem-fraction-static 0.7)
WANDB=(
   # --use-wandb
)

export MASTER_ADDR=${MASTER_ADDR:-"127.0.0.1"}
ray start --head --node-ip-address ${MASTER_ADDR} --num-gpus 8 --disable-usage-stats --dashboard-port=8265

RUNTIME_ENV="{
  \"env_vars\": {
    \"PYTHONPATH\": \"/root/Megatron-LM/\",
    \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\"
  }
}"
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json="${RUNTIME_ENV}" \
   -- python3 train.py \
   --actor-num-nodes 1 \
   --actor-num-gpus-per-node 8 \
   --colocate \
   ${CKPT[@]} \
   ${ROLLOUT[@]} \
   ${SGLANG[@]} \
   ${WANDB[@]}
