"""The environment of srun, without options and GPU masks of other jobs.

sbatch passes on all variables of the shell in which it runs. In a terminal of Open OnDemand, in Jupyter or in
salloc, these include options of another allocation, and srun would take them for its own.
"""

import re

from .. import inherited, job_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Mapping

# Without SLURM_ (man srun, INPUT ENVIRONMENT VARIABLES). The step gets its options from the story, and
# the rest from the job.
NEVER = """
ACCOUNT ACCTG_FREQ BCAST BCAST_EXCLUDE BURST_BUFFER CLUSTERS COMPRESS CONSTRAINT CORE_SPEC CPU_BIND
CPU_BIND_LIST CPU_BIND_TYPE CPU_BIND_VERBOSE DEBUG DELAY_BOOT DEPENDENCY DISABLE_STATUS
DIST_PLANESIZE EPILOG EXACT EXCLUSIVE EXIT_ERROR EXIT_IMMEDIATE EXPORT_ENV GRES GRES_FLAGS IMMEDIATE
KILL_BAD_EXIT LABELIO MPI_TYPE NO_KILL OPEN_MODE OVERLAP PARTITION POWER PROLOG QOS REMOTE_CWD
REQ_SWITCH RESERVATION RESV_PORTS SEND_LIBS SIGNAL SPREAD_JOB STDERRMODE STDINMODE STDOUTMODE
STEP_GRES TASK_EPILOG TASK_PROLOG TEST_EXEC THREADS THREAD_SPEC TIMELIMIT TRES_BIND TRES_PER_TASK
UNBUFFEREDIO USE_MIN_NODES WAIT WAIT4SWITCH WCKEY WORKING_DIR
""".split()  # noqa: SIM905 - one name a line would hide the rest
# Variable -> option of sbatch with which it is this job's.
IF_GIVEN = {
    "CPUS_PER_GPU": "cpus-per-gpu",
    "CPU_FREQ_REQ": "cpu-freq",
    "DISTRIBUTION": "distribution",
    "GPUS": "gpus",
    "GPUS_PER_NODE": "gpus-per-node",
    "GPUS_PER_SOCKET": "gpus-per-socket",
    "GPUS_PER_TASK": "gpus-per-task",
    "GPU_BIND": "gpu-bind",
    "GPU_FREQ": "gpu-freq",
    "HINT": "hint",
    "MEM_BIND": "mem-bind",
    "NETWORK": "network",
    "NTASKS_PER_CORE": "ntasks-per-core",
    "NTASKS_PER_GPU": "ntasks-per-gpu",
    "NTASKS_PER_SOCKET": "ntasks-per-socket",
    "OVERCOMMIT": "overcommit",
    "PROFILE": "profile",
    "THREADS_PER_CORE": "threads-per-core",
}
MEMORY = ("MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU")


NEXT_COMPONENT = "\n#SBATCH hetjob\n"


def select_component(env: "Mapping[str, str]", number: int) -> "Dict[str, str]":
    """The environment of a heterogeneous job, with the variables that a job of one component would have.

    Those of each component end in _HET_GROUP_NUMBER; some without it are those of the first one.
    """
    ending = re.compile("_(HET|PACK)_GROUP_[0-9]+$")
    of_components = {ending.sub("", name) for name in env if ending.search(name)}
    own = "_HET_GROUP_%d" % number
    variables = {
        name: value for name, value in env.items() if name not in of_components and not ending.search(name)
    }
    variables.update((name[: -len(own)], value) for name, value in env.items() if name.endswith(own))
    return variables


def step_environment(
    env: "Mapping[str, str]", script: str, record: "job_record.Record", component: int = 0
) -> "Dict[str, str]":
    """The environment for srun. script: with its directives. record: of this component, see job_record."""
    directives = script.split(NEXT_COMPONENT)[component]
    given = set(re.findall(r"^#SBATCH --([a-z-]+)", directives, re.MULTILINE))
    removed = set(NEVER)
    removed.update(name for name, option in IF_GIVEN.items() if option not in given)
    memory = job_record.read_memory_variable(record)
    if memory is not None:
        removed.update(name for name in MEMORY if name != memory)
    # Slurm sets GPU_MASKS again for each task.
    names = {"SLURM_" + name for name in removed}.union(inherited.GPU_MASKS)
    return {name: value for name, value in env.items() if name not in names and name[:5] != "SRUN_"}
