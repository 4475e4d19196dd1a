#!/bin/bash
# Lists leftovers of jobs on this host, one line each. Runs as root on the host.
# usage: leftovers.sh FOLDER... (folders of the machine that are mounted on the host)
shopt -s nullglob

for proc in /proc/[0-9]*; do
	pid=${proc#/proc/}
	argv=()
	((pid == 1 || pid == $$)) || mapfile -d '' -t argv 2>/dev/null <"$proc/cmdline"
	case "${argv[*]}" in
	'') ;; # a kernel thread, or ended meanwhile
	*munged\ * | slurmctld* | :\ slurmscriptd* | slurmd* | dockerd\ * | containerd\ *) ;;
	podman | catatonit\ -P | */catatonit\ -P) ;; # Podman's pause process, one for each rootless user
	*) echo "process $pid: ${argv[*]}" ;;
	esac
done

if [[ -d /var/lib/containers/storage/libpod ]]; then
	# Without warnings, e.g. of Podman 5.8 about old fields in storage.conf.
	podman ps --all --external --format 'Podman container {{.Names}} ({{.Status}})' 2>&1 | grep -v ' level=warning '
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
	# Written by Docker if its containerd is slow to answer.
	/tmp/containerd.*.stacks.log) ;;
	/var/tmp/containers-* | /tmp/podman-run-* | /tmp/storage-run-* | /tmp/containers-user-* | /dev/shm/libpod_*lock*) ;; # files of Podman itself
	*) echo "file $path" ;;
	esac
done
