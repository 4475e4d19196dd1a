#!/bin/bash
# What jobs have left on this host, one line each. Runs as root on the host.
# usage: left_over.sh FOLDER... (folders of the machine that the host sees)
shopt -s nullglob

for proc in /proc/[0-9]*; do
	pid=${proc#/proc/}
	words=()
	((pid == 1 || pid == $$)) || mapfile -d '' -t words 2>/dev/null <"$proc/cmdline"
	case "${words[*]}" in
	'') ;; # a thread of the kernel's, or gone
	*munged\ * | slurmctld* | :\ slurmscriptd* | slurmd* | dockerd\ * | containerd\ *) ;;
	podman | catatonit\ -P | */catatonit\ -P) ;; # Podman's own, one for each rootless user
	*) echo "process $pid: ${words[*]}" ;;
	esac
done

if [[ -d /var/lib/containers/storage/libpod ]]; then
	podman ps --all --external --format 'Podman container {{.Names}} ({{.Status}})'
fi
for store in /var/tmp/containers-*/overlay-containers/containers.json; do
	[[ $(<"$store") == *'"id"'* ]] && echo "Podman containers of a rootless user: $(<"$store")"
done
if [[ -S /run/docker.sock ]]; then
	docker ps --all --format 'Docker container {{.Names}} ({{.Status}})'
fi

for path in /tmp/* /tmp/.[!.]* /var/tmp/* /dev/shm/*; do
	for folder in "$@"; do
		[[ $folder/ == "$path"/* ]] && continue 2
	done
	case $path in
	# Docker's, where its containerd was slow to answer.
	/tmp/containerd.*.stacks.log) ;;
	/var/tmp/containers-* | /tmp/podman-run-* | /tmp/storage-run-* | /tmp/containers-user-* | /dev/shm/libpod_*lock*) ;; # Podman's own
	*) echo "file $path" ;;
	esac
done
