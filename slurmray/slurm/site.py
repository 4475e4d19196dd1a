"""What a login host can say about its cluster, as far as it concerns jobs."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from slurmray.agent.controller.allocation import CLEAN_UP_TIME
from slurmray.agent.heartbeat import answer_wait
from slurmray.agent.node.checks import storage
from slurmray.agent.node.runtimes import RUNTIMES, STEP
from slurmray.slurm import slurm_commands, syntax
from slurmray.slurm.host import Host

OLDEST_SLURM = (20, 11)
_PROGRAMS = [name for name, row in RUNTIMES.items() if row.entry != STEP]  # of runtimes
# Prints the type of a folder's file system, also of one that submit will make.
_FILE_SYSTEM = """until [[ -e $1 ]]; do set -- "$(dirname -- "$1")"; done; stat -f -c %T -- "$1" """
_CRED_EXPIRE = 120  # seconds; Slurm's default (man slurm.conf, AuthInfo)
_SHORTEST_KILL_WAIT = 10 + CLEAN_UP_TIME  # seconds; 10 is the default of stop.grace


class Row(NamedTuple):
    """A fact. check: what was looked at. fix: what to do about it, or which option fits; empty: nothing.

    is_wrong: jobs cannot run as long as it is so.
    """

    check: str
    found: str
    fix: str = ""
    is_wrong: bool = False


def survey(host: Host, folder: Path, heartbeat_timeout: int) -> Iterator[Row]:
    """Ask Slurm and a login host. folder: from which jobs would be submitted. SlurmError if Slurm refuses."""
    output = functools.partial(slurm_commands.output, host=host)
    config = parse_config(output(["scontrol", "show", "config"]))
    yield from config_rows(config, heartbeat_timeout)
    yield from partition_rows(output(["sinfo", "--noheader", "--format=%P|%a|%l|%F|%c|%m|%G"]))
    if "associations" in config.get("AccountingStorageEnforce", ""):
        user = output(["id", "--user", "--name"]).strip()
        show = ["show", "associations", f"user={user}", "format=account"]
        yield account_row(output(["sacctmgr", "--noheader", "--parsable2", *show]))
    if "--container-image" in output(["srun", "--help"]):
        yield Row("pyxis", "srun has --container-image", "--runtime pyxis uses it")
    which = slurm_commands.call(["bash", "-c", f"command -v {' '.join(_PROGRAMS)}"], host=host).stdout
    names = [Path(line).name for line in which.splitlines()]
    fix = "the nodes may have others, or need `setup: module load NAME`"
    yield Row(f"runtimes on {host.name}" if host.name else "runtimes here", ", ".join(names) or "none", fix)
    # A program with a timeout, because a file server may hang.
    stat = slurm_commands.call(["bash", "-c", _FILE_SYSTEM, "bash", str(folder)], host=host)
    yield folder_row(folder, stat.stdout.strip())


def parse_config(text: str) -> dict[str, str]:
    """Return the values that `scontrol show config` prints, by name."""
    found: list[tuple[str, str]] = re.findall("^([A-Za-z0-9_]+) += (.*)", text, re.MULTILINE)
    return {name: value.rstrip() for name, value in found}


def config_rows(config: dict[str, str], heartbeat_timeout: int) -> Iterator[Row]:
    """Yield what follows from Slurm's configuration. heartbeat_timeout: of jobs, in seconds."""
    version = config.get("SLURM_VERSION", "unknown")
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    is_old = bool(number) and number < OLDEST_SLURM
    yield Row("Slurm", version, "slurmray needs 20.11 or later" if is_old else "", is_old)
    kill_wait = config.get("KillWait", "").removesuffix(" sec")
    if kill_wait.isdecimal() and int(kill_wait) < _SHORTEST_KILL_WAIT:
        fix = f"stop.grace can be {max(0, int(kill_wait) - CLEAN_UP_TIME)} s at most; jobs lower it"
        yield Row("KillWait", f"{kill_wait} s", fix)
    timeout = config.get("SlurmdTimeout", "").removesuffix(" sec")
    if timeout.isdecimal():
        yield requeue_row(int(timeout), config.get("AuthInfo", ""))
        noticed = heartbeat_timeout + round(answer_wait(heartbeat_timeout))
        if 0 < int(timeout) <= noticed:
            own = f"before slurmray acts after {noticed} s (heartbeat_timeout: {heartbeat_timeout})"
            found = f"Slurm ends jobs for a silent node after {timeout} s (SlurmdTimeout), {own}"
            fix = f"let administrators set SlurmdTimeout to {2 * noticed} or more, or set requeue.max in jobs"
            yield Row("lost nodes", found, fix)
    for name in ("JobContainerType", "NamespaceType"):  # the second one since Slurm 25.11
        if config.get(name, "").endswith("/tmpfs"):  # noqa: S108 - job_container/tmpfs, namespace/tmpfs
            fix = "with Docker, set ray.temp_dir to a folder outside /tmp on the nodes' own disks"
            yield Row("private /tmp", f"{name}={config[name]}", fix)


def requeue_row(timeout: int, auth_info: str) -> Row:
    """Return the times of a requeue. timeout: SlurmdTimeout, in seconds; 0 is none. auth_info: AuthInfo."""
    expiry = re.search("(?:^|,)cred_expire=([0-9]+)", auth_info)
    wait = f"a requeued job waits at least {expiry[1] if expiry else _CRED_EXPIRE} s (cred_expire)"
    if timeout:
        down = f"Slurm counts a silent node as down after {timeout} s (SlurmdTimeout)"
        return Row("requeue", f"{down}; {wait}")
    fix = "a job whose node lost power starts again only after an administrator has set the node down"
    return Row("requeue", f"Slurm never counts a silent node as down (SlurmdTimeout=0); {wait}", fix)


def partition_rows(sinfo: str) -> Iterator[Row]:
    """Yield a row for each partition and kind of node. sinfo: %P|%a|%l|%F|%c|%m|%G, a line each."""
    has_gpus = False
    for line in sinfo.splitlines():
        name, state, limit, counts, cpus, memory, gres = line.split("|", 6)
        elements = syntax.gres_elements(re.sub(r"\(.*?\)", "", gres))  # without (S:0-1) and (null)
        gpus = [element.partition(":")[2] or "1" for element in elements if syntax.is_gpu(element)]
        has_gpus |= bool(gpus)
        _, _, other, total = counts.split("/")
        out = f" ({other} down or drained)" if other != "0" else ""
        offer = f"{' and '.join(gpus) or 'no'} GPUs"
        nodes = ("1 node" if total == "1" else f"{total} nodes") + out
        description = f"{nodes}, each {cpus} CPUs, {memory} MB, {offer}; time limit {limit}"
        options = {
            "partition": "" if name.endswith("*") else name,
            "cpus-per-task": cpus.rstrip("+"),
            "mem": f"{memory.rstrip('+')}M",
            "gpus-per-node": "".join(gpus[:1]),
        }
        fix = " ".join(f"--{option} {value}" for option, value in options.items() if value)
        fix = f"a whole node: {fix}" if state == "up" else f"it is {state}: starts no jobs now"
        yield Row(f"partition {name.rstrip('*')}", description, fix)
    if not has_gpus:
        yield Row("GPUs", "Slurm knows none", "if the nodes have some, set ray.gpus_per_node, not slurm's")


def account_row(sacctmgr: str) -> Row:
    """Return the accounts of this user. sacctmgr: a name a line."""
    names = ", ".join(dict.fromkeys(sacctmgr.split()))
    if not names:
        return Row("account", "none", "ask your site's administrators for one", is_wrong=True)
    return Row("account", names, "--account chooses one" if "," in names else "")


def folder_row(folder: Path, kind: str) -> Row:
    """Return what the file system of the folder means. kind: as stat(1) names it."""
    if storage.is_remote(kind):
        return Row("this folder", f"{folder}, on {kind}")
    fix = "submit from a folder that all nodes share; go on if this is one"
    return Row("this folder", f"{folder}, on {kind or 'an unknown file system'}, not known to be shared", fix)
