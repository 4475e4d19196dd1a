"""Slurm's own commands, run here; what they refuse becomes one error with a remedy."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from slurmray import run
from slurmray.errors import SlurmError

# Parts of Slurm's messages (src/common/slurm_errno.c, src/common/slurm_opt.c), and what to do.
_REMEDIES = {
    "Access/permission denied": "it is another user's",
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
        return run.run(words, text=text, env=env, timeout=timeout)
    except FileNotFoundError:
        remedy = "use a host of the cluster; `slurmray rehearse` needs none"
        raise SlurmError(f"{words[0]}: there is no such command here: {remedy}") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{words[0]}: no answer within {timeout:g} s: try again later") from None


def refusal(words: Sequence[str], said: str, remedy: str = "") -> SlurmError:
    """Return the error for what a command said when it failed. remedy: if its words tell of no better one."""
    lines = [_PREFIX.sub("", line) for line in said.splitlines()]
    text = "; ".join(filter(None, lines)) or "it failed without a word"
    remedy = next((known for part, known in _REMEDIES.items() if part in text), remedy)
    return SlurmError(f"{words[0]}: {text}" + (f": {remedy}" if remedy else ""))
