"""What the runtimes have in common."""

from ... import inherited
from ..runtime_interface import Devices, Runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..agent_interface import NodeApi


class Base(Runtime):
    """The base of all runtimes."""

    def __init__(self, node: "NodeApi") -> None:
        self.node = node
        self.image = node.settings["container"]["image"]
        self.program = node.settings["container"]["command"] or self.name
        self.options: "List[str]" = []  # of the containers
        self.why = ""
        self.unset = []
        self.rm = []
        masks = () if self.is_engine else inherited.GPU_MASKS
        self.gpu_masks = {name: node.env[name] for name in masks if name in node.env}

    def find_devices(self) -> Devices:
        """The job's devices on this node. Records findings."""
        if not self.node.group["gpus_per_node"]:
            return Devices()
        from ..checks import gpus

        return gpus.find_devices(self.node, self.is_engine)

    def device_options(self, devices: Devices) -> "List[str]":  # noqa: ARG002
        """Options that pass devices to the containers."""
        return []

    def private_folder(self, path: str) -> str:  # noqa: ARG002
        """The folder of a path that the runtime sees another instance of; "" if none."""
        return ""

    def reachable_path(self, path: str) -> str:
        """The path, or its first parent that the runtime's root cannot enter."""
        return path
