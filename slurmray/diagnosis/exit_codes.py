"""Exit codes of a job: slurmray's, the trainer's, and those of the batch script in Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from signal import Signals
from typing import Any

from slurmray.agent.controller.roster import TOO_FEW
from slurmray.diagnosis.entries import Explanation
from slurmray.errors import ExitCode

EXIT_CODES: dict[int, Explanation] = {
    ExitCode.USAGE: Explanation(
        "wrong command line or job spec; nothing was written, except by `init --from` of a script without a trainer",
        "A command or an option is misspelt, or the job spec has mistakes. In a job, 2 is the trainer's exit "
        "code: Python returns it for wrong arguments and for a missing script.",
        "Each line of the message names a place and what to write there.",
    ),
    ExitCode.CONFIG: Explanation(
        "the job spec does not fit the allocation, the nodes or the submitter's environment",
        "The job got other nodes, CPUs or GPUs than the script was rendered for, a variable that `env` "
        "takes from you was not set, or the run directory could not be created. A command of slurmray "
        "returns 64 if Slurm refuses or does not answer.",
        "The last line of the log shows which, with the command that renders the script again, or the "
        "variable to export before sbatch.",
    ),
    ExitCode.PREFLIGHT: Explanation(
        "a node lacks something: runtime, GPUs, address, mount, temp folder; without an image, Python or Ray; or `setup` failed",
        "A check on a node failed before Ray was started there, or `setup` did.",
        "The log names the node, what is wrong and what to do about it. If only that node is affected, "
        "exclude it: sbatch --exclude=NODE generated.sh.",
    ),
    ExitCode.IMAGE: Explanation(
        "the image is missing, could not be pulled or built, or its Python has no Ray",
        "The name is misspelt, the nodes cannot reach the registry or are not logged in to it, their disk "
        "is full, the build failed, or the image has no container.python, or that has no Ray.",
        "Try it on a node with your own account: podman pull IMAGE, or docker pull IMAGE. If the nodes "
        "cannot reach the registry, load the image there first: podman load -i FILE.",
    ),
    ExitCode.BRING_UP: Explanation(
        "a container or Ray did not start on a node",
        "The runtime or Ray refused an option, a port that the spec fixes is taken, or the node has no "
        "memory or disk left.",
        "Read that node's last lines in the log. Set ray.port and ray.dashboard_port to "
        "auto, and try without container.args and Ray's args.",
    ),
    ExitCode.PROBE: Explanation(
        "the cluster was not ready within ray.ready_timeout",
        "A node started too slowly, or cannot reach the head node: because of a firewall, or an address on "
        "the wrong interface.",
        "The log names the missing nodes and shows their last lines. Set network.interface to the one that "
        "connects the nodes, raise ray.ready_timeout, or exclude a bad node: sbatch --exclude=NODE "
        "generated.sh.",
    ),
    ExitCode.PREPARE: Explanation(
        "a command of `prepare` failed",
        "It exited with another code than 0, e.g. because data or a model could not be downloaded.",
        "The log names the node and the command, and shows the node's last lines.",
    ),
    ExitCode.SERVICE: Explanation(
        "a service was not ready in time, or ended",
        "It could not start, its port is taken, or it takes longer to load than ready.timeout.",
        "The log names the node and shows the service's last lines. Raise ready.timeout, or set restarts.",
    ),
    ExitCode.NODE_LOST: Explanation(
        "a node was lost: no heartbeat, or its Ray or container died under the trainer",
        "Without a heartbeat, the host lost power or its network, or hangs. Otherwise Ray or the container "
        "was killed, by the kernel because memory ran out, or by somebody.",
        "The log names the node and shows its last lines. If `dmesg` on the node shows out of memory, raise "
        "slurm.mem, or let the trainer use less. Leave a bad node out: sbatch --exclude=NODE generated.sh.",
    ),
    ExitCode.TIME_LIMIT: Explanation(
        "the trainer was stopped before the time limit or preemption",
        "The training takes longer than slurm.time.",
        "Raise slurm.time, or let the trainer write a checkpoint on stop.signal and resume from it in the "
        "next job. A trainer that then exits with 0 ends the job with 0.",
    ),
    ExitCode.REHEARSAL: Explanation(
        "the rehearsal could not run on this machine",
        "A package is missing, or the kernel does not allow what the cluster needs.",
        "Run the command in the message, then rehearse again.",
    ),
    ExitCode.STALLED: Explanation(
        "the trainer no longer got anywhere, and watch.action ended it",
        "Its processes wait for each other, for a GPU or for a file: often one rank has failed or left, and "
        "the others wait for it in a collective operation.",
        "logs/stall-N in the run directory has the stacks of each node's processes and its GPUs. If the job "
        "was only slow, raise watch.stall, or set watch.action: report.",
    ),
    ExitCode.INTERNAL: Explanation(
        "a defect of slurmray; please report it",
        "slurmray failed in a way that it does not expect.",
        "Report it with the script, the job's output, and logs/ and events.jsonl of the run directory. "
        "Check them for secrets first.",
        is_certain=True,
    ),
}
"""slurmray's own, which docs/reference/exit-codes.md shows."""

# Codes whose last line in the job's log has the cause and the fix.
SELF_EXPLAINED = (ExitCode.CONFIG, ExitCode.PREFLIGHT, ExitCode.IMAGE, ExitCode.TIME_LIMIT)

TOO_FEW_SPARES = Explanation(
    "",
    "More nodes failed than the job had spare nodes.",
    "`sinfo -R` shows which nodes Slurm has taken out of service, and why. Leave out those that failed: sbatch "
    "--exclude=NODE generated.sh. Or set more `spares`.",
)
"""In place of NODE_LOST, for a job with spare nodes: see has_too_few_spares."""

# Codes of the trainer, by the conventions of bash and Python.
_TRAINER_CODES = {
    0: Explanation("the trainer succeeded, if the state of the job in Slurm is COMPLETED"),
    1: Explanation(
        "the trainer failed",
        "Python returns 1 after an uncaught exception.",
        "Read the traceback near the end of the job's log.",
    ),
    2: Explanation(
        "the trainer refused its command line, or Python did not find the script",
        "Python and its argparse return 2 for wrong arguments, Python also for a missing script.",
        "Read the trainer's last lines, near the end of the job's log.",
    ),
    126: Explanation(
        "the trainer's command was found, but could not be run",
        "The file is not executable, is a folder, or was built for another CPU architecture.",
        "Make it executable with chmod +x, or run it with its interpreter: run: [bash, FILE].",
    ),
    127: Explanation(
        "the trainer's command was not found",
        "It is searched in the container's PATH and container.workdir. Programs of the host and of "
        "environment modules are not in the container.",
        "Install it in the image, or mount it and use its path in the container.",
    ),
}
_OTHER = Explanation(
    "an exit code of the trainer",
    "The number has no meaning in Slurm, bash or slurmray.",
    "Read the trainer's last lines, near the end of the job's log.",
)

# Cause and fix of 128 + n, which usually means that signal n ended the trainer.
_CRASH = (
    "A crash in compiled code, e.g. an extension, CUDA, ROCm or NCCL. The kernel sent the signal, nobody else.",
    "Read the trainer's last lines. Set env.PYTHONFAULTHANDLER to 1 to get a Python traceback.",
)
_TRAINER_SIGNALS = {
    "SIGKILL": (
        "Often the kernel, because memory ran out. Or the trainer still ran stop.grace seconds after "
        "stop.signal.",
        "If the node's log, `dmesg` on the node or `sacct -j JOBID` says that memory ran out, raise slurm.mem or "
        "let the trainer use less.",
    ),
    "SIGTERM": (
        "scancel, preemption or the time limit.",
        "`sacct -j JOBID --format=State,Elapsed,Timelimit` shows which. If it was the limit, raise "
        "slurm.time.",
    ),
    "SIGBUS": ("Often /dev/shm is full.", "Raise container.shm_size."),
    "SIGABRT": (
        "The trainer itself, with abort(): e.g. an uncaught C++ exception, a failed assertion, or PyTorch's "
        "watchdog after an NCCL timeout.",
        _CRASH[1],
    ),
    **dict.fromkeys(("SIGILL", "SIGFPE", "SIGSEGV"), _CRASH),
}

# 0:n of Slurm: the batch script was killed, or did not start. 53: as seen with Slurm 22.05 and 24.11. 125: SIG_OOM in
# Slurm's source.
_BATCH_SIGNALS = {
    9: Explanation(
        "SIGKILL ended the batch script",
        "It still ran KillWait seconds after Slurm's SIGTERM, its node ran out of memory, or somebody sent "
        "SIGKILL, e.g. with scancel --signal=KILL --batch.",
        "`sacct -j JOBID --format=State,Elapsed,Timelimit` shows what Slurm did. The containers stop by "
        "themselves.",
    ),
    15: Explanation(
        "SIGTERM ended the batch script",
        "scancel, preemption or the time limit, before the script could handle it.",
        "`sacct -j JOBID --format=State,Elapsed,Timelimit` shows which.",
    ),
    53: Explanation(
        "Slurm could not start the batch script",
        "On the head node the submit folder does not exist, or Slurm could not open slurm.output or "
        "slurm.error: its folder does not exist (from 24.11 on Slurm creates it, if you may), or you may not "
        "write there.",
        "Create that folder, on a file system that all nodes share, and submit again.",
        is_certain=True,
    ),
    125: Explanation(
        "the job used more memory than it has",
        "Slurm killed some of its processes because memory ran out.",
        "Raise slurm.mem, or let the trainer use less.",
        is_certain=True,
    ),
}
_NAMES = {signal.value: signal.name for signal in Signals}


def look_up(code: int, signal: int = 0) -> tuple[str, Explanation]:
    """Return title and explanation of a job's exit code and signal, as sacct shows them."""
    if signal and not code:
        ended = Explanation(
            f"{_NAMES.get(signal, f'signal {signal}')} ended the batch script",
            fix="`sacct -j JOBID` shows the job's state.",
        )
        return f"0:{signal}", _BATCH_SIGNALS.get(signal, ended)
    if code in EXIT_CODES:
        return f"{code:d} {ExitCode(code).name.lower()}", EXIT_CODES[code]
    return look_up_trainer(code)


def look_up_trainer(code: int) -> tuple[str, Explanation]:
    """Return title and explanation of a code that is the trainer's."""
    if 128 < code <= 192:
        name = _NAMES.get(code - 128, f"signal {code - 128}")
        cause, fix = _TRAINER_SIGNALS.get(name, ("This signal ended the trainer.", _OTHER.fix))
        return str(code), Explanation(f"means {name} (128 + {code - 128})", cause, fix)
    return str(code), _TRAINER_CODES.get(code, _OTHER)


def has_too_few_spares(text: str) -> bool:
    """Whether a node was lost, and no spare node could take its place. text: slurmray's last line."""
    return text.startswith(f"failed ({ExitCode.NODE_LOST} ") and text.endswith(TOO_FEW)


def fix_of(end: Mapping[str, Any] | None) -> str:
    """What to do about an end of slurmray's own, an event of events.jsonl; "" for another one."""
    own = EXIT_CODES.get(end["exit_code"]) if end and end["source"] == "slurmray" else None
    if end and own and has_too_few_spares(end["text"]):
        own = TOO_FEW_SPARES
    return own.fix if own else ""
