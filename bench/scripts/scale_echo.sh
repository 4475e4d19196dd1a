#!/bin/bash
#SBATCH --job-name=echo
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=10
# One srun that does nothing: measures Slurm's own cost of a step on all nodes.
set -euo pipefail

srun --overlap bash -c 'echo here' >/dev/null
bash scale_trainer.sh
echo "done: trainer exited with 0"
