#!/bin/bash
# Prints the size of what a job has written into a run directory, and whether the directory stays; nothing for a
# symbolic link. All other files are the user's: see docs/guides/paths.md and docs/inside/script.md#run-directory.
# It enters each folder before it looks at its files, and removes only names that the folder has: no text of a job
# is part of a path, and no link leads elsewhere.
#
# usage: clean.sh FOLDER remove|''. Standard input: a log of a node in each line.
set -Eeuo pipefail
shopt -s nullglob dotglob
run=$1 remove=$2 size=0
[[ ! -L $run ]] || exit 0
cd -P -- "$run"
[[ -O . ]] || exit 0
declare -A logs=()
mapfile -t names <<<"$(cat)" # from a pipe mapfile reads single bytes
for name in "${names[@]}"; do [[ -z $name ]] || logs[$name]=1; done

# remove_file NAME: of the current folder
remove_file() {
	[[ -f $1 && ! -L $1 && -O $1 ]] || return 0
	size=$((size + $(stat --format=%s -- "$1")))
	[[ -z $remove ]] || rm -f -- "$1"
}

if [[ -d logs && ! -L logs ]]; then
	cd -P logs
	# Where a link has replaced it meanwhile, this is another folder.
	if [[ .. -ef $run ]]; then
		for name in *; do
			[[ -z ${logs[$name]-} && $name != service-*.log ]] || remove_file "$name"
		done
	fi
	cd -P -- "$run"
fi
# events.jsonl goes last, as it has the names of the nodes.
for name in mark heartbeat cancel-now requeue-requested usage.json usage.json.new prepared-* events.jsonl; do remove_file "$name"; done
[[ -z $remove ]] || rmdir logs "$run" 2>/dev/null || : # not empty
if [[ -d $run ]]; then echo "$size stays"; else echo "$size gone"; fi
