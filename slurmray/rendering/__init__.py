"""From a job spec to the sbatch script with the agent; and whether a script is as it was rendered."""
