#!/bin/bash
# In the form of NERSC/slurm-ray-cluster: podman-hpc on every node, and ray symmetric-run.
#SBATCH -C gpu&hbm80g
#SBATCH -q regular -A m1234
#SBATCH -N 4 -G 16
#SBATCH -t 04:00:00
#SBATCH --ntasks-per-node=1

module load python
IMAGE=registry.example.org/team/ray:2.53
start_cluster() {
    srun podman-hpc run --rm --gpu --net host --shm-size=40GB \
        -v $SCRATCH/data:/data -v "$PWD":/work -w /work -e HF_TOKEN -e WANDB_API_KEY=$WANDB_API_KEY -e OMP_NUM_THREADS=8 \
        "$IMAGE" ray symmetric-run --address "$(hostname):6379" --min-nodes 4 \
        -- python train.py --lr 1e-4 --data /data
}
start_cluster
exit $?
