"""A Ray cluster in containers over several Slurm nodes, from one job spec and one sbatch script."""

__version__ = "0.1.0"
