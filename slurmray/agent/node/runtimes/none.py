"""No container: Ray and the trainer run on the host, with container.python, which `setup` may activate."""

import os
import sys

from ... import paths
from ...fixes import PYTHON_FIX, PYTHON_WANTED
from .. import job_folder
from ..runtime_interface import Runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..agent_interface import NodeApi


class NoRuntime(Runtime):
    """The host itself in place of a container."""

    name = "none"
    python = "python3"

    def __init__(self, node: "NodeApi") -> None:
        """Hides the GPUs of a node that does not constrain devices from a job without any."""
        super().__init__(node)
        if not (self.gpu_masks or node.group["gpus_per_node"]):
            name = "HIP_VISIBLE_DEVICES" if os.path.exists("/dev/kfd") else "CUDA_VISIBLE_DEVICES"
            self.gpu_masks = {name: ""}

    @property
    def description(self) -> str:
        return "%s, with %s" % (self.name, self.python)

    def works(self) -> bool:
        """Records a finding where container.python does not run. The container process checks Ray."""
        name = self.node.settings["container"]["python"]
        # Not shutil.which: importing shutil costs each node 3 ms.
        self.python = paths.find_program(name, self.node.env.get("PATH", ""))
        if not self.python:
            self.node.finding("preflight", name, "not found", PYTHON_WANTED, PYTHON_FIX)
            return True
        if self.python == sys.executable:  # it runs this process
            return True
        # PATH may be of a host with another processor.
        result = self.node.run([self.python, "-I", "-S", "-c", ""])
        if result.code:
            self.node.finding("preflight", self.python, result.why, PYTHON_WANTED, PYTHON_FIX)
        return True

    def prepare(self) -> None:
        """Counts the GPUs."""
        self.add_devices()

    def argv(self) -> "List[str]":
        """The role `guard`, which starts the container process and cleans up after it."""
        node = self.node
        temp = os.path.join(node.inside, "tmp")
        if not os.path.isdir(temp):
            os.mkdir(temp)
        # FOLDER_VARIABLE marks the job's processes for clean-up. TMPDIR is removed with the job's folder.
        variables = ["%s=%s" % (paths.FOLDER_VARIABLE, node.folder), "TMPDIR=" + temp]
        command = ["-I", os.path.join(node.inside, "agent"), "guard", node.name]
        return node.story_command("run_with_none", self.python, str(len(variables)), *variables, *command)

    def remove(self) -> bool:
        from .. import shared_memory

        is_done = job_folder.end_task(self.node.folder)
        try:
            shared_memory.remove(self.node.folder)
        except OSError as error:
            self.node.log("cannot look for shared memory: %s" % error)
        return is_done
