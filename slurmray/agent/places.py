"""The nodes on which a prepare step or a service runs."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Union


def places(where: "Union[str, int]", nodes: "List[str]", ray_nodes: int) -> "List[str]":
    """The nodes of a `where` of the job spec: head, workers, all, or the number of the last nodes.

    nodes: of the job, the head node first. ray_nodes: how many of them are in Ray.
    """
    if isinstance(where, int):
        return nodes[-where:]
    return {"head": nodes[:1], "workers": nodes[1:ray_nodes]}.get(where, nodes)
