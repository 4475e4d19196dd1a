# Starts Ray on every node and, when all nodes have joined, the trainer on the first one.
HEAD=${DSTACK_MASTER_NODE_IP:-127.0.0.1}
mapfile -t IPS <<<"${DSTACK_NODES_IPS:-$HEAD}"
IP=${IPS[DSTACK_NODE_RANK]}
export VLLM_HOST_IP=${VLLM_HOST_IP:-$IP}
RAY_ARGS=("--node-name=$IP" "--node-ip-address=$IP" "${RAY_ARGS[@]}")

# usage: is_open ADDRESS PORT
is_open() {
	(: <"/dev/tcp/$1/$2") 2>/dev/null
}

# Waits for the head, whose image may take longer to pull, then becomes `ray start`.
# usage: join_head
join_head() {
	until is_open "$HEAD" "$PORT"; do
		if ((SECONDS >= READY_TIMEOUT)); then
			echo "slurmray: head node $HEAD did not open port $PORT within $READY_TIMEOUT s. See its log, or raise ray.ready_timeout" >&2
			exit "$NOT_READY"
		fi
		read -r -t 1 <> <(:) # sleeps one second
	done
	exec ray start --block --address="$HEAD:$PORT" "${RAY_ARGS[@]}" "${WORKER_ARGS[@]}" </dev/null
}

# Runs the trainer. dstack ends a run with SIGINT to this shell only, and SIGKILL 10 s later; the trainer gets
# STOP_SIGNAL instead of SIGINT.
# usage: train STOP_SIGNAL COMMAND ...
train() {
	local signal=$1 trainer code
	set -m # puts the trainer and its children in a process group
	"${@:2}" </dev/null &
	trainer=$!
	set +m
	trap 'kill -s "$signal" -- "-$trainer"' INT TERM
	while kill -s 0 "$trainer" 2>/dev/null; do
		wait "$trainer"
	done
	wait "$trainer" # a signal may have interrupted the first wait
	code=$?
	kill -s KILL -- "-$trainer" 2>/dev/null
	exit "$code"
}

((DSTACK_NODE_RANK == 0)) || join_head
# stdin is not the terminal: to dstack, a job lasts as long as a process has its terminal open, and Ray stays up.
ray start --head "${RAY_ARGS[@]}" "${HEAD_ARGS[@]}" </dev/null || exit "$BRING_UP"
python3 -c "$PROBE" "$GPUS_PER_NODE" "$READY_TIMEOUT" "${IPS[@]}" <<<"$HEAD:$PORT" || exit "$NOT_READY"
export RAY_ADDRESS=$HEAD:$PORT NNODES=$NODES NODE_RANK=0 GPUS_PER_NODE MASTER_ADDR=$HEAD MASTER_PORT
# In a new bash: this one is interactive, and would handle the signal itself.
exec bash -c "$(declare -f train)"$'\ntrain "$@"' slurmray "$STOP_SIGNAL" "${RUN[@]}"
