"""Checks that the run directory is shared and writable."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..api import NodeApi

TRIES = 3  # a second apart: a network file system may show a new file late


def open_run_directory(node: "NodeApi") -> None:
    """Check that the run directory is that of the head node, and redirect standard error to the node's log.

    Raises Unfit after a finding.
    """
    _check_mark(node)
    node.require_no_findings()
    try:
        with open(node.log_path, "ab", 0) as file:
            file.write(os.fsencode(node.name + "\n"))
            os.dup2(file.fileno(), 2)
    except OSError as error:
        node.finding(
            "preflight",
            "run directory",
            "cannot write to %s: %s" % (os.path.dirname(node.log_path), error.strerror),
            "free space, and a folder that the submitter can write to",
            "set run_dir",
        )
    node.require_no_findings()


def _check_mark(node: "NodeApi") -> None:
    run_dir = node.job["run_dir"]
    for attempt in range(TRIES):
        if attempt:
            node.wait(1)
        if _mark(run_dir) == node.job["mark"]:
            return
    found = "%s is not the folder of the head node" % run_dir
    node.finding("preflight", "run directory", found, "a folder that all nodes share", "set run_dir")


def _mark(run_dir: str) -> str:
    try:
        with open(os.path.join(run_dir, "mark")) as file:
            return file.readline().rstrip("\n")
    except (OSError, ValueError):
        return ""
