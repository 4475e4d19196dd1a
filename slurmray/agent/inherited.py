"""What a job inherits from where it was submitted: variables, limits and umask.

sbatch passes on the environment, soft limits and umask of the shell in which it runs.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Mapping, MutableMapping

# Variables that select GPUs for a process. Slurm sets them for each task where it selects GPUs; those of the
# submitter's shell, of an interactive job in which it runs, or of an image are for other GPUs.
GPU_MASKS = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
# Variables with which another Ray, its token or its numbers would win over the job's own.
FOREIGN = (
    "RAY_ADDRESS",
    "RAY_API_SERVER_ADDRESS",  # of Ray's job API, before RAY_ADDRESS
    "RAY_AUTH_TOKEN",  # before RAY_AUTH_TOKEN_PATH
    "RAY_CLIENT_MODE",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",  # of the Ray job in which this one was submitted
    "RAY_JOB_HEADERS",
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING",
    "RAY_OVERRIDE_RESOURCES",  # before the options of `ray start`
)
# Variables of a login session. sbatch exports those of the login node, where systemd has made the folder.
LOGIN_SESSION = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
# Options of Slurm's commands (their man pages): SQUEUE_STATES or SCANCEL_PARTITION leave jobs out, and
# SCANCEL_INTERACTIVE asks. SLURM_CLUSTERS: another cluster's jobs.
COMMAND_OPTIONS = ("SQUEUE_", "SCANCEL_", "SCONTROL_")
OF_COMMANDS = ("BASH_ENV", "SLURM_BITSTR_LEN", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")
OPEN_FILES = 65535  # Ray opens several for each worker process


def drop_command_options(env: "Mapping[str, str]") -> "Dict[str, str]":
    """The environment for Slurm's commands, without their options and what a wrapper of them would run."""
    return {
        name: value
        for name, value in env.items()
        if not name.startswith(COMMAND_OPTIONS) and name not in OF_COMMANDS
    }


def add_account(env: "MutableMapping[str, str]") -> None:
    """Set HOME, USER, LOGNAME and SHELL, where unset or empty, to those of the user database.

    With --export=NIL or NAME a job has none of them.
    """
    import pwd

    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        return
    for name, value in (
        ("HOME", user.pw_dir),
        ("USER", user.pw_name),
        ("LOGNAME", user.pw_name),
        ("SHELL", user.pw_shell),
    ):
        if not env.get(name):
            env[name] = value


def raise_soft_limits() -> None:
    """Raise soft limits that end programs to the hard ones; that of open files, too, but to OPEN_FILES.

    Slurm hands on the soft limits of the submit host (PropagateResourceLimits), which are meant for a login
    node. Those of stack and core files, of which more is not better, stay.
    """
    import resource

    for kind in (
        resource.RLIMIT_AS,
        resource.RLIMIT_CPU,
        resource.RLIMIT_DATA,
        resource.RLIMIT_FSIZE,
        resource.RLIMIT_MEMLOCK,  # RDMA fails with a low one
        resource.RLIMIT_NPROC,
        resource.RLIMIT_RSS,
    ):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (hard, hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def umask() -> int:
    """The umask of this process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
