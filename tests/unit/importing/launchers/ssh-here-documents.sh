#!/bin/bash
# In the style of groups whose nodes know each other by ssh: Ray is started in here-documents.
#SBATCH -N 3 -p gpu --gres=gpu:4 --exclusive -t 1-0 -J ssh-ray
HOSTS=$(scontrol show hostnames $SLURM_NODELIST)
MASTER=$(scontrol show hostnames $SLURM_NODELIST | head -n1)

for h in $HOSTS; do
    if [ "$h" = "$MASTER" ]; then
        ssh "$h" "source ~/env/bin/activate; ray start --head --port=6400"
    else
        ssh "$h" bash -s <<EOF
source ~/env/bin/activate
ray start --address=$MASTER:6400
EOF
    fi
done

source ~/env/bin/activate
python -m train.grpo --nodes $SLURM_NNODES --out /data/$USER/run1
status=$?

for h in $HOSTS; do
    ssh "$h" "source ~/env/bin/activate; ray stop"
done
exit $status
