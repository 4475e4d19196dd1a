"""What a job's submit folder and partitions show before it is submitted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slurmray.agent.job_log import counted
from slurmray.errors import SlurmError, UsageError
from slurmray.slurm import slurm_commands, syntax
from slurmray.slurm.host import Host, clean_environment
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.slurm_section import Component

# usage: PATH... For each it prints the nearest existing path if that is no folder that can be written.
_NOT_WRITABLE = """for path; do
	until [[ -e $path || $path == . ]]; do path=$(dirname -- "$path"); done
	[[ -d $path && -w $path ]] || echo "$path"
done"""
# Each host has its own, unless an administrator has changed that.
_OF_ONE_HOST = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - nothing is written there


def check_submission(spec: JobSpec, host: Host, folder: Path) -> list[str]:
    """Return remarks on a job that is to be submitted on a host from a folder.

    UsageError, with a line for each reason, if it is certain to fail: its folder cannot be written, or no
    partition has its nodes. Nothing is checked if Slurm does not answer.
    """
    try:
        partitions = _partitions(host)
    except SlurmError:  # sbatch has the better message
        return []
    if chosen_clusters(spec, host):
        partitions = {}
    place = host.expand(str(folder))
    errors = [
        f"{path}: is no folder that you can write, and the job's log and run directory go there; "
        "submit from another folder"
        for path in _not_writable(spec, host, place)
    ]
    remarks = []
    # A cluster of one node may be this host.
    if any(_total_nodes(fields) > 1 for fields in partitions.values()):
        remarks += [
            f"{place}: each node has its own {local}, where this job's log would be; "
            "submit from a folder that all nodes share"
            for local in _OF_ONE_HOST
            if place.is_relative_to(local)
        ]
    for component in spec.slurm.components:
        nodes = component.nodes + spec.spares_of(component)
        partition, time = queue_options(spec, component, host)
        names = partition.split(",") if partition else list(partitions)
        known = {name: partitions[name] for name in names if name in partitions}
        if len(known) < len(names) or not known:
            continue
        most = max(map(_total_nodes, known.values()))
        if nodes > most:
            where = f"the partition {partition} has" if partition else "no partition has more than"
            spares = " with spare nodes" if nodes > component.nodes else ""
            errors.append(f"slurm.nodes: {counted(nodes, 'node')}{spares}, but {where} {most}")
        # Slurm's default, unless a plugin of the site chooses another.
        chosen = [fields for fields in known.values() if partition or fields.get("Default") == "YES"]
        if nodes <= most and chosen:
            remarks += _beyond_limits(nodes, time, partition or "the default partition", chosen)
    if errors:
        raise UsageError("\n".join(errors))
    return remarks


def queue_options(spec: JobSpec, component: Component, host: Host) -> tuple[str | None, str | None]:
    """Return partition and time limit of a component of a job; None: Slurm's default.

    On this host sbatch's variables have priority over the script.
    """
    variables = _variables(host)
    partition = variables.get("SBATCH_PARTITION") or dict(component.given()).get("partition")
    return partition, variables.get("SBATCH_TIMELIMIT") or dict(spec.slurm.given()).get("time")


def chosen_clusters(spec: JobSpec, host: Host) -> str | None:
    """Return the clusters of which a job gets one; None: Slurm's default. Priority as in queue_options."""
    return _variables(host).get("SBATCH_CLUSTERS") or dict(spec.slurm.given()).get("clusters")


def _variables(host: Host) -> Mapping[str, str]:
    """Return the variables that sbatch gets; {} on another host, whose are not known."""
    return {} if host.name else clean_environment(os.environ)


def _not_writable(spec: JobSpec, host: Host, folder: Path) -> list[str]:
    """Return what cannot be written of the job's paths below the submit folder; others may be on nodes."""
    output = dict(spec.slurm.given()).get("output") or ""
    names = [name for name in (spec.run_dir, str(Path(output).parent)) if not re.match("[/~]", name)]
    paths = [str(folder / name) for name in names if not re.search("[$%]", name)]
    argv = ["bash", "-c", _NOT_WRITABLE, "bash", *paths]
    return list(dict.fromkeys(slurm_commands.call(argv, host=host).stdout.splitlines()))


def _beyond_limits(
    nodes: int, time: str | None, names: str, partitions: Sequence[Mapping[str, str]]
) -> Iterator[str]:
    """Yield a line for each limit that all partitions have, and that is lower than what the job asks for."""
    waits = "the job waits, unless its QOS permits more"
    limits = [fields.get("MaxNodes", "") for fields in partitions]
    if all(limit.isdecimal() for limit in limits) and nodes > max(map(int, limits)):
        yield f"slurm.nodes: a job in {names} can have {max(map(int, limits))} (MaxNodes): {waits}"
    longest = [_seconds(fields.get("MaxTime", "")) for fields in partitions]
    wanted = _seconds(time or "")
    if wanted and all(longest) and wanted > max(filter(None, longest)):
        yield f"slurm.time: {time} is longer than a job in {names} can run (MaxTime): {waits}"


def _seconds(time: str) -> int | None:
    with suppress(ValueError):
        return syntax.seconds(time)
    return None


def _partitions(host: Host) -> dict[str, dict[str, str]]:
    """Return the fields of each partition by its name, also of hidden ones."""
    text = slurm_commands.output(["scontrol", "--all", "--oneliner", "show", "partition"], host=host)
    rows = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines()]
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def _total_nodes(partition: Mapping[str, str]) -> float:
    """Return the number of nodes of a partition; infinity if it is not known."""
    total = partition.get("TotalNodes", "")
    return int(total) if re.fullmatch("[0-9]{1,9}", total) else float("inf")
