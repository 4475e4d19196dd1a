#!/usr/bin/env bash
# After Search-R1's guide to several nodes, docs/multinode.md, and its example/multinode (Apache-2.0).
#SBATCH -J search-r1 -N 2 --gpus-per-node 8
#SBATCH --cpus-per-task 32 --time 2-00

export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export DATA_DIR='data/nq_search'

WAND_PROJECT="Search-R1-release"
RAY_DASHBOARD_ADDRESS="127.0.0.1:8265"
N_NODES=2

export BASE_MODEL='Qwen/Qwen2.5-7B'
export EXPERIMENT_NAME=nq-search-r1-ppo-$N_NODES
export VLLM_ATTENTION_BACKEND=XFORMERS
ulimit -n 65535

head=$(hostname)
srun -N1 -n1 -w $head singularity exec --nv --bind /data:/data,/models:/models:ro images/search-r1.sif ray start --head --dashboard-host=0.0.0.0 --block &
srun --nodes=1 --exclude=$head singularity exec --nv --bind /data:/data,/models:/models:ro images/search-r1.sif ray start --address=$head:6379 --block &
sleep 20
srun --overlap singularity exec --nv images/search-r1.sif bash retrieval_launch.sh &
until curl -s -o /dev/null http://127.0.0.1:8000/docs; do sleep 5; done

singularity exec --nv images/search-r1.sif ray job submit --address=$RAY_DASHBOARD_ADDRESS \
    --runtime-env=verl/trainer/runtime_env.yaml \
    --no-wait \
    -- \
    python3 -m verl.trainer.main_ppo \
    data.train_files=$DATA_DIR/train.parquet \
    data.val_files=$DATA_DIR/test.parquet \
    algorithm.adv_estimator=gae \
    actor_rollout_ref.model.path=$BASE_MODEL \
    trainer.logger=['wandb'] \
    +trainer.val_only=false \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=$N_NODES \
    trainer.project_name=$WAND_PROJECT \
    trainer.experiment_name=$EXPERIMENT_NAME \
    trainer.default_local_dir=verl_checkpoints/$EXPERIMENT_NAME \
    retriever.url="http://127.0.0.1:8000/retrieve" \
    retriever.topk=3 \
    2>&1 | tee $EXPERIMENT_NAME.log
