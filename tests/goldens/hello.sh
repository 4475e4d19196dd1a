#!/bin/bash
#SBATCH --job-name=hello
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=8
#SBATCH --nodes=2
#SBATCH --time=10:00
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:URG@60
#SBATCH --no-requeue
#
# Rendered by slurmray 0.1.0 from a job spec: render it again rather than edit it.
# slurmray-sha256: ...
# slurmray-story: ...
# slurmray-agent core: e047cac6e7674c71f65bb8df177a7d10f8b5d6227fee15ac07d9fbb05b5fbb8f
# slurmray-agent gpus: 73016a00fdd506204006d7adb08ed6a4fc94e494f8d9a7ec77c93f68313adc94
# slurmray-agent watch: b21ee7b9160ebb1bf367a75ee48effc38f01456f7d4b57ced24da36d82289798
# slurmray-agent check: b62334a35ec6b0c3a246b4203837155495871e40c4530ad723bc2f2712b77e1e
# slurmray-agent engine: 240a229b7816089f6e488285756bed2b782bf35cf804ba9bdcb2d0130116d4b6
# slurmray-agent podman: 80a99be2a21318741efff0c593784ad66fe1d8484431de0a809a666cd6f63cb9
# slurmray-agent docker: f7bab5e5dcee6c7d928d50372582a31f8ff0b1fb74ca3ad9195968535cf6014e
#
# `slurmray verify FILE` compares story and agent with the installed version, and names what only this job has.
# `slurmray verify --print-hash` prints the hashes of the story and of each part of the agent: a script has those
# that its settings need. They have the same bytes in every script of a version.
#
#   1. settings   this job, as JSON: the only part that depends on the job spec
#   2. story      the commands and their order, in bash
#   3. agent      a Python program that calls the story's functions; bash does not execute it
# shellcheck disable=SC1122,SC2317,SC2329 # the agent is not bash; functions are called by name

# ---- 1. settings --------------------------------------------------------------------------------------------------
: <<'SETTINGS'
{
  "version": "0.1.0",
  "render_again": "slurmray render examples/hello.yaml",
  "groups": [
    {"name": "", "nodes": 2, "spares": 0, "gpus_per_node": 8, "cpus_per_node": 4}
  ],
  "slurm_counts_gpus": true,
  "only_checks": false,
  "run_dir": "slurmray-runs",
  "temp_dir": "/tmp",
  "setup": "",
  "preflight": "fail",
  "on_node_loss": "fail",
  "restart": {"max": 3, "window": 600, "exit_codes": [], "grace": 5},
  "requeue": {"max": 0, "exit_code": 0},
  "stop": {"lead": 60, "grace": 10, "signal": "TERM", "cancel_signal": "TERM"},
  "notify": null,
  "timeouts": {"ready": 600, "heartbeat": 25},
  "watch": {"interval": 30, "stall": 1800, "action": "report", "progress": ""},
  "container": {
    "runtimes": ["podman", "docker"],
    "accelerators": ["nvidia", "amd"],
    "command": "",
    "image": "docker.io/rayproject/ray:2.60.0-py311",
    "image_with_registry": "docker.io/rayproject/ray:2.60.0-py311",
    "source": "",
    "pull": "missing",
    "stage": "node",
    "build": null,
    "archive": "",
    "user": "auto",
    "mounts": [],
    "args": [],
    "step_args": [],
    "workdir": "",
    "python": "python3",
    "setup": "",
    "setup_timeout": 600,
    "shm_size": ""
  },
  "checks": {"paths": [], "same_commit": "", "bf16": false, "burn_in": 0},
  "ray": {
    "nodes": 2,
    "gpus": 8,
    "head": {"gpus": 8, "cpus": null, "memory": null},
    "port": "auto",
    "dashboard_port": "auto",
    "auth": "auto",
    "metrics": false,
    "keep_logs": "on_failure",
    "debug": "none",
    "start": "fast",
    "args": [],
    "head_args": [],
    "worker_args": []
  },
  "network": {"interface": "", "subnet": "", "family": "auto"},
  "env": {},
  "env_from_submitter": [],
  "sweep": {},
  "env_file": "",
  "node_env": "",
  "preset_env": {},
  "prepare": [],
  "services": [],
  "trainer": {"nnodes": 2, "launch": "exec", "command": [], "resume": [], "runtime_env": null}
}
SETTINGS

# ---- 2. story -----------------------------------------------------------------------------------------------------
# What happens, in this order. On the right: the agent's functions (section 3). They call the functions below by name, so
# changing an option here changes the job.
#
#   resolve nodes            the head node runs this script; others by scontrol           main, below
#   allocation, run dir      nodes and CPUs match the script                              controller_process.run_controller
#   start step               one srun, one task on each node                              start_step, below
#   node checks              setup, run directory, GPUs, mounts, temp folder, leftovers   node/agent.run_node
#   image                    pulled, built or loaded if it is missing                     node/image.ensure
#   container                one on each node; ends when its standard input does          container_process.run_container_process
#   Ray head and workers     head address by IPv4 or IPv6, free ports, then ray start     container_process.on_start_ray
#   readiness probe          all nodes and GPUs are in Ray                                container_process.on_ready
#   prepare and services     on the head node or all nodes, before the trainer            stages.begin
#   trainer                  on the head node; its output goes to the job's               job_run.read_trainer_output
#   exit code                the trainer's own, or 64 to 79 with the reason               outcome.outcome_of
#   clean-up                 by each node itself, even without the controller             node/agent.run_node
# Variables begin with SLURMRAY_, as assigning to an exported variable of the submitter would change it for the job.
set -Eeuo pipefail
# A signal that somebody sends to the trainer (scancel --signal=USR1) does not end a process that only prepares the job. The
# agent catches these signals, and passes them on once the trainer runs.
trap '' HUP INT QUIT ABRT USR1 USR2 ALRM XCPU VTALRM PROF WINCH IO PWR TSTP TTIN TTOU
readonly SLURMRAY_NO_PYTHON='no Python 3.6 or later. Load one in the job spec, e.g. setup: module load python (without exit)'

# main: this batch script. It becomes the controller. Run as another program, e.g. in salloc, it would not get Slurm's warning
# of the time limit. With --export=NIL or NAME a job has no PATH but bash's own, or not that of Slurm's programs.
main() {
	[[ -n ${SLURM_JOB_NODELIST-} && -n ${SLURMD_NODENAME-} && ${SLURM_TASK_PID-$$} == "$$" ]] ||
		{ echo "slurmray: this runs only as a batch script, inside salloc too. Submit it: sbatch $0" >&2 && exit 64; }
	{ type -P srun >/dev/null && export PATH; } || export PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
	mapfile -t SLURMRAY_NODES < <(env -u SLURM_CLUSTERS -u BASH_ENV scontrol show hostnames "$SLURM_JOB_NODELIST" |
		GREP_OPTIONS='' command grep -Fxv -- "$SLURMD_NODENAME")
	find_python "$(setup_of_settings)" || { echo "slurmray: $SLURMD_NODENAME: $SLURMRAY_NO_PYTHON" >&2 && exit 65; }
	exec "$SLURMRAY_PYTHON" -I -S -c "$SLURMRAY_BOOTSTRAP" controller "$0" "$SLURMD_NODENAME" "${SLURMRAY_NODES[@]}"
}

# start_step NODES CPUS [SRUN_OPTION...]: one task on each node. --overlap: does not wait for resources of other steps.
# bash -p: without the submitter's BASH_ENV, SHELLOPTS and exported functions, which would print into the messages.
start_step() {
	exec srun --overlap --export=ALL --nodes="$1" --ntasks="$1" --ntasks-per-node=1 --cpus-per-task="$2" --cpu-bind=none \
		--mpi=none --kill-on-bad-exit=0 --wait=0 "${@:3}" /bin/bash -p -c "$BASH_EXECUTION_STRING" slurmray start_node
}

# read_output NODE FIFO: prints the trainer's output, if the head node is another host: a spare one took its place.
read_output() {
	exec srun --overlap --export=ALL --nodes=1 --ntasks=1 --cpus-per-task=1 --nodelist="$1" --cpu-bind=none --mpi=none \
		--unbuffered /bin/bash -p -c "$BASH_EXECUTION_STRING" slurmray print_output "$2"
}

# print_output FIFO: the task of read_output. After scancel the trainer still has its grace period.
print_output() {
	trap '' TERM && exec cat -- "$1"
}

# start_node: the task on a node. It becomes the node agent, which reads this script and then messages from standard input.
start_node() {
	find_python "${SLURMRAY_SETUP-}" ||
		{ printf '{"v":1,"type":"failed","node":"%s","kind":"preflight","message":"%s"}\n' \
			"$SLURMD_NODENAME" "$SLURMRAY_NO_PYTHON" && exit 65; }
	exec "$SLURMRAY_PYTHON" -I -S -c "$SLURMRAY_BOOTSTRAP" node
}

# find_python SETUP: sets SLURMRAY_PYTHON to a Python that runs here and can run the agent: PATH may be of a host with another
# processor. If the system has none, it runs the setup of the job spec first; there are no heartbeats meanwhile.
# An empty entry is the end of its environment, as what setup leaves in the background keeps the pipe open.
find_python() {
	while IFS= read -r SLURMRAY_PYTHON; do
		"$SLURMRAY_PYTHON" -I -S -c 'import sys, zlib; sys.exit(sys.version_info < (3, 6))' </dev/null >/dev/null 2>&1 && return
	done < <(type -aP python3 || true && printf '%s\n' /usr/bin/python3 /usr/libexec/platform-python)
	[[ -n $1 ]] || return 1
	while IFS= read -r -d '' && [[ -n $REPLY ]]; do
		export "${REPLY?}" 2>/dev/null || true # some are not variables, e.g. exported functions
	done < <(trap "printf '\0'" EXIT &&
		${BASH_EXECUTION_STRING:+/bin/bash -c "$BASH_EXECUTION_STRING" slurmray} run_setup 3>&1 >&2 < <(printf %s "$1"))
	export SLURMRAY_SETUP_DONE=$SLURMD_NODENAME # so that the agent does not run it again
	find_python ''
}

# run_setup: runs commands of the job spec from standard input, as `ps` shows arguments to everybody. Without this script's
# shell options, and not in bash -p: `module` is an exported function, or BASH_ENV defines it. Writes their environment to fd 3.
# Their `set -e` would have no effect in a list with &&. Where it ends a function that is no subshell, bash 5.2 prints an error.
run_setup() (
	set +Eeuo pipefail
	eval "$(</dev/stdin)" </dev/null >&2 3>&-
	case $? in 0) command env -0 >&3 ;; *) return ;; esac
)

# setup_of_settings: prints the setup from the settings above, for hosts without a Python that could read the JSON.
setup_of_settings() {
	printf %b "$(command sed -n '/^  "setup": /{s/^[^:]*: "//;s/",$//;s/\\"/"/g;p;q}' "$0")"
}

# SLURMRAY_BOOTSTRAP: loads the agent. The controller reads it from this file; a node agent receives the file compressed.
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

# run_with_podman PROGRAM NAME IMAGE COUNT OPTION... ARGUMENT...: the container of a node. PROGRAM: podman, or
# container.command. The agent's COUNT options: container.python as entrypoint, user, devices, mounts, limits, labels, and
# container.args of the job spec; the last of equal options counts.
# --pids-limit: Podman's default of 2048 is too low for a Ray node with many workers. --workdir /: only the container's user
# may have access to the trainer's working directory; the container process changes to it.
run_with_podman() {
	local program=$1 name=$2 image=$3 count=$4
	shift 4
	exec "$program" run --rm --interactive --network host --log-driver none --security-opt label=disable \
		--pids-limit=-1 --workdir / --name "$name" "${@:1:count}" "$image" "${@:count+1}"
}

# run_with_docker PROGRAM NAME IMAGE COUNT OPTION... ARGUMENT...: the container of a node. PROGRAM: docker, or
# container.command. The agent's COUNT options: container.python as entrypoint, user, devices, mounts, limits, labels, and
# container.args of the job spec; the last of equal options counts.
# --workdir /: Docker's root may have no access to the trainer's working directory; the container process changes to it.
run_with_docker() {
	local program=$1 name=$2 image=$3 count=$4
	shift 4
	exec "$program" run --rm --interactive --network host --log-driver none --security-opt label=disable \
		--workdir / --name "$name" "${@:1:count}" "$image" "${@:count+1}"
}

"${@:-main}"
exit

# ---- 3. agent -----------------------------------------------------------------------------------------------------
: <<'AGENT'
100 files of slurmray/agent
AGENT
