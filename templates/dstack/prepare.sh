# What has to end well before the trainer starts.
# usage: prepared EXIT_CODE COUNT [NAME COMMAND] ... TRAINER ...
prepared() {
	local failed=$1 count=$2 code
	shift 2
	for (( ; count > 0; count--)); do
		echo "slurmray: prepare: $1 begins" >&2
		bash -c "$2" </dev/null >&2 || {
			code=$?
			echo "slurmray: prepare: $1 ended with $code" >&2
			exit "$failed"
		}
		shift 2
	done
	exec "$@"
}
RUN=(bash -c "$(declare -f prepared)"$'\nprepared "$@"' slurmray "${PREPARE[@]}" "${RUN[@]}")
