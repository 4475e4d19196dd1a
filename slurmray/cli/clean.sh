#!/bin/bash
# Prints the size of what a job has written into a run directory, and whether the directory stays; nothing for a
# symbolic link. All other files are the user's: see docs/guides/paths.md and docs/inside/script.md#run-directory.
# It enters each folder before it looks at its files, and removes only names that the folder has: no text of a job
# is part of a path, and no link leads elsewhere.
#
# usage: clean.sh FOLDER remove|''. Standard input: in each line a kind of folder and a name, e.g. logs/NODE.log.
#        clean.sh FOLDER remove|'' SECONDS: archives of images in FOLDER, not used since that time (of 1970).
set -Eeuo pipefail
shopt -s nullglob dotglob
run=$1 remove=$2 before=${3-} size=0
[[ -d $run && ! -L $run ]] || exit 0
cd -P -- "$run"
[[ -O . ]] || exit 0
declare -A known=()
mapfile -t names <<<"$(cat)" # from a pipe mapfile reads single bytes
for name in "${names[@]}"; do [[ -z $name ]] || known[$name]=1; done

# remove_file NAME: of the current folder
remove_file() {
	[[ -f $1 && ! -L $1 && -O $1 ]] || return 0
	size=$((size + $(stat --format=%s -- "$1")))
	[[ -z $remove ]] || rm -f -- "$1"
}

# clean_folder FOLDER KIND: removes files of a folder of the current one, and the folder if it is empty then
clean_folder() {
	local folder=$1 kind=$2 above=$PWD name key
	[[ -d $folder && ! -L $folder ]] || return 0
	cd -P -- "$folder"
	# Where a link has replaced it meanwhile, this is another folder.
	if [[ .. -ef $above ]]; then
		for name in *; do
			key=$kind/$name
			case $key in
			logs/service-*.log) remove_file "$name" ;;
			metrics/ray.json | metrics/ray.json.new) remove_file "$name" ;;
			metrics/slurmray.prom | metrics/slurmray.prom.new) remove_file "$name" ;;
			logs/stall-[0-9]*) clean_folder "$name" stall ;;
			*) [[ -z ${known[$key]-} ]] || remove_file "$name" ;;
			esac
		done
	fi
	cd -P -- "$above"
	[[ -z $remove ]] || rmdir -- "$folder" 2>/dev/null || : # not empty
}

if [[ -n $before ]]; then
	for name in *; do
		[[ $name =~ ^[0-9a-f]{64}\.tar ]] || continue
		((before <= $(stat --format=%Y -- "$name"))) || remove_file "$name"
	done
	echo "$size gone"
	exit 0
fi
clean_folder logs logs
clean_folder metrics metrics
# events.jsonl goes last, as it has the names of the nodes.
for name in mark heartbeat cancel-now requeue-requested usage.json usage.json.new image-id* prepared-* events.jsonl; do remove_file "$name"; done
[[ -z $remove ]] || rmdir -- "$run" 2>/dev/null || : # not empty
if [[ -d $run ]]; then echo "$size stays"; else echo "$size gone"; fi
