#!/bin/bash
# Slurm's Epilog on a node: removes what a job of slurmray left there, its containers and its folders in /tmp and /var/tmp.
#   slurm.conf   Epilog=/etc/slurm/epilog.sh
# Jobs clean up after themselves, also after scancel. This is for those that could not, e.g. after SIGKILL to the node agent.
# For all other jobs, slurmray's or not, it looks for a folder and ends. With another exit code than 0, Slurm would drain
# the node.
exec </dev/null >/dev/null 2>&1
shopt -s nullglob
set -o pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
cd / || exit 0
parents=(/tmp /var/tmp)                   # ray.temp_dir and TMPDIR of jobs, on the node's own disks
job=${SLURM_HET_JOB_ID:-${SLURM_JOB_ID-}} # a job with groups has the number of its first component
IFS=: read -r user _ uid gid _ home _ < <(getent passwd "${SLURM_JOB_UID-}")
[[ $job =~ ^[0-9]+$ && $uid =~ ^[0-9]+$ ]] || exit 0

# find_folders: the job's folders, into `folders`. Only those of the job's user, as anybody can make such a name in /tmp.
find_folders() {
	local parent path names="^(ray-$job-[0-9]+-[0-9a-f]{6}|slurmray-$job-[0-9]+-.+)$"
	folders=()
	for parent in "${parents[@]}"; do
		for path in "$parent/ray-$job-"* "$parent/slurmray-$job-"*; do
			[[ ! ${path##*/} =~ $names || $(stat --format '%u %F' -- "$path") != "$uid directory" ]] || folders+=("$path")
		done
	done
}

# as_user COMMAND...: runs it as the job's user, as that user's files decide what Podman does, and as the user may exchange a
# folder for a link at any moment.
as_user() {
	timeout --kill-after=5 60 setpriv --reuid "$uid" --regid "$gid" --init-groups \
		env -i PATH="$PATH" HOME="$home" "${session[@]}" "$@"
}

# remove_containers COMMAND...: those with the job's labels. COMMAND: podman or docker, and what runs it. A process that the
# user leaves behind may keep the pipe open, so `head` has a time limit, too.
remove_containers() {
	local ids filters=(--filter "label=slurmray.job=$job" --filter "label=slurmray.user=$user")
	for _ in 1 2 3; do # on a busy node Podman may fail, or give up waiting for the end of a container
		mapfile -t ids < <("$@" ps --all --quiet --no-trunc "${filters[@]}" | timeout 70 head --bytes=65536)
		wait "$!" && ((${#ids[@]} == 0)) && return
		"$@" kill "${ids[@]}"
		"$@" rm --force --volumes "${ids[@]}"
		((SECONDS < 60)) || break
	done
	logger --tag slurmray-epilog "job $job of $user: ${*: -1} may still have containers"
}

find_folders
((${#folders[@]} > 0)) || exit 0
found=("${folders[@]}") session=()
[[ ! -d /run/user/$uid ]] || session=(XDG_RUNTIME_DIR="/run/user/$uid")
[[ ! -S /run/docker.sock ]] || remove_containers timeout --kill-after=5 60 docker
! type -P podman || remove_containers as_user podman
as_user rm -rf -- "${folders[@]}"
find_folders
if ((${#folders[@]} > 0)); then # files of other ids of a rootless container
	as_user podman unshare rm -rf -- "${folders[@]}"
	find_folders
fi
logger --tag slurmray-epilog "job $job of $user: left ${found[*]}; still there: ${folders[*]:-nothing}"
exit 0
