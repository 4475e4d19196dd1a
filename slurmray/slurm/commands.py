"""Slurm's own commands, run here; what they refuse becomes one error with a remedy."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slurmray import process
from slurmray.errors import SlurmError
from slurmray.slurm.environment import clean_environment

# Parts of Slurm's messages (src/common/slurm_errno.c, src/common/slurm_opt.c), and what to do.
_REMEDIES = {
    "Access/permission denied": "it is another user's",
    "Could not establish a configuration source": "this host is not set up for Slurm: use a login node",
    "Invalid account": "`sacctmgr show associations user=$USER` lists those for slurm.account",
    "Invalid feature": "`sinfo --format='%P %f'` lists those for slurm.constraint",
    "Invalid generic resource": "`sinfo --format='%P %G'` lists those for slurm.gpus_per_node and slurm.gres",
    "Invalid node name": "`sinfo --Node` lists those for slurm.nodelist",
    "Invalid qos": "`sacctmgr show associations user=$USER` lists those for slurm.qos",
    "--time specification": "write slurm.time as minutes, as 12:00:00 or as 1-00:00:00",
    "invalid partition": "`sinfo --format=%P` lists those for slurm.partition",
    "node configuration is not available": "`sinfo --Node --long` lists what nodes have; ask for less",
    "time limit": "`sinfo --format='%P %l'` lists the longest slurm.time",
    "Unable to contact slurm controller": "`scontrol ping` says whether it is up; try again when it is",
}
_PREFIX = re.compile(r"^\w+:? error: (Batch job submission failed: )?")


def call(
    words: Sequence[str],
    *,
    text: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = 120,
) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm's, in the current folder; SlurmError if there is none, or no answer.

    text: its standard input. env: None is this process's own. timeout: seconds, None: the command's own.
    """
    try:
        return process.run(words, text=text, env=env, timeout=timeout)
    except FileNotFoundError:
        remedy = "use a host of the cluster; `slurmray rehearse` needs none"
        raise SlurmError(f"{words[0]}: there is no such command here: {remedy}") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{words[0]}: no answer within {timeout:g} s: try again later") from None


class Submitted(NamedTuple):
    """A job's number; its cluster, where it is not the default one; what sbatch said besides."""

    number: int
    cluster: str | None
    said: str


def sbatch(*words: str, text: str | None = None) -> Submitted:
    """Submit a script, a file among the words or `text`; SlurmError where Slurm refuses.

    It is never cut short: with slurm.wait sbatch ends when the job does, and its exit code is the job's.
    """
    command = ["sbatch", "--parsable", *words]
    done = call(command, text=text, env=clean_environment(os.environ), timeout=None)
    found = re.search(r"^([0-9]+)(?:;(\S+))?$", done.stdout, re.MULTILINE)
    if not found:
        raise refusal(command, done.stderr, "mend `slurm` of the job spec")
    return Submitted(int(found[1]), found[2], done.stderr.strip())


def sacct(fields: str, *words: str) -> str:
    """Return what the accounting has of jobs, `A|B` a line; empty where there is none, or no answer."""
    command = ["sacct", "--allocations", "--noheader", "--parsable2", f"--format={fields}", *words]
    try:
        done = call(command)
    except SlurmError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def refusal(words: Sequence[str], said: str, remedy: str = "") -> SlurmError:
    """Return the error for what a command said when it failed. remedy: if its words tell of no better one."""
    lines = [_PREFIX.sub("", line) for line in said.splitlines()]
    text = "; ".join(filter(None, lines)) or "it failed without a word"
    remedy = next((known for part, known in _REMEDIES.items() if part in text), remedy)
    return SlurmError(f"{words[0]}: {text}" + (f": {remedy}" if remedy else ""))
