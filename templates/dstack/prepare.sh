# Runs the prepare steps, then becomes the trainer. A failed step ends the job with EXIT_CODE.
# usage: prepare_and_run EXIT_CODE COUNT [NAME COMMAND] ... TRAINER ...
prepare_and_run() {
	local exit_code=$1 count=$2 code
	shift 2
	for (( ; count > 0; count--)); do
		echo "slurmray: prepare: $1 begins" >&2
		bash -c "$2" </dev/null >&2 || {
			code=$?
			echo "slurmray: prepare: $1 exited with $code" >&2
			exit "$exit_code"
		}
		shift 2
	done
	exec "$@"
}
RUN=(bash -c "$(declare -f prepare_and_run)"$'\nprepare_and_run "$@"' slurmray "${PREPARE[@]}" "${RUN[@]}")
