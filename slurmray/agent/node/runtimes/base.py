"""The interface of container runtimes for the node agent."""

from ... import inherited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

    from ..api import NodeApi


class Runtime:
    """A container runtime on one node. The methods of this class do nothing."""

    name = ""
    isolates_devices = False  # whether containers see only the devices passed to them

    def __init__(self, node: "NodeApi") -> None:
        self.node = node
        self.image = node.settings["container"]["image"]
        self.program = node.settings["container"]["command"] or self.name
        self.options: "List[str]" = []  # options of the containers that depend on the node
        self.why = ""  # why it does not work

    @property
    def description(self) -> str:
        """The command or program that starts the container process, for the log."""
        return self.name

    @property
    def exec_prefix(self) -> "List[str]":
        """The exec prefix: runs a command inside the container. For pyxis and none: options for srun."""
        return []

    def works(self) -> bool:
        """Whether it can be used on this node. Sets `why` if not."""
        return True

    def has_image(self, image: str = "") -> bool:  # noqa: ARG002
        """Whether an image is on this node. image: "" for that of Ray's container."""
        return True

    def prepare_container(self) -> None:
        """Set `options`. Records findings."""

    def ensure_image(self) -> None:
        """Make the image of Ray's container available. Records findings."""

    def pull_service_images(self) -> None:
        """Make the images of services available. Records findings."""

    def container_argv(self) -> "List[str]":
        """The command that starts the container process."""
        return []

    def check_container(self) -> bool:
        """Check the running container. Called until it returns True: there is nothing more to check."""
        return True

    def likely_cause(self) -> str:
        """Why the container has failed, if the runtime's version explains it; "" otherwise."""
        return ""

    def service_argv(self, name: str, image: str, script: str) -> "List[str]":
        """The command that runs a service in its container. script: its path on the host."""
        raise NotImplementedError

    def active_jobs(self, jobs: "Set[str]") -> "Optional[Set[str]]":
        """Jobs that may still use a node; None if Slurm does not answer. jobs: their ids."""
        from ... import commands

        env = inherited.without_command_options(self.node.env)
        return commands.active_jobs(jobs, lambda argv: self.node.run(argv, env=env))

    def remove(self) -> bool:
        """End everything that the job has started on this node. Return whether nothing is left."""
        return True

    def list_containers(self, name: str) -> "List[Tuple[str, str, str]]":  # noqa: ARG002
        """(id, name, labels) of containers whose names contain `name`; none if the runtime fails."""
        return []

    def remove_container(self, container_id: str, force: bool) -> bool:  # noqa: ARG002
        """Remove a container; return whether that succeeded. force: even if it runs."""
        return False

    def nvidia_options(self, uuids: "List[str]") -> "List[str]":  # noqa: ARG002
        """Options that pass these GPUs to the containers."""
        return []

    def amd_options(self) -> "List[str]":
        """Options for AMD GPUs where devices are not isolated."""
        return []

    def gpu_masks(self) -> "Dict[str, str]":
        """Variables that select the job's GPUs in the container; {} where it has no others."""
        if self.isolates_devices:
            return {}
        return {name: self.node.env[name] for name in inherited.GPU_MASKS if name in self.node.env}

    def device_options(self, path: str) -> "List[str]":  # noqa: ARG002
        """Options that pass a device, or a folder of devices, to the containers."""
        return []

    def private_folder(self, path: str) -> str:  # noqa: ARG002
        """The folder of a path that the runtime sees another instance of; "" if none."""
        return ""

    def reachable_path(self, path: str) -> str:
        """The path, or its first parent that the runtime's root cannot enter."""
        return path
