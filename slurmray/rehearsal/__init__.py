"""A real Slurm on one machine: hosts made of namespaces, their root filesystems and their container image."""
