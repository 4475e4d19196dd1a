"""Turns a launcher, a bash script that starts Ray under Slurm, into a job spec. Runs nothing of the script."""
