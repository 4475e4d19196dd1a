"""Slurm without I/O: sbatch's options, those that are slurmray's own, how an `#SBATCH` line is written."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["value", "flag", "optional"]


class Option(NamedTuple):
    """One long option of sbatch: `flag` takes no value, `optional` may be written without one.

    help: empty where SlurmBase documents it.
    """

    help: str = ""
    kind: Kind = "value"


# Slurm 22.05 to 26.05, in the order of `man sbatch`; without those in TAKEN.
OPTIONS: dict[str, Option] = {
    "account": Option("Charge the job to this account."),
    "acctg-freq": Option("Seconds between accounting samples, as `task=30`."),
    "batch": Option("Node features that the head node must have."),
    "bb": Option("Burst buffer specification."),
    "bbf": Option("File with the burst buffer specification."),
    "begin": Option("Earliest start, as `now+1hour` or `2026-01-20T12:34:00`."),
    "cluster-constraint": Option("Features that a federated cluster must have."),
    "clusters": Option("Clusters that may run the job, separated by commas."),
    "comment": Option("Any text, kept with the job."),
    "consolidate-segments": Option("Keep all segments in one aggregated block (topology/block).", "flag"),
    "constraint": Option("Node features that are required, as `h100&ib`."),
    "contiguous": Option("The nodes must be neighbours.", "flag"),
    "core-spec": Option("Cores per node kept for the system."),
    "cores-per-socket": Option("Only nodes with at least so many cores per socket."),
    "cpu-freq": Option("CPU frequency or governor."),
    "cpus-per-gpu": Option("CPUs per GPU; not together with cpus_per_task."),
    "cpus-per-task": Option(),
    "deadline": Option("Drop the job if it cannot end by then."),
    "delay-boot": Option("Minutes to wait before nodes are rebooted for a feature."),
    "dependency": Option("Jobs to wait for, as `afterok:1234`."),
    "distribution": Option("How tasks are spread over nodes and sockets."),
    "error": Option("File for the job's stderr, as `%j.err`. Slurm does not create its folder."),
    "exclude": Option("Nodes to avoid, as `node[3,7-9]`."),
    "exclusive": Option("Whole nodes: `true`, or `user`, `mcs`, `topo`.", "optional"),
    "extra": Option(),
    "extra-node-info": Option("Only nodes with `sockets[:cores[:threads]]`."),
    "get-user-env": Option("Read the login environment of the user.", "optional"),
    "gid": Option("Run with this group (root only)."),
    "gpu-bind": Option("How tasks are bound to GPUs."),
    "gpu-freq": Option("GPU frequency, as `medium`."),
    "gpus-per-node": Option(),
    "gres": Option(),
    "gres-flags": Option("How generic resources are chosen, as `enforce-binding`."),
    "hint": Option("Binding hint, as `nomultithread`."),
    "hold": Option("Submit held; start with `scontrol release`.", "flag"),
    "ignore-pbs": Option("Ignore #PBS lines.", "flag"),
    "kill-on-invalid-dep": Option("`yes` or `no`: end the job if its dependency can never be met."),
    "licenses": Option("Licences, as `matlab:2`."),
    "mail-type": Option("When to send mail, as `END,FAIL`."),
    "mail-user": Option("Who gets the mail."),
    "mcs-label": Option("Multi-category security label."),
    "mem": Option("Memory per node, as `200G`; `0` asks for all of it."),
    "mem-bind": Option("How tasks are bound to memory."),
    "mem-per-cpu": Option("Memory per CPU, as `4G`."),
    "mem-per-gpu": Option("Memory per GPU, as `100G`."),
    "mem-update": Option("Lower the memory limit later, as `20@30` (percent margin @ minutes)."),
    "mincpus": Option("Only nodes with at least so many CPUs."),
    "network": Option("Settings of the switch, on systems that have them."),
    "nice": Option("Lower the priority: `true`, or by how much.", "optional"),
    "nodefile": Option("File that lists the nodes to use."),
    "nodelist": Option("Nodes that must be part of the job, as `node[1-2]`."),
    "nodes": Option(),
    "oom-kill-step": Option("Out of memory ends the whole step: `0` or `1`.", "optional"),
    "output": Option("File for the job's output, as `%x-%j.out`. Slurm does not create its folder."),
    "overcommit": Option("More tasks than CPUs are allowed.", "flag"),
    "oversubscribe": Option("Nodes may be shared with other jobs.", "flag"),
    "partition": Option("Partition (queue); several with commas."),
    "prefer": Option("Node features that are preferred, not required."),
    "priority": Option("Priority, where the site lets users set it."),
    "profile": Option("What acct_gather_profile collects, as `task`."),
    "propagate": Option("Which of the submitter's ulimits go along, as `NOFILE`.", "optional"),
    "qos": Option("Quality of service."),
    "reboot": Option("Reboot the nodes before the job.", "flag"),
    "reservation": Option("Reservation to run in."),
    "resources": Option("Hierarchical resources, as `flat:2`."),
    "resv-ports": Option("Reserve communication ports.", "optional"),
    "runtime": Option("Slurm's runtime plugin (not the container runtime)."),
    "segment": Option("Nodes per segment (topology/block)."),
    "sockets-per-node": Option("Only nodes with at least so many sockets."),
    "spread-job": Option("Spread the job over many leaf switches.", "flag"),
    "spread-segments": Option("Segments in different base blocks (topology/block).", "flag"),
    "stepmgr": Option("Let one slurmstepd of the job manage its steps.", "flag"),
    "switches": Option("Most leaf switches, as `1@12:00:00` (count @ longest wait)."),
    "thread-spec": Option("Threads per node kept for the system."),
    "threads-per-core": Option("Threads used per core."),
    "time": Option("Time limit, as `1-00:00:00`, `12:00:00` or minutes."),
    "time-min": Option("Shortest time limit that the scheduler may lower `time` to."),
    "tmp": Option("Least local disk per node, as `100G`."),
    "tres-bind": Option("How tasks are bound to resources."),
    "uid": Option("Run as this user (root only)."),
    "use-min-nodes": Option("Prefer the smallest number of nodes.", "flag"),
    "verbose": Option("Print more messages.", "flag"),
    "wait": Option("sbatch waits for the end of the job.", "flag"),
    "wait-all-nodes": Option("`1`: start only when every node has booted."),
    "wckey": Option("Workload characterization key."),
}

_ONE_TASK = "slurmray starts one task on each node; leave it out"
_GPUS = "slurmray counts GPUs by node: use slurm.gpus_per_node"
_AT_SUBMIT = "give it to sbatch itself when you submit"

# Options that are slurmray's to set, each with what to use instead.
TAKEN: dict[str, str] = {
    "array": "an array is not supported: submit one job for each run",
    "chdir": "the job runs in the folder where sbatch is run: run sbatch there",
    "container": "use container.image",
    "container-id": "use container.image",
    "export": "use env",
    "export-file": "use env",
    "gpus": _GPUS,
    "gpus-per-socket": _GPUS,
    "gpus-per-task": _GPUS,
    "help": _AT_SUBMIT,
    "input": "the script does not read its standard input; leave it out",
    "job-name": "use name",
    "no-kill": "use on_node_loss: continue",
    "no-requeue": "slurmray sets it; see requeue.max",
    "ntasks": _ONE_TASK,
    "ntasks-per-core": _ONE_TASK,
    "ntasks-per-gpu": _ONE_TASK,
    "ntasks-per-node": _ONE_TASK,
    "ntasks-per-socket": _ONE_TASK,
    "open-mode": "slurmray sets it; leave it out",
    "parsable": _AT_SUBMIT,
    "quiet": _AT_SUBMIT,
    "requeue": "use requeue.max",
    "signal": "use stop.signal and stop.lead",
    "tasks-per-node": _ONE_TASK,
    "test-only": _AT_SUBMIT,
    "tres-per-task": "slurmray starts one task on each node: use slurm.cpus_per_task and slurm.gpus_per_node",
    "usage": _AT_SUBMIT,
    "version": _AT_SUBMIT,
    "wrap": "use run",
}

# What the rest of the script is computed from: only as a field, never through slurm.extra.
COUNTED = ("nodes", "cpus-per-task", "gpus-per-node", "gres")

_BARE = re.compile(r"[A-Za-z0-9_./:,=@%+\[\]-]+")


def directive(option: str, value: str | None) -> str:
    """Return the `#SBATCH` line for an option (name without dashes in front); value None is a bare flag.

    Inside double quotes Slurm drops a single backslash and ends at a bare double quote (src/sbatch/opt.c,
    get_argument); everything else stands for itself. A line is a line: a newline cannot be written.
    """
    if value is None:
        return f"#SBATCH --{option}"
    if not _BARE.fullmatch(value):
        value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"#SBATCH --{option}={value}"


def split_extra(word: str) -> tuple[str, str | None]:
    """Split one entry of slurm.extra, `--option[=value]`, into name and value; ValueError says the remedy."""
    found = re.fullmatch(r"--([A-Za-z][\w-]*)(?:=(.*))?", word, re.DOTALL)
    if not found:
        raise ValueError(f"expected one long option as --option=value, got {word!r}")
    name, value = found[1], found[2]
    if name in TAKEN:
        raise ValueError(f"--{name}: {TAKEN[name]}")
    if name in COUNTED:
        raise ValueError(f"--{name}: use slurm.{name.replace('-', '_')}")
    full = next((known for known in (*OPTIONS, *TAKEN) if known.startswith(name)), name)
    if name not in OPTIONS and full != name:
        raise ValueError(f"--{name}: write the whole name of the option, such as --{full}")
    kind = OPTIONS[name].kind if name in OPTIONS else "optional"
    if kind == "flag" and value is not None:
        raise ValueError(f"--{name} takes no value")
    if kind == "value" and value is None:
        raise ValueError(f"--{name} needs a value, as --{name}=value")
    return name, value


_DIGITS = 9  # of a number of GPUs


def gpus_in_gres(gres: str) -> tuple[str | None, int]:
    """Return type and count of the GPUs in a gres list such as `gpu:h100:8,nvme:1`; (None, 0) without any."""
    elements = [element for element in gres_elements(gres) if is_gpu(element)]
    if len(elements) > 1:
        raise ValueError("more than one kind of GPU; slurmray needs the same on each node")
    if not elements:
        return None, 0
    name, *kinds = elements[0].split(":")
    # sbatch takes 2k for 2048; 1g.10gb is a type.
    count = kinds.pop() if kinds and re.fullmatch("[0-9]+[KMGTPkmgtp]?", kinds[-1]) else "1"
    if name != "gpu" or len(kinds) > 1 or not all(re.fullmatch(r"[\w.-]+", kind) for kind in kinds):
        raise ValueError(f"expected gpu, gpu:8 or gpu:h100:8, got {elements[0]!r}")
    if len(count) > _DIGITS or not count.isdecimal():
        raise ValueError(f"no node has so many GPUs; write a count of at most {_DIGITS} digits")
    return "".join(kinds) or None, int(count)


def gres_elements(gres: str) -> list[str]:
    """Split a gres list; sbatch takes its elements with `gres/` in front, too."""
    return [element.strip().removeprefix("gres/") for element in gres.split(",")]


def is_gpu(element: str) -> bool:
    """Whether an element of a gres list asks for GPUs."""
    return bool(re.match(r"gpu(?![\w.-])", element))


def gpus_in_count(text: str) -> tuple[str | None, int]:
    """Return type and count of `8` or `h100:8`; ValueError for anything else."""
    found = re.fullmatch(r"(?:([\w.-]+):)?(0|[1-9][0-9]*)", text)
    if not found:
        raise ValueError(f"expected a count as 8, or a type and a count as h100:8, got {text!r}")
    if len(found[2]) > _DIGITS:
        raise ValueError(f"no node has so many GPUs; write a count of at most {_DIGITS} digits")
    return found[1], int(found[2])


def seconds(time: str) -> int | None:
    """Return the seconds of a time limit (man sbatch, --time); None: unlimited. ValueError if it is none."""
    if time.upper() in ("INFINITE", "UNLIMITED"):
        return None
    found = re.fullmatch(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?", time)
    if not found:
        raise ValueError(f"expected a time as 1-00:00:00, 12:00:00 or minutes, got {time!r}")
    numbers = [int(number) for number in found.groups()[1:] if number is not None]
    # After days, and with two colons, the first number is hours, else minutes.
    first = 3600 if found[1] or len(numbers) == 3 else 60
    total = int(found[1] or 0) * 86400 + sum(
        number * first // 60**place for place, number in enumerate(numbers)
    )
    return total or None
