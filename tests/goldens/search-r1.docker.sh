#!/bin/bash
#SBATCH --job-name=search-r1
#SBATCH --cpus-per-task=96
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --mem=1000G
#SBATCH --nodes=2
#SBATCH --time=2-00:00:00
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:USR1@60
#SBATCH --no-requeue
#
# Rendered by slurmray 0.1.0 from a job spec: render it again rather than edit it.
# slurmray-sha256: 95c081bddc6c2fd8a9eca478a6030451eb123686834f4208227d9729cb12d38d
#
#   1. values     the only place where anything of the job spec stands
#   2. log        one timed line per phase in the job's log, one JSON line per event in the run directory
#   3. container  the runtime, the image, the device flags, everything else behind `run`
#   4. node       what runs on every node, as the one task of a step: checks, container, clean-up
#   5. python     what runs in the containers: the first process, Ray's start, the readiness check, the built-in check
#   6. cluster    what runs in this batch script: the allocation, the step, the messages of the nodes
#   7. end        the clean-up, and whose exit code it is
# shellcheck disable=SC1003,SC2016,SC2054,SC2088,SC2089,SC2090 # values and programs are text
# shellcheck disable=SC2034,SC2317,SC2329 # used by name, on the nodes
set -Eeuo pipefail

# ---- 1. values ----------------------------------------------------------------------------------------------------
RENDER_AGAIN='slurmray render examples/search-r1.yaml --runtime docker'
NODES=2
GPUS_PER_NODE=8
# 0: as many as Slurm gives.
CPUS_PER_NODE=96
RUN_DIR=slurmray-runs
TEMP_DIR=/tmp
RUNTIMES=(docker)
IMAGE=docker.io/me/search-r1:1
# Source, destination (empty: the same), flags; again and again.
MOUNTS=(. /workspace/Search-R1 '' '~/wiki-18' /wiki-18 '' '~/.cache/huggingface' /huggingface '')
# Empty: the submit folder.
WORKDIR=/workspace/Search-R1
# Empty: as large as the /dev/shm of the node.
SHM_SIZE=128g
CONTAINER_ARGS=(--ulimit nofile=65535:65535)
# For the first process in the containers; without `run` the trainer is the built-in check.
RECORDS=(gpus=8 interface= family=auto port=auto dashboard_port=auto auth=auto metrics=false preflight=fail stop_signal=TERM env=TORCH_NCCL_AVOID_RECORD_STREAMS=1 env=VLLM_ATTENTION_BACKEND=XFORMERS env=HF_HOME=/huggingface env=PYTHONPATH=/workspace/Search-R1 run=python3 run=-m run=verl.trainer.main_ppo run=data.train_files=data/nq_search/train.parquet run=data.val_files=data/nq_search/test.parquet run=data.train_data_num=null run=data.val_data_num=null run=data.train_batch_size=512 run=data.val_batch_size=256 run=data.max_prompt_length=4096 run=data.max_response_length=500 run=data.max_start_length=2048 run=data.max_obs_length=500 run=data.shuffle_train_dataloader=True run=algorithm.adv_estimator=gae run=actor_rollout_ref.model.path=Qwen/Qwen2.5-7B run=actor_rollout_ref.actor.optim.lr=1e-6 run=actor_rollout_ref.model.enable_gradient_checkpointing=true run=actor_rollout_ref.model.use_remove_padding=True run=actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.285 run=actor_rollout_ref.actor.ppo_mini_batch_size=256 run=actor_rollout_ref.actor.ppo_micro_batch_size=64 run=actor_rollout_ref.actor.fsdp_config.param_offload=False run=actor_rollout_ref.actor.fsdp_config.grad_offload=False run=actor_rollout_ref.actor.fsdp_config.optimizer_offload=False run=actor_rollout_ref.rollout.log_prob_micro_batch_size=128 run=actor_rollout_ref.rollout.tensor_model_parallel_size=1 run=actor_rollout_ref.rollout.name=vllm run=actor_rollout_ref.rollout.gpu_memory_utilization=0.6 run=actor_rollout_ref.ref.log_prob_micro_batch_size=128 run=actor_rollout_ref.ref.fsdp_config.param_offload=False run=actor_rollout_ref.rollout.n_agent=1 run=actor_rollout_ref.rollout.temperature=1 run=actor_rollout_ref.rollout.top_p=1.0 run=actor_rollout_ref.actor.state_masking=true run=critic.optim.lr=1e-5 run=critic.model.use_remove_padding=True run=critic.optim.lr_warmup_steps_ratio=0.015 run=critic.model.path=Qwen/Qwen2.5-7B run=critic.model.enable_gradient_checkpointing=true run=critic.ppo_micro_batch_size=16 run=critic.model.fsdp_config.param_offload=False run=critic.model.fsdp_config.grad_offload=False run=critic.model.fsdp_config.optimizer_offload=False run=algorithm.kl_ctrl.kl_coef=0.001 run=algorithm.no_think_rl=false run=trainer.critic_warmup=0 'run=trainer.logger=['"'"'wandb'"'"']' run=+trainer.val_only=false run=+trainer.val_before_train=false run=trainer.default_hdfs_dir=null run=trainer.save_freq=100 run=trainer.test_freq=100 run=trainer.project_name=Search-R1-release run=trainer.experiment_name=nq-search-r1-ppo-qwen2.5-7b-em-multinode-2 run=trainer.total_epochs=15 run=trainer.total_training_steps=1005 run=trainer.default_local_dir=verl_checkpoints/nq-search-r1-ppo-qwen2.5-7b-em-multinode-2 run=max_turns=4 run=retriever.url=http://127.0.0.1:8000/retrieve run=retriever.topk=3 run=trainer.nnodes=2 run=trainer.n_gpus_per_node=8 'preparation={"name": "index", "run": ["bash", "-c", "set -e\ncd /wiki-18\ntest ! -e e5_Flat.index || exit 0\npython3 /workspace/Search-R1/scripts/download.py --save_path .\ngzip -df wiki-18.jsonl.gz\ncat part_* >e5_Flat.index.new\nmv e5_Flat.index.new e5_Flat.index\n"], "where": "head", "needs_ray": false, "once": true}' 'preparation={"name": "data", "run": ["python3", "scripts/data_process/nq_search.py", "--local_dir", "data/nq_search"], "where": "head", "needs_ray": false, "once": true}' 'service={"name": "retriever", "run": ["bash", "-c", ". /opt/conda/etc/profile.d/conda.sh && conda activate retriever && bash retrieval_launch.sh"], "where": "all", "host": false, "env": {}, "gpus": 0, "ready": {"http": "http://127.0.0.1:8000/retrieve", "post": "{\"queries\": [\"Who wrote Faust?\"], \"topk\": 1, \"return_scores\": true}", "timeout": 3600}, "restarts": 0, "on_end": "fail"}')
ENV_FROM_SUBMITTER=(WANDB_API_KEY)
# Seconds. PATIENCE: without a sign of life for so long, a node is lost.
READY_TIMEOUT=600
STOP_GRACE=10
STOP_LEAD=60
PATIENCE=25

# ---- 2. log -------------------------------------------------------------------------------------------------------
# the_time: TIME, in microseconds; it stays what it was where `date` is ended by a signal to the whole job.
the_time() {
	local now
	! now=$(date +%s%6N) || TIME=$now
}

# log TEXT: one line for people, with the seconds since the script began.
log() {
	the_time
	printf '[slurmray %3d.%d s] %s\n' $(((TIME - STARTED) / 1000000)) $(((TIME - STARTED) / 100000 % 10)) "$*" >&2 || true # where the disk is full, the exit code is still to arrive
}

# event NAME TEXT: one JSON line for programs.
event() {
	[[ -d $RUN ]] || return 0
	the_time
	{ printf '{"time": %d.%03d, "event": "%s", "text": "%s"}\n' $((TIME / 1000000)) $((TIME / 1000 % 1000)) "$1" \
		"${2//[\\\"[:cntrl:]]/ }" >>"$RUN/events.jsonl"; } 2>/dev/null || true
}

# phase NAME TEXT: the job gets on; a line for people, and an event.
phase() {
	log "$1: $2"
	event "$@"
}

# clock: NOW, the seconds that this shell has lived, without those in which the job was suspended.
clock() {
	((SECONDS - LOOKED < 10)) || AWAY=$((AWAY + SECONDS - LOOKED))
	LOOKED=$SECONDS NOW=$((SECONDS - AWAY))
}

# must_speak: the other side has not heard of this one for 5 s; asked again, it has.
must_speak() {
	((NOW >= BEAT)) && BEAT=$((NOW + 5))
}

# finish CODE SOURCE TEXT: the last line says whose exit code it is.
finish() {
	trap - ERR EXIT
	phase end "exit code $1 from $2: $3"
	exit "$1"
}

# give_up KIND TEXT: ends the script with our own exit code for that kind; what fails while Slurm ends the job fails of that.
give_up() {
	((! STOPPING)) || finish 143 slurm "the job was ended by scancel, preemption or its time limit"
	local -A codes=([config]=64 [preflight]=65 [image]=66 [bring_up]=67 [probe]=68 [prepare]=69 [service]=70 [node_lost]=71 [time_limit]=72 [internal]=79)
	finish "${codes[$1]}" slurmray "$2"
}

# send RECORD...: to the nodes or, on a node, to its container; whether that has ended is seen elsewhere. A fixed descriptor,
# since bash 4.4 hands on `>&"$1"` to the nodes as something else.
send() {
	{ printf '%s\0' "$@" >&9; } 2>/dev/null || true
}

# receive FD DELIMITER SECONDS: waits so long for RECEIVED; fails with 1 when the time is over, with 2 at the end.
receive() {
	local part code=0
	IFS= read -r -d "$2" -t "$3" -u "$1" part || code=$?
	PARTIAL+=$part
	((code <= 128)) || return 1
	RECEIVED=$PARTIAL PARTIAL=''
	((code == 0)) || return 2
}

# ---- 3. container -------------------------------------------------------------------------------------------------
# docker_works: Docker's daemon answers this user, or WHY not; IMAGE_HERE says whether it has the image.
docker_works() {
	WHY='docker: not found'
	command -v docker >/dev/null || return 1
	# `docker info --format` says without a daemon what its template lacks (20.10 built with newer Go), or nothing.
	{ ask docker version && ask docker info --format '{{.SecurityOptions}}'; } || return 1
	DOCKER_SECURITY=$ANSWER IMAGE_HERE=1
	ask docker image inspect --format 1 "$IMAGE" || IMAGE_HERE=0
}

# docker_reach PATH: that path or, where the daemon's root may be nobody, the first folder on the way that others cannot enter.
docker_reach() {
	local folder='' name names=()
	if [[ $DOCKER_SECURITY != *rootless* ]] && is_remote "$(stat --file-system --format=%T "$1")"; then
		IFS=/ read -ra names < <(echo "${1#/}")
	fi
	for name in "${names[@]}"; do
		folder+=/$name
		(($(stat --dereference --format=%#a "$folder") & 1)) || break
	done
	echo "${folder:-$1}"
}

# docker_args: what `docker run` needs and `podman run` does not.
docker_args() {
	local groups
	if [[ $DOCKER_SECURITY == *rootless* ]]; then
		RUN_ARGS+=(--user 0:0) # its root is the submitter
	else
		read -ra groups < <(id -G)
		RUN_ARGS+=(--user "$UID:$(id -g)" "${groups[@]/#/--group-add=}")
	fi
}

# docker_nvidia_args: the GPUs in GPU_UUIDS, by the NVIDIA Container Toolkit.
docker_nvidia_args() {
	local IFS=,
	RUN_ARGS+=(--gpus "\"device=${GPU_UUIDS[*]}\"")
}

# accelerator_args: device flags for the GPUs that Slurm gave this job on this node, and for nothing else.
accelerator_args() {
	if [[ ${SLURMRAY_ACCELERATOR:-} == none ]]; then
		say phase container "SLURMRAY_ACCELERATOR=none: GPUs are neither counted nor handed to the containers"
	elif [[ -e /dev/nvidiactl ]]; then
		nvidia_args
	elif [[ -e /dev/kfd ]]; then
		amd_args
	else
		finding preflight GPUs "no driver of nvidia or amd here" "$GPUS_PER_NODE GPUs" "mend the driver; container.accelerator: none does without"
	fi
	[[ ! -d /dev/infiniband ]] || RUN_ARGS+=(--device /dev/infiniband)
}

# nvidia_args: the GPUs by UUID, since an index means different things inside and outside of a job's cgroup.
nvidia_args() {
	mapfile -t GPU_UUIDS < <(timeout 20 nvidia-smi --query-gpu=uuid --format=csv,noheader ${CUDA_VISIBLE_DEVICES:+"--id=$CUDA_VISIBLE_DEVICES"})
	((${#GPU_UUIDS[@]} == GPUS_PER_NODE)) ||
		finding preflight GPUs "${#GPU_UUIDS[@]} seen by nvidia-smi" "$GPUS_PER_NODE" "look at nvidia-smi on $NODE; drain it if one is missing"
	"${RUNTIME}_nvidia_args"
}

# amd_args: /dev/kfd and a render node for each GPU; groups by number, since the image may name them otherwise.
amd_args() {
	local renders=() wanted=() index key value
	for ((index = 0; ; index++)); do # the driver's order, which is Slurm's; entries with minor 0 are CPUs
		[[ -r /sys/class/kfd/kfd/topology/nodes/$index/properties ]] || break
		while read -r key value; do
			[[ $key != drm_render_minor || $value == 0 ]] || renders+=("/dev/dri/renderD$value")
		done <"/sys/class/kfd/kfd/topology/nodes/$index/properties"
	done
	IFS=, read -ra wanted < <(echo "${ROCR_VISIBLE_DEVICES:-${SLURM_STEP_GPUS:-}}")
	((${#wanted[@]} == GPUS_PER_NODE)) ||
		finding preflight GPUs "${#wanted[@]} named by Slurm" "$GPUS_PER_NODE" "look at gres.conf of $NODE: File= is missing"
	RUN_ARGS+=(--device /dev/kfd --group-add "$(stat -c %g /dev/kfd)")
	for index in "${wanted[@]}"; do
		[[ -e ${renders[index]-} ]] ||
			{ finding preflight GPUs "GPU $index has no render node" "one in /dev/dri" "load amdgpu on $NODE; drain it if that fails" && continue; }
		RUN_ARGS+=(--device "${renders[index]}" --group-add "$(stat -c %g "${renders[index]}")")
	done
}

# remedy VERB TEXT: what to do about what a runtime said to that command; VERB is `use` where it does not work at all.
remedy() {
	case $* in
	*"permission denied"*.sock*) echo "as root on $NODE: usermod --append --groups docker $(id -un)" ;;
	*[Cc]"annot connect to the Docker daemon"* | *"docker API"*) echo "start it on $NODE: systemctl start docker" ;;
	"use "*": not found"* | "use "*"failed to run command"*) echo "install it on $NODE, load its module in setup, or set container.runtime" ;;
	*subuid* | *subgid* | *"insufficient UIDs"* | *"invalid argument") echo "add $(id -un):100000:65536 to /etc/subuid and /etc/subgid of $NODE" ;;
	*"podman system migrate"*) echo "on $NODE, as $(id -un): podman system migrate" ;;
	*"not supported over"* | *"network file system"* | *"unsupported for this graph driver"* | *lchown*) echo "put the images on $NODE's own disk: rootless_storage_path in ~/.config/containers/storage.conf" ;;
	*"no space left"*) echo "free space where $RUNTIME on $NODE keeps images" ;;
	"use "* | "load "*) echo "run it on $NODE by hand" ;;
	*toomanyrequests* | *"rate limit"*) echo "log in to the registry on $NODE, or load the image there beforehand" ;;
	*x509*) echo "mend the registry's certificate, or let $NODE trust it: /etc/docker/certs.d/REGISTRY/ca.crt" ;;
	*[Uu]nauthorized* | *"authentication required"* | *[!n]" denied"* | *"t unknown"* | *"not known"* | *[Nn]"ot "[Ff]ound*) echo "check container.image, and whether $NODE has to log in to the registry" ;;
	*"dial tcp"* | *lookup* | *[Tt]imeout* | *"no answer"* | *refused*) echo "$NODE does not reach the registry: load the image there beforehand" ;;
	*) echo "run it on $NODE by hand" ;;
	esac
}

# run_long WORD...: a command of the runtime that can take long; its words go to the log of the node.
run_long() {
	local code=0
	say phase image "$RUNTIME $1 $IMAGE"
	# For what Podman leaves behind when it is interrupted.
	[[ -O $SCRATCH && ! -L $SCRATCH ]] || mkdir -m 700 "$SCRATCH" || fail preflight "cannot make $SCRATCH (TMPDIR)"
	TMPDIR=$SCRATCH "$RUNTIME" "$@" >"$TEMP/output" 2>&1 &
	DOING=$1
	attend $! || code=$?
	DOING=''
	{ cat "$TEMP/output" >&2 && rm -rf "$SCRATCH"; } || true
	((! STOPPED)) || leave
	return "$code"
}

# not_there VERB: the image, after that. The runtime's last words may be blank, or in colour; those before are not its own.
not_there() {
	set -- "$1" "$(sed $'s/\e\\[[0-9;]*m//g' "$TEMP/output" | grep . | tail -n 1)"
	finding image "$RUNTIME $1" "$2" "$IMAGE" "$(remedy "$@")"
}

# bind SOURCE DESTINATION [FLAGS]: one bind mount, in the runtimes' CSV, once.
bind() {
	local reach arg
	[[ -e $1 ]] || finding preflight mount "$1 is not on this node" "what the containers are to see" "make it there, or take it out of container.mounts"
	reach=$("${RUNTIME}_reach" "$1")
	if [[ $reach != "$1" ]]; then
		[[ $1 == "$2" ]] ||
			finding preflight mount "the root of $RUNTIME cannot enter $reach" "a way to $1" "mount it at the same path, use Podman, or chmod o+x $reach"
		say phase container "the root of $RUNTIME cannot enter $reach, so the containers see all of it"
		set -- "$reach" "$reach"
	fi
	arg="type=bind,\"source=${1//\"/\"\"}\",\"target=${2//\"/\"\"}\"${3:-}"
	[[ " ${RUN_ARGS[*]} " == *" $arg "* ]] || RUN_ARGS+=(--mount "$arg")
}

# choose_runtime: RUNTIME, of those that work here one that has the image, else the first.
choose_runtime() {
	local each works='' why=''
	for each in "${RUNTIMES[@]}"; do
		"${each}_works" || { why+="${why:+; }$WHY" && continue; }
		works=${works:-$each} RUNTIME=$each
		((! IMAGE_HERE)) || return 0
	done
	RUNTIME=${works:-$RUNTIME}
	[[ -z $works ]] || return 0
	finding preflight "container runtime" "$why" "${RUNTIMES[*]}" "$(remedy use "$why")"
	settle
}

# ensure_image: the image is on this node.
ensure_image() {
	((! IMAGE_HERE)) || return 0
	pull_image "$IMAGE"
}

# pull_image NAME: many nodes do not ask at one moment, and each asks again where the answer may soon be another one.
pull_image() {
	local tries
	pause $((RANDOM % ${#NODE_NAMES[@]} / 4))
	for tries in 1 2 3; do
		! run_long pull "$1" || return 0
		[[ $tries != 3 && $(<"$TEMP/output") == *@("reset by peer"|"TLS handshake"|"unexpected EOF"|timeout|Timeout|toomanyrequests|" 429"|" 50"[0-4])* ]] || break
		pause $((tries * 10 + RANDOM % 10))
	done
	not_there pull
}

# allocation_args: what the job has of CPUs and memory, told to the runtime; nothing where that is the whole node.
allocation_args() {
	local allowed online memory limits=()
	allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
	read -r online </sys/devices/system/cpu/online
	memory=$(memory_of_job)
	[[ $allowed == "$online" ]] || limits+=(--cpuset-cpus "$allowed")
	((! memory)) || limits+=(--memory "${memory}m")
	((! ${#limits[@]})) || say phase container "$RUNTIME leaves the job's cgroup, so it gets ${limits[*]}"
	RUN_ARGS+=("${limits[@]}")
}

# docker_limit_args GROUP: the daemon can start a container in the job's cgroup only of v2, and only if systemd does not manage it.
docker_limit_args() {
	local step=${1#0::}
	if [[ $1 == 0::* && $(timeout 20 docker info --format '{{.CgroupDriver}}') == cgroupfs ]]; then
		RUN_ARGS+=(--cgroup-parent "${step%/task_*}") # a cgroup with processes, as the task's, has none below it
	else
		allocation_args
	fi
}

# container_args: RUN_ARGS, what the script has to say after `run`.
container_args() {
	local size=$SHM_SIZE
	[[ -n $size ]] || read -r size < <(df --block-size=1 --output=size /dev/shm | tail -n 1)
	RUN_ARGS=(
		--rm --interactive --name "$CONTAINER" --network host --log-driver none --security-opt label=disable
		--label "slurmray.job=$SLURM_JOB_ID" --label "slurmray.node=$NODE" --label "slurmray.user=$(id -un)" --label "slurmray.mark=$MARK"
		--shm-size "$size" --workdir / # the real one may be where the runtime's root cannot go
	)
	"${RUNTIME}_args"
	# The job's own cgroup, if any: one line for each controller of v1, and then one for v2.
	"${RUNTIME}_limit_args" "$(sed -n "\\|/job_$SLURM_JOB_ID/|p" /proc/self/cgroup | tail -n 1)"
	bind "$TEMP/inside" "$TEMP"
	local i source target submit=1
	for ((i = 0; i < ${#MOUNTS[@]}; i += 3)); do
		source=$(realpath --no-symlinks --canonicalize-missing "$(host_path "${MOUNTS[i]}")") # one name for one place
		target=${MOUNTS[i + 1]:-$source}
		bind "$source" "$target" "${MOUNTS[i + 2]}"
		[[ $target != "$SLURM_SUBMIT_DIR" ]] || submit=0
	done
	((! submit)) || bind "$SLURM_SUBMIT_DIR" "$SLURM_SUBMIT_DIR"
	accelerator_args
}

# run_words: WORDS, the container of Ray, with its SHOWN name; ENTER, what brings one into it.
run_words() {
	ENTER="$RUNTIME exec $CONTAINER" SHOWN="$RUNTIME run $IMAGE"
	WORDS=("$RUNTIME" run "${RUN_ARGS[@]}" "${CONTAINER_ARGS[@]}" --entrypoint python3 "$IMAGE" "$TEMP/node.py" "$NODE")
}

# remove_container: whatever its state. What its client answered says nothing: ended while it starts one, it may answer 0.
# The mark is this attempt's alone: nobody else's container is taken for it.
remove_container() {
	local ids
	ids=$("$RUNTIME" ps --all --quiet --no-trunc --filter "label=slurmray.mark=$MARK") || return 1
	[[ -n $ids ]] || return 0
	mapfile -t ids < <(echo "$ids")
	"$RUNTIME" kill "${ids[@]}" >&2 || true
	"$RUNTIME" rm --force --volumes "${ids[@]}" >&2 || true
	[[ -z $("$RUNTIME" ps --all --quiet --filter "label=slurmray.mark=$MARK") ]]
}

# ---- 4. node ------------------------------------------------------------------------------------------------------
# say VERB [TEXT]: one message to the batch script.
say() {
	local text=${*:2}
	printf 'slurmray %s %s %s\n' "$SLURMD_NODENAME" "$1" "${text//$'\n'/ }"
}

# fail KIND TEXT: the job cannot go on because of this node.
fail() {
	say fail "$@"
	leave
}

# host_path PATH: `~` is the submitter's home, and a relative path begins at the submit folder.
host_path() {
	case $1 in
	\~ | \~/*) printf '%s' "$HOME${1#\~}" ;;
	/*) printf '%s' "$1" ;;
	*) printf '%s' "$SLURM_SUBMIT_DIR/$1" ;;
	esac
}

# is_remote TYPE: a file system of that type is served by other hosts.
is_remote() {
	[[ $1 == @(nfs*|lustre|gpfs|ceph*|fuse*|smb*|cifs|afs|panfs|beegfs) ]]
}

# make_temp: TEMP, this job's folder on the node, for nobody else. What a container sees of it is `inside`.
make_temp() {
	local folder=$TEMP_DIR/ray-$SLURM_JOB_ID-$ATTEMPT program task
	# Of a job that had the same number, and that has surely ended: its task has, and its container, which holds a lock.
	[[ ! -O $folder || -L $folder ]] || ! read -r task 2>/dev/null <"$folder/task" || kill -0 "$task" 2>/dev/null ||
		{ flock --nonblock "$folder/inside" true && rm -rf "$folder"; } || true
	mkdir -m 700 "$folder" || fail preflight "cannot make $folder (ray.temp_dir): $(tail -n 1 "$RUN/logs/$NODE.log")"
	TEMP=$folder
	echo $$ >"$TEMP/task"
	mkdir "$TEMP/inside"
	mkfifo "$TEMP/inside/out" "$TEMP/inside/err"
	for program in "${!PROGRAMS[@]}"; do printf '%s' "${PROGRAMS[$program]}" >"$TEMP/inside/$program"; done
	chmod -R a+rwX "$TEMP/inside" # whoever the container runs as; the folder above keeps others out
}

# ask WORD...: ANSWER, what a quick command says; WHY, its last error.
ask() {
	local code=0
	ANSWER=$(timeout 20 "$@" 2>"$TEMP/output") || code=$?
	cat "$TEMP/output" >&2 || true
	WHY=$(tail -n 1 "$TEMP/output")
	((code != 124)) || WHY="$1 $2 does not answer"
	WHY=${WHY:-$1 $2 ended with $code}
	return "$code"
}

# memory_of_job: MiB on this node, by the one of these that Slurm sets; 0: not known.
memory_of_job() {
	echo $((${SLURM_MEM_PER_NODE:-0} + ${SLURM_MEM_PER_CPU:-0} * ${SLURM_CPUS_ON_NODE:-0} + ${SLURM_MEM_PER_GPU:-0} * ${SLURM_GPUS_ON_NODE:-0}))
}

# take SECONDS: waits so long for a record of the batch script: TAKEN. At its end, or when there has been none for too long,
# the node is to stop. Says every now and then that this node lives.
take() {
	local code=0
	receive 0 '' "$1" || code=$?
	clock
	if ((code == 0)); then
		HEARD=$NOW
		[[ $RECEIVED == alive= ]] || TAKEN+=("$RECEIVED")
	elif ((code == 2)); then
		STOPPED=1
	elif ((NOW - HEARD > PATIENCE)); then
		STOPPED=1 ORPHAN=1
	fi
	! must_speak || say alive "$DOING"
}

# pause SECONDS: or until the node is to stop.
pause() {
	clock
	local due=$((NOW + $1))
	while ((NOW < due && ! STOPPED)); do take 1; done
	((! STOPPED)) || leave
}

# attend PID: until that child ends; stops it when the node is to stop.
attend() {
	while ((! STOPPED)) && kill -0 "$1" 2>/dev/null; do take 0.2; done
	((! STOPPED)) || kill -TERM "$1" 2>/dev/null || true
	wait "$1"
}

# give_back: the environment is the one that this bash began with, also where a variable of this script has the same name.
give_back() {
	local entry
	while IFS= read -r -d '' entry; do
		[[ ! $entry =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || export "${entry?}" 2>/dev/null || true # some are bash's own
	done <"/proc/$$/environ"
}

# become WORD...: with that environment.
become() {
	give_back
	exec "$@"
}

# beat: says that this node lives, while its task has no time to.
beat() {
	local never
	trap '' TERM
	exec {never}<> <(:)
	while ! read -r -t 5 -u "$never" && kill -0 $$ 2>/dev/null; do say alive; done
}

# begin_beat: PULSE, the process that does.
begin_beat() {
	[[ -z $PULSE ]] || return 0
	beat 9>&- & # which is the tether
	PULSE=$!
	disown "$PULSE"
}

# end_beat: from here on the task says it itself.
end_beat() {
	kill -KILL "$PULSE" 2>/dev/null || true # it may ignore TERM, as the task does at its end
	PULSE=''
}

# finding KIND CHECK FOUND WANTED REMEDY: a row of the table in the job's log. KIND says with which exit code the job ends;
# `warn`: it does not.
finding() {
	local field row=$1
	[[ $1 == warn ]] || UNFIT=1
	for field in "${@:2}"; do
		field=${field//|//}
		# srun breaks lines of more than 1024; what is long has its cause at the end.
		((${#field} <= 250)) || field="${field:0:90} ... ${field: -155}"
		row+="|$field"
	done
	say finding "$row"
}

# settle: goes no further where something was found; the batch script ends the job once it has heard of all nodes.
settle() {
	while ((UNFIT && ! STOPPED)); do take 1; done
	((! STOPPED)) || leave
}

# open_log: what this node has to say goes into the run directory, which must be the one that the head made.
open_log() {
	local tries seen=''
	for tries in 1 2 3; do
		read -r seen 2>/dev/null <"$RUN/mark" && break
		take 1
	done
	[[ $seen == "$MARK" ]] || finding preflight "run directory" "$RUN is not what the head sees there" "a folder that the nodes share" "set run_dir"
	((UNFIT)) || { echo "$NODE" >>"$RUN/logs/$NODE.log"; } 2>/dev/null ||
		finding preflight "run directory" "cannot write to $RUN/logs" "free space, and a folder that the submitter can write to" "set run_dir"
	settle
	exec 2>>"$RUN/logs/$NODE.log"
}

# check_node: what the containers need of this node.
check_node() {
	local type free cpus path commit
	type=$(stat --file-system --format=%T "$TEMP_DIR" || echo missing)
	if [[ $type == missing ]] || is_remote "$type"; then
		finding preflight "temp folder" "$TEMP_DIR: $type" "a folder on this node's own disk" "set ray.temp_dir"
	else
		free=$(df --output=avail --block-size=M "$TEMP_DIR" | tr -cd '0-9')
		((free >= 100)) || finding preflight "temp folder" "$free MB free in $TEMP_DIR" "100 MB" "free some, or set ray.temp_dir"
	fi
	cpus=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
	((cpus >= CPUS_PER_NODE || cpus == $(nproc --all))) || finding warn CPUs "the step may use $cpus" "$CPUS_PER_NODE" "ask the site how steps are bound to CPUs"
}

# is_live JOB-ATTEMPT: Slurm still has it on this node; of this job, which it has, it is this attempt only.
is_live() {
	[[ -n $LIVE_JOBS ]] || LIVE_JOBS=" $(timeout 20 squeue --all --noheader --nodelist="$NODE" --format=%A | tr '\n' ' ') " || LIVE_JOBS=unknown
	[[ $1 == "$SLURM_JOB_ID-$ATTEMPT" || ${1%-*} != "$SLURM_JOB_ID" && $LIVE_JOBS == @(*" ${1%-*} "*|unknown) ]]
}

# sweep: removes what ended jobs of this user left here: after a power failure, or SIGKILL of everything that cleans up.
sweep() {
	local id name labels user folder force LIVE_JOBS=''
	local folders=("$TEMP_DIR"/ray-* "${SCRATCH%/*}"/slurmray-*-"$NODE") # before Slurm is asked: of no job that starts meanwhile
	ask "$RUNTIME" ps --all --no-trunc --filter name=slurmray- --format '{{.ID}} {{.Names}} {{.Labels}}' || ANSWER=''
	while read -r id name labels; do
		user=''
		[[ ! $labels =~ slurmray\.user[:=]([^], ]+) ]] || user=${BASH_REMATCH[1]}
		force=(--force)
		[[ $name != "$CONTAINER"?(-*) ]] || force=() # of a job that had the same number, but not if it runs
		if [[ $user == "$(id -un)" && $name =~ ^slurmray-([0-9]+-[0-9]+)- ]] &&
			{ ((! ${#force[@]})) || ! is_live "${BASH_REMATCH[1]}"; } && "$RUNTIME" rm "${force[@]}" --volumes "$id" >&2; then
			say phase sweep "removed $name of an ended job from $NODE"
		elif [[ $name == "$CONTAINER" ]]; then
			finding preflight "container name" "$name is there, of ${user:-somebody who does not use slurmray}" "that name" "$RUNTIME rm $name, if it is yours to remove"
		fi
	done < <(echo "$ANSWER")
	for folder in "${folders[@]}"; do
		[[ $folder =~ /(slurm)?ray-([0-9]+-[0-9]+)(-[^/]+)?$ && -O $folder && ! -L $folder && (-d $folder/inside || -n ${BASH_REMATCH[1]}) ]] || continue
		is_live "${BASH_REMATCH[2]}" || rm -rf "$folder" || true
	done
}

# supervise: the task of one node, in a bash of its own there.
supervise() {
	set -Eeuo pipefail
	local rank=1 memory addresses known
	NODE=$SLURMD_NODENAME CONTAINER=slurmray-$SLURM_JOB_ID-$ATTEMPT-$SLURMD_NODENAME
	RUNTIME='' CLIENT='' PULSE='' TEMP='' SCRATCH=${TMPDIR:-/var/tmp}/$CONTAINER TAKEN=() PARTIAL=''
	STOPPED=0 ORPHAN=0 UNFIT=0 LOOKED=$SECONDS AWAY=0 BEAT=0 DOING=''
	trap 'say told; STOPPED=1' TERM
	trap : PIPE # the container may end before it has its records
	clock
	HEARD=$NOW
	say step "$SLURM_STEP_ID"
	begin_beat
	trap '[[ $BASHPID != "$$" ]] || fail internal "line $LINENO: $BASH_COMMAND"' ERR
	trap 'fail internal "$(tail -n 1 "$RUN/logs/$NODE.log")"' EXIT # an unset variable, for one
	open_log
	check_node
	((${SLURM_GPUS_ON_NODE:-0} == GPUS_PER_NODE)) ||
		finding config GPUs "${SLURM_GPUS_ON_NODE:-0} given to the job" "$GPUS_PER_NODE" "--gpus-per-node ${SLURM_GPUS_ON_NODE:-0}"
	make_temp
	choose_runtime
	sweep
	container_args
	mapfile -t addresses < <({ getent ahosts "$NODE" || getent ahosts "$(uname -n)" || true; } | cut -d ' ' -f 1 | uniq)
	known="${addresses[*]} $(hostname -I 2>/dev/null || true)" # names do not know of network.interface
	((${#known} <= 700)) || known=${known:0:700} known=${known% *}
	say checked "$known"
	settle
	ensure_image
	settle
	run_words
	say phase container "$SHOWN"
	end_beat
	start_client
	[[ $NODE != "$HEAD" ]] || rank=0
	memory=$(memory_of_job) || true # not below: bash 5.2 breaks where a trap's turn is between two `$()` of one command
	send "rank=$rank" "user=$(id -un)" "memory=$memory" "enter=$ENTER" "${addresses[@]/#/candidate=}"
	watch_client
}

# start_client: runs WORDS, with CLIENT in the foreground of a session of its own: Slurm signals the children of a
# task, and Podman dies when a signal meets its own short-lived helpers. The task holds the only writing end of its input:
# that is the tether, with which the container ends.
start_client() {
	local tries
	exec 9> >(become setsid --fork bash -c 'echo $$ >"$0/client"; "$@"; echo $? >"$0/code"' "$TEMP" "${WORDS[@]}")
	for ((tries = 0; tries < 200; tries++)); do
		{ printf '\0' >&9; } 2>/dev/null || tries=200 # nobody reads: it has ended, maybe of a signal to the whole job
		read -r CLIENT 2>/dev/null <"$TEMP/client" && return
		take 0.05
	done
	fail bring_up "cannot start $RUNTIME"
}

# watch_client: hands records to the container until it ends or the node is to stop.
watch_client() {
	local code=137
	trap 'say told; send stop=' TERM # the trainer gets its signal and its grace
	while ((! STOPPED)) && kill -0 "$CLIENT" 2>/dev/null; do
		((! ${#TAKEN[@]})) || send "${TAKEN[@]}"
		TAKEN=()
		take 0.5
	done
	((! STOPPED)) || leave
	read -r code 2>/dev/null <"$TEMP/code" || true
	# A first process that ends by itself says why and answers 0; this is something else.
	((! code)) || fail ray "$SHOWN ended with $code"
	leave
}

# leave: the task of this node ends, and nothing of it stays here.
leave() {
	trap - ERR EXIT
	trap '' TERM
	begin_beat
	if [[ -n $CLIENT ]]; then
		exec 9>&-
		timeout 10 tail --pid="$CLIENT" --sleep-interval=0.1 --follow /dev/null || kill -KILL -- "-$CLIENT" || true
		remove_container || say phase end "cannot end everything of $CONTAINER on $NODE"
	fi
	rm -rf "$SCRATCH" || true
	if [[ -n $TEMP ]]; then
		rm -rf "$TEMP" || say phase end "cannot remove $TEMP on $NODE"
	fi
	end_beat
	say gone
	# It may be that the head is lost, and this node failed of it: the batch script ends the node, or is silent.
	while ((! STOPPED)); do take 1 || true; done
	((! ORPHAN)) || end_without_head
	exit 0
}

# is_running: as Slurm knows the job.
is_running() {
	[[ $(timeout 10 squeue --all --noheader --jobs="$JOB" --format=%T) == RUNNING ]]
}

# end_without_head: the batch script is silent: its host is gone, or this one is cut off. One node tells Slurm, unless the
# job has ended meanwhile.
end_without_head() {
	local node text="$NODE: no sign of life from the head $HEAD for $PATIENCE s: has it lost its power or its network?"
	log "$text"
	[[ " ${NODE_NAMES[*]:1:6} " == *" $NODE "* ]] || return 0
	for node in "${NODE_NAMES[@]:1}"; do # one after another, in case those before are lost, too
		[[ $NODE != "$node" ]] || break
		timeout 10 tail --follow /dev/null || true
	done
	is_running || return 0
	[[ ! -w $JOB_LOG ]] || log "$text" 2>>"$JOB_LOG"
	event node_loss "$text"
	timeout 10 scancel "$JOB" || true
}

# ---- 5. python ----------------------------------------------------------------------------------------------------
# These programs run in the containers, with the Python of the image; no shell looks at them.
declare -A PROGRAMS
PROGRAMS["below.py"]='"""The processes below this one: in a container all there are, on a host those of this job alone."""

import contextlib
import fcntl
import os
import signal
import time

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h


def adopt():
    """Makes this process the parent of orphans below it, which a process 1 is anyway."""
    if os.getpid() != 1:
        import ctypes  # not in every image

        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def hold(folder):
    """Locks a folder until this process ends, so that the task of the node can wait for that."""
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)


def processes(ended=False):
    """{pid: its session} of all that run; ended: of those that do not, and that nobody has waited for yet."""
    table = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            state, parent, _, session = file.read().rpartition(")")[2].split()[:4]
            table[int(pid)] = int(parent), int(session), state in "ZX"
    found, wanted = {}, {os.getpid()}
    while wanted:
        wanted = {pid for pid, (parent, _, _) in table.items() if parent in wanted} - found.keys()
        found.update((pid, table[pid]) for pid in wanted)
    return {pid: session for pid, (_, session, has_ended) in found.items() if has_ended == ended}


def names(ended=False):
    """{pid: its name} of each, as the kernel has it."""
    found = {}
    for pid in processes(ended):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
            found[pid] = file.read().rstrip("\n")
    return found


def kill(spared=()):
    """Kills them, until nothing new has been started meanwhile. spared: sessions that are left alone."""
    foreign = set()  # of another user, as what sudo starts
    while True:
        found = {pid for pid, session in processes().items() if session not in spared} - foreign
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError:
                foreign.add(pid)
        time.sleep(0.01)
'
PROGRAMS["check.py"]='"""The built-in entrypoint: places one task on every node of the cluster and counts what is there."""

import os
import socket
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=0)
def look():
    """Runs on a node: its host name and the device files that a GPU job would use."""
    devices = sorted(os.listdir("/dev"))
    gpus = [name for name in devices if name.startswith("nvidia") and name[6:].isdigit()]
    if "kfd" in devices and "dri" in devices:
        gpus += [name for name in sorted(os.listdir("/dev/dri")) if name.startswith("renderD")]
    return socket.gethostname(), gpus


def main():
    """Prints one line per node and a total; 0 where as many nodes answered as the job has."""
    ray.init(logging_level="warning")
    rows = sorted((row for row in ray.nodes() if row["Alive"]), key=lambda row: row["NodeName"])
    places = [NodeAffinitySchedulingStrategy(row["NodeID"], soft=False) for row in rows]
    answers = ray.get([look.options(scheduling_strategy=place).remote() for place in places])
    total_cpus = total_gpus = 0
    for row, (host, devices) in zip(rows, answers):
        cpus, gpus = (int(row["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
        total_cpus += cpus
        total_gpus += gpus
        seen = ", devices " + " ".join(devices) if devices else ""
        name = row["NodeName"]
        print(f"{name}: a task ran on {host}, {cpus} CPUs, {gpus} GPUs{seen}")
    print(f"{len(rows)} nodes, {total_gpus} GPUs, {total_cpus} CPUs")
    wanted = int(os.environ["NNODES"])
    if len(rows) != wanted:
        print(f"expected {wanted} nodes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
'
PROGRAMS["children.py"]='"""The child processes of the first process in a container."""

import contextlib
import os
import subprocess
import sys

import below


def tell(pipe, data):
    """Writes those bytes to the standard input of a child, and closes it."""
    with contextlib.suppress(BrokenPipeError), pipe:  # that it has ended is seen elsewhere
        pipe.write(data)


class Children:
    """Children by role, and the orphans that a first process inherits."""

    def __init__(self, ended):
        self.ended = ended  # called with (role, code); 128 + n for signal n
        self.roles = {}  # pid -> role: ray | probe | trainer
        self.processes = []  # keeps Popen objects alive; reap() does the waiting

    def spawn(self, role, words, env, out, err=None, stdin=subprocess.DEVNULL):
        """Starts a child in a session of its own, so that a signal to its group reaches all of it."""
        process = subprocess.Popen(
            words, env=env, stdin=stdin, stdout=out, stderr=err or sys.stderr, start_new_session=True
        )
        self.processes.append(process)
        self.roles[process.pid] = role
        return process

    def pid_of(self, role):
        """The process of that role, or None."""
        return next((pid for pid, known in self.roles.items() if known == role), None)

    def kill(self, role):
        """Kills that child and all that it has started, which may not end with it."""
        # Each has a session of its own.
        below.kill({pid for pid, known in self.roles.items() if known != role})

    def reap(self):
        """Waits for everything that has ended, orphans included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            role = self.roles.pop(pid, None)
            if role:
                signalled = os.WIFSIGNALED(status)
                self.ended(role, os.WTERMSIG(status) + 128 if signalled else os.WEXITSTATUS(status))
'
PROGRAMS["give_up.py"]='"""How a node says that the job cannot go on."""


class GiveUp(Exception):
    """(kind, text): the batch script ends the job with the exit code of that kind."""
'
PROGRAMS["head.py"]='"""What the head alone does: from the GCS that answers to the trainer that starts."""

import os
import subprocess
import sys

import children
import network
import preflight
import probe
import ray_command
import ray_start
from give_up import GiveUp


class Head:
    """The way of the head to the trainer. member: the node that it is."""

    def __init__(self, member):
        self.member = member
        self.waiting = None  # what to look for at each turn: gcs | dashboard | reader
        self.input = None  # where the waiting probe is told the address of the GCS

    def look(self):
        """One turn of waiting; see `waiting`."""
        member = self.member
        if self.waiting == "gcs":
            ray, ports = member.ray, member.ray.ports
            if network.is_open(ray.address, ports[ray_start.GCS]) and not ray.watch.is_disturbed():
                text = f"{ray.place()}, dashboard at port {ports[ray_start.DASHBOARD]} of it"
                member.say("phase ray head at", text)
                member.say("versions", preflight.versions(member.version_text))
                self.waiting = None
                self.probe()
        elif self.waiting == "dashboard" and member.ray.watch.is_started():
            self.be_whole()
        elif self.waiting == "reader" and member.trainer.start():
            self.waiting = None

    def prepare(self):
        """Starts the readiness check, which imports Ray; its messages go straight to the batch script."""
        member = self.member
        words = [sys.executable, os.path.join(member.temp_dir, "probe.py"), member.node]
        words += [member.one("gpus"), member.one("ready_timeout"), *member.conf["nodes"]]
        env = member.ray.env
        self.input = member.children.spawn("probe", words, env, sys.stdout, stdin=subprocess.PIPE).stdin

    def probe(self):
        """Has the readiness check begin."""
        children.tell(self.input, self.member.ray.place().encode())

    def probed(self, code):
        """The readiness check has ended with that code."""
        if code:
            if code == probe.NOT_IN_TIME:
                raise GiveUp("probe", "the cluster is not whole")
            # Before it has begun, it can only have failed to import Ray.
            raise GiveUp("ray" if self.waiting == "gcs" else "probe", f"the probe ended with {code}")
        # Who finds the dashboard through Ray is made to wait by Ray; who has its number may not wait.
        if self.member.one("dashboard_port", "auto") == "auto" or self.member.ray.watch.is_started():
            self.be_whole()
        else:
            self.member.say("phase ray", "waiting for its dashboard, as ray.dashboard_port is set")
            self.waiting = "dashboard"

    def be_whole(self):
        """The cluster is whole: every node is told."""
        self.waiting = None
        self.let_in()
        self.member.say("whole")

    def let_in(self):
        """Says how to ask Ray from outside; to the log only, as nothing happens."""
        member = self.member
        path = os.path.join(member.temp_dir, "ray")
        ray_command.write(path, {**member.ray.env, "RAY_ADDRESS": member.ray.place()})
        command = ray_command.call(member.one("job"), member.node, member.one("enter"), path)
        what = "job list" if member.trainer.is_job() else "status"
        sys.stdout.write(f"to look in: {command} {what}\n")
        sys.stdout.flush()

    def train(self):
        """Starts the trainer when all that it waits for is there."""
        member = self.member
        if member.is_head() and member.is_whole and (not member.stages or member.stages.are_done()):
            member.say("trainer", member.trainer.shown())
            self.waiting = "reader"
'
PROGRAMS["member.py"]='"""What one node of the cluster does, told by records, children that end, and the clock."""

import time

import children
import head
import network
import preflight
import ray_process
import reach
import trainer_process
from records import Records


class Member(Records):
    """One node of the cluster, driven by records, child processes that end, and the clock."""

    def __init__(self, temp_dir, node):
        super().__init__(node)
        self.temp_dir = temp_dir
        self.children = children.Children(self.ended)
        self.ray = ray_process.RayProcess(self)
        self.trainer = trainer_process.TrainerProcess(self)
        self.head = head.Head(self)
        self.is_signalled = False  # whether this process has got a signal
        self.is_whole = False  # whether the cluster is
        self.stages = None  # what else is done before the trainer starts
        self.deadline = None  # when to stop waiting for a trainer that was asked to end
        self.orders = {  # records that make something happen, each with its value
            "go": self.start,
            "reach": self.knock,
            "versions": self.compare,
            "cluster": self.enter,
            "whole": self.be_whole,
            "done": lambda value: self.told("done", value),
            "ended": lambda value: self.told("ended", value),
            "look": self.answer,
            "warn": lambda value: self.stop(value, warned=True),
            "stop": self.stop,
        }

    def record(self, text):
        """Takes one record."""
        key, _, value = text.partition("=")
        if key in self.orders:
            self.orders[key](value)
        else:
            self.conf.setdefault(key, []).append(value)

    # -- the way up ------------------------------------------------------------------------------------

    def start(self, _):
        """All is told: the head starts Ray, a worker has it ready and waits to hear of the head."""
        self.version_text, self.version = preflight.version_of_ray(self.one("auth"))
        preflight.enter_workdir(self.one("workdir"))
        self.trainer.check()
        if not preflight.is_fit(self):
            return
        if self.conf.keys() & {"preparation", "service"}:
            import stages  # only such jobs have it

            self.stages = stages.Stages(self)
        self.ray.make_environment()
        if self.stages:
            self.stages.begin()
        self.ray.prepare()
        if self.is_head():
            self.head.prepare()
            self.ray.start(self.choose_address(self.one("family", "auto")))
            self.head.waiting = "gcs"

    def compare(self, versions):
        """A worker compares its versions with those on the head."""
        if not self.is_head():
            preflight.compare_versions(self, versions)

    def enter(self, cluster):
        """Starts Ray on a worker. cluster: `host:port` of the GCS."""
        if not self.is_head():
            self.ray.start(self.choose_address(network.family_of(network.parts_of(cluster)[0])), cluster)

    def knock(self, place):
        """The head looks whether it reaches a worker. place: its name, address and port."""
        if self.is_head():
            node, address, port = place.split(" ")
            reach.knock(node, address, int(port), self.find_fault)

    def be_whole(self, _):
        """The cluster is whole."""
        self.is_whole = True
        self.ray.watch.release_ports()
        if self.stages:
            self.stages.begin()
        self.head.train()

    def told(self, key, value):
        """Another node, or the task of this one, has done its part."""
        self.stages.told(key, *value.split(" "))
        self.head.train()

    def choose_address(self, family):
        """The address of this node, the interface and family told."""
        return network.choose_address(
            self.conf.get("candidate", []), network.local_addresses(), family, self.one("interface")
        )

    # -- children --------------------------------------------------------------------------------------

    def ended(self, role, code):
        """A child has ended with that code (128 + n for signal n)."""
        if role == "probe":
            self.head.probed(code)
        elif role == "trainer":
            self.trainer.ended(code)
        elif role == "ray":
            self.ray.ended(code)
        elif self.stages and " " in role:
            self.stages.ended(role, code)

    def stop(self, grace="", warned=False):
        """The job ends: what it runs gets a signal, and so many seconds. warned: of the time limit."""
        now, grace = time.monotonic(), float(grace or self.one("grace", "10"))
        if self.deadline:  # the second time it can only be sooner
            self.deadline = min(self.deadline, now + grace)
            return
        name, is_head = self.trainer.signals()[not warned], self.is_head()
        asked = self.trainer.send(name) or (self.stages and self.stages.send(name))
        if not asked and is_head:
            raise SystemExit(0)
        # A worker outlives the grace of the head a little: Ray must not vanish under a checkpoint.
        self.deadline = now + grace + (0 if is_head else 2)

    def answer(self, _):
        """The trainer has failed: says whether that can be no fault of this node."""
        if not self.deadline and self.ray.watch.is_well():
            self.say("well")

    def pause(self):
        """Seconds until the next turn of the loop is due, whatever happens; None: no turn is."""
        if self.head.waiting or self.deadline:
            return 0.05
        return 1.0 if self.ray.watch.looks or (self.stages and self.stages.progress.doing()) else None

    def tick(self):
        """Once a turn of the loop."""
        if self.is_signalled:
            self.is_signalled = False
            self.say("signal")
            self.stop()
        self.ray.watch.mind()
        if self.stages:
            self.stages.progress.mind()
        if self.head.waiting:
            self.head.look()
        if self.deadline and time.monotonic() > self.deadline and not self.trainer.send("KILL"):
            raise SystemExit(0)

    def end(self):
        """Before everything here is killed: what is to end in order does."""
        self.trainer.send("KILL")
        if self.stages:
            self.stages.services.stop()
'
PROGRAMS["network.py"]='"""Which address of this node Ray uses.

Runs in the container, which shares the network of the host, so everything seen here is what the host has.
"""

import array
import contextlib
import fcntl
import ipaddress
import socket
import struct

# Interfaces made by container engines, hypervisors and pod networks: never the way to another node.
VIRTUAL = ("docker", "br-", "podman", "cni", "virbr", "lxc", "lxdbr", "veth", "flannel", "cali", "kube")
SIOCGIFCONF = 0x8912  # linux/sockios.h
IFREQ = 40  # bytes of a struct ifreq on 64-bit Linux: the name takes 16, the IPv4 address is at 20


class NetworkError(Exception):
    """No usable address or port on this node; the text says what was found and what to set."""


def local_addresses():
    """Every address of this host as (interface, address), IPv4 first, in the order of the kernel."""
    buffer = array.array("B", bytes(64 * 1024))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(any_socket.fileno(), SIOCGIFCONF, request))[0]
    found = []
    for start in range(0, used, IFREQ):
        name = buffer[start : start + 16].tobytes().split(b"\0", 1)[0].decode()
        found.append((name.split(":")[0], ipaddress.ip_address(buffer[start + 20 : start + 24].tobytes())))
    with contextlib.suppress(FileNotFoundError), open("/proc/net/if_inet6") as table:
        for line in table:
            fields = line.split()
            found.append((fields[5], ipaddress.ip_address(bytes.fromhex(fields[0]))))
    return found


def choose_address(candidates, local, family="auto", interface=""):
    """The address at which other nodes reach this one.

    candidates: what the resolver of the host says of the name of this node, best first (texts).
    local: as local_addresses() gives it. family: ipv4 | ipv6 | auto (IPv4 where there is one).
    """
    if interface and interface not in {name for name, _ in local}:
        names = ", ".join(sorted({name for name, _ in local}))
        raise NetworkError(f"network.interface: there is no {interface}, this node has {names}")
    usable = [
        (name, address)
        for name, address in local
        if not (address.is_loopback or address.is_link_local or address.is_unspecified)
        and (name == interface if interface else not name.startswith(VIRTUAL))
    ]
    named = []
    for text in candidates:
        with contextlib.suppress(ValueError):
            named.append(ipaddress.ip_address(text.split("%")[0]))
    here = [address for _, address in usable]
    # What the resolver says comes first; a node that knows itself only as 127.0.1.1 still has its links.
    ordered = [address for address in named if address in here] + here
    for version in {"ipv4": (4,), "ipv6": (6,), "auto": (4, 6)}[family]:
        for address in ordered:
            if address.version == version:
                return str(address)
    seen = ", ".join(f"{address} on {name}" for name, address in local) or "no address at all"
    wanted = {"ipv4": "IPv4", "ipv6": "IPv6", "auto": "usable"}[family]
    where = f" on {interface}" if interface else ""
    raise NetworkError(f"no {wanted} address{where}; found {seen}; set network.interface or network.family")


def interface_of(address, local):
    """The interface that has this address (a text), or "". local: as local_addresses() gives it."""
    return next((name for name, known in local if str(known) == address), "")


def family_of(address):
    """The value for `family` that keeps the other nodes on the side of the head."""
    return "ipv6" if ":" in address else "ipv4"


def host_port(address, port):
    """`10.0.0.1:6379`, and `[fd00::1]:6379`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def parts_of(place):
    """(address, port) of what host_port() made."""
    address, _, port = place.rpartition(":")
    return address.strip("[]"), int(port)


def is_open(address, port, timeout=1.0):
    """Whether something accepts connections there. timeout: seconds."""
    try:
        socket.create_connection((address, port), timeout).close()
    except OSError:
        return False
    return True
'
PROGRAMS["node.py"]='"""The first process of the container on every node: starts Ray, and on the head the probe and the trainer.

Standard input is the tether: NUL-terminated `key=value` records from the supervisor of the node, and when it
ends, whatever the cause, everything in this container ends. Standard output is for the messages to the batch
script, one `slurmray NODE VERB TEXT` a line. Standard error is the log of the node. On a node without a
container guard.py goes before it.

Runs on the Python of the image, 3.8 or later, with nothing but the standard library.
"""

import contextlib
import os
import select
import shutil
import signal
import sys

import below
import network
from give_up import GiveUp
from member import Member


def loop(member):
    """Records, ended children and the clock, until the tether ends."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT):  # from `podman stop`: process 1 has no default action
        signal.signal(number, lambda *_: setattr(member, "is_signalled", True))
    pending = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [], member.pause())
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *records, pending = (pending + data).split(b"\0")
            for text in records:
                member.record(os.fsdecode(text))
        member.children.reap()
        member.tick()


def main():
    """Runs the node until its tether ends, and leaves nothing in the temp folder."""
    member = Member(os.path.dirname(os.path.abspath(__file__)), sys.argv[1])
    os.umask(0o022)
    below.hold(member.temp_dir)
    below.adopt()
    try:
        loop(member)
        member.say("untied")
    except GiveUp as reason:
        member.say("fail", *reason.args)
    except network.NetworkError as error:
        member.say("fail", "preflight", error)
    except SystemExit:
        pass
    finally:
        member.end()
        below.kill()
        for name in os.listdir(member.temp_dir):
            path = os.path.join(member.temp_dir, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)


if __name__ == "__main__":
    main()
'
PROGRAMS["outside.py"]='"""Services outside of this container: scripts for the task of the node, which runs them."""

import os
import shlex

import surroundings

# Ends with its input, as the containers do; $1 is the submit folder. In POSIX words, as an image of its own
# may have no bash. The variables of the job are for the service alone.
TETHERED = """exec 3<&0 </dev/null
(
	{}
	cd "$1" || exit
	exec {}
) 3<&- &
service=$!
(
	while read -r _; do :; done
	trap : TERM
	kill -TERM 0
	sleep 2
	kill -KILL 0
) <&3 &
exec 3<&-
trap : TERM
wait "$service"
code=$?
if kill -0 "$service" 2>/dev/null; then # it was a signal that ended the wait
	wait "$service"
	code=$?
fi
exit "$code"
"""


def hand_out(member, item, env):
    """Writes the script of a service; the task looks for it. item: as the job spec has it."""
    env = {**dict(pair.split("=", 1) for pair in member.conf.get("env", [])), **env}
    script = TETHERED.format(surroundings.exports(env), " ".join(map(shlex.quote, item["run"])))
    name = item["name"]
    path = os.path.join(member.temp_dir, f"new-{name}")
    with open(path, "wb") as file:
        file.write(os.fsencode(script))
    os.chmod(path, 0o644)  # the folder above keeps others out
    os.rename(path, os.path.join(member.temp_dir, f"begin-{name}"))
'
PROGRAMS["ports.py"]='"""Which ports of this node Ray uses, and whether somebody else has taken one.

Runs in the container, which shares the network of the host, so everything seen here is what the host has.
"""

import contextlib
import errno
import os
import socket
import time
import zlib

import below
import network

BLOCK = 16  # ports that one job takes on a node
LISTEN = "0A"  # include/net/tcp_states.h, as /proc/net/tcp shows it
LOOKS = 3  # at a port that seems to be taken


def is_free(port):
    """Whether a server could listen on this port, on every address of the host."""
    for kind, anywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(kind, socket.SOCK_STREAM) as test:
                # As the servers of Ray do: connections that have ended are not in their way.
                test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if kind == socket.AF_INET6:
                    test.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                test.bind((anywhere, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            # No IPv6 on this host: nothing can be in the way there.
    return True


def port_range(path="/proc/sys/net/ipv4/ip_local_port_range"):
    """(first, last): ports below or above those that the kernel hands out to anybody."""
    try:
        with open(path) as file:
            low, high = map(int, file.read().split())
    except OSError:
        low, high = 32768, 60999
    below, above = (10000, low - 1), (high + 1, 65535)
    widest = max(below, above, key=lambda span: span[1] - span[0])
    return widest if widest[1] - widest[0] >= 64 * BLOCK else (1024, 65535)


def lease_ports(job, skip=0):
    """(lease, ports): a block of BLOCK - 1 free ports of this node, for this job alone.

    lease: a bound socket; while it is open, no other slurmray job takes the same block. Jobs start to look at
    different places. skip: how many good blocks to pass over, for a second try.
    """
    first, last = port_range()
    blocks = (last - first + 1) // BLOCK
    start = zlib.crc32(job.encode()) % blocks
    for turn in range(blocks):
        base = first + (start + turn) % blocks * BLOCK
        lease = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        os.set_inheritable(lease.fileno(), False)
        ports = list(range(base + 1, base + BLOCK))
        try:
            lease.bind(("127.0.0.1", base))
            free = all(is_free(port) for port in ports)
        except OSError:
            free = False
        if free and skip == 0:
            return lease, ports
        skip -= free
        lease.close()
    raise network.NetworkError(f"no {BLOCK} free ports in a row between {first} and {last}")


def taken(ports):
    """Those of these ports on which a process of somebody else listens, whatever its address."""
    found = foreign(ports)
    # Looked at again: the kernel lists sockets at one moment, and processes have them at another. On a busy
    # host a process that ends has no files any more, while its sockets are still being closed.
    for _ in range(LOOKS):
        if not found:
            break
        time.sleep(0.3)
        found &= foreign(ports)
    return sorted({port for _, port in found})


def foreign(ports):
    """{(inode, port)} of sockets that listen on one of these ports and are of somebody else."""
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table) as file:
            rows += [line.split() for line in file.readlines()[1:]]
    listening = {(row[9], int(row[1].rpartition(":")[2], 16)) for row in rows if row[3] == LISTEN}
    suspects = {(inode, port) for inode, port in listening if port in set(ports)}
    if not suspects:
        return suspects
    own = own_sockets()
    return {(inode, port) for inode, port in suspects if inode not in own}


def own_sockets():
    """The inodes of all sockets of this process and those below it."""
    found = set()
    for pid in [os.getpid(), *below.processes()]:
        with contextlib.suppress(OSError):  # it has ended
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    link = os.readlink(f"/proc/{pid}/fd/{name}")
                    if link.startswith("socket:["):
                        found.add(link[8:-1])
    return found
'
PROGRAMS["preflight.py"]='"""What a node is checked for in its container: findings for the table in the log of the job."""

import importlib.metadata
import os
import platform
import re
import resource
import sys

import ray_environment
import ray_start
from give_up import GiveUp

FILES_WANTED = 65535  # open files; Ray opens several for each worker process
FILES_NEEDED = 8192  # with fewer, large trainers have been seen to fail
# What the distributed debugger of Ray needs (docs.ray.io, "Ray Distributed Debugger"; Ray has it since 2.39).
DEBUGGER_SINCE = (2, 39)
DEBUGPY_SINCE = (1, 8)


def version_of_ray(auth):
    """(text, (major, minor)); GiveUp where there is none, or one too old for `ray.auth` of the spec."""
    version = ray_start.ray_version()
    if version is None:
        raise GiveUp("image", f"{sys.executable} has no Ray: install ray[default] for it")
    if auth == "token" and version[1] < ray_environment.TOKEN_SINCE:
        remedy = "take 2.52 or later, or set ray.auth to auto or none"
        raise GiveUp("config", f"ray.auth: Ray {version[0]} has no tokens; {remedy}")
    return version


def enter_workdir(folder):
    """Ray, its workers and the trainer begin in the working directory of the spec."""
    try:
        os.chdir(folder)
    except OSError as error:
        remedy = "mount it, make it there, or set container.workdir"
        text = f"{error.filename}: {error.strerror} where the trainer runs; {remedy}"
        raise GiveUp("config", text) from error


def is_fit(member):
    """Finds what this node lacks for Ray and trainer; False where it is to go no further."""
    raise_limits()
    for row in limits():
        member.find("warn", *row)
    lacks = list(debugger(member.version)) if member.one("debug") == "post-mortem" else []
    for row in lacks:
        member.find_fault(*row)
    return not (lacks and member.is_strict())


def compare_versions(member, wanted):
    """Finds other versions than those of the head."""
    mine = versions(member.version_text)
    if mine != wanted:
        remedy = "use one image on all nodes, by digest, or one environment"
        member.find_fault("versions", mine, f"{wanted}, as on the head", remedy)


def raise_limits():
    """Sets the soft limit of open files to what Ray may need, as far as the hard limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limits():
    """Rows (check, found, wanted, remedy) for limits that are lower than a trainer may need."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < FILES_NEEDED:
        remedy = "raise it there, or container.ulimits: [nofile=65535:65535]"
        yield "open files", f"at most {hard}", FILES_WANTED, remedy
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if os.path.isdir("/dev/infiniband") and locked != resource.RLIM_INFINITY:
        remedy = "raise it there, or container.ulimits: [memlock=-1:-1]"
        yield "locked memory", f"{locked} bytes", "no limit, for InfiniBand", remedy


def debugger(ray):
    """Rows for what the distributed debugger of Ray lacks here. ray: its version as numbers."""
    if ray < DEBUGGER_SINCE:
        remedy = "take one with it, or set ray.debug: legacy"
        yield "debugger", f"Ray {ray[0]}.{ray[1]}", "Ray 2.39 or later", remedy
    try:
        found = importlib.metadata.version("debugpy")
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if tuple(int(number) for number in re.findall(r"\d+", found)[:2]) < DEBUGPY_SINCE:
        yield "debugpy", found, "1.8.0 or later", "install it beside Ray, or set ray.debug: none"


def versions(ray):
    """What must be the same on all nodes. ray: its version as a text."""
    return f"Ray {ray}, Python {platform.python_version()}"
'
PROGRAMS["preparation.py"]='"""The commands of `prepare` on one node, one after another."""

from give_up import GiveUp

NAME = "name"


class Preparation:
    """Those of one stage. items: dicts as the job spec has them, only those of this node."""

    def __init__(self, stages, stage, items):
        self.stages, self.stage = stages, stage
        self.items = list(items)

    def begin(self):
        """Starts the first one."""
        self.next()

    def next(self):
        """Starts the next one that was not done in an earlier attempt of the job."""
        member = self.stages.member
        while self.items and self.mark(self.items[0]) in member.conf.get("skip", []):
            member.say("phase", "prepare", f"{self.items.pop(0)[NAME]} was done in an earlier attempt")
        if not self.items:
            self.stages.say_done(self.stage)
            return
        item = self.items[0]
        member.say("phase", "prepare", f"{item[NAME]} begins")
        self.stages.spawn(f"{self.stage} {item[NAME]}", item["run"], self.stages.env())

    def ended(self, name, code):
        """A command has ended with that code; where the job is being ended, nothing follows it."""
        is_last = self.stages.member.deadline
        if code and not is_last:
            raise GiveUp("prepare", f"{name} ended with {code}")
        item = self.items.pop(0)
        if item["once"] and not code:
            self.stages.member.say("prepared", self.mark(item))
        if is_last:
            self.items.clear()
        self.next()

    def mark(self, item):
        """What says that it is done: for the whole job, or for this node."""
        node = self.stages.member.node
        return item[NAME] if item["where"] == "head" else f"{item[NAME]}@{node}"
'
PROGRAMS["probe.py"]='"""The readiness check: waits until every node is alive in Ray with the GPUs it was promised.

`probe.py NODE GPUS_PER_NODE TIMEOUT NODE...`: NODE is the node this runs on, TIMEOUT is in seconds. It
imports Ray, which takes a second, and begins when it is told `host:port` of the GCS on standard input.
Messages go to standard output, one a line, as those of node.py do. Exit code 0: whole; 3: not in time; 1 is
that of a program which fails.
"""

import importlib
import sys
import time

NOT_IN_TIME = 3


def verdict(table, expected, gpus):
    """What is there and what is missing.

    table: dicts as `ray.nodes()` gives them. expected: node names. gpus: wanted on each node.
    Returns (alive nodes, their GPUs, {name: what is wrong with it}).
    """
    alive = {}
    for row in table:
        if row["Alive"]:
            alive[row["NodeName"]] = int(row["Resources"].get("GPU", 0))
    wrong = {}
    for name in expected:
        if name not in alive:
            wrong[name] = "has not joined"
        elif alive[name] < gpus:
            wrong[name] = f"has {alive[name]} of {gpus} GPUs"
    here = [name for name in expected if name in alive]
    return len(here), sum(alive[name] for name in here), wrong


def progress(nodes, total_gpus, wrong, expected, gpus):
    """`3/4 nodes, 24/32 GPUs, waiting for gpu-2`."""
    names = list(wrong)
    rest = f" and {len(names) - 4} more" if len(names) > 4 else ""
    waiting = ", waiting for " + ", ".join(names[:4]) + rest if names else ""
    devices = f", {total_gpus}/{gpus * len(expected)} GPUs" if gpus else ""
    return f"{nodes}/{len(expected)} nodes{devices}{waiting}"


def wait(read_table, expected, gpus, timeout, say, clock=time.monotonic, pause=time.sleep):
    """Reads the table until nothing is wrong (returns {}) or time is up (returns what is wrong)."""
    deadline = clock() + timeout
    said = None
    while True:
        nodes, total, wrong = verdict(read_table(), expected, gpus)
        text = progress(nodes, total, wrong, expected, gpus)
        if text != said:
            say("phase probe", text)
            said = text
        if not wrong or clock() >= deadline:
            return wrong
        pause(0.2)


def node_table(address):
    """A function that reads the node table of the GCS.

    Not `ray.init`: that registers a driver, for which the raylet starts a worker process per CPU.
    """
    from ray._private.state import GlobalState
    from ray._raylet import GcsClientOptions

    state = GlobalState()
    state._initialize_global_state(
        GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    )
    return state.node_table


def main():
    """See the text of the module."""
    node, gpus, timeout, *expected = sys.argv[1:]

    def say(verb, *text):
        # In one piece, as others write to the same pipe; `print` would write word by word here.
        sys.stdout.write(" ".join(("slurmray", node, verb, *text)) + "\n")
        sys.stdout.flush()

    importlib.import_module("ray._private.state")  # while the GCS is not there yet
    address = sys.stdin.read().strip()
    read_table = node_table(address)
    told = []

    def read_and_tell():
        table = read_table()
        # A worker that asks the GCS before the head is in it sleeps for two seconds, again and again.
        if not told and any(row["Alive"] and row["NodeName"] == node for row in table):
            told.append(address)
            say("cluster", address)
        return table

    wrong = wait(read_and_tell, expected, int(gpus), float(timeout), say)
    for name, text in wrong.items():
        say("missing", name, text)
    return NOT_IN_TIME if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
'
PROGRAMS["progress.py"]='"""How far the nodes are with the stages, and what the log of the job hears of it."""

import time

ALIVE_EVERY = 5.0  # seconds; without such a word the batch script waits for ray.ready_timeout only
NAMED = 4  # nodes that a line of the log names; there may be hundreds


class Progress:
    """Which nodes have done which stages. member: the node that keeps count; the head says it."""

    def __init__(self, member, stages):
        self.member = member
        self.done = {stage: set() for stage in stages}  # stage -> nodes
        self.begun = {}  # stage -> when
        self.minutes = {}  # stage -> how many of them the log has told of
        self.alive_at = 0.0  # when to say next that this node gets on

    def begin(self, stage):
        """That stage begins on this node."""
        self.begun[stage] = time.monotonic()

    def record(self, node, stage):
        """A node has done its part."""
        self.done[stage].add(node)
        self.say(stage)

    def is_done(self, stage):
        """Whether all nodes have done that stage."""
        return stage not in self.done or self.done[stage] == set(self.member.conf["nodes"])

    def doing(self):
        """What keeps this node busy, in a word or two; nothing: the empty text."""
        return next((stage for stage in self.begun if not self.is_done(stage)), "")

    def mind(self):
        """Says every now and then what keeps this node busy, and once a minute how far all nodes are."""
        stage, now = self.doing(), time.monotonic()
        if not stage or now < self.alive_at:
            return
        self.alive_at = now + ALIVE_EVERY
        self.member.say("alive", stage)
        minutes = int(now - self.begun[stage]) // 60
        if minutes > self.minutes.get(stage, 0):
            self.minutes[stage] = minutes
            self.say(stage, f" after {minutes} min")

    def say(self, stage, after=""):
        """The head says how many nodes have done it, and which have not."""
        if not self.member.is_head():
            return
        nodes = self.member.conf["nodes"]
        waiting = [node for node in nodes if node not in self.done[stage]]
        more = f" and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
        text = ", waiting for " + ", ".join(waiting[:NAMED]) + more if waiting else ""
        count = f"{len(self.done[stage])}/{len(nodes)} nodes"
        self.member.say("phase", stage.partition("-")[0], count + after + text)
'
PROGRAMS["ray_command.py"]='"""`ray` in the temp folder: the command line of Ray for those who come into the container from outside.

`podman exec` and `docker exec` start with the environment of the image, which has neither the address of the
cluster nor its token, nor `env` of the job spec.
"""

import os
import shlex
import sys

import surroundings

# Modules are not looked for in the current folder, and `ray` need not be in PATH.
PROGRAM = """
import sys
del sys.path[0]
from ray.scripts.scripts import main
sys.argv[0] = "ray"
main()
"""
SCRIPT = """#!/bin/sh
{exports}exec {python} -c {program} "$@"
"""


def write(path, env):
    """Writes the command, for its owner alone. env: what Ray shall find in its environment."""
    given = os.environ if os.getpid() == 1 else {}  # else no container gives it
    # Functions that bash exports are no names.
    new = {name: env[name] for name in sorted(env) if given.get(name) != env[name] and name.isidentifier()}
    python, program = shlex.quote(sys.executable), shlex.quote(PROGRAM)
    text = SCRIPT.format(exports=surroundings.exports(new), python=python, program=program)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "wb") as file:
        file.write(os.fsencode(text))


def call(job, node, enter, path):
    """How to use it from outside. job: `JOBID-ATTEMPT`. enter: what brings one into this container."""
    number = job.rpartition("-")[0]
    return " ".join(f"srun --overlap --jobid={number} -N1 -n1 -w {node} {enter} {path}".split())
'
PROGRAMS["ray_environment.py"]='"""The environment of Ray and of the trainer on one node, by the Ray version in the image."""

import os

import network
import ray_start
import surroundings

TOKEN_SINCE = (2, 52)  # the release notes of Ray: token authentication
HIP_SINCE = (2, 45)  # masks AMD GPUs by HIP_VISIBLE_DEVICES, and fails where ROCR_VISIBLE_DEVICES is set

# Two processes of the head have metrics ports that no option closes: each tries this one, says in its log
# that there is no such port, and goes on.
NO_PORT = "65536"


def of_node(member):
    """What Ray inherits there, with the token of the job where this Ray knows tokens."""
    token = None
    if wants_token(member.one("auth", "auto"), member.version):
        token = os.path.join(member.temp_dir, "token")
        write_private(token, member.one("token"))
    elif member.is_head():
        danger = "runs without a token: every user who reaches it can run code"
        member.say("phase ray", f"Ray {member.version_text} {danger}")
    cpus, gpus = int(member.one("cpus")), int(member.one("gpus"))
    env = surroundings.defaults(member.one("user"), cpus, gpus, member.temp_dir)
    env.update(pair.split("=", 1) for pair in member.conf.get("env", []))
    if member.stages:
        env.update(member.stages.mask())
    return environment(member.temp_dir, env, token, member.version, member.one("metrics") == "true")


def write_private(path, text):
    """Writes a file that only its owner can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def wants_token(auth, version):
    """Whether Ray shall ask for the token of the job. auth: `ray.auth` of the spec."""
    return auth != "none" and version >= TOKEN_SINCE


def environment(temp_dir, user_env, token, version, metrics):
    """What Ray and the trainer inherit. user_env: `env` of the spec, which wins over our defaults.

    token: path of its file, or None. metrics: whether Ray exports any; their ports answer everybody.
    """
    env = dict(os.environ)
    env.pop("RAY_ADDRESS", None)  # without a container: of a Ray that the job was submitted from
    if version >= HIP_SINCE and "ROCR_VISIBLE_DEVICES" in env:
        env.setdefault("HIP_VISIBLE_DEVICES", env.pop("ROCR_VISIBLE_DEVICES"))
    env.update(
        PYTHONUNBUFFERED="1",
        RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",  # else Ray builds a virtual environment per worker under `uv run`
        RAY_TMPDIR=temp_dir,
        RAY_USAGE_STATS_ENABLED="0",
        RAY_worker_register_timeout_seconds="120",  # a cold Python on a network file system
    )
    if not metrics:
        env.update(
            RAY_enable_metrics_collection="0", DASHBOARD_METRIC_PORT=NO_PORT, AUTOSCALER_METRIC_PORT=NO_PORT
        )
    env.update(user_env)
    # Said explicitly: where it is unset, head and workers may decide differently (Ray 2.59 on).
    env["RAY_AUTH_MODE"] = "token" if token else "disabled"
    if token:
        env["RAY_AUTH_TOKEN_PATH"] = token
    return env


def deadlines(ready_timeout):
    """What `ray start` inherits besides: Ray gives up a minute later than the probe, which names the node."""
    seconds = ready_timeout + 60
    return {
        "RAY_raylet_start_wait_time_s": str(seconds),
        "RAY_agent_register_timeout_ms": str(seconds * 1000),
    }


def metrics_environment(env, ports):
    """Where Ray exports metrics besides --metrics-export-port; its defaults are the same for every job."""
    places = {
        "DASHBOARD_METRIC_PORT": ray_start.DASHBOARD_METRICS,
        "AUTOSCALER_METRIC_PORT": ray_start.AUTOSCALER_METRICS,
    }
    return {name: env.get(name, str(ports[place])) for name, place in places.items()}


def trainer_environment(ray_env, head, node_count, gpus_per_node):
    """The environment of Ray and what a trainer asks about the cluster. head: (address, ports)."""
    address, ports = head
    return {
        **ray_env,
        "RAY_ADDRESS": network.host_port(address, ports[ray_start.GCS]),
        "NNODES": str(node_count),
        "NODE_RANK": "0",
        "GPUS_PER_NODE": str(gpus_per_node),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(ports[ray_start.MASTER]),
    }
'
PROGRAMS["ray_process.py"]='"""The `ray start` of one node: told late what to do, and started anew where somebody took a leased port."""

import json
import os
import subprocess
import sys

import children
import network
import ports
import ray_environment
import ray_start
import ray_watch
import reach
import surroundings
from give_up import GiveUp

TRIES = 3


class RayProcess:
    """Ray on this node. member: who has the records, the children and a way to say something."""

    def __init__(self, member):
        self.member = member
        self.tries = 0
        self.lease = None
        self.address = self.cluster = None  # cluster: host:port of the GCS, on a worker
        self.ports = self.env = None
        self.told = {}  # what a preset wants to be told of this node, by the names of variables
        self.input = None  # where the waiting `ray start` is told its words
        self.watch = ray_watch.RayWatch(self)

    def make_environment(self):
        """Once stages are known, which may hold GPUs back."""
        self.env = ray_environment.of_node(self.member)

    def prepare(self):
        """Starts the process that becomes `ray start`."""
        words = [sys.executable, os.path.join(self.member.temp_dir, "waiting_ray.py")]
        env = {**ray_environment.deadlines(int(self.member.one("ready_timeout"))), **self.env}
        self.input = self.member.children.spawn("ray", words, env, sys.stderr, stdin=subprocess.PIPE).stdin

    def start(self, address, cluster=None):
        """Leases ports, and tells the waiting process how to start Ray. cluster: None on the head."""
        member = self.member
        self.address, self.cluster = address, cluster
        if self.lease:
            self.lease.close()
        self.lease, self.ports = ports.lease_ports(member.one("job"), self.tries)
        if cluster is None:
            self.take_fixed_ports()
        elif self.tries == 0 and member.one("preflight") != "none":
            door = self.ports[reach.DOOR]
            reach.open_door(address, door)
            reach.knock("the head", *network.parts_of(cluster), member.find_fault)
            member.say("reach", member.node, address, door)
        head, port = network.parts_of(self.place())
        addresses = " ".join(member.conf.get("peer", [])).split()
        peers, local = [head, *member.conf["nodes"], *addresses], network.local_addresses()
        more = surroundings.network_environment(self.env, address, peers, local)
        facts = {
            "rank": member.number(), "nodes": len(member.conf["nodes"]), "head": head, "ray_port": port,
            "interface": network.interface_of(address, local),
        }  # fmt: skip
        asked = (pair.split("=") for pair in member.conf.get("node_env", []))
        self.told = {name: str(facts[fact]) for name, fact in asked}
        more.update(self.told)
        if member.one("metrics") == "true":
            more.update(ray_environment.metrics_environment(self.env, self.ports))
        self.env.update(more)
        extra = member.conf.get("ray_arg", []) + member.conf.get("worker_arg" if cluster else "head_arg", [])
        store = surroundings.object_store(int(member.one("memory", "0")))
        words = ray_start.command(
            member.node, address, self.ports, cluster, member.version, member.temp_dir,
            member.one("cpus"), member.one("gpus"), store, extra,
        )  # fmt: skip
        print(" ".join(words), file=sys.stderr, flush=True)
        children.tell(self.input, json.dumps([words, more]).encode())
        self.watch.begin()

    def place(self):
        """`host:port` of the GCS."""
        return self.cluster or network.host_port(self.address, self.ports[ray_start.GCS])

    def take_fixed_ports(self):
        """Ports that the job spec names, in the places of leased ones."""
        for key, place in (("port", ray_start.GCS), ("dashboard_port", ray_start.DASHBOARD)):
            if self.member.one(key, "auto") != "auto":
                port = self.ports[place] = int(self.member.one(key))
                if not ports.is_free(port):
                    raise GiveUp("bring_up", f"ray.{key}: {port} is taken on this node; set it to auto")

    def ended(self, code):
        """`ray start` has ended with that code, which is its end unless somebody took a port of it."""
        if not self.watch.is_disturbed():
            ray_watch.show_last_words(self.member.temp_dir)
            raise GiveUp("ray", f"ray start ended with {code}")
        self.tries += 1
        if self.tries == TRIES:
            raise GiveUp("bring_up", f"its ports were taken after they had been chosen, {TRIES} times")
        self.make_environment()
        self.prepare()
        self.start(self.address, self.cluster)
'
PROGRAMS["ray_start.py"]='"""The `ray start` command line of one node, by the Ray version in the image."""

import importlib.metadata
import importlib.util
import re

import network

IPV6_SINCE = (2, 49)  # the release notes of Ray
CLIENT_IPV6_SINCE = (2, 56)  # before, the server for Ray Client fails on IPv6, and the head with it
WORKER_TEMP_DIR_SINCE = (2, 55)  # before, --temp-dir was for the head only and workers took over its path

# Places in a leased block of ports.
GCS, CLIENT, DASHBOARD, MASTER = range(4)  # the head alone uses these
NODE_MANAGER, OBJECT_MANAGER, AGENT, AGENT_GRPC, RUNTIME_ENV, METRICS = range(4, 10)
DASHBOARD_METRICS, AUTOSCALER_METRICS = 11, 12  # the head alone; 10 is the DOOR of preflight.py


def ray_version():
    """(text, (major, minor)) of the Ray that this Python would import; None where there is none."""
    try:
        text = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return None
    return text, tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def command(name, address, ports, cluster, version, temp_dir, cpus, gpus, object_store, extra):
    """The words of `ray start --block`.

    cluster: None on the head, else `host:port` of the GCS. cpus, gpus: numbers for the scheduler, never
    guessed by Ray, which counts the whole host. object_store: bytes. extra: the words of the user, last, so
    that they win.
    """
    if ":" in address and version < IPV6_SINCE:
        remedy = "use an image with Ray 2.49 or later, or network.family: ipv4 where the nodes have it"
        raise network.NetworkError(f"{address}: Ray {version[0]}.{version[1]} has no IPv6; {remedy}")
    words = ["ray", "start", "--block", f"--node-name={name}"]
    words += [f"--node-ip-address={address}", f"--num-cpus={cpus}", f"--num-gpus={gpus}"]
    words += [
        f"--object-store-memory={object_store}",
        f"--node-manager-port={ports[NODE_MANAGER]}",
        f"--object-manager-port={ports[OBJECT_MANAGER]}",
        f"--dashboard-agent-listen-port={ports[AGENT]}",
        f"--dashboard-agent-grpc-port={ports[AGENT_GRPC]}",
        f"--runtime-env-agent-port={ports[RUNTIME_ENV]}",
        f"--metrics-export-port={ports[METRICS]}",
        # 0: the kernel picks. Two jobs on a node never meet, and nothing is free now and taken later.
        "--min-worker-port=0",
        "--max-worker-port=0",
    ]
    if cluster is None:
        words += ["--head", f"--port={ports[GCS]}", f"--dashboard-port={ports[DASHBOARD]}"]
        served = ":" not in address or version >= CLIENT_IPV6_SINCE
        if served and importlib.util.find_spec("grpc"):  # without it `ray start` refuses the option
            words.append(f"--ray-client-server-port={ports[CLIENT]}")
    else:
        words.append(f"--address={cluster}")
    if cluster is None or version >= WORKER_TEMP_DIR_SINCE:
        words.append(f"--temp-dir={temp_dir}")
    return words + extra
'
PROGRAMS["ray_watch.py"]='"""Whether the Ray of one node is well while it starts; Ray itself may need minutes to see what is wrong."""

import glob
import os
import sys
import time

import below
import ports
import waiting_ray
from give_up import GiveUp

LINES = 5  # of what a process of Ray said last


class RayWatch:
    """Looks once a second, until `ray start` does so itself. ray: the RayProcess of the node."""

    def __init__(self, ray):
        self.ray = ray
        self.looks = self.guards = False  # guards: whether it looks at the ports, too
        self.disturbed = False  # whether somebody took one
        self.look_at = 0.0
        self.ended = {}  # pid -> name of what had ended at the last look

    def begin(self):
        """Ray is being started."""
        self.looks, self.guards, self.disturbed, self.ended = True, True, False, {}
        self.look_at = time.monotonic() + 1

    def release_ports(self):
        """The cluster is whole: one of the ports is for the trainer."""
        self.guards = False

    def is_started(self):
        """Whether all of Ray is, so that `ray start` sees the end of a process in seconds."""
        return os.path.exists(waiting_ray.STARTED)

    def mind(self):
        """Once a turn of the loop."""
        if self.looks and time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + 1
            self.looks = self.guards or not self.is_started()
            if self.looks and not self.is_disturbed():
                self.find_ended()

    def wanted(self):
        """The names of the processes without which there is no Ray on this node."""
        return {"raylet"} if self.ray.cluster else {"raylet", "gcs_server"}

    def is_well(self):
        """Whether all of them run."""
        return self.wanted() <= set(below.names().values())

    def find_ended(self):
        """`ray start` looks at what it has started only when all is, and waits for that.

        It takes two looks: what somebody waits for, as for `raylet --help`, is there a moment after its end.
        """
        before, self.ended = self.ended, below.names(ended=True)
        for name in sorted(self.wanted() & {before.get(pid) for pid in self.ended}):
            show_last_words(self.ray.member.temp_dir)
            raise GiveUp("ray", f"{name} ended while Ray was starting")

    def is_disturbed(self):
        """Whether somebody took a port between the lease and its use; if so, Ray ends, to be started anew."""
        taken = self.guards and ports.taken(self.ray.ports)
        if taken and not self.disturbed:
            text = f"somebody else took port {taken[0]} of this node after it was chosen"
            if self.ray.cluster is None and self.ray.member.head.waiting != "gcs":  # others know of this Ray
                raise GiveUp("bring_up", f"{text}; submit the job again")
            print(f"{text}: Ray starts anew", file=sys.stderr, flush=True)
            self.disturbed = True
            self.ray.member.children.kill("ray")
        return self.disturbed


def show_last_words(temp_dir):
    """Shows in the log of the node what the processes of Ray said last; `ray start` does not."""
    for name in ("gcs_server", "raylet"):
        for path in sorted(glob.glob(os.path.join(temp_dir, "session_2*", "logs", f"{name}.err")))[-1:]:
            with open(path, errors="replace") as file:
                said, _, _ = file.read().partition("*** StackTrace")
            for line in said.splitlines()[-LINES:]:
                print(f"{name}: {line}", file=sys.stderr, flush=True)
'
PROGRAMS["reach.py"]='"""Whether the nodes reach each other: the head each worker, and each worker the head."""

import contextlib
import os
import socket
import threading

import network

DOOR = 10  # place in a leased block of ports, after those of ray_start.py
KNOCK_TIMEOUT = 5.0  # seconds for the head to reach a worker, and the other way round


def knock(who, address, port, say):
    """Looks, in the background, whether this node reaches another one. say: takes the fields of a row."""

    def try_it():
        if not network.is_open(address, port, KNOCK_TIMEOUT):
            found = f"cannot reach {who} at {network.host_port(address, port)}"
            say("connection", found, "a connection", "open its firewall, or set network.interface")

    threading.Thread(target=try_it, daemon=True).start()


def open_door(address, port):
    """Lets the head try, once, whether it reaches this worker at that port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    os.set_inheritable(door.fileno(), False)
    door.settimeout(60)
    door.bind((address, port))
    door.listen(1)

    def answer():
        with contextlib.suppress(OSError), door:
            door.accept()[0].close()

    threading.Thread(target=answer, daemon=True).start()
'
PROGRAMS["ready.py"]='"""Waits until a service can be used: `ready.py JSON`, as `ready` of the job spec.

Exit code 0: it can; 3: not in time, and standard error says what was last seen.
"""

import http.client
import json
import socket
import subprocess
import sys
import time
import urllib.request

NOT_IN_TIME = 3
PAUSE = 0.5  # seconds between two looks
PATIENCE = 10.0  # seconds for one look
SAY_EVERY = 60.0  # seconds


def look(ready):
    """Raises an OSError, whose text says what is wrong, unless the service can be used."""
    if "run" in ready:
        subprocess.run(ready["run"], check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    elif "tcp" in ready:
        host, _, port = ready["tcp"].rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    else:
        body = ready["post"].encode() if "post" in ready else None
        headers = {"Content-Type": "application/json"} if body is not None else {}
        request = urllib.request.Request(  # noqa: S310 - the job spec takes http and https
            ready["http"], body, headers
        )
        # A service of this node is never behind a proxy.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(request, timeout=PATIENCE).close()


def main():
    """See the text of the module."""
    ready = json.loads(sys.argv[1])
    say_at = time.monotonic() + SAY_EVERY
    deadline = time.monotonic() + ready["timeout"]
    while True:
        try:
            look(ready)
            return 0
        except (OSError, ValueError, http.client.HTTPException, subprocess.SubprocessError) as error:
            seen = error
        if time.monotonic() > deadline:
            print(f"not ready: {seen}", file=sys.stderr)
            return NOT_IN_TIME
        if time.monotonic() > say_at:
            print(f"not ready yet: {seen}", file=sys.stderr, flush=True)
            say_at += SAY_EVERY
        time.sleep(PAUSE)


if __name__ == "__main__":
    sys.exit(main())
'
PROGRAMS["records.py"]='"""What this node was told, and what it says: the two streams of the step."""

import sys


class Records:
    """The records that have come, and messages to the batch script. docs/architecture.md lists both."""

    def __init__(self, node):
        self.node = node  # its name in Slurm
        self.conf = {}  # key -> list of values

    def one(self, key, default=""):
        """The last value of a key."""
        return self.conf.get(key, [default])[-1]

    def is_head(self):
        """Whether it is the head node."""
        return self.one("rank") == "0"

    def number(self):
        """The rank of this node: 0 is the head, then the others in the order of Slurm."""
        return self.conf["nodes"].index(self.node)

    def attempt(self):
        """How many times the job was requeued."""
        return self.one("job").rpartition("-")[2]

    def say(self, verb, *text):
        """One message to the batch script."""
        # In one piece, as the task of the node writes to the same pipe.
        sys.stdout.write(" ".join(map(str, ["slurmray", self.node, verb, *text])) + "\n")
        sys.stdout.flush()

    def find(self, kind, *row):
        """A finding for the table in the log: check, found, wanted, remedy. kind `warn`: only that."""
        level = self.one("preflight", "fail")
        if level != "none":
            kind = "warn" if level == "warn" else kind
            fields = (str(field).replace("|", "/").replace("\n", " ") for field in row)
            self.say("finding", "|".join([kind, *fields]))

    def find_fault(self, *row):
        """A finding that ends the job, unless the job spec says otherwise."""
        self.find("preflight", *row)

    def is_strict(self):
        """Whether such a finding ends the job."""
        return self.one("preflight", "fail") == "fail"
'
PROGRAMS["services.py"]='"""The services of one node: processes beside Ray."""

import json
import os
import signal
import sys
import time

import outside
from give_up import GiveUp

SERVICE, READY = ROLES = ("service", "ready")
RESTARTS = "restarts"
NOT_IN_TIME = 3  # exit code of ready.py
STOP_EACH = 1.0  # seconds until the next one is told to end, too
STOP_ALL = 2.0  # seconds for all; fit_grace of the script leaves so many


class Services:
    """Starts them, waits until each is ready, starts one again that ends, and stops them in order.

    items: dicts as the job spec has them, only those of this node.
    """

    def __init__(self, stages, items):
        self.stages = stages
        self.items = {item["name"]: item for item in items}
        self.again = dict.fromkeys(self.items, 0)  # how often each was started again
        self.waiting = set()  # names of those that are not ready yet

    def begin(self):
        """Starts all of them."""
        self.waiting = set(self.items)
        for name in self.items:
            self.start(name)
        self.look()

    def start(self, name):
        """Starts a service, and what looks whether it is ready."""
        item = self.items[name]
        own = {**self.mask(name), **item["env"]}
        env = {**self.stages.env(), **own}
        self.stages.member.say("phase", "services", f"{name} starts")
        if item["host"] or "image" in item:
            outside.hand_out(self.stages.member, item, {**self.stages.facts(), **own})
        else:
            self.stages.spawn(f"{SERVICE} {name}", item["run"], env)
        if name not in self.waiting:  # it was ready before
            return
        if "ready" not in item:
            self.waiting.discard(name)
        elif self.stages.member.children.pid_of(f"{READY} {name}") is None:
            program = os.path.join(self.stages.member.temp_dir, "ready.py")
            words = [sys.executable, program, json.dumps(item["ready"])]
            self.stages.spawn(f"{READY} {name}", words, env)

    def mask(self, name):
        """The GPUs of a service: after those of Ray, in the order of the job spec."""
        first = int(self.stages.member.one("gpus"))
        for other, item in self.items.items():
            if other == name:
                break
            first += item["gpus"]
        return devices(first, self.items[name]["gpus"])

    def look(self):
        """Says so when all are ready."""
        if not self.waiting:
            self.stages.say_done("services")

    def ended(self, role, name, code):
        """A service has ended, or the wait for one."""
        if role == READY and code == NOT_IN_TIME:
            timeout = self.items[name]["ready"]["timeout"]
            raise GiveUp("service", f"{name} is not ready after {timeout} s")
        if role == READY and code:
            raise GiveUp("service", f"what looks whether {name} is ready ended with {code}")
        if role == READY:
            self.waiting.discard(name)
            self.look()
        else:
            self.lost(name, code)

    def lost(self, name, code):
        """A service has ended."""
        item, member = self.items[name], self.stages.member
        text, node = f"{name} ended with {code}", member.node
        if self.again[name] < item["restarts"]:
            self.again[name] += 1
            count = f"{self.again[name]} of {item[RESTARTS]}"
            member.say("phase", "services", f"{text} on {node} and starts again, {count}")
            self.start(name)
        elif item["on_end"] == "fail" or name in self.waiting:
            raise GiveUp("service", text)
        else:
            member.say("phase", "services", f"{text} on {node}; the job goes on")

    def stop(self):
        """Ends them, the last one first, each when its successors had time to."""
        children = self.stages.member.children
        children.ended = lambda *_: None
        end = time.monotonic() + STOP_ALL
        for name in reversed(list(self.items)):
            due = min(end, time.monotonic() + STOP_EACH)
            pid = children.pid_of(f"{SERVICE} {name}")
            if pid:
                os.killpg(pid, signal.SIGTERM)
            while children.pid_of(f"{SERVICE} {name}") and time.monotonic() < due:
                time.sleep(0.05)
                children.reap()


def devices(first, count):
    """The environment in which a process sees only so many GPUs of this node."""
    name = "HIP_VISIBLE_DEVICES" if os.path.exists("/dev/kfd") else "CUDA_VISIBLE_DEVICES"
    # Where no container holds other GPUs back, the mask of Slurm does.
    known = os.environ.get(name) or os.environ.get("ROCR_VISIBLE_DEVICES", "")
    mine = known.split(",") if known else list(map(str, range(first + count)))
    return {name: ",".join(mine[first : first + count])}
'
PROGRAMS["stages.py"]='"""What has to be done before the trainer starts, besides Ray, and in which order.

Every node has the same stages, and says `done STAGE` when it has nothing left to do in one; the batch script
tells that to all nodes. A stage begins on a node when all nodes have done those that it waits for.
"""

import json
import os
import signal
import sys

import preparation
import progress
import services
from give_up import GiveUp

PREPARE, SERVICES, PREPARE_WITH_RAY = "prepare", "services", "prepare-with-ray"


class Stages:
    """The stages on this node. member: who has the records, the children and a way to say something."""

    def __init__(self, member):
        self.member = member
        commands = [json.loads(text) for text in member.conf.get("preparation", [])]
        early = [item for item in commands if not item["needs_ray"]]
        late = [item for item in commands if item["needs_ray"]]
        self.beside = [json.loads(text) for text in member.conf.get("service", [])]
        self.services = services.Services(self, list(filter(self.is_mine, self.beside)))
        # Stage -> what this node does in it; stages in which no node has anything to do are left out.
        self.work = {}
        if early:
            self.work[PREPARE] = preparation.Preparation(self, PREPARE, list(filter(self.is_mine, early)))
        if self.beside:
            self.work[SERVICES] = self.services
        if late:
            mine = list(filter(self.is_mine, late))
            self.work[PREPARE_WITH_RAY] = preparation.Preparation(self, PREPARE_WITH_RAY, mine)
        self.progress = progress.Progress(member, self.work)

    def is_mine(self, item):
        """Whether this node has to do it."""
        return item["where"] == "all" or self.member.is_head()

    def env(self):
        """What the commands inherit: the environment of Ray, and where in the job they are."""
        return {**self.member.ray.env, **self.facts()}

    def facts(self):
        """Variables that say where in the job this node is."""
        member = self.member
        facts = {
            "NNODES": str(len(member.conf["nodes"])),
            "NODE_RANK": str(member.number()),
            "GPUS_PER_NODE": member.one("gpus"),
            "SLURMRAY_ATTEMPT": member.attempt(),
        }
        if member.is_whole:
            facts["RAY_ADDRESS"] = member.ray.place()
        return facts

    def spawn(self, role, words, env):
        """Starts a child of a stage; its words go into the log of the node."""
        print(role, "runs", " ".join(words), file=sys.stderr, flush=True)
        try:
            self.member.children.spawn(role, words, env, sys.stderr)
        except OSError as error:
            stage, _, name = role.partition(" ")
            kind = "service" if stage in services.ROLES else "prepare"
            raise GiveUp(kind, f"{name}: {words[0]}: {error.strerror}") from error

    def begin(self):
        """Begins all stages whose turn it is, unless the job is being ended."""
        for stage in self.work if not self.member.deadline else ():
            if stage not in self.progress.begun and self.may_begin(stage):
                self.progress.begin(stage)
                self.work[stage].begin()

    def may_begin(self, stage):
        """Whether the stages before that one are done on all nodes."""
        if stage == PREPARE:
            return True
        return self.progress.is_done(PREPARE) and (stage == SERVICES or self.member.is_whole)

    def are_done(self):
        """Whether the trainer can start."""
        return not self.member.deadline and all(map(self.progress.is_done, self.work))

    def is_preparing(self):
        """Whether a command of `prepare` runs on some node."""
        commands = (PREPARE, PREPARE_WITH_RAY)
        return any(stage in self.progress.begun and not self.progress.is_done(stage) for stage in commands)

    def say_done(self, stage):
        """This node has done its part."""
        self.member.say("done", self.member.node, stage)

    def told(self, key, name, what):
        """Takes a record: a node has done a stage, or a service outside of this container has ended."""
        if key == "ended":
            self.services.ended(services.SERVICE, name, int(what))
        else:
            self.record(name, what)

    def record(self, node, stage):
        """A node has done its part."""
        self.progress.record(node, stage)
        if self.member.deadline and not self.is_preparing():  # nobody needs the rest of the grace
            raise SystemExit(0)
        self.begin()

    def mask(self):
        """What keeps Ray and the trainer off the GPUs of services."""
        gpus = any(item["gpus"] for item in self.beside)
        return services.devices(0, int(self.member.one("gpus"))) if gpus else {}

    def send(self, name):
        """Sends that signal to the commands of `prepare` here; False where none runs on any node."""
        for pid, role in self.member.children.roles.items():
            if role.partition(" ")[0] in (PREPARE, PREPARE_WITH_RAY):
                os.killpg(pid, getattr(signal, "SIG" + name))
        return self.is_preparing()

    def ended(self, role, code):
        """A child of a stage has ended."""
        stage, _, name = role.partition(" ")
        if stage in services.ROLES:
            self.services.ended(stage, name, code)
        else:
            self.work[stage].ended(name, code)
'
PROGRAMS["surroundings.py"]='"""What Ray and the trainer are told of the machine they are on, and how much of it they may take.

Everything here is a default: what the job spec sets in `env`, and what the image sets, stays as it is.
"""

import os
import shlex

import network

THREADS_MAX = 16  # more threads of OpenMP for each GPU have not been seen to help
OBJECT_STORE_MIN = 75 * 2**20  # with less Ray refuses to start (OBJECT_STORE_MINIMUM_MEMORY_BYTES)
OBJECT_STORE_MAX = 200 * 10**9  # where the default of Ray ends, too (DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES)
NO_PROXY_MAX = 100_000  # characters; Linux takes 128 KiB for a variable (MAX_ARG_STRLEN)
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
LOCAL = ("localhost", "127.0.0.1", "::1")


def defaults(user, cpus, gpus, temp_dir):
    """Variables for a user without an entry in /etc/passwd, and for a fair share of the CPUs.

    cpus, gpus: of the job on this node. temp_dir: serves as the home where that of the image is not to be
    written to, as when Docker runs it as the submitter; Triton, Inductor, vLLM and others cache below it.
    """
    env = {"USER": user, "LOGNAME": user}
    # Left to themselves, the libraries of each worker take all CPUs of the host.
    env["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(threads(cpus, gpus)))
    if not os.access(os.environ.get("HOME", ""), os.W_OK):
        env["HOME"] = temp_dir
    return env


def exports(env):
    """Lines for a shell that set these variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())


def threads(cpus, gpus):
    """The CPUs that each GPU has."""
    return min(THREADS_MAX, max(1, cpus // max(1, gpus)))


def object_store(memory, shm="/dev/shm"):  # noqa: S108 - where Ray keeps it
    """Bytes for the object store of Ray, which would go by the memory of the whole host.

    memory: what the job has on this node, MiB; 0: not known, then it is that of the host.
    """
    total = memory * 2**20 or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    disk = os.statvfs(shm)
    room = disk.f_bavail * disk.f_frsize
    return max(OBJECT_STORE_MIN, min(total * 3 // 10, room * 9 // 10, OBJECT_STORE_MAX))


def network_environment(env, address, peers, local):
    """Variables that go by the address of this node.

    env: as known until now. peers: names and addresses of nodes, never to be reached through a proxy.
    local: as network.local_addresses() gives it.
    """
    told = {"VLLM_HOST_IP": address}
    interface = network.interface_of(address, local)
    if interface:  # left to themselves, both may take a bridge of Docker or the loopback
        told.update(NCCL_SOCKET_IFNAME=interface, GLOO_SOCKET_IFNAME=interface)
    told = {name: env.get(name, value) for name, value in told.items()}
    if any(env.get(name) or env.get(name.upper()) for name in PROXIES):
        known = env.get("no_proxy", "") + "," + env.get("NO_PROXY", "")
        listed = [word for word in known.split(",") if word] + [*LOCAL, address, *peers]
        direct = "*" if "*" in listed else ",".join(dict.fromkeys(listed))  # `*` means all only when alone
        if len(direct) > NO_PROXY_MAX:
            direct = direct[:NO_PROXY_MAX].rpartition(",")[0]
        told.update(no_proxy=direct, NO_PROXY=direct)
    return told
'
PROGRAMS["trainer_process.py"]='"""The trainer: the command of the job spec, which runs on the head once the cluster is whole."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys

import children
import ray_environment
from give_up import GiveUp


class TrainerProcess:
    """The trainer of the job. member: who has the records, the children, Ray, and a way to say something."""

    def __init__(self, member):
        self.member = member
        self.streams = {}  # out, err -> descriptor of the FIFO to the batch script

    def is_job(self):
        """Whether it is submitted to the job API of Ray."""
        return self.member.one("launch") == "ray-job"

    def check(self):
        """GiveUp where there is not what the job API of Ray needs."""
        wanted = ("aiohttp", "aiohttp_cors")  # of ray[default] alone
        if self.is_job() and not all(map(importlib.util.find_spec, wanted)):
            raise GiveUp("image", "launch: ray-job needs ray[default]: install it, or use exec")

    def name(self):
        """What Ray calls it."""
        return "slurmray-" + self.member.one("job")

    def shown(self):
        """The command for the log of the job, shortened."""
        name = [f"{self.name()}:"] if self.is_job() else []
        command = " ".join(name + self.member.conf.get("run", ["the built-in check"]))[:200]
        return "".join(letter if letter.isprintable() else " " for letter in command)

    def start(self):
        """Starts it once somebody reads its output; False while nobody does."""
        if not self.is_read():
            return False
        member = self.member
        words = member.conf.get("run") or [sys.executable, os.path.join(member.temp_dir, "check.py")]
        if member.attempt() != "0":
            words = words + member.conf.get("resume", [])
        head = member.ray.address, member.ray.ports
        nodes = len(member.conf["nodes"])
        env = ray_environment.trainer_environment(member.ray.env, head, nodes, member.one("gpus"))
        env.update(member.ray.told, SLURMRAY_ATTEMPT=member.attempt())
        out, err = self.streams["out"], self.streams["err"]
        try:
            if self.is_job():
                self.submit(words, env, out, err)
            else:
                member.children.spawn("trainer", words, env, out, err)
        except OSError as error:
            # What a shell would say and return.
            os.write(err, f"slurmray: {words[0]}: {error.strerror}\n".encode())
            member.say("exit", 127 if isinstance(error, FileNotFoundError) else 126)
        os.close(out)
        os.close(err)
        return True

    def submit(self, words, env, out, err):
        """Starts the process that submits it to the job API of Ray and stands for it."""
        member = self.member
        given = member.one("runtime_env_file") or json.loads(member.one("runtime_env", "{}"))
        own = {name: value for name, value in env.items() if member.ray.env.get(name) != value}
        told = {"id": self.name(), "words": words, "env": own, "runtime_env": given}
        told["signals"] = ["SIG" + name for name in self.signals()]
        program = [sys.executable, os.path.join(member.temp_dir, "ray_job.py")]
        child = member.children.spawn("trainer", program, env, out, err, stdin=subprocess.PIPE)
        children.tell(child.stdin, json.dumps(told).encode())

    def ended(self, code):
        """Says how it ended; GiveUp where it could not be submitted."""
        refusal = os.path.join(self.member.temp_dir, "refused")
        with contextlib.suppress(FileNotFoundError), open(refusal) as file:
            raise GiveUp(*file.read().split(" ", 1))
        self.member.say("exit", code)

    def is_read(self):
        """Opens what is not open yet of the streams; each stays open, as its reader ends with its writer."""
        for name in ("out", "err"):
            if name not in self.streams:
                path = os.path.join(self.member.temp_dir, name)
                try:
                    stream = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                except OSError:  # ENXIO: no reader yet
                    return False
                os.set_blocking(stream, True)
                self.streams[name] = stream
        return True

    def signals(self):
        """What asks it to end: near the time limit, and at scancel."""
        stop = self.member.one("stop_signal", "TERM")
        return stop, self.member.one("cancel_signal", stop)

    def send(self, name):
        """Sends that signal (TERM, for one) to the trainer and its children; False where none runs."""
        trainer = self.member.children.pid_of("trainer")
        if trainer:
            os.killpg(trainer, getattr(signal, "SIG" + name))
        return bool(trainer)
'
PROGRAMS["waiting_ray.py"]='"""`ray start`, told late what to do: on its standard input, in JSON, its words and more of its environment.

To import Ray takes a second, on a network file system many. A worker does so while the head gets ready. And
two things that Ray itself would wait for, and need not.
"""

import json
import os
import re
import subprocess
import sys

# A file that is there when `ray start` has started everything and looks after it: on the head, when the
# dashboard answers or has failed.
STARTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "started")


def wants_agent_port(package):
    """Whether the raylet of this Ray takes the port of its dashboard agent; `ray start` does not tell it.

    Such a raylet (2.54 on), where it is not told, waits for a file of the agent before it joins, and dies
    when the agent is not there in 15 seconds (ray-project/ray#65983). package: the folder of Ray.
    """
    words = [os.path.join(package, "core", "src", "ray", "raylet", "raylet"), "--help"]
    try:
        said = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False).stdout
    except OSError:
        return False
    return b"-dashboard_agent_listen_port" in said


def tell_the_raylet(services):
    """Has a raylet told where its dashboard agent will listen.

    services: the module of Ray that starts its processes. The port is that in the words of the agent.
    """
    start = services.start_ray_process

    def start_ray_process(command, *args, **options):
        port = re.search(r" --listen-port=(\d+)", " ".join(command))
        more = [f"--dashboard_agent_listen_port={port[1]}"] if port else []
        return start([*command, *more], *args, **options)

    services.start_ray_process = start_ray_process


def start_the_raylet_early(node, kv):
    """Has a head start its raylet when its dashboard is being started, not when that answers.

    node: the class of Ray that starts one after the other. In between it asks kv, the module of Ray for what
    the GCS keeps, for the address of the dashboard, until that is there. Both may fail as they would anyway.
    """
    start_dashboard, start_raylet, get = node.start_api_server, node.start_ray_processes, kv._internal_kv_get
    failures = []  # once the raylet is started: None, or why it was not

    def start_ray_processes(self):
        if not failures:
            try:
                start_raylet(self)
                failures.append(None)
            except Exception as error:
                failures.append(error)
        if failures[0]:
            raise failures[0]

    def start_api_server(self, **options):
        def get_after_start(*key, **namespace):
            kv._internal_kv_get = get
            start_ray_processes(self)
            return get(*key, **namespace)

        kv._internal_kv_get = get_after_start
        start_dashboard(self, **options)
        kv._internal_kv_get = get

    node.start_api_server, node.start_ray_processes = start_api_server, start_ray_processes


def tell_when_started(node):
    """Has STARTED written when everything is. node: the class of Ray that is made for that."""
    start = node.__init__

    def init(self, *args, **options):
        start(self, *args, **options)
        open(STARTED, "w").close()

    node.__init__ = init


def main():
    """See the text of the module."""
    import ray.scripts.scripts as ray
    from ray._private import node, services
    from ray.experimental import internal_kv

    if wants_agent_port(os.path.dirname(os.path.dirname(ray.__file__))):
        tell_the_raylet(services)
    sys.argv, env = json.load(sys.stdin)
    os.environ.update(env)
    if not any(word.startswith("--ray-client-server-port") for word in sys.argv):
        # Without a port for Ray Client, a head would take 10001 unless it believes that there is none.
        ray.get_ray_client_dependency_error = lambda: "not asked for"
    known = hasattr(node.Node, "start_api_server") and hasattr(node.Node, "start_ray_processes")
    if known and "--enable-resource-isolation" not in sys.argv:  # with it a raylet needs the dashboard first
        start_the_raylet_early(node.Node, internal_kv)
    tell_when_started(node.Node)
    ray.main()


if __name__ == "__main__":
    sys.path.pop(0)  # the programs beside this one have names that others may import
    main()
'

# ---- 6. cluster ---------------------------------------------------------------------------------------------------
# check_allocation: this is a job, and its allocation is the one the script was rendered for.
check_allocation() {
	[[ -n ${SLURM_JOB_NUM_NODES:-} ]] || give_up config "this is not a Slurm job: submit it with sbatch $0"
	local nodes=$SLURM_JOB_NUM_NODES cpus=${SLURM_CPUS_PER_TASK:-$CPUS_PER_NODE} name
	((nodes == NODES)) || give_up config "the allocation has $nodes nodes, the script is for $NODES: $RENDER_AGAIN --nodes $nodes"
	((cpus == CPUS_PER_NODE)) || give_up config "the allocation has $cpus CPUs, the script is for $CPUS_PER_NODE: $RENDER_AGAIN --cpus-per-task $cpus"
	for name in "${ENV_FROM_SUBMITTER[@]}"; do
		(become printenv "$name") >/dev/null || give_up config "env.$name is not set where the job was submitted: export it and run sbatch again"
	done
	HEAD=$SLURMD_NODENAME JOB=$SLURM_JOB_ID # this script runs on it, which need not be the first one (sbatch --batch)
	mapfile -t NODE_NAMES < <(echo "$HEAD" && scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -Fxv "$HEAD")
	((${#NODE_NAMES[@]} == NODES)) || give_up internal "scontrol names ${#NODE_NAMES[@]} of $NODES nodes in $SLURM_JOB_NODELIST"
	# One job of an array has the number of the array, which scontrol and scancel take for all of it: JOB is 12_3 then.
	[[ -z ${SLURM_ARRAY_TASK_ID:-} ]] || JOB=$(timeout 20 squeue --all --noheader --array --jobs="$JOB" --format='%A %i' | sed -n "s/^$JOB //p" | grep .) || give_up config "squeue does not know the job $SLURM_JOB_ID of an array"
}

# fit_grace: GRACE, so that a trainer which ignores its signal and its container are gone before KillWait ends.
fit_grace() {
	local wait
	wait=$(timeout 10 scontrol show config | sed -n 's/^KillWait *= *\([0-9]*\).*/\1/p') || true
	wait=${wait:-30} GRACE=$((wait < 7 ? 0 : wait - 7 < STOP_GRACE ? wait - 7 : STOP_GRACE))
	((GRACE == STOP_GRACE)) || log "stop.grace is $GRACE s here, as the cluster's KillWait is $wait s"
}

# make_run: RUN, the run directory of this attempt, shared by the nodes, which know it by its MARK.
make_run() {
	ATTEMPT=${SLURM_RESTART_COUNT:-0}
	RUN=$(host_path "$RUN_DIR")/$SLURM_JOB_ID-$ATTEMPT
	MARK=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
	JOB_LOG=$(readlink /proc/self/fd/2)
	mkdir -p "$RUN/logs" || give_up config "cannot make the run directory $RUN: set run_dir"
	{ echo "$MARK" >"$RUN/mark"; } 2>/dev/null || give_up preflight "cannot write to the run directory $RUN: is its file system full?"
	phase start "job $SLURM_JOB_ID on $NODES nodes, head $HEAD, logs in $RUN/logs"
}

# node_step: the step, one task on every node; it waits for nobody's CPUs, GPUs or memory.
node_step() {
	# What `sbatch --export=NONE` leaves, what newer sruns take over from sbatch, and what would change the messages.
	local unwanted=(SLURM_EXPORT_ENV SLURM_TRES_PER_TASK SLURM_LABELIO SLURM_UNBUFFEREDIO SLURM_STD{IN,OUT,ERR}MODE "${!SRUN_@}")
	become env "${unwanted[@]/#/--unset=}" srun --overlap --export=ALL --nodes="$NODES" --ntasks="$NODES" --ntasks-per-node=1 \
		--cpus-per-task="$CPUS_PER_NODE" --cpu-bind=none --kill-on-bad-exit=0 --wait=0 \
		bash -c 'IFS= read -r -d "" program && eval "$program"'
}

# start_nodes: starts the step. Its input carries the program and then NUL-terminated records for the containers: values are
# in no argument, environment or file on the way. Its output carries the nodes' messages.
start_nodes() {
	coproc STEP { node_step; }
	SRUN=$!
	exec {FROM_NODES}<&"${STEP[0]}" 9>&"${STEP[1]}"
	eval "exec ${STEP[0]}<&- ${STEP[1]}>&-"
	send "$(declare -p GPUS_PER_NODE CPUS_PER_NODE TEMP_DIR RUNTIMES NODE_NAMES HEAD JOB ATTEMPT RUN MARK JOB_LOG STARTED PATIENCE PROGRAMS IMAGE CONTAINER_ARGS SHM_SIZE MOUNTS && declare -f)"$'\nsupervise'
	send "job=$SLURM_JOB_ID-$ATTEMPT" "token=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')" "cpus=$CPUS_PER_NODE" \
		"workdir=${WORKDIR:-$SLURM_SUBMIT_DIR}" "ready_timeout=$READY_TIMEOUT" "grace=$GRACE" "${NODE_NAMES[@]/#/nodes=}" "${RECORDS[@]}"
	local name value
	for name in "${ENV_FROM_SUBMITTER[@]}"; do
		IFS= read -r -d '' value < <(become printenv -0 "$name")
		send "env=$name=$value"
	done
}

# next_message: waits a second for a message: FROM, VERB, TEXT. VERB is empty without one, `over` at the end.
next_message() {
	local code=0
	receive "$FROM_NODES" $'\n' 1 || code=$?
	FROM='' VERB='' TEXT=''
	if ((code == 2)); then
		VERB=over
	elif ((code == 0)) && [[ $RECEIVED == "slurmray "* ]]; then
		# No `<<<`: bash 4.4 has a file for it, and the disk may be full.
		TEXT="${RECEIVED#slurmray } " FROM=${TEXT%% *} TEXT=${TEXT#* } VERB=${TEXT%% *} TEXT=${TEXT#* } TEXT=${TEXT%"${TEXT##*[! ]}"}
	elif ((code == 0)); then
		log "$RECEIVED"
	fi
	clock
	! must_speak || send alive=
	case $VERB in
	'' | over) ;;
	gone) unset "HEARD[$FROM]" && OUT[$FROM]=gone ;;
	step) STEP_ID=$TEXT HEARD[$FROM]=$NOW ;;
	*) [[ -n ${OUT[$FROM]-} ]] || HEARD[$FROM]=$NOW ;;
	esac
}

# mind_silence: nodes of which nothing has been heard for too long are lost; where several fall silent at once, the head is.
mind_silence() {
	local node silent=() others=0
	for node in "${!HEARD[@]}"; do
		((NOW - HEARD[$node] <= PATIENCE)) || silent+=("$node")
		[[ $node == "$HEAD" ]] || ((NOW - HEARD[$node] > 10)) || others=1
	done
	((others || ! ${#silent[@]} || NODES - ${#OUT[@]} < 3 || ${#HEARD[@]} + ${#OUT[@]} < NODES)) ||
		lose "$HEAD" node_lost "it hears none of the other nodes any more: has it lost its network?"
	for node in "${silent[@]}"; do
		unset "HEARD[$node]"
		OUT[$node]=silent
		lose "$node" node_lost "no sign of life for $PATIENCE s: has it lost its power or its network?"
	done
}

# lose NODE KIND TEXT: the job cannot go on because of that node, unless it is over anyway.
lose() {
	if ((ENDING)); then
		log "$1: $3"
	elif [[ -z $FAILED_KIND ]]; then
		FAILED_NODE=$1 FAILED_KIND=$2 FAILED_TEXT=$3
	fi
}

# follow: takes the nodes' messages until the trainer has ended, the job cannot go on, or Slurm ends it.
follow() {
	local said='' patience=$((READY_TIMEOUT + 15)) # the probe, with the same timeout, knows more: it goes first
	local due asked=0 stop_due=0
	clock
	due=$((NOW + patience))
	while [[ -z $FAILED_KIND ]] || ((NOW < UNFIT_DUE && ${#UNFIT[@]} < NODES)); do
		[[ -z $TRAINER_CODE ]] || is_doubtful || break
		next_message
		case $VERB in
		phase) # the first time: many nodes say the same
			[[ $said == *"|$TEXT|"* ]] || phase "${TEXT%% *}" "${TEXT#* }"
			said+="|$TEXT|"
			;;
		versions | cluster | reach | whole | done) send "$VERB=$TEXT" ;;
		finding) take_finding ;;
		alive) [[ -z $TEXT ]] || due=$((NOW + patience)) ;; # an image may take its time
		checked)
			send "peer=$TEXT"
			CHECKED[$FROM]=1
			((${#CHECKED[@]} < NODES)) || {
				show_findings
				((${#UNFIT[@]})) || send go=
			}
			;;
		trainer)
			TRAINING=1
			show_findings
			phase trainer "$TEXT"
			read_output
			;;
		missing) MISSING+=("$TEXT") ;;
		exit) TRAINER_CODE=$TEXT ;;
		fail) lose "$FROM" "${TEXT%% *}" "${TEXT#* }" ;;
		well) WELL[$FROM]=1 ;;
		told) STOPPING=1 ;; # Slurm tells the steps alone of a preemption with GraceTime
		signal) SIGNALLED[$FROM]=1 ;;
		untied) lose "$FROM" ray "the task of the node was killed" ;;
		gone)
			[[ $FROM != "$HEAD" ]] || break
			((STOPPING || TIME_UP)) || lose "$FROM" ray "its container has ended, and not by Slurm"
			;;
		over) break ;;
		esac
		mind_silence
		[[ $VERB != phase && $VERB != step && $VERB != finding ]] || due=$((NOW + patience))
		if ((! TRAINING && NOW > due)); then
			FAILED_NODE=$HEAD FAILED_KIND=probe FAILED_TEXT="the cluster is not whole, and no news from the nodes for $patience s"
			mapfile -t MISSING < <(unchecked)
		elif ((NOW > 10 && ! asked && ${#CHECKED[@]} < NODES)); then
			asked=1
			phase preflight "waiting for $(unchecked | cut -d ' ' -f 1 | paste -sd ' ')"
		elif ((STOPPING && ! stop_due)); then
			phase stop "asked to end by scancel, preemption or the time limit"
			send "stop=$GRACE"
			stop_due=$((NOW + GRACE + 5))
		elif ((TIME_UP == 1)); then
			TIME_UP=$((STOP_LEAD - 15 > GRACE ? STOP_LEAD - 15 : GRACE))
			phase time_limit "it, or preemption, is near: the trainer, if it has started, gets its signal, and $TIME_UP s"
			send "warn=$TIME_UP"
			TIME_UP=2
		elif ((stop_due && NOW > stop_due)); then
			break
		fi
	done
}

# unchecked: a line for each node that has not said that its checks are done.
unchecked() {
	local node
	for node in "${NODE_NAMES[@]}"; do [[ -n ${CHECKED[$node]-} ]] || echo "$node has not been checked: it may still be in its setup"; done
}

# is_doubtful: the trainer has failed, and a node may be lost; the one may have come of the other. So each is asked.
is_doubtful() {
	local node
	((TRAINER_CODE && ! STOPPING && ! TIME_UP)) && [[ -z ${SIGNALLED[$HEAD]-} ]] || return 1
	((DOUBT_DUE)) || { send look= && DOUBT_DUE=$((NOW + 5)); }
	for node in "${!HEARD[@]}"; do
		[[ -z ${SIGNALLED[$node]-} ]] || return 0 # it ends after its grace
		[[ -n ${WELL[$node]-} ]] || ((NOW > DOUBT_DUE && NOW - HEARD[$node] < 10)) || return 0
	done
	return 1
}

# read_output: the trainer's output becomes this script's own; no pipe of Slurm's is between them. The trainer waits for it.
read_output() {
	local inside=$TEMP_DIR/ray-$SLURM_JOB_ID-$ATTEMPT/inside
	# scancel does not end them: the trainer still has its grace then.
	(trap '' TERM && exec cat "$inside/out" 9>&-) &
	READERS=($!)
	(trap '' TERM && exec cat "$inside/err" >&2 9>&-) &
	READERS+=($!)
}

# take_finding: a row for the table; the first that ends the job says how.
take_finding() {
	local kind check found wanted remedy
	IFS='|' read -r kind check found wanted remedy < <(echo "$TEXT")
	[[ $kind != config ]] || remedy="$RENDER_AGAIN $remedy"
	FINDINGS+=("$FROM|$check|$found|$wanted|$remedy")
	event finding "$FROM: $check: $found; $remedy"
	[[ $kind != warn ]] || return 0
	[[ -n $FAILED_KIND ]] || FAILED_NODE=$FROM FAILED_KIND=$kind FAILED_TEXT="$check: $found; $remedy"
	UNFIT[$FROM]=1 UNFIT_DUE=$((NOW + 10)) # the other nodes find it too, a missing connection after 5 s
}

# show_findings: the table of what the nodes have found.
show_findings() {
	local row node check found wanted remedy
	((${#FINDINGS[@]})) || return 0
	log "found on the nodes:"
	for row in "node|check|found|wanted|remedy" "${FINDINGS[@]}"; do
		IFS='|' read -r node check found wanted remedy < <(echo "$row")
		printf '%-16s %-18s %s | %s | %s\n' "$node" "$check" "$found" "$wanted" "$remedy" >&2 || true
	done
	FINDINGS=()
}

# ---- 7. end -------------------------------------------------------------------------------------------------------
# end_nodes: every node's task removes what it made when its input ends; then the step is over. Nodes that are lost are not
# waited for, and nobody for ever.
end_nodes() {
	local due=$((NOW + 15)) signals=(TERM KILL) reader
	ENDING=1
	exec 9>&-
	while [[ $VERB != over ]]; do
		next_message
		[[ "$VERB $TEXT" != "phase end "* ]] || log "${TEXT/ /: }"
		[[ $VERB != finding ]] || take_finding
		mind_silence
		if ((${#OUT[@]} == NODES)) && [[ ${OUT[*]} == *silent* ]] || ((NOW > due && ! ${#signals[@]})); then
			kill -KILL "$SRUN" 2>/dev/null || true # no node that can still clean up needs it
		elif ((NOW > due)); then
			# Never srun itself: it would kill every task without letting it clean up.
			[[ -z $STEP_ID ]] || timeout 10 scancel --signal="${signals[0]}" "$JOB.$STEP_ID" 2>/dev/null || true
			signals=("${signals[@]:1}") due=$((NOW + 10))
		fi
	done
	{ wait "$SRUN" || SRUN_CODE=$?; } 2>/dev/null # bash says when it was killed
	# What the trainer wrote is here once its container has gone.
	[[ -n $TRAINER_CODE ]] || kill -KILL "${READERS[@]}" 2>/dev/null || true
	for reader in "${READERS[@]}"; do
		timeout 10 tail --pid="$reader" --sleep-interval=0.05 --follow /dev/null || kill -KILL "$reader" || true
	done
}

# show_log NODE: the last lines of what happened there.
show_log() {
	[[ -s $RUN/logs/$1.log ]] || return 0
	log "last lines of $RUN/logs/$1.log:"
	tail -n 15 "$RUN/logs/$1.log" >&2 || true
}

# report: the last line, and the exit code that Slurm gets.
report() {
	local each lost=bring_up signal='' ended=${TRAINER_CODE:+was stopped and ended with $TRAINER_CODE}
	((! TRAINING)) || lost=node_lost
	if [[ -n ${SIGNALLED[$HEAD]-} && -z $FAILED_KIND && $TRAINER_CODE != 0 ]] && ((! STOPPING && ! TIME_UP)); then
		FAILED_KIND=ray FAILED_NODE=$HEAD FAILED_TEXT="its container was told to end, and not by Slurm"
	fi
	show_findings
	for each in "${MISSING[@]}"; do
		log "missing: $each"
		show_log "${each%% *}"
	done
	if [[ -n $TRAINER_CODE && $FAILED_KIND != @(ray|node_lost) ]] && ((! TIME_UP || TRAINER_CODE == 0)); then
		((TRAINER_CODE <= 128)) || signal=$(kill -l "$TRAINER_CODE" 2>/dev/null) || true
		finish "$TRAINER_CODE" trainer "its own${signal:+, which stands for signal $signal}"
	elif ((STOPPING || TIME_UP)); then
		give_up time_limit "the time limit, or preemption, was near, the trainer ${ended:-had not started, or has no exit code}"
	elif [[ $FAILED_KIND == @(ray|node_lost|prepare|service) || $FAILED_KIND == probe && ! ${MISSING[*]} ]]; then
		show_log "$FAILED_NODE"
		FAILED_TEXT+=${TRAINER_CODE:+; the trainer ended with $TRAINER_CODE}
		[[ $FAILED_KIND != ray ]] || FAILED_KIND=$lost
	fi
	[[ -n $FAILED_KIND ]] || FAILED_KIND=$lost FAILED_NODE=$HEAD FAILED_TEXT="the step on the nodes ended by itself, srun said $SRUN_CODE"
	give_up "$FAILED_KIND" "$FAILED_NODE: $FAILED_TEXT"
}

# main: from the allocation to the exit code.
main() {
	the_time && STARTED=$TIME RUN='' PARTIAL='' VERB='' STEP_ID='' SRUN_CODE=0 STOPPING=0 TIME_UP=0 TRAINING=0
	TRAINER_CODE='' FAILED_NODE='' FAILED_KIND='' FAILED_TEXT='' MISSING=() READERS=()
	FINDINGS=() UNFIT_DUE=0 DOUBT_DUE=0 ENDING=0 LOOKED=0 AWAY=0 BEAT=0
	declare -gA HEARD=() OUT=() CHECKED=() UNFIT=() WELL=() SIGNALLED=()
	trap 'STOPPING=1' TERM
	trap 'TIME_UP=1' USR1 USR2
	trap : PIPE
	trap 'give_up internal "see the line above"' EXIT # an unset variable, for one
	trap '[[ $BASHPID != "$$" ]] || give_up internal "line $LINENO: $BASH_COMMAND"' ERR
	check_allocation
	fit_grace
	make_run
	start_nodes
	follow
	end_nodes
	report
}

main "$@"
