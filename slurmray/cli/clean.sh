#!/bin/bash
# Prints the size of what a job has written into a run directory, and whether the directory stays; nothing for a
# symbolic link. All other files are the user's: see docs/guides/paths.md and docs/inside/script.md#run-directory.
#
# usage: clean.sh FOLDER remove|'' FILE_OF_A_NODE...
set -Eeuo pipefail
shopt -s nullglob
run=$1 remove=$2 size=0
[[ ! -L $run ]] || exit 0
cd -- "$run"
# events.jsonl goes last, as it has the names of the nodes.
for file in "${@:3}" mark heartbeat cancel-now requeue-requested prepared-* logs/service-*.log events.jsonl; do
	[[ -f $file && ! (-L logs && $file == logs/*) ]] || continue
	size=$((size + $(stat --format=%s -- "$file")))
	[[ -z $remove ]] || rm -- "$file"
done
[[ -z $remove ]] || rmdir logs "$run" 2>/dev/null || : # not empty
if [[ -d $run ]]; then echo "$size stays"; else echo "$size gone"; fi
