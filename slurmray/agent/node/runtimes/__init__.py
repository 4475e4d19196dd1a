"""Container runtimes: one module each, with the interface of base.Runtime."""

from ...fixes import fix_for
from ..facts import user_name
from .base import Runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..api import NodeApi

__all__ = ["Runtime", "choose", "make"]


def make(name: str, node: "NodeApi") -> Runtime:
    """The runtime of a name: podman, docker, apptainer, singularity, pyxis or none."""
    if name == "podman":
        from .podman import Podman

        return Podman(node)
    if name == "docker":
        from .docker import Docker

        return Docker(node)
    if name == "apptainer":
        from .apptainer import Apptainer

        return Apptainer(node)
    if name == "singularity":
        from .apptainer import Singularity

        return Singularity(node)
    if name == "pyxis":
        from .pyxis import Pyxis

        return Pyxis(node)
    from .none import NoRuntime

    return NoRuntime(node)


def choose(node: "NodeApi") -> Runtime:
    """Choose a runtime that works here: one that has the image, else the first. Unfit where none works."""
    candidates = [make(name, node) for name in node.settings["container"]["runtimes"]]
    working = []
    for runtime in candidates:
        if runtime.works():
            if len(candidates) == 1 or runtime.has_image():
                return runtime
            working.append(runtime)
    if not working:
        why = "; ".join(runtime.why for runtime in candidates)
        wanted = " or ".join(runtime.name for runtime in candidates)
        fix = fix_for("use", why, node.name, user_name())
        node.finding("preflight", "container runtime", why, wanted, fix)
        node.require_no_findings()
    return working[0] if working else candidates[0]
