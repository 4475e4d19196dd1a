"""What a node agent asks of each container runtime."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    from ..api import NodeApi


class Runtime:
    """A container runtime on one node; this one does nothing."""

    name = ""
    isolates_devices = False  # the containers see only the devices that they are given

    def __init__(self, node: "NodeApi") -> None:
        self.node = node
        self.image = node.settings["container"]["image"]
        self.options: "List[str]" = []  # of the containers, as far as only the node knows them
        self.why = ""  # why it does not work

    @property
    def description(self) -> str:
        """What starts the job's first process, for the log."""
        return self.name

    @property
    def exec_prefix(self) -> "List[str]":
        """The command that runs another command inside the container; of pyxis options for srun."""
        return []

    def works(self) -> bool:
        """Whether it can be used on this node; `why` is set where not."""
        return True

    def has_image(self, image: str = "") -> bool:  # noqa: ARG002
        """Whether the image (default: that of Ray's container) is on this node."""
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

    def service_argv(self, name: str, image: str, script: str) -> "List[str]":
        """The command that runs a service's script, a path on the host, in a container of its own."""
        raise NotImplementedError

    def remove(self) -> bool:
        """End what the job has started on this node, in whatever state it is; whether nothing is left."""
        return True

    def list_containers(self, name: str) -> "List[Tuple[str, str, str]]":  # noqa: ARG002
        """(id, name, labels) of containers whose name contains that; none if the runtime does not answer."""
        return []

    def remove_container(self, container_id: str, force: bool) -> bool:  # noqa: ARG002
        """Remove a leftover; whether that went well. force: even if it runs."""
        return False

    def nvidia_options(self, uuids: "List[str]") -> "List[str]":  # noqa: ARG002
        """Options that give the containers these GPUs."""
        return []

    def amd_options(self) -> "List[str]":
        """Options for AMD GPUs where devices are not isolated."""
        return []

    def device_options(self, path: str) -> "List[str]":  # noqa: ARG002
        """Options that give the containers a device, or a folder with some."""
        return []

    def reachable_path(self, path: str) -> str:
        """The path, or the first folder on the way that the runtime's root cannot enter."""
        return path
