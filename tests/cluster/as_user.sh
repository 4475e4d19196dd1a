#!/bin/bash
# Runs python as an ordinary user that the machine does not have: in a mount namespace, on a changed view of /.
#
# usage: as_user.sh FOLDER BASE_PREFIX SITE_PACKAGES CHECKOUT ARGUMENT...
#   FOLDER   for the user's home, and for views of what the user may not be allowed to read where it is
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
mkdir -p "$root$folder" # where /tmp is a file system of its own, there is none of it in this view
for path in /proc /sys /dev "$folder"; do
	mount --rbind "$path" "$root$path"
done
cd "$root"
pivot_root . mnt
umount -l /mnt

cd "$folder/home"
exec setpriv --reuid=$id --regid=$id --clear-groups --inh-caps=-all env -i HOME="$folder/home" PATH=/usr/bin:/bin \
	PYTHONPATH="$folder/checkout:$folder/site" "$folder/python/bin/python3" "$@"
