"""A real Slurm of several hosts, made of namespaces on one machine."""
