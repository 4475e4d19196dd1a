#!/usr/bin/env bash
# In the style of one script for several algorithms: the first argument chooses.
#SBATCH -J modes -N 2 --gres=gpu:h100:8 --exclusive -t 10:00:00
case "$1" in
    grpo)
        EXTRA=(algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8)
        ;;
    ppo)
        EXTRA=(algorithm.adv_estimator=gae critic.model.path=Qwen/Qwen3-4B)
        ;;
    *)
        echo "usage: $0 grpo|ppo [ARGUMENTS]" >&2
        exit 2
        ;;
esac
shift

IMAGE=/shared/images/verl.sif
OPTS="--nv --bind /shared --env NCCL_DEBUG=WARN"
IP=$(getent hosts "$(hostname)" | awk '{print $1}')
srun -w "$(hostname)" -N1 -n1 apptainer exec $OPTS $IMAGE ray start --head --node-ip-address=$IP --block &
sleep 15
srun -x "$(hostname)" -N1 -n1 apptainer exec $OPTS $IMAGE ray start --address=$IP:6379 --block &
sleep 15

apptainer exec $OPTS $IMAGE python3 -m verl.trainer.main_ppo "${EXTRA[@]}" \
    trainer.nnodes=2 trainer.n_gpus_per_node=8 "$@"
