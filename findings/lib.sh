# shellcheck shell=bash
# What the findings share: a temporary folder, pinned packages in it, a Slurm of one node in a Debian of its own.

set -Eeuo pipefail
SCRATCH=$(mktemp --directory)
trap 'rm -rf --one-file-system "$SCRATCH"' EXIT

# make_venv PACKAGE==VERSION...: a Python environment in $SCRATCH/venv, and a home of its own.
make_venv() {
	python3 -m venv "$SCRATCH/venv"
	"$SCRATCH/venv/bin/pip" install --quiet --disable-pip-version-check "$@"
	export HOME=$SCRATCH PATH=$SCRATCH/venv/bin:$PATH
}

# expect WHAT EXPECTED SEEN: says what was seen; fails if it is something else.
expect() {
	if [[ $3 == "$2" ]]; then
		echo "as before: $1: ${3//$'\n'/; }"
	else
		printf 'changed: %s\nexpected:\n%s\nseen:\n%s\n' "$@" >&2
		return 1
	fi
}

# in_namespaces COMMAND ARGUMENT...: runs a command as root in namespaces of its own, whose only address is 192.0.2.1; all
# that it has started ends with it.
in_namespaces() {
	unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc bash -Eeuo pipefail -c '
		ip link set lo up && ip link add name out type veth peer name far && ip link set far up
		ip address add 192.0.2.1/24 dev out && ip link set out up && "$@"' _ "$@"
}

# with_slurm SUITE VERSION [LINE...]: runs standard input as a bash script on the only node, n1, of a Slurm of this Debian
# suite, as root. LINEs are added to slurm.conf. Fails if the suite has another version of Slurm. Needs root and mmdebstrap.
with_slurm() {
	local suite=$1 version=$2 root=$SCRATCH/$1
	shift 2
	[[ -d $root ]] || mmdebstrap --quiet --variant=minbase --include=slurmctld,slurmd,slurm-client,munge,iproute2,procps \
		"$suite" "$root" 2>"$SCRATCH/mmdebstrap.log" || { tail "$SCRATCH/mmdebstrap.log" >&2 && return 1; }
	cat >"$root/etc/slurm/cgroup.conf" <<<"$([[ $version == 22.* ]] || echo CgroupPlugin=disabled)"
	cat - >"$root/etc/slurm/slurm.conf" <<-END
		ClusterName=finding
		SlurmctldHost=n1
		SlurmUser=root
		SlurmctldLogFile=/var/log/slurmctld.log
		SlurmdLogFile=/var/log/slurmd.log
		StateSaveLocation=/var/lib/slurm/ctld
		SlurmdSpoolDir=/var/lib/slurm/d
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		SlurmdParameters=config_overrides
		SchedulerParameters=sched_interval=2,bf_interval=2
		KillWait=5
		MinJobAge=600
		$(printf '%s\n' "$@")
	END
	printf '%s\n' '127.0.0.1 localhost' '192.0.2.1 n1' >"$root/etc/hosts"
	cat >"$root/root/finding"
	cat >"$root/root/boot" <<-'END'
		set -e
		mkdir -p /var/lib/slurm/ctld /var/lib/slurm/d /run/munge /run/slurm /var/log/munge
		chown -R munge: /run/munge /var/log/munge /etc/munge
		[[ -s /etc/munge/munge.key ]] || runuser -u munge -- mungekey --create
		runuser -u munge -- munged
		slurmctld
		slurmd -N n1 || slurmd
		for _ in {1..60}; do
			[[ $(sinfo --noheader --format %t 2>/dev/null | sort -u) != idle ]] || break
			sleep 0.3
		done
		cd /tmp
		bash /root/finding
	END
	in_namespaces bash -Eeuo pipefail -c '
		mount --bind "$1" "$1" && cd "$1" && hostname n1
		mount -t proc proc proc && mount --rbind /dev dev && mount -t sysfs sys sys
		mount --rbind /sys/fs/cgroup sys/fs/cgroup
		mount -t tmpfs -o mode=755 tmpfs run && mount -t tmpfs -o mode=1777 tmpfs tmp
		exec chroot . bash /root/boot' _ "$root"
}
