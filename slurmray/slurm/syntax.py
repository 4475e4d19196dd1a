"""Slurm's syntax, without I/O: options of sbatch, `#SBATCH` lines, counts of GPUs, times, host lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["value", "flag", "optional", "time", "size", "array"]

# Slurm reads 64 bits.
_NUMBER = "[0-9]{1,18}"
_COUNT = "[1-9][0-9]{0,17}"
_INDEXES = f"{_NUMBER}(?:-{_NUMBER}(?::{_COUNT})?)?"
# For fullmatch, and for the JSON Schema, so in the syntax that Python has in common with ECMA-262.
PATTERNS: dict[Kind, str] = {
    "time": f"(?:({_NUMBER})-)?({_NUMBER})(?::({_NUMBER}))?(?::({_NUMBER}))?|"
    "[Ii][Nn][Ff][Ii][Nn][Ii][Tt][Ee]|[Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd]",
    "size": f"{_NUMBER}([KMGTkmgt][Bb]?)?",
    "array": f"{_INDEXES}(?:,{_INDEXES})*(?:%{_COUNT})?|%{_COUNT}",
}
_EXPECTED: dict[Kind, str] = {
    "time": "a time, e.g. 1-00:00:00, 12:00:00 or minutes",
    "size": "whole MB, or a number with K, M, G or T, e.g. 200G",
    "array": "indexes, e.g. 0-19, 0-19%4 (4 at a time) or 1,3,5",
}


class Option(NamedTuple):
    """One long option of sbatch: `flag` takes no value, `optional` may be written without one.

    time, size, array: the value is a time limit, a number of MB or indexes of an array. help: empty where
    Component documents it.
    """

    help: str = ""
    kind: Kind = "value"


# Slurm 22.05 to 26.05, in the order of `man sbatch`; without those in RESERVED.
OPTIONS: dict[str, Option] = {
    "account": Option("Account to charge."),
    "acctg-freq": Option("Seconds between accounting samples, e.g. `task=30`."),
    "array": Option(
        "A cluster for each index, e.g. `0-19%4`: 20, of which 4 run at a time. With `sweep` only `%4`.",
        "array",
    ),
    "batch": Option("Node features that the head node must have."),
    "bb": Option("Burst buffer specification."),
    "bbf": Option("File with the burst buffer specification."),
    "begin": Option("Earliest start, e.g. `now+1hour` or `2026-01-20T12:34:00`."),
    "cluster-constraint": Option("Features that a federated cluster must have."),
    "clusters": Option("Clusters that may run the job, separated by commas."),
    "comment": Option("Any text, stored with the job."),
    "consolidate-segments": Option("Keep all segments in one aggregated block (topology/block).", "flag"),
    "constraint": Option("Node features that are required, e.g. `h100&ib`."),
    "contiguous": Option("The nodes must be contiguous.", "flag"),
    "core-spec": Option("Cores per node kept for the system."),
    "cores-per-socket": Option("Only nodes with at least this many cores per socket."),
    "cpu-freq": Option("CPU frequency or governor."),
    "cpus-per-gpu": Option("CPUs per GPU; not together with cpus_per_task."),
    "cpus-per-task": Option(),
    "deadline": Option("Remove the job if it cannot end by this time."),
    "delay-boot": Option("Minutes to wait before nodes are rebooted for a feature."),
    "dependency": Option("Jobs to wait for, e.g. `afterok:1234`."),
    "distribution": Option("How tasks are distributed over nodes and sockets."),
    "error": Option("File for the job's stderr, e.g. `%j.err`. Slurm before 24.11 does not make its folder."),
    "exclude": Option("Nodes to avoid, e.g. `node[3,7-9]`."),
    "exclusive": Option("Share no nodes with other jobs: `true`, or `user`, `mcs`, `topo`.", "optional"),
    "extra": Option(),
    "extra-node-info": Option("Only nodes with `sockets[:cores[:threads]]`."),
    "get-user-env": Option("Read the login environment of the user.", "optional"),
    "gid": Option("Run with this group (root only)."),
    "gpu-bind": Option("How tasks are bound to GPUs."),
    "gpu-freq": Option("GPU frequency, e.g. `medium`."),
    "gpus-per-node": Option(),
    "gres": Option(),
    "gres-flags": Option("How generic resources are chosen, e.g. `enforce-binding`."),
    "hint": Option("Binding hint, e.g. `nomultithread`."),
    "hold": Option("Submit held; start with `scontrol release`.", "flag"),
    "ignore-pbs": Option("Ignore #PBS lines.", "flag"),
    "kill-on-invalid-dep": Option(
        "`yes`, the default here, or `no`: end the job if its dependency can never be met."
    ),
    "licenses": Option("Licenses, e.g. `matlab:2`."),
    "mail-type": Option("When to send mail, e.g. `END,FAIL`."),
    "mail-user": Option("Who gets the mail."),
    "mcs-label": Option("Multi-category security label."),
    "mem": Option("Memory per node, e.g. `200G`; `0` asks for all of it.", "size"),
    "mem-bind": Option("How tasks are bound to memory."),
    "mem-per-cpu": Option("Memory per CPU, e.g. `4G`.", "size"),
    "mem-per-gpu": Option("Memory per GPU, e.g. `100G`.", "size"),
    "mem-update": Option("Lower the memory limit later, e.g. `20@30` (percent margin @ minutes)."),
    "mincpus": Option("Only nodes with at least this many CPUs."),
    "network": Option("Settings of the interconnect, on systems that have them."),
    "nice": Option("Lower the priority: `true`, or by this number.", "optional"),
    "nodefile": Option("File that lists the nodes to use."),
    "nodelist": Option("Nodes that must be part of the job, e.g. `node[1-2]`."),
    "nodes": Option(),
    "oom-kill-step": Option("Out of memory ends the step: `0` or `1`.", "optional"),
    "output": Option(
        "File for the job's output, e.g. `%x-%j.out`. Slurm before 24.11 does not make its folder."
    ),
    "overcommit": Option("More tasks than CPUs are allowed.", "flag"),
    "oversubscribe": Option("Nodes may be shared with other jobs.", "flag"),
    "partition": Option("Partition (queue); several with commas."),
    "prefer": Option("Node features that are preferred, not required."),
    "priority": Option("Priority, if the site lets users set it."),
    "profile": Option("What acct_gather_profile collects, e.g. `task`."),
    "propagate": Option("Which of the submitter's ulimits apply to the job, e.g. `NOFILE`.", "optional"),
    "qos": Option("Quality of service."),
    "reboot": Option("Reboot the nodes before the job.", "flag"),
    "reservation": Option("Reservation to run in."),
    "resources": Option("Hierarchical resources, e.g. `flat:2`."),
    "resv-ports": Option("Reserve communication ports.", "optional"),
    "runtime": Option("Slurm's runtime plugin (not the container runtime)."),
    "segment": Option("Nodes per segment (topology/block)."),
    "sockets-per-node": Option("Only nodes with at least this many sockets."),
    "spread-job": Option("Spread the job over many leaf switches.", "flag"),
    "spread-segments": Option("Segments in different base blocks (topology/block).", "flag"),
    "stepmgr": Option("Let one slurmstepd of the job manage its steps.", "flag"),
    "switches": Option("Maximum number of leaf switches, e.g. `1@12:00:00` (count @ maximum wait)."),
    "thread-spec": Option("Threads per node kept for the system."),
    "threads-per-core": Option("Threads used per core."),
    "time": Option("Time limit, e.g. `1-00:00:00`, `12:00:00` or minutes.", "time"),
    "time-min": Option("Minimum to which the scheduler may lower `time`.", "time"),
    "tmp": Option("Minimum local disk per node, e.g. `100G`.", "size"),
    "tres-bind": Option("How tasks are bound to resources."),
    "uid": Option("Run as this user (root only)."),
    "use-min-nodes": Option("Prefer the minimum number of nodes.", "flag"),
    "verbose": Option("Print more messages.", "flag"),
    "wait": Option("sbatch waits for the end; slurmray submit returns the exit code.", "flag"),
    "wait-all-nodes": Option("`1`: start only when every node has booted."),
    "wckey": Option("Workload characterization key."),
}

# Options that all groups of a heterogeneous job share: sbatch passes them on from one component to those
# after it, or reads them in the first one only (slurm.schedmd.com/heterogeneous_jobs.html).
OF_WHOLE_JOB = """
acctg-freq array batch bb bbf begin cluster-constraint clusters comment deadline delay-boot dependency error
get-user-env gid hold ignore-pbs kill-on-invalid-dep mail-type mail-user mcs-label nice output priority
profile propagate reboot stepmgr time time-min uid verbose wait wait-all-nodes wckey
""".split()  # noqa: SIM905 - one name a line would hide the rest
# Those that sbatch passes on and that may yet differ between groups.
PASSED_ON = ("account", "distribution", "exclude", "mem", "qos", "reservation")

# The line between the components of a heterogeneous job.
NEXT_COMPONENT = "#SBATCH hetjob"

# Options of which a job can have one (sbatch's own messages).
EXCLUSIVE = (("mem", "mem-per-cpu", "mem-per-gpu"), ("cpus-per-task", "cpus-per-gpu"))

_ONE_TASK = "slurmray starts one task on each node; leave it out"
_GPUS = "slurmray counts GPUs by node: use slurm.gpus_per_node, or --gpus-per-node"
_AT_SUBMIT = "give it to sbatch itself when you submit"

# Options that slurmray sets, each with what to use instead.
RESERVED: dict[str, str] = {
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

# Short options of sbatch (man sbatch).
SHORT = {
    **{"A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint"},
    **{"c": "cpus-per-task", "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus"},
    **{"H": "hold", "h": "help", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses"},
    **{"M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output"},
    **{"p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec", "s": "oversubscribe", "t": "time"},
    **{"u": "usage", "V": "version", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude"},
}

# Options that other parts of the script depend on: only possible as fields, not in slurm.extra.
FIELDS_ONLY = ("array", "nodes", "cpus-per-task", "gpus-per-node", "gres")

_UNQUOTED = re.compile(r"[A-Za-z0-9_./:,=@%+\[\]-]+")

# A line that `directive` writes: option and value.
DIRECTIVE = re.compile(
    r"#SBATCH --([a-z][\w-]*)(?:=(" + _UNQUOTED.pattern + r'|"(?:[^"\\\0]|\\["\\])*"))?',
    re.ASCII | re.IGNORECASE,
)


def directive(option: str, value: str | None) -> str:
    """Return the `#SBATCH` line of an option. option: its name without dashes. value: None for a flag.

    Inside double quotes Slurm removes backslashes, and ends at a double quote without one (src/sbatch/opt.c,
    get_argument). The value must not have a newline.
    """
    if value is None:
        return f"#SBATCH --{option}"
    if not _UNQUOTED.fullmatch(value):
        value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"#SBATCH --{option}={value}"


def split_extra(entry: str) -> tuple[str, str | None]:
    """Split an entry of slurm.extra, `--option[=value]`, into name and value; ValueError for a wrong one."""
    match = re.fullmatch(r"--([A-Za-z][\w-]*)(?:=(.*))?", entry, re.DOTALL)
    if not match:
        raise ValueError(f"expected one long option, e.g. --option=value, got {entry!r}")
    name, value = match[1], match[2]
    if name in RESERVED:
        raise ValueError(f"--{name}: {RESERVED[name]}")
    if name in FIELDS_ONLY:
        raise ValueError(f"--{name}: use slurm.{name.replace('-', '_')}")
    full = next((known for known in (*OPTIONS, *RESERVED) if known.startswith(name)), name)
    if name not in OPTIONS and full != name:
        raise ValueError(f"--{name}: write the full name of the option, e.g. --{full}")
    kind = OPTIONS[name].kind if name in OPTIONS else "optional"
    if kind == "flag" and value is not None:
        raise ValueError(f"--{name} takes no value")
    if kind not in ("flag", "optional") and value is None:
        raise ValueError(f"--{name} needs a value: --{name}=VALUE")
    if value is not None:
        check(kind, value)
    return name, value


_MAX_DIGITS = 9  # of a count


def gpus_in_gres(gres: str) -> tuple[str | None, int]:
    """Return type and count of the GPUs in a gres list, e.g. `gpu:h100:8,nvme:1`; (None, 0) without GPUs."""
    elements = [element for element in gres_elements(gres) if is_gpu(element)]
    if len(elements) > 1:
        raise ValueError("more than one type of GPU; use one type")
    if not elements:
        if wrong := re.search(r"(?:^|,)\s*gres:[^,]*", gres):
            raise ValueError(f"expected e.g. gpu:8, without `gres:`, got {wrong[0][:100]!r}")
        return None, 0
    name, *kinds = elements[0].split(":")
    # sbatch takes 2k for 2048; 1g.10gb is a type.
    count = kinds.pop() if kinds and re.fullmatch("[0-9]+[KMGTPkmgtp]?", kinds[-1]) else "1"
    if name != "gpu" or len(kinds) > 1 or not all(re.fullmatch(r"[\w.-]+", kind) for kind in kinds):
        raise ValueError(f"expected gpu, gpu:8 or gpu:h100:8, got {elements[0][:100]!r}")
    if len(count) > _MAX_DIGITS or not count.isdecimal():
        raise ValueError(f"no node has so many GPUs; write a number of at most {_MAX_DIGITS} digits")
    return "".join(kinds) or None, int(count)


def parse_count(text: str) -> int | None:
    """Return the number in a text of up to nine digits; None for any other text."""
    return int(text) if re.fullmatch(f"[0-9]{{1,{_MAX_DIGITS}}}", text) else None


def split_directive(text: str) -> Iterator[str]:
    """Yield the words after #SBATCH; ValueError for a quote that is not closed.

    As sbatch does it, which is not how bash does: # begins a comment anywhere outside quotes, and backslashes
    count in both kinds of quotes (src/sbatch/opt.c, _get_argument).
    """
    word: list[str] = []
    is_word, quote = False, ""
    characters = iter(text)
    for character in characters:
        if character == quote:
            quote = ""
        elif character == "\\":
            word.append(next(characters, ""))
        elif quote:
            word.append(character)
        elif character in "\"'":
            quote = character
        elif character.isspace() or character == "#":
            if is_word:
                yield "".join(word)
            word, is_word = [], False
            if character == "#":
                return
            continue
        else:
            word.append(character)
        is_word = True
    if quote:
        raise ValueError(f"a directive whose {quote} is not closed")
    if is_word:
        yield "".join(word)


def gres_elements(gres: str) -> list[str]:
    """Split a gres list, without the prefix `gres/` that sbatch accepts."""
    return [element.strip().removeprefix("gres/") for element in gres.split(",")]


def is_gpu(element: str) -> bool:
    """Whether an element of a gres list asks for GPUs."""
    return bool(re.match(r"gpu(?![\w.-])", element))


def gpus_in_count(count: str) -> tuple[str | None, int]:
    """Return type and count of GPUs, e.g. of `8` or `h100:8`; ValueError for any other form."""
    match = re.fullmatch(r"(?:([\w.-]+):)?(0|[1-9][0-9]*)", count)
    if not match or match[1] == "gpu":
        raise ValueError(
            f"expected a number, e.g. 8, or a type and a number, e.g. h100:8, got {count[:100]!r}"
        )
    if len(match[2]) > _MAX_DIGITS:
        raise ValueError(f"no node has so many GPUs; write a number of at most {_MAX_DIGITS} digits")
    return match[1], int(match[2])


def check(kind: Kind, value: str) -> str:
    """Return a value of an option as it is (man sbatch); ValueError for a wrong one."""
    if kind in PATTERNS and not re.fullmatch(PATTERNS[kind], value):
        raise ValueError(f"expected {_EXPECTED[kind]}, got {value[:100]!r}")
    return value


def parse_size(size: str, unit: str = "M") -> int:
    """Return the bytes of a size, e.g. 32G or 512mb: powers of 1,024. unit: of a bare number; B is bytes."""
    number, suffix = re.fullmatch("([0-9]+)([BKMGT]?)B?", size.upper()).groups()  # type: ignore[union-attr]
    return int(number) << 10 * "BKMGT".index(suffix or unit)


def seconds(time: str) -> int | None:
    """Return the seconds of a time limit (man sbatch, --time); None: no limit. ValueError for a wrong one."""
    days, *parts = re.fullmatch(PATTERNS["time"], check("time", time)).groups()  # type: ignore[union-attr]
    numbers = [int(number) for number in parts if number is not None]
    # The first number is hours after days or with two colons, else minutes.
    first = 3600 if days or len(numbers) == 3 else 60
    total = int(days or 0) * 86400 + sum(number * first // 60**place for place, number in enumerate(numbers))
    return total or None


def expand_host_list(host_list: str, most: int) -> list[str]:
    """Return the names in a host list, for example `gpu-[0,2-3],r[1-2]n[1-2]`; keeps leading zeros.

    ValueError if brackets have something else than numbers or no end, or there are more than `most` names.
    """
    if re.search(r"[\[\]]", re.sub(r"\[[^\[\]]*\]", "", host_list)):
        raise ValueError(f"{host_list[:100]}: expected pairs of brackets, for example node[1-3,7]")
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\[\]]*\])+", host_list):
        beginnings = [""]
        for index, piece in enumerate(re.split(r"\[([^\[\]]*)\]", part)):
            ends = _expand_numbers(part, piece, most) if index % 2 else [piece]
            if len(names) + len(beginnings) * len(ends) > most:
                raise ValueError(f"{host_list[:100]}: more than {most} hosts")
            beginnings = [beginning + end for beginning in beginnings for end in ends]
        names += beginnings
    return names


def _expand_numbers(part: str, ranges: str, most: int) -> list[str]:
    numbers: list[str] = []
    for piece in ranges.split(","):
        if not re.fullmatch("[0-9]{1,9}(-[0-9]{1,9})?", piece):
            raise ValueError(f"{part[:100]}: expected numbers in the brackets, for example node[1-3,7]")
        first, _, last = piece.partition("-")
        some = range(int(first), int(last or first) + 1)
        if len(numbers) + len(some) > most:
            raise ValueError(f"{part[:100]}: more than {most} hosts")
        numbers += [f"{number:0{len(first)}d}" for number in some]
    return numbers
