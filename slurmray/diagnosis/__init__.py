"""What is known of exit codes, of Slurm's states and of messages: cause and fix, as data. No I/O."""
