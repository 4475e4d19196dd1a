#!/bin/bash
# First process (PID 1) of one host. Runs in new mount, uts, ipc, pid, net and cgroup namespaces: mounts the host's
# root, pivots into it, starts the daemons, and then only reaps orphans. When it or its standard input ends, the host is
# gone, as after a power failure.
#
# usage: host.sh BASE OWN NAME CONTROLLERS PARENT DAEMONS ADDRESS... -- [SOURCE TARGET]...
#   BASE         the root that all hosts share, a mount point
#   OWN          this host's /var and /tmp, which survive a power failure
#   CONTROLLERS  controllers of cgroup v1, separated by spaces; empty: cgroup2
#   PARENT       parent cgroup of Docker's containers
#   DAEMONS      of munged, slurmctld, dockerd and slurmd, separated by spaces
set -eu
base=$1 own=$2 name=$3 controllers=$4 cgroup_parent=$5 daemons=$6
shift 6

read -r pid _ </proc/self/stat # through the machine's /proc: the pid of this process on the machine
echo "$pid"
read -r _ # wait for the network interface

hostname "$name"
ip link set lo up
ip link set eth0 up
while [[ $1 != -- ]]; do
	[[ $1 == *:* ]] && dad=nodad || dad=
	# shellcheck disable=SC2086 # an empty $dad is no argument
	ip address add "$1" dev eth0 $dad
	shift
done
shift
ip route add default via 10.77.255.254 2>/dev/null || true
ip -6 route add default via fd77::ffff:ffff:ffff:fffe 2>/dev/null || true

# Removed at boot on real hosts, by the systemd-tmpfiles configuration of Podman.
rm -rf "$own"/tmp/podman-run-* "$own"/tmp/containers-user-* "$own"/tmp/storage-run-*
mount --make-rprivate /
mount --rbind "$own/var" "$base/var"
mount --bind "$own/tmp" "$base/tmp"
mount -t tmpfs -o mode=755 tmpfs "$base/run"
mount -t tmpfs -o mode=1777 tmpfs "$base/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$base/dev/pts"
mount -t mqueue mqueue "$base/dev/mqueue"
mount -t proc proc "$base/proc"
mount -t sysfs sysfs "$base/sys"
# Not both: crun rejects the hybrid of v1 and v2 that some machines have.
if [[ -z $controllers ]]; then
	mount -t cgroup2 cgroup2 "$base/sys/fs/cgroup"
else
	mount -t tmpfs -o mode=755 tmpfs "$base/sys/fs/cgroup"
	for controller in $controllers; do
		mkdir "$base/sys/fs/cgroup/$controller"
		mount -t cgroup -o "$controller" cgroup "$base/sys/fs/cgroup/$controller"
	done
fi
mkdir -p "$base/run/lock" "$base/run/user"
while (($#)); do
	if [[ -d $1 ]]; then
		mkdir -p "$base$2"
	else
		mkdir -p "$base${2%/*}"
		touch "$base$2"
	fi
	mount --rbind "$1" "$base$2"
	shift 2
done

cd "$base"
pivot_root . .old
cd /
umount -l /.old
mount --make-rshared /
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
umask 022

# start DAEMON: returns when it is ready.
start() {
	case $1 in
	munged) munged --force ;;
	dockerd)
		dockerd --iptables=false --ip6tables=false --bridge=none --ip-forward=false --storage-driver=overlay2 \
			--cgroup-parent="/$cgroup_parent" >/var/log/dockerd.log 2>&1 &
		until docker version; do
			kill -0 $! || return
			sleep 0.05
		done
		;;
	*) "$1" ;;
	esac
}
for daemon in $daemons; do
	start "$daemon" >"/var/log/$daemon.boot.log" 2>&1 || {
		tail -n 20 "/var/log/$daemon.boot.log" "/var/log/$daemon.log" >&2 || true
		exit 1
	}
done
echo up
exec >&2
while read -r _; do :; done
