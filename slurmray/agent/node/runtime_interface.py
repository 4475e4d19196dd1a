"""A container runtime as the node agent, its images and its clean-up use it, and what all have in common."""

from .. import inherited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from .agent_interface import NodeApi
    from .checks.gpus import Devices


class Runtime:
    """A container runtime on one node."""

    name: str
    image_is_here: bool = True  # whether the node has the image of Ray's container; set by works()
    has_slurm: bool = True  # whether Slurm's commands are where the node agent runs
    is_engine: bool = False  # whether it is Podman or Docker, whose containers see no devices but those given

    def __init__(self, node: "NodeApi") -> None:
        self.node = node
        self.image = node.settings["container"]["image"]  # name of the image of Ray's container
        self.program = node.settings["container"]["command"] or self.name
        self.options: "List[str]" = []  # of the containers
        self.why = ""  # why it does not work; set by works()
        self.unset: "List[str]" = []  # names of variables with which its commands fail on this node
        self.rm: "List[str]" = []  # a command that removes files of a container's users; empty: this user may
        masks = () if self.is_engine else inherited.GPU_MASKS
        # Variables that select the job's GPUs in the container.
        self.gpu_masks = {name: node.env[name] for name in masks if name in node.env}

    @property
    def description(self) -> str:
        """The command or program that starts the container process, for the log."""
        raise NotImplementedError

    def works(self) -> bool:
        """Whether it can be used on this node."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Find out the options of the containers that depend on the node. Records findings."""

    def add_devices(self) -> None:
        """Add the options for the job's devices on this node. Records findings."""
        if self.node.group["gpus_per_node"]:
            from .checks import gpus

            self.options += self.device_options(gpus.find_devices(self.node, self.is_engine))

    def device_options(self, devices: "Devices") -> "List[str]":  # noqa: ARG002
        """Options that pass devices to the containers."""
        return []

    def private_folder(self, path: str) -> str:  # noqa: ARG002
        """The folder of a path that the runtime sees another instance of; "" if none."""
        return ""

    def reachable_path(self, path: str) -> str:
        """The path, or its first parent that the runtime's root cannot enter."""
        return path

    def ensure_images(self) -> None:
        """Make the images of Ray's container and of services available. Records findings."""

    def argv(self) -> "List[str]":
        """The command that starts the container process."""
        raise NotImplementedError

    def check(self) -> bool:
        """Check the running container. Called until it returns True: there is nothing more to check."""
        return True

    def likely_cause(self) -> str:
        """Why the container has failed, if the runtime's version explains it; "" otherwise."""
        return ""

    def service_argv(self, name: str, image: str, script: str) -> "List[str]":  # noqa: ARG002
        """The command that runs a service in its container; [] without such. script: its path on the host."""
        return []

    def remove(self) -> bool:
        """End everything that the job has started on this node. Return whether nothing is left."""
        raise NotImplementedError


class ImageStore(Runtime):
    """A runtime with a store of images on each node: Podman or Docker."""

    def has_image(self, image: str) -> bool:
        """Whether an image is on this node."""
        raise NotImplementedError

    def image_id(self, image: str) -> str:
        """The id of an image, 64 hexadecimal digits; "" if it is not on this node."""
        raise NotImplementedError
