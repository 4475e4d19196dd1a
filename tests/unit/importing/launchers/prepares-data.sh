#!/bin/bash
# In the style of scripts that fetch model and data if they are missing, before anything else.
#SBATCH -J prepared -p gpu -A rl -N 2 --gpus-per-node=8 --mem=900G -t 1-0
set -euo pipefail
export HF_HUB_ENABLE_HF_TRANSFER=1
export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345
module load python/3.12
. /lustre/envs/verl/bin/activate

huggingface-cli login --token $HF_TOKEN
hf download Qwen/Qwen3-8B --local-dir /lustre/models/Qwen3-8B
if [ ! -f /lustre/data/gsm8k/train.parquet ]; then
    python examples/data_preprocess/gsm8k.py --local_dir /lustre/data/gsm8k
fi
srun --ntasks-per-node=1 rsync -a /lustre/models/Qwen3-8B /local/models/

HEAD=$(hostname)
ray start --head --temp-dir=/local/ray
srun -N1 -n1 -x "$HEAD" ray start --address="$HEAD:6379" --temp-dir=/local/ray --block &
sleep 20
python3 -m verl.trainer.main_ppo data.train_files=/lustre/data/gsm8k/train.parquet \
    actor_rollout_ref.model.path=/local/models/Qwen3-8B trainer.nnodes=2 trainer.n_gpus_per_node=8
