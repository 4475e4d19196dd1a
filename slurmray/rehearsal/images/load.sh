#!/bin/sh
# Loads a docker-archive into a new image store; runs as root in separate mount, pid and net namespaces.
#
# usage: load.sh podman|docker ROOT ARCHIVE
#   ROOT     the graph root or data root to create
set -eu
runtime=$1 root=$2 archive=$3

mkdir "$root"
exec <"$archive"
# Sockets, locks and keys outside the store: keep them away from those of the machine.
mount -t tmpfs tmpfs /run
mkdir /run/root /run/upper /run/work
mount --bind "$root" /run/root
mount -t overlay -o lowerdir=/etc,upperdir=/run/upper,workdir=/run/work overlay /etc
mkdir -p /etc/docker
for folder in /dev/shm /etc/docker /opt /var/lib/containers; do
	[ ! -d "$folder" ] || mount -t tmpfs tmpfs "$folder"
done

case $runtime in
podman)
	podman --root "$root" --runroot /run/store --storage-driver overlay --cgroup-manager cgroupfs \
		load --quiet --input "$archive"
	rm -rf "$root/libpod" "$root/db.sql"
	;;
docker)
	echo '{}' >/run/daemon.json
	dockerd --config-file /run/daemon.json --host unix:///run/docker.sock --pidfile /run/docker.pid \
		--data-root /run/root --exec-root /run/docker --storage-driver overlay2 \
		--bridge none --iptables=false --ip6tables=false --ip-forward=false >/run/log 2>&1 &
	until docker --host unix:///run/docker.sock version >/dev/null 2>&1; do
		kill -0 $! 2>/dev/null || {
			grep -v level=info /run/log | tail -n1 >&2
			exit 1
		}
		sleep 0.1
	done
	docker --host unix:///run/docker.sock load --quiet
	kill $!
	wait $!
	;;
esac
