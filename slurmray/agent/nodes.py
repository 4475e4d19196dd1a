"""Which nodes of a job are alike, and which ones a prepare step or a service runs on.

A job's nodes are in the order of its groups: the components of a heterogeneous job, or one group of all
nodes. rank: a node's index among them; 0 is the head node.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence, Union

    from .wire.settings import Settings


def group_number(settings: "Settings", rank: int, spares: "Sequence[int]" = ()) -> int:
    """The index of a node's group. spares: of each group; their ranks follow those of all other nodes."""
    groups = settings["groups"]
    for number, count in [*enumerate(group["nodes"] for group in groups), *enumerate(spares)]:
        if rank < count:
            return number
        rank -= count
    raise IndexError("no node has this rank")


def may_be_lost(settings: "Settings") -> bool:
    """Whether the job is kept when Slurm loses one of its nodes, but the head node: --no-kill."""
    return settings["on_node_loss"] != "fail" or any(group["spares"] for group in settings["groups"])


def ray_gpus(settings: "Settings", rank: int) -> int:
    """The number of GPUs that a node offers to Ray."""
    if rank == 0:
        return settings["ray"]["head"]["gpus"]
    has_gpus = settings["groups"][group_number(settings, rank)]["gpus_per_node"]
    return settings["ray"]["gpus"] if has_gpus else 0


def places(where: "Union[str, int]", nodes: "List[str]", ray_nodes: int) -> "List[str]":
    """The nodes of a `where` of the job spec: head, workers, all, or the number of the last nodes.

    nodes: of the job, the head node first. ray_nodes: how many of them are in Ray.
    """
    if isinstance(where, int):
        return nodes[-where:]
    return {"head": nodes[:1], "workers": nodes[1:ray_nodes]}.get(where, nodes)
