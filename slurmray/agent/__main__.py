"""Runs one role of the agent."""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def main(role: str, arguments: "List[str]", text: str = "", rest: bytes = b"") -> int:
    """Run a role and return its exit code.

    text: the script. rest: bytes of the controller's messages that were read along with the script.
    """
    if role == "controller":
        from .controller import controller_process

        return controller_process.run_controller(text, arguments, time.time())
    if role == "node":
        from .node import agent

        return agent.run_node(text, rest)
    import importlib

    module = importlib.import_module(__package__ + ".container." + IN_CONTAINER[role])
    code: int = module.main(arguments)
    return code


# Role of a process in the container -> module of the package `container`, which has a function `main`.
IN_CONTAINER = {
    "container": "container_process",
    "guard": "guard",
    "ray": "ray.preload",
    "ray-job": "ray_job",
    "check": "check_cluster",
    "gpus": "cuda",
    "burn-in": "burn_in",
    "stacks": "stacks",
    "ready": "readiness_check",
}
