#!/bin/bash
#SBATCH --job-name=hello
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=8
#SBATCH --nodes=2
#SBATCH --time=10:00
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:USR1@60
#SBATCH --no-requeue
#
# Rendered by slurmray 0.1.0 from a job spec: render it again rather than edit it.
# slurmray-sha256: ...
# slurmray-lines: ...
# slurmray-story: ...
# slurmray-agent: ...
#
# `slurmray verify FILE` tells which part was changed after rendering; `slurmray verify --print-hash` prints the hashes of
# story and agent that belong to the installed version. Both are the same bytes in every script of a version.
#
#   1. settings   this job, as JSON: the only part that depends on the job spec
#   2. story      the commands and their order, in bash
#   3. agent      the Python program that calls the story's functions; never executed by bash
# shellcheck disable=SC1122,SC2317,SC2329 # the agent is no bash; functions are called by name

# ---- 1. settings --------------------------------------------------------------------------------------------------
: <<'SETTINGS'
{
  "version": "0.1.0",
  "render_again": "slurmray render examples/hello.yaml",
  "nodes": 2,
  "gpus_per_node": 8,
  "cpus_per_node": 4,
  "run_dir": "slurmray-runs",
  "temp_dir": "/tmp",
  "setup": "",
  "preflight": "fail",
  "on_node_loss": "fail",
  "requeue": {"max": 0, "exit_code": 0},
  "stop": {"lead": 60, "grace": 10, "signal": "TERM", "cancel_signal": "TERM"},
  "timeouts": {"ready": 600, "heartbeat": 25},
  "container": {
    "runtimes": ["podman", "docker"],
    "accelerators": ["nvidia", "amd"],
    "image": "docker.io/rayproject/ray:2.60.0-py311",
    "image_with_registry": "docker.io/rayproject/ray:2.60.0-py311",
    "source": "",
    "pull": "missing",
    "build": null,
    "archive": "",
    "user": "auto",
    "mounts": [],
    "args": [],
    "workdir": "",
    "shm_size": ""
  },
  "checks": {"paths": [], "same_commit": "", "bf16": false},
  "ray": {
    "gpus": 8,
    "port": "auto",
    "dashboard_port": "auto",
    "auth": "auto",
    "metrics": false,
    "debug": "none",
    "start": "fast",
    "args": [],
    "head_args": [],
    "worker_args": []
  },
  "network": {"interface": "", "family": "auto"},
  "env": {},
  "env_from_submitter": [],
  "node_env": {},
  "prepare": [],
  "services": [],
  "trainer": {"launch": "exec", "command": [], "resume": [], "runtime_env": null}
}
SETTINGS

# ---- 2. story -----------------------------------------------------------------------------------------------------
# In the order in which it happens. On the right: the agent's function (section 3), which calls the functions below by
# name, so changing an option here changes the job.
#
#   resolve nodes            the head is the node of this script; others by scontrol      main, below
#   allocation, run folder   nodes and CPUs are those rendered for                        controller/process.run_controller
#   start step               one srun, one task on each node                              start_step, below
#   node checks              setup, run directory, GPUs, mounts, temp folder, leftovers   node/agent.run_node
#   image                    pulled, built or loaded where it is missing                  node/image.ensure
#   container                one on each node, ends with its standard input               container/process.run_container_process
#   Ray head and workers     head address by IPv4 or IPv6, free ports, then ray start     container/process.on_start_ray
#   readiness probe          all nodes and GPUs are in Ray                                container/process.on_ready
#   prepare and services     on head or all nodes, before the trainer                     container/stages.begin
#   trainer                  on the head; its output is the job's                         controller/process.read_trainer_output
#   exit code                the trainer's own, or 64 to 79 with the reason               controller/decisions.outcome
#   clean-up                 every node by itself, also without the controller            node/agent.run_node
# Variables begin with SLURMRAY_: an exported one of the submitter's with the same name would be changed for the job.
set -Eeuo pipefail
readonly SLURMRAY_NO_PYTHON='no Python 3.6 or later. Load one in the job spec, for example setup: module load python'

# main: this batch script. It becomes the controller.
main() {
	[[ -n ${SLURM_JOB_NODELIST-} && -n ${SLURMD_NODENAME-} ]] ||
		{ echo "slurmray: not the batch script of a Slurm job. Submit it: sbatch $0" >&2 && exit 64; }
	mapfile -t SLURMRAY_NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -Fxv -- "$SLURMD_NODENAME")
	find_python "$(setup_of_settings)" || { echo "slurmray: $SLURMD_NODENAME: $SLURMRAY_NO_PYTHON" >&2 && exit 65; }
	exec "$SLURMRAY_PYTHON" -I -S -c "$SLURMRAY_BOOTSTRAP" controller "$0" "$SLURMD_NODENAME" "${SLURMRAY_NODES[@]}"
}

# start_step NODES CPUS [SRUN_OPTION...]: one task on each node; it does not wait for CPUs, GPUs or memory of other steps.
start_step() {
	exec srun --overlap --export=ALL --nodes="$1" --ntasks="$1" --ntasks-per-node=1 --cpus-per-task="$2" --cpu-bind=none \
		--mpi=none --kill-on-bad-exit=0 --wait=0 "${@:3}" bash -c "$BASH_EXECUTION_STRING" slurmray start_node
}

# start_node: the task on a node. It becomes the node agent, which gets this script and then messages on standard input.
start_node() {
	if ! find_python "${SLURMRAY_SETUP-}"; then
		printf '{"v":1,"type":"failed","node":"%s","kind":"preflight","message":"%s"}\n' "$SLURMD_NODENAME" "$SLURMRAY_NO_PYTHON"
		exit 65
	fi
	exec "$SLURMRAY_PYTHON" -I -S -c "$SLURMRAY_BOOTSTRAP" node
}

# find_python SETUP: sets SLURMRAY_PYTHON to one that can run the agent. Where the system has none, the setup of the job
# spec runs first; nothing can send heartbeats meanwhile.
find_python() {
	for SLURMRAY_PYTHON in python3 /usr/libexec/platform-python; do
		[[ $("$SLURMRAY_PYTHON" -V 2>&1) =~ ^Python\ 3\.([0-9]+) ]] && ((BASH_REMATCH[1] >= 6)) && return
	done
	[[ -n $1 ]] || return 1
	while IFS= read -r -d ''; do
		export "${REPLY?}" 2>/dev/null || true # not all are variables, for example exported functions
	done < <(run_setup "$1" 3>&1)
	export SLURMRAY_SETUP_DONE=$SLURMD_NODENAME # the agent does not run it a second time there
	find_python ''
}

# run_setup COMMANDS: the setup of the job spec, without this script's shell options; its environment goes to descriptor 3.
run_setup() {
	set +Eeuo pipefail
	eval "$1" </dev/null >&2 3>&- && env -0 >&3
}

# setup_of_settings: the setup of the job spec, from the settings above, for a host that has no Python to read JSON.
setup_of_settings() {
	printf %b "$(sed -n '/^  "setup": /{s/^[^:]*: "//;s/",$//;s/\\"/"/g;p;q}' "$0")"
}

# SLURMRAY_BOOTSTRAP: loads the agent. The controller finds its text in this file; a node agent gets the file, compressed.
readonly SLURMRAY_BOOTSTRAP='
import os, sys, zlib
role, argv, rest = sys.argv[1], sys.argv[2:], b""
if role == "controller":
    with open(argv.pop(0), "rb") as file:
        script = file.read()
else:
    stream, script = zlib.decompressobj(), bytearray()
    while not stream.eof:
        data = os.read(0, 65536)
        if not data:
            sys.exit("slurmray: standard input ended before the script was complete")
        script += stream.decompress(data)
    rest = stream.unused_data
script = script.decode("utf-8", "surrogateescape")
agent = script.split("\n: <<\x27AGENT\x27\n", 1)[1].split("\nAGENT\n", 1)[0]
exec(compile(agent.split("\n#### agent/", 1)[0], "slurmray:agent/loader.py", "exec"))
sys.exit(load(agent).main(role, argv, script, rest))
'

# run_with_podman NAME IMAGE COUNT OPTION... ARGUMENT...: the container of a node. The agent's COUNT options: user, devices,
# mounts, limits, labels, and container.args of the job spec; of two equal ones the last counts.
# --pids-limit: Podman's default of 2048 is too low for a Ray node with many workers. --workdir: the trainer's may be where
# only the user of the container has access; the container process changes to it.
run_with_podman() {
	exec podman run --rm --interactive --network host --log-driver none --security-opt label=disable --pids-limit=-1 \
		--workdir / --name "$1" --entrypoint python3 "${@:4:$3}" "$2" "${@:4+$3}"
}

# run_with_docker NAME IMAGE COUNT OPTION... ARGUMENT...: the container of a node. The agent's COUNT options: user, devices,
# mounts, limits, labels, and container.args of the job spec; of two equal ones the last counts.
# --workdir: the trainer's may be where Docker's root has no access; the container process changes to it.
run_with_docker() {
	exec docker run --rm --interactive --network host --log-driver none --security-opt label=disable \
		--workdir / --name "$1" --entrypoint python3 "${@:4:$3}" "$2" "${@:4+$3}"
}

"${@:-main}"
exit

# ---- 3. agent -----------------------------------------------------------------------------------------------------
: <<'AGENT'
67 files of slurmray/agent
AGENT
