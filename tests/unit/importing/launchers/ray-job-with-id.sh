#!/bin/bash
# In the style of jobs of Ray's job API: an id, a loop that asks for the state, and the log.
#SBATCH -N 2
#SBATCH --gpus-per-node 8
#SBATCH -t 08:00:00
export RAY_ADDRESS=http://127.0.0.1:8265
ID=ppo-$SLURM_JOB_ID
cat > runtime_env.yaml <<EOF
working_dir: .
excludes: ["/data/", "*.ckpt"]
env_vars:
  TORCH_NCCL_AVOID_RECORD_STREAMS: "1"
EOF

HEAD=$(hostname -s)
ray start --head --dashboard-host=0.0.0.0 --port=6379
srun -N1 -n1 -x $HEAD ray start --address=$HEAD:6379 --block &
sleep 20

ray job submit --no-wait --submission-id "$ID" --runtime-env runtime_env.yaml \
    --entrypoint-num-cpus 1 -- python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8
while true; do
    STATE=$(ray job status "$ID" | grep -oE "SUCCEEDED|FAILED|STOPPED|RUNNING|PENDING" | tail -1)
    case $STATE in
        SUCCEEDED) break ;;
        FAILED | STOPPED) ray job logs "$ID" | tail -n 200; exit 1 ;;
    esac
    sleep 30
done
ray job logs "$ID" > "$ID.log"
