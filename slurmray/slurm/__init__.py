"""Slurm: its syntax, commands and job states, and a submitted job."""
