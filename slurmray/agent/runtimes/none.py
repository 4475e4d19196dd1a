"""No container: Ray and the trainer run where the node agent does, with the Python that `setup` activated."""

import os
import shutil

from .. import job_folder, processes
from ..checks import gpus
from .base import Runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

# The error is the last line that it prints. importlib.metadata takes 70 ms, so folders are listed first.
CHECK = """
import sys
if sys.version_info < (3, 8): sys.exit("Python %d.%d" % sys.version_info[:2])
import os
for path in sys.path:
    try: names = os.listdir(path or ".")
    except OSError: continue
    if any(name[:4] == "ray-" and name.endswith(".dist-info") for name in names): sys.exit(0)
from importlib.metadata import PackageNotFoundError, version
try: version("ray")
except PackageNotFoundError: sys.exit("it has no Ray")
"""
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
        """As in Runtime; without Ray there is a finding about that."""
        node = self.node
        self.python = shutil.which("python3", path=node.env.get("PATH")) or "python3"
        found = node.run([self.python, "-c", CHECK])
        if found.code:
            wanted = "Python 3.8 or later, and ray[default] in it"
            node.finding("image", self.python, found.why, wanted, "activate its environment in setup")
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
        return node.story("run_with_none", self.python, *variables, "--", *command)

    def remove(self) -> bool:
        """As in Runtime."""
        return remove_processes(self.node.folder)


def remove_processes(folder: str) -> bool:
    """Wait for the end of the job's first process, and end what it did not, e.g. as it has been killed."""
    job_folder.wait_for_lock(folder, LOCK_TIMEOUT)
    return processes.end_processes(folder)
