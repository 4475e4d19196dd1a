#!/bin/bash
# Slurm's Prolog on a node: makes the folder in which rootless Podman keeps the images and containers of the job's user.
#   slurm.conf                     Prolog=/etc/slurm/prolog.sh
#   /etc/containers/storage.conf   rootless_storage_path = "/var/lib/user-containers/$UID"
# With another exit code than 0, Slurm would drain the node.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
stores=/var/lib/user-containers # on the node's own disk, and its parents are root's
install -d -m 0755 "$stores" &&
	install -d -m 0700 -o "$SLURM_JOB_UID" -g "$(id -g "$SLURM_JOB_UID")" "$stores/$SLURM_JOB_UID"
exit 0
