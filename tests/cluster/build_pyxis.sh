#!/usr/bin/env bash
# Builds enroot and pyxis in a Debian, as a hook of mmdebstrap. /opt/src has their sources.
set -Eeuo pipefail
cd /opt/src/enroot
sed -e 's;@sysconfdir@;/etc/enroot;' -e 's;@libdir@;/usr/lib/enroot;' -e "s;@version@;$(sed -n 's/^VERSION *:= *//p' Makefile);" \
	enroot.in >enroot
for name in aufs2ovlfs mksquashovlfs mount switchroot nsenter; do
	# Its Makefile would link them against a musl of its own.
	gcc -std=gnu99 -O2 -o "enroot-$name" "bin/enroot-$name.c" -l:libbsd.a -l:libmd.a
done
install -D -t /usr/bin enroot enroot-aufs2ovlfs enroot-mksquashovlfs enroot-mount enroot-switchroot enroot-nsenter
install -D -m 644 -t /usr/lib/enroot src/*.sh
install -D -m 644 -t /etc/enroot/environ.d conf/environ/*.env
install -D -m 644 -t /etc/enroot/mounts.d conf/mounts/*.fstab
install -D -t /etc/enroot/hooks.d conf/hooks/*.sh
# pyxis makes the user's folder.
cat >/etc/enroot/enroot.conf <<'CONF'
ENROOT_RUNTIME_PATH /run/pyxis/$(id -u)/enroot
ENROOT_DATA_PATH /run/pyxis/$(id -u)/data
ENROOT_CACHE_PATH /run/pyxis/$(id -u)/cache
ENROOT_CONFIG_PATH /run/pyxis/$(id -u)/config
CONF
cd ../pyxis
make -s prefix=/opt install
echo 'required /opt/lib/slurm/spank_pyxis.so' >/opt/plugstack.conf
