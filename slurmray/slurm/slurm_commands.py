"""Runs Slurm's commands. If one fails, SlurmError has Slurm's message and a fix."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from slurmray.diagnosis.entries import first
from slurmray.diagnosis.slurm_errors import SLURM_ERRORS
from slurmray.errors import SlurmError
from slurmray.slurm.host import HERE, Host

_REFUSED = "Batch job submission failed"
_PREFIX = re.compile(r"^\w+:? (error|fatal): (Batch job submission failed: )?")
_ESTIMATE = re.compile(r"to start at ([0-9]{4}-[0-9T:-]+)(?: a)? using ")  # the `a` is 26.05's
_NO_ESTIMATE = "start, nobody knows when because of jobs without a time limit,"
# Lines of Slurm before `Could not establish a configuration source`, about DNS records that few sites have.
_DNS = ("resolve_ctls_from_dns_srv: ", "fetch_config: ", "_establish_config_source: ")


def call(
    argv: Sequence[str],
    *,
    host: Host = HERE,
    text: str | None = None,
    folder: str | Path = "",
    variables: Mapping[str, str] | None = None,
    timeout: float | None = 120,
) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm; SlurmError if it cannot be started or does not answer. See Host.run.

    The timeout is longer than Slurm's commands retry on their own; None: no limit.
    """
    try:
        return host.run(argv, text=text, folder=folder, variables=variables, timeout=timeout)
    except OSError as error:
        raise _not_started(argv[0], host, error) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{argv[0]}: no answer within {timeout:g} s: try again later") from None


def output(
    argv: Sequence[str],
    *,
    host: Host = HERE,
    variables: Mapping[str, str] | None = None,
    may_be_unknown: bool = False,
) -> str:
    """Run a command as `call` does, and return what it prints. SlurmError also if it fails.

    may_be_unknown: it is about a job that Slurm may not know.
    """
    result = call(argv, host=host, variables=variables)
    # Of a task that scontrol does not know, Slurm 24.11 and older write that to standard output.
    unknown = re.search(r"Invalid job id|\bJob \d+_\d+ not found", result.stderr + result.stdout)
    if result.returncode != 0 and not (may_be_unknown and unknown):
        raise failure(argv, result.stderr)
    return result.stdout


def run_in_foreground(argv: list[str], host: Host, *, is_terminal: bool) -> int:
    """Run a command of Slurm on this terminal; return its exit code. SlurmError if it cannot be started."""
    try:
        return host.run_in_foreground(argv, is_terminal=is_terminal)
    except OSError as error:
        raise _not_started(argv[0], host, error) from None


class Submitted(NamedTuple):
    """A submitted job. cluster: None is the default one. message: of sbatch to the user, often empty.

    code: exit code of sbatch; with slurm.wait, that of the job.
    """

    number: int
    cluster: str | None
    message: str
    code: int


def sbatch(
    *arguments: str,
    text: str | None = None,
    host: Host = HERE,
    folder: str | Path = "",
    variables: Mapping[str, str] | None = None,
) -> Submitted:
    """Submit a script: a file in the arguments, or `text`. SlurmError if sbatch fails. See Host.run.

    There is no timeout: with slurm.wait, sbatch ends when the job does, with the job's exit code.
    """
    argv = ["sbatch", "--parsable", *arguments]
    result = call(argv, host=host, text=text, folder=folder, variables=variables, timeout=None)
    # A wrapper of the site may leave out --parsable, or print more.
    submissions = set(re.findall(r"^([0-9]{1,10})(?:;(\S+))?\s*$", result.stdout, re.MULTILINE)) or set(
        re.findall(r"\bSubmitted batch job ([0-9]{1,10})\b(?: on cluster (\S+))?", result.stdout)
    )
    if len(submissions) == 1 and _REFUSED not in result.stderr:
        ((number, cluster),) = submissions
        return Submitted(int(number), cluster or None, result.stderr.strip(), result.returncode)
    if result.returncode != 0:
        raise failure(argv, result.stderr, "correct `slurm` in the job spec")
    answer = "; ".join(filter(None, map(str.strip, f"{result.stdout}\n{result.stderr}".splitlines())))
    message = f"the job is submitted, but its number is unknown, as sbatch answered {answer[:500]!r}"
    raise SlurmError(f"sbatch: {message}: `squeue --me` lists it")


def test_only(*arguments: str, text: str, host: Host = HERE) -> str:
    """Return what `sbatch --test-only` says about a script: when and where it could start."""
    argv = ["sbatch", "--test-only", *arguments]
    result = call(argv, host=host, text=text)
    if result.returncode != 0:
        raise failure(argv, result.stderr, "correct `slurm` in the job spec")
    lines = [_ESTIMATE.sub(_estimate, re.sub(r"^sbatch: ", "", line)) for line in result.stderr.splitlines()]
    return "\n".join(filter(None, lines))


def _estimate(match: re.Match[str]) -> str:
    """Replace an estimate of a year or more: Slurm's for jobs without a time limit. See job_status."""
    limit = datetime.now() + timedelta(days=364)
    when = f"start at {match[1]}" if match[1] < limit.isoformat() else _NO_ESTIMATE
    return f"to {when} using "


def hostnames(nodelist: str, host: Host = HERE) -> list[str]:
    """Return the names in a list of nodes, e.g. `node[1-64]`, as Slurm reads it."""
    return output(["scontrol", "show", "hostnames", nodelist], host=host).split()


class Queued(NamedTuple):
    """A job that Slurm knows. state, reason, dependency: as squeue prints them."""

    state: str
    reason: str
    dependency: str


def squeue(host: Host = HERE, cluster: str | None = None, array: int | None = None) -> dict[str, Queued]:
    """Return {id: job} of this user's jobs, or of the tasks of an array, in one request. cluster: see Job.

    The id of a task of an array is ARRAY_TASK; tasks that wait may be one job, e.g. `1234_[3-5%2]`.
    """
    which = ["--me"] if array is None else ["--array", f"--jobs={array}"]
    argv = ["squeue", *cluster_option(cluster), "--noheader", *which, "--states=all"]
    printed = output([*argv, "--format=%A|%i|%T|%r|%E"], host=host, may_be_unknown=True)
    rows = (line.strip().split("|") for line in printed.splitlines())
    return {
        name if "_" in name else number: Queued(*facts)
        for number, name, *facts in (row for row in rows if len(row) == len(Queued._fields) + 2)
    }


def owner(job: str, host: Host = HERE, cluster: str | None = None) -> tuple[int, str] | None:
    """Return uid and name of a job's user; None if Slurm does not know the job, or does not show it.

    Not from scontrol's record: that has texts of the job's user. job: its id, or ARRAY_TASK.
    """
    argv = ["squeue", *cluster_option(cluster), "--noheader", "--states=all", f"--jobs={job}"]
    answer = output([*argv, "--format=%U %u"], host=host, may_be_unknown=True)
    match = re.search(r"^ *([0-9]{1,10}) (\S+)", answer, re.MULTILINE)
    return (int(match[1]), match[2]) if match else None


def cluster_name(host: Host = HERE) -> str:
    """Return the name of the default cluster; "" if scontrol does not show it."""
    shown = output(["scontrol", "show", "config"], host=host)
    match = re.search(r"^ClusterName\s*=\s*(\S+)", shown, re.MULTILINE)
    return match[1] if match else ""


def cluster_option(cluster: str | None) -> list[str]:
    """Return the arguments of Slurm's commands for a cluster; None is the default one."""
    return [f"--clusters={cluster}"] if cluster else []


def sacct(fields: str, *arguments: str, host: Host = HERE) -> str:
    """Return fields of jobs from the accounting, `A|B` a line; empty without accounting, or an answer."""
    argv = ["sacct", "--allocations", "--noheader", "--parsable2", f"--format={fields}", *arguments]
    try:
        return output(argv, host=host)
    except SlurmError:
        return ""


def _not_started(command: str, host: Host, error: OSError) -> SlurmError:
    if not isinstance(error, FileNotFoundError):
        return SlurmError(f"{command}: cannot be started: {error.strerror or error}")
    if host.name:
        fix = f"`ssh {host.name} bash -lc {command}` must find it: correct PATH in ~/.profile there"
        return SlurmError(f"{command}: no such command on {host.name}: {fix}")
    fix = "use a host of the cluster, `host` in a profile, or `slurmray rehearse`, which needs no cluster"
    return SlurmError(f"{command}: no such command here: {fix}")


def failure(argv: Sequence[str], stderr: str, fix: str = "") -> SlurmError:
    """Return the error of a failed command. fix: used if its message is not known."""
    lines = [_PREFIX.sub("", line) for line in stderr.splitlines()]
    message = "; ".join(line for line in lines if line and not line.startswith(_DNS))
    message = message or "failed without a message"
    known = first(SLURM_ERRORS, message)
    fix = known.fix if known else fix
    return SlurmError(f"{argv[0]}: {message}" + (f": {fix}" if fix else ""))
