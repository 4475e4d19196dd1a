# Ray on every node; on the first one, once all are there, the trainer.
HEAD=${DSTACK_MASTER_NODE_IP:-127.0.0.1}
mapfile -t IPS <<<"${DSTACK_NODES_IPS:-$HEAD}"
IP=${IPS[DSTACK_NODE_RANK]}
export VLLM_HOST_IP=${VLLM_HOST_IP:-$IP}
RAY_ARGS=("--node-name=$IP" "--node-ip-address=$IP" "${RAY_ARGS[@]}")

# usage: is_open ADDRESS PORT
is_open() {
	(: <"/dev/tcp/$1/$2") 2>/dev/null
}

# A worker waits for the head, whose image may have had a longer way, and is then Ray and nothing else.
# usage: join_head
join_head() {
	until is_open "$HEAD" "$PORT"; do
		if ((SECONDS >= READY_TIMEOUT)); then
			echo "slurmray: the head, $HEAD, did not open port $PORT in $READY_TIMEOUT seconds" >&2
			exit "$NOT_WHOLE"
		fi
		read -r -t 1 <> <(:) # a pause
	done
	exec ray start --block --address="$HEAD:$PORT" "${RAY_ARGS[@]}" "${WORKER_ARGS[@]}" </dev/null
}

# dstack ends a run with SIGINT for this shell alone, and KILL ten seconds later: the trainer gets STOP_SIGNAL.
# usage: train STOP_SIGNAL COMMAND ...
train() {
	local signal=$1 trainer code
	set -m # the trainer and what it starts become one process group
	"${@:2}" </dev/null &
	trainer=$!
	set +m
	trap 'kill -s "$signal" -- "-$trainer"' INT TERM
	while kill -s 0 "$trainer" 2>/dev/null; do
		wait "$trainer"
	done
	wait "$trainer" # a signal may have ended the one before
	code=$?
	kill -s KILL -- "-$trainer" 2>/dev/null
	exit "$code"
}

((DSTACK_NODE_RANK == 0)) || join_head
# To dstack a job has ended when nothing has its terminal open any more, as Ray would.
ray start --head "${RAY_ARGS[@]}" "${HEAD_ARGS[@]}" </dev/null || exit "$BRING_UP"
python3 -c "$PROBE" "$IP" "$GPUS_PER_NODE" "$READY_TIMEOUT" "${IPS[@]}" <<<"$HEAD:$PORT" || exit "$NOT_WHOLE"
export RAY_ADDRESS=$HEAD:$PORT NNODES=$NODES NODE_RANK=0 GPUS_PER_NODE MASTER_ADDR=$HEAD MASTER_PORT
# Not in this shell, which is an interactive one and would take the signal for itself.
exec bash -c "$(declare -f train)"$'\ntrain "$@"' slurmray "$STOP_SIGNAL" "${RUN[@]}"
