"""Checks that the run directory is shared and writable."""

import os

from ... import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..agent_interface import NodeApi

TRIES = 3  # a second apart: a network file system may show a new file late


def open_run_directory(node: "NodeApi") -> None:
    """Check that the run directory is that of the head node, and redirect standard error to the node's log.

    Raises Unfit after a finding.
    """
    owner = _check_mark(node)
    node.require_no_findings()
    logs = os.path.dirname(node.log_path)
    try:
        with open(node.log_path, "ab", 0, opener=paths.own_file) as file:
            if os.fstat(file.fileno()).st_uid == owner:
                file.write(os.fsencode(node.name + "\n"))
                os.dup2(file.fileno(), 2)
            else:  # the mark is known to another user, who has made a folder on this node
                _refuse_foreign(node)
    except OSError as error:
        node.finding(
            "preflight",
            "run directory",
            "cannot write to %s: %s" % (logs, error.strerror),
            "free space, and a folder that the submitter can write to",
            "set run_dir",
        )
    node.require_no_findings()


def _check_mark(node: "NodeApi") -> "Optional[int]":
    """The owner of the run directory with the mark. None after a finding."""
    for attempt in range(TRIES):
        if attempt:
            node.wait(1)
        owner = _read_mark_owner(node.job["run_dir"], node.job["mark"])
        if owner is not None:
            return owner
    _refuse_foreign(node)
    return None


def _refuse_foreign(node: "NodeApi") -> None:
    found = "%s is not the folder of the head node" % node.job["run_dir"]
    node.finding("preflight", "run directory", found, "a folder that all nodes share", "set run_dir")


def _read_mark_owner(run_dir: str, mark: str) -> "Optional[int]":
    """The owner of a run directory and its mark; None where the mark is another."""
    try:
        data, status = paths.read_begin(os.path.join(run_dir, "mark"), 4096)
        owner = os.lstat(run_dir).st_uid
    except OSError:
        return None
    is_same = data.split(b"\n")[0] == mark.encode() and status.st_uid == owner
    return owner if is_same else None
