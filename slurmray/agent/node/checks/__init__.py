"""Preflight checks outside the container. They record findings."""

import os

from ..facts import shares_gpus
from . import storage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..agent_interface import NodeApi


def check_node(node: "NodeApi") -> None:
    """Check temp folder, CPUs, `checks.paths`, `checks.same_commit` and the number of GPUs."""
    if node.settings["preflight"] != "none":
        storage.check_temp_folder(node)
        _check_cpus(node)
        _check_paths(node)
        _check_commit(node)
    if node.settings["slurm_counts_gpus"]:
        _check_gpus_of_slurm(node)


def _check_cpus(node: "NodeApi") -> None:
    allowed = len(os.sched_getaffinity(0))
    wanted = node.cpus
    if allowed < wanted and allowed != os.cpu_count():
        fix = "ask the site how steps are bound to CPUs"
        node.finding("warn", "CPUs", "the step may use %d" % allowed, str(wanted), fix)


def _check_paths(node: "NodeApi") -> None:
    for path in node.settings["checks"]["paths"]:
        if not os.path.exists(node.host_path(path)):
            node.soft_finding(
                "checks.paths",
                "%s: no such file or directory" % path,
                "all paths of checks.paths",
                "create it there, or remove it from checks.paths",
            )


def _check_commit(node: "NodeApi") -> None:
    folder = node.settings["checks"]["same_commit"]
    if not folder:
        return
    from ... import command_runner

    commit, wanted = command_runner.read_commit(node.host_path(folder)), node.job["commit"]
    if commit != wanted:
        found = "%s at %s" % (folder, commit or "no commit")
        wanted = wanted or "a commit on the head node"
        node.soft_finding("checks.same_commit", found, wanted, "git checkout there")


def _check_gpus_of_slurm(node: "NodeApi") -> None:
    value = node.env.get("SLURM_GPUS_ON_NODE", "")
    given = int(value) if value.isdigit() else 0
    wanted = node.group["gpus_per_node"]
    if given != wanted:
        fix = "--gpus-per-node %d" % given  # the controller prepends the command
        if shares_gpus(node.env) and not wanted:
            fix = (
                "--set ray.gpus_per_node=%d" % given
            )  # Slurm counts the GPU, but the job asked for a part of it
        if node.group["name"]:
            fix = "set gpus_per_node: %d in the group %s" % (given, node.group["name"])
        node.finding("config", "GPUs", "%d given to the job" % given, str(wanted), fix)
