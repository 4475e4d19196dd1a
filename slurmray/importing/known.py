"""Programs, variables and options: which a job spec does not need, and why; and which it has in a field."""

from __future__ import annotations

import re

from slurmray.agent.inherited import FOREIGN
from slurmray.spec.job_spec import OF_THE_JOB


def _table(*rows: tuple[str, str]) -> dict[str, str]:
    """Return reasons by name, from rows of a reason and the names that it is for."""
    return {name: reason for reason, names in rows for name in names.split()}


STRUCTURE = "structure of the script"
CONTINUES = "continues the line above"
VARIABLE = "a variable of the script"
KEPT = "kept with the command"
NO_FILE = "the job's log has the output, and no other file"
RAY = "slurmray starts Ray, waits for all nodes, and ends it"
LIFE = "slurmray names, starts and removes the containers"
PRINTS = "it only prints"
MASKS = "the container has only the job's GPUs"
STEP = "slurmray starts one task on each node"

# What only prints or waits, so that it is needed only where the rest of a structure is.
PROGRAMS = _table(
    (PRINTS, "echo printf printenv date nvidia-smi rocm-smi ibdev2netdev hostname whoami pwd ls id uname df"),
    (PRINTS, "free nproc lscpu squeue sinfo scontrol sacct lsof netstat ss tail ps tabs clear tput"),
    (RAY, "sleep wait ping nc pkill kill killall"),
    (
        STRUCTURE,
        "true false : exit return break continue [ test shift cat grep let which type hash seq getopts read",
    ),
)
# What changes how bash runs the commands after it.
OPTIONS = ("set", "shopt", "alias", "umask")
# Values that name nodes or the head node's address: of these programs.
CLUSTER_CODE = re.compile(
    r"(?:\$\(|`|<\()[^)`]*?\b"
    r"(?:scontrol +show +hostnames?|hostname|getent|ip (?:-\S+ )*(?:addr|route|a)|nslookup)\b"
    r"|\$\{?(?:SLURMD_NODENAME|HOSTNAME|SLURM_LAUNCH_NODE_IPADDR)\b"
)
# Programs after a pipe that only copy or filter what the first one prints.
FILTERS = ("tee", "cat", "grep", "ts", "sed", "awk", "head", "tail", "tr", "sort", "wc", "cut")
# Programs that only handle files, so that none is a trainer.
FILES = tuple("chmod cp git gunzip gzip ln mkdir mv rsync tar tee touch unzip wget".split())  # noqa: SIM905
# Programs that run others elsewhere.
OTHER_HOSTS = ("sbatch", "salloc", "sbcast", "ssh", "pdsh", "parallel", "mpirun", "mpiexec")
WITH_HOST = ("ssh",)  # whose first argument is the host
SSH_FLAGS = {f"-{letter}" for letter in "46AaCfGgKkMNnqsTtVvXxYy"}
# Programs that run others in containers, but that slurmray does not know.
OTHER_RUNTIMES = ("shifter", "sarus", "ch-run", "charliecloud", "udocker", "enroot")
# Subcommands of Docker and Podman, and of Ray.
ENGINE_VERBS = _table(
    ("slurmray pulls the image where it is missing", "pull login"),
    (PRINTS, "image images ps inspect info version logs"),
    (LIFE, "rm stop kill container system rmi"),
)
RAY_VERBS = _table((RAY, "stop status list summary health-check logs timeline"))
# Subcommands by which Ray's program is known behind others, e.g. uv run.
RAY_COMMANDS = ("start", "stop", "status", "symmetric-run", "job")
DASHBOARD = re.compile(r":8265\b|/api/(?:version|jobs|cluster_status)\b")  # an address of Ray's
MASKS_OF_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
VARIABLES = _table(
    (MASKS, " ".join(MASKS_OF_GPUS)),
    ("the trainer joins the job's own Ray", " ".join(FOREIGN)),
    ("slurmray sets it", "NNODES NODE_RANK GPUS_PER_NODE MASTER_ADDR MASTER_PORT"),
    ("slurmray starts Ray itself", "RANK WORLD_SIZE head_node_ip ip_head RAY_HEAD_IP redis_password"),
)
# Before the name of a variable that Apptainer sets in the container.
OF_CONTAINER = re.compile("^(?:APPTAINER|SINGULARITY)ENV_")
HEAD_VARIABLES = tuple(VARIABLES)
# Variables that a program in the job has without `env`: those of the user, of bash, and of the job.
SET_IN_JOB = {
    *"HOME PWD OLDPWD USER LOGNAME UID EUID PATH HOSTNAME TMPDIR IFS REPLY RANDOM SECONDS LINENO".split(),  # noqa: SIM905
    *"BASH_SOURCE FUNCNAME PIPESTATUS BASH_REMATCH OPTARG OPTIND".split(),  # noqa: SIM905
    *("NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "RAY_ADDRESS", *OF_THE_JOB),
}

# Programs that only run the command after them -> their options without a value.
RUNNERS = {
    "nohup": (),
    "exec": ("-c", "-l"),
    "time": ("-p", "-v", "--verbose", "-a", "--append", "-q", "--quiet"),
    "sudo": ("-E", "-H", "-n", "-b", "-i", "-s", "-k", "-P", "-A", "-S", "--preserve-env", "--login"),
    "setsid": ("-c", "--ctty", "-f", "--fork", "-w", "--wait"),
    "command": ("-p",),
    "ionice": ("-t", "--ignore"),
    "nice": (),
    "stdbuf": (),
    "unbuffer": ("-p",),
}

# Programs that set up the shell in which they run, and files that do so when sourced.
MODULES = ("module", "ml", "spack")
CONDAS = ("conda", "mamba", "micromamba")
ACTIVATING_CODE = re.compile(rf"\b(?:{'|'.join((*MODULES, *CONDAS))}|modulecmd)\b")
ACTIVATING_FILES = re.compile(
    r"(?:^|/)(?:activate(?:\.\w+)?|conda\.sh|modules?\.sh|bash|lmod\.sh|setvars\.sh|\.bashrc|\.bash_profile|profile)$"
)
INSTALLERS = re.compile(r"(?:pip3?|apt-get|apt|conda|yum|dnf|python3? -m pip) .*\binstall\b|pip3? uninstall")
# Programs whose subcommand `login` has a token -> the variable that they read instead.
LOGINS = {"wandb": "WANDB_API_KEY", "huggingface-cli": "HF_TOKEN", "hf": "HF_TOKEN"}
# Commands that only keep a container running.
WAITING = re.compile(r"tail -f .*|sleep \S+|cat|(?:/bin/)?(?:ba)?sh(?: -[il])*")
# What a program asks Ray for if it only shows the cluster's state.
RAY_STATE = re.compile(r"ray\.nodes|cluster_resources|available_resources")

_READERS = (
    "pwd|date|realpath|readlink|basename|dirname|scontrol|hostname|wc|tr|head|tail|awk|sed|grep|cut|cat|echo"
    "|printf|nproc|whoami|id|mktemp|seq|uuidgen|sort|uniq|shuf|getent|ip|host|dig|jq|bc|expr|which|squeue|sinfo|nvidia-smi"
)
_HARMLESS = re.compile(rf"(?:\$\(|`)\s*(?:(?:{_READERS})\b|\$|srun .*\bhostname\b)")


# What asks about the cluster, or waits for it.
ASKS_CLUSTER = re.compile(
    r"\bray (?:status|health-check|list|job (?:status|logs|list))\b|\bray\.nodes\b"
    r"|\b(?:srun|scontrol|squeue)\b"
)


def has_effect(code: str) -> bool:
    """Whether a substitution, `$(...)`, runs a program that may do more than print a fact."""
    is_fact = _HARMLESS.match(code) or ASKS_CLUSTER.search(code)
    return bool(re.search(r"\$\((?!\()|`", code)) and not is_fact
