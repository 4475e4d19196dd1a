"""The groups of a job's nodes: components of a heterogeneous job, or one group of all nodes.

A job's nodes are in the order of its groups. rank: a node's index among them; 0 is the head node.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire.settings import Settings


def number_of(settings: "Settings", rank: int) -> int:
    """The index of a node's group."""
    for number, group in enumerate(settings["groups"]):
        if rank < group["nodes"]:
            return number
        rank -= group["nodes"]
    raise IndexError(rank)


def ray_gpus(settings: "Settings", rank: int) -> int:
    """The number of GPUs that a node offers to Ray."""
    if rank == 0:
        return settings["ray"]["head"]["gpus"]
    return settings["ray"]["gpus"] if settings["groups"][number_of(settings, rank)]["gpus_per_node"] else 0
