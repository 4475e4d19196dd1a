#!/bin/bash
# In the style of scripts whose arguments only look like secrets: kinds of loss, flags, keys of columns.
#SBATCH -J words -N 1 --gpus-per-node=8 -t 8:00:00
TIS_TYPE=token
REMOVE_PADDING=true
MODE=basic
LOSS=(
    --calculate-per-token-loss
    --loss-type policy_loss
    --max-tokens-per-gpu 9216
)
LOGS=(
    --use-wandb
    --wandb-project words
)
DATA=(
    --input-key messages
    --label-key label
    +teacher.gsm8k.key="openai/gsm8k"
)
python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate --tis-type $TIS_TYPE \
    --remove-padding $REMOVE_PADDING --mode $MODE --learning-rate 1e-6 \
    "${LOSS[@]}" "${LOGS[@]}" "${DATA[@]}"
