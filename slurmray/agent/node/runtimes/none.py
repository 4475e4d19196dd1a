"""No container: Ray and the trainer run where the node agent does, with the Python that `setup` activated."""

import os

from ... import paths
from ...fixes import PYTHON_FIX, PYTHON_WANTED
from .. import job_folder, processes
from ..checks import gpus
from .base import Runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

LOCK_TIMEOUT = 10.0  # seconds


class NoRuntime(Runtime):
    """As in Runtime."""

    name = "none"
    python = "python3"

    @property
    def description(self) -> str:
        """As in Runtime."""
        return "%s, with %s" % (self.name, self.python)

    def works(self) -> bool:
        """As in Runtime; a finding where there is no python3. Ray is checked in the container process."""
        # Not shutil.which: importing shutil takes each node 3 ms.
        self.python = paths.find_program("python3", self.node.env.get("PATH", ""))
        if not self.python:
            self.node.finding("image", "python3", "not found", PYTHON_WANTED, PYTHON_FIX)
        return True

    def prepare_container(self) -> None:
        """As in Runtime: nothing is handed to anything, but the GPUs are counted."""
        gpus.options(self.node, self)

    def container_argv(self) -> "List[str]":
        """As in Runtime: `guard`, which does for the container process what a container does."""
        node = self.node
        temp = os.path.join(node.inside, "tmp")
        if not os.path.isdir(temp):
            os.mkdir(temp)
        # All below it can be found by a variable, and its temporary files go with the job, as in a container.
        variables = ["%s=%s" % (processes.FOLDER_VARIABLE, node.folder), "TMPDIR=" + temp]
        command = ["-I", os.path.join(node.inside, "agent"), "guard", node.name]
        return node.story("run_with_none", self.python, str(len(variables)), *variables, *command)

    def remove(self) -> bool:
        """As in Runtime."""
        return remove_processes(self.node.folder)


def remove_processes(folder: str) -> bool:
    """Wait for the end of the job's first process, and end what it did not, e.g. as it has been killed."""
    job_folder.wait_for_lock(folder, LOCK_TIMEOUT)
    return processes.end_processes(folder)
