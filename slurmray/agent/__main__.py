"""Runs one role of the agent."""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def main(role: str, arguments: "List[str]", text: str = "", rest: bytes = b"") -> int:
    """Run a role and return its exit code. text: the script; rest: what has come of the node agent's
    messages.
    """
    if role == "controller":
        from . import batch

        return batch.run_controller(text, arguments, time.time())
    if role == "node":
        from . import node

        return node.run_node(text, rest)
    import importlib

    module = importlib.import_module(__package__ + "." + IN_CONTAINER[role])
    code: int = module.main(arguments)
    return code


# Roles of processes in the container -> module with a function `main`.
IN_CONTAINER = {
    "container": "container",
    "guard": "guard",
    "probe": "ray.probe",
    "ray": "ray.preload",
    "ray-job": "ray_job",
    "check": "check_cluster",
    "ready": "ready",
}
