#!/bin/bash
# Runs python as a temporary ordinary user, who exists only in a mount namespace with an overlay of /.
#
# usage: as_user.sh FOLDER BASE_PREFIX SITE_PACKAGES CHECKOUT ARGUMENT...
#   FOLDER   has the user's home; the other folders are mounted there, as the user may not be able to read the originals
set -eu
folder=$1 base=$2 site=$3 checkout=$4
shift 4
name=rehearser id=54321

mkdir "$folder"/{python,site,checkout,view}
mount --bind "$base" "$folder/python"
mount --bind "$site" "$folder/site"
mount --bind "$checkout" "$folder/checkout"
chown -R "$id:$id" "$folder/home"

mount -t tmpfs tmpfs "$folder/view"
root=$folder/view/root
mkdir "$folder"/view/{upper,work,root}
mount -t overlay -o "lowerdir=/,upperdir=$folder/view/upper,workdir=$folder/view/work" overlay "$root"
echo "$name:x:$id:$id::$folder/home:/bin/bash" >>"$root/etc/passwd"
echo "$name:x:$id:" >>"$root/etc/group"
echo "$name:700000:65536" >>"$root/etc/subuid"
echo "$name:700000:65536" >>"$root/etc/subgid"
mkdir -p "$root$folder" # missing in the overlay if /tmp is a separate file system
for path in /proc /sys /dev "$folder"; do
	mount --rbind "$path" "$root$path"
done
cd "$root"
pivot_root . mnt
umount -l /mnt

cd "$folder/home"
exec setpriv --reuid=$id --regid=$id --clear-groups --inh-caps=-all env -i HOME="$folder/home" PATH=/usr/bin:/bin \
	PYTHONPATH="$folder/checkout:$folder/site" "$folder/python/bin/python3" "$@"
