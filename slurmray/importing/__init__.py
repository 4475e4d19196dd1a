"""Makes a job spec from a launcher, a bash script that starts Ray under Slurm. Runs nothing of it."""
