"""A container runtime as the node agent, its images and its clean-up use it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Protocol, Sequence, Tuple  # novermin
else:
    Protocol = object


class Devices:
    """Devices for the containers; None without GPUs of that vendor."""

    nvidia: "Optional[List[str]]" = None  # UUIDs
    amd: "Optional[List[Tuple[str, int]]]" = None  # path and group of each device
    network: "Sequence[str]" = ()  # paths


class Runtime(Protocol):
    """A container runtime on one node."""

    name: str
    program: str
    why: str  # why it does not work; set by works()
    image_is_here: bool = True  # whether the node has the image of Ray's container; set by works()
    has_slurm: bool = True  # whether Slurm's commands are where the node agent runs
    is_engine: bool = False  # whether it is Podman or Docker, whose containers see no devices but those given
    unset: "List[str]"  # names of variables with which its commands fail on this node
    gpu_masks: "Dict[str, str]"  # variables that select the job's GPUs in the container
    rm: "List[str]"  # a command that removes files of a container's users; empty: this user may

    @property
    def description(self) -> str:
        """The command or program that starts the container process, for the log."""

    def works(self) -> bool:
        """Whether it can be used on this node."""

    def prepare(self) -> None:
        """Find out the options of the containers that depend on the node. Records findings."""

    def ensure_images(self) -> None:
        """Make the images of Ray's container and of services available. Records findings."""

    def argv(self) -> "List[str]":
        """The command that starts the container process."""

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


class ImageStore(Runtime, Protocol):
    """A runtime with a store of images on each node: Podman or Docker."""

    image: str  # name of the image of Ray's container

    def has_image(self, image: str) -> bool:
        """Whether an image is on this node."""

    def image_id(self, image: str) -> str:
        """The id of an image, 64 hexadecimal digits; "" if it is not on this node."""
