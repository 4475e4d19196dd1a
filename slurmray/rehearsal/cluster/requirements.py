"""From a script's `#SBATCH` lines to a cluster that can run it. Pure functions, no I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from slurmray.slurm import syntax

# Accepted, but without effect on one machine or without an accounting database.
_NO_EFFECT = {
    "account": "the rehearsal has no accounts, any is accepted",
    "bb": "there is no burst buffer",
    "bbf": "there is no burst buffer",
    "cpu-freq": "the CPUs keep their frequency",
    "gpu-freq": "there are no GPUs, only their number",
    "mail-type": "no mail is sent",
    "mail-user": "no mail is sent",
    "mcs-label": "there are no security labels",
    "network": "there is no interconnect",
    "power": "there is no power management",
    "qos": "the rehearsal has no QOS, any is accepted",
    "reboot": "the nodes have just booted",
    "switches": "the nodes have one switch",
    "wckey": "the rehearsal has no accounting",
}
# Options that would delay the job, each with the argument of sbatch that overrides it.
_OVERRIDDEN = {
    "begin": ("--begin=now", "the job starts now"),
    "deadline": ("--deadline=now+7days", "the deadline is next week"),
    "dependency": ("--dependency=", "the job waits for no other"),
    "priority": ("--priority=1", "there are no other jobs"),
}
_MOST = 10_000  # hosts in a list


@dataclass(frozen=True)
class Requirements:
    """A script's requirements of the rehearsal's cluster."""

    cluster: ClusterConfig
    reservations: tuple[str, ...]  # names to create before the job is submitted
    held: bool  # the job is submitted with --hold, and has to be released
    overrides: tuple[str, ...]  # arguments for sbatch
    remarks: tuple[str, ...]  # options that the rehearsal does not imitate, one line each


def components(script: str) -> list[str]:
    """Return the script, or for each component of a heterogeneous job the lines with its options."""
    return re.split(rf"^{syntax.NEXT_COMPONENT}$", script, flags=re.MULTILINE)


def split_directives(script: str) -> list[str]:
    """Return the arguments in the `#SBATCH` lines; ValueError for a quote that is not closed.

    Directives end at the first line that is neither empty nor a comment.
    """
    arguments: list[str] = []
    for line in script.split("\n"):
        if line.startswith("#SBATCH"):
            arguments += syntax.split_directive(line.removeprefix("#SBATCH"))
        elif line.strip() and not line.startswith("#"):
            break
    return arguments


def options(script: str) -> dict[str, str]:
    """Return the long options of a script, name -> value ("" without one); a later one wins.

    Accepts `--name=value` and `--name`, the forms that slurmray writes; ValueError for any other form.
    """
    values = {}
    for argument in split_directives(script):
        if not argument.startswith("--"):
            raise ValueError(f"#SBATCH {argument}: write it as --option=value to rehearse the script")
        name, _, value = argument[2:].partition("=")
        values[name] = value
    return values


def read_requirements(script: str) -> Requirements:
    """Return the requirements of a script; ValueError for an option that a rehearsal cannot handle."""
    parts = [options(part) for part in components(script)]
    given = parts[0]  # with the options of the whole job
    if "clusters" in given:
        raise ValueError("--clusters: needs Slurm's accounting database, which a rehearsal does not have")
    overrides = [argument for name, (argument, _) in _OVERRIDDEN.items() if name in given]
    remarks = [f"--{name}={given[name]}: {text}" for name, text in _NO_EFFECT.items() if name in given]
    remarks += [f"--{name}={given[name]}: {text}" for name, (_, text) in _OVERRIDDEN.items() if name in given]
    if first := re.match("[0-9]+", given.get("array", "")):
        overrides.append(f"--array={first[0]}")
        remarks.append(f"--array={given['array']}: only the task {first[0]} runs")
    return Requirements(
        _cluster(parts),
        tuple(filter(None, given.get("reservation", "").split(","))),
        "hold" in given,
        tuple(overrides),
        tuple(remarks),
    )


def _cluster(parts: Sequence[Mapping[str, str]]) -> ClusterConfig:
    """Return a cluster with nodes for each component of a job. Each node has what any of them asks for."""
    cpus, memory = zip(*map(_cpus_and_memory, parts), strict=True)
    licenses = parts[0].get("licenses", "")
    excluded = dict.fromkeys(
        name for part in parts for name in syntax.expand_host_list(part.get("exclude", ""), _MOST)
    )
    nodes = _nodes(parts, excluded)
    return ClusterConfig(
        nodes=nodes,
        absent=tuple(name for name in excluded if name not in nodes),
        cpus=max(cpus) or ClusterConfig.cpus,
        memory=max(*memory, ClusterConfig.memory),
        gres=_merge(gres for part in parts for gres in _gres(part)),
        features=tuple(dict.fromkeys(feature for part in parts for feature in _features(part))),
        partitions=tuple(
            dict.fromkeys(name for part in parts for name in part.get("partition", "batch").split(","))
        ),
        options={"Licenses": licenses.replace("|", ",")} if licenses else {},
    )


def _merge(requests: Iterable[Gres]) -> tuple[Gres, ...]:
    numbers: dict[tuple[str, str], int] = {}
    for name, kind, number in requests:
        numbers[name, kind] = max(number, numbers.get((name, kind), 0))
    typed = {name for name, kind in numbers if kind}  # they are also those of a request without a type
    return tuple(
        Gres(name, kind, number) for (name, kind), number in numbers.items() if kind or name not in typed
    )


def _gres(given: Mapping[str, str]) -> list[Gres]:
    kind, gpus = _gpus(given)
    gres = [Gres("gpu", kind, gpus)] if gpus else []
    elements = syntax.gres_elements(given.get("gres", ""))
    return gres + [other for element in elements if (other := _other_gres(element))]


def _gpus(given: Mapping[str, str]) -> tuple[str, int]:
    """Return type ("" for any) and number of the GPUs of each node."""
    kind, gpus = syntax.gpus_in_gres(given.get("gres", ""))
    if "gpus-per-node" in given and given["gpus-per-node"] != "0":
        kind, gpus = syntax.gpus_in_count(given["gpus-per-node"])
    return kind or "", gpus


def _cpus_and_memory(given: Mapping[str, str]) -> tuple[int, int]:
    """Return CPUs and MiB of each node."""
    _, gpus = _gpus(given)
    cpus = max(
        _count("cpus-per-task", given.get("cpus-per-task"))
        * (_count("ntasks-per-node", given.get("ntasks-per-node")) or 1),
        _count("cpus-per-gpu", given.get("cpus-per-gpu")) * gpus,
        _count("mincpus", given.get("mincpus")),
    )
    memory = max(
        _mebibytes(given.get("mem", "")),
        _mebibytes(given.get("mem-per-cpu", "")) * (cpus or 1),
        _mebibytes(given.get("mem-per-gpu", "")) * gpus,
    )
    return cpus, memory


def _count(name: str, value: str | None) -> int:
    if value and not re.fullmatch("[0-9]{1,9}", value):
        raise ValueError(f"--{name}: expected an integer, got {value!r}")
    return int(value or 0)


def _nodes(parts: Sequence[Mapping[str, str]], excluded: Collection[str]) -> tuple[str, ...]:
    listed = [syntax.expand_host_list(part.get("nodelist", ""), _MOST) for part in parts]
    more = (f"node{number}" for number in range(1, _MOST))
    nodes = [name for names in listed for name in names]
    for part, names in zip(parts, listed, strict=True):
        for _ in range(_count("nodes", part.get("nodes", "1").partition("-")[0]) - len(names)):
            nodes.append(next(name for name in more if name not in {*nodes, *excluded}))
    return tuple(nodes)


def _features(given: Mapping[str, str]) -> list[str]:
    features = " ".join(given.get(name, "") for name in ("constraint", "prefer", "batch"))
    return re.findall(r"[A-Za-z_][\w.:-]*", features)


def _other_gres(element: str) -> Gres | None:
    name, *rest = element.split(":")
    if not name or name in ("gpu", "none"):
        return None
    count = syntax.parse_count(rest[-1]) if rest else None
    return Gres(name, rest[0] if rest and not rest[0].isdecimal() else "", 1 if count is None else count)


def _mebibytes(size: str) -> int:
    return syntax.parse_size(size) >> 20 if re.fullmatch(syntax.PATTERNS["size"], size) else 0
