"""Container runtimes: one module each, with a subclass of runtime_interface.Runtime."""

import collections
import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..agent_interface import NodeApi
    from ..runtime_interface import Runtime

# How a command gets into a container from outside: by the runtime's `exec`, by a program of the job's folder,
# or as a step, for which srun may start another container of the same image.
EXEC, ENTER, STEP = "exec", "enter", "step"
_Row = collections.namedtuple("_Row", "module type entry")
# All of them. spec/runtimes.py has what a job spec may say with each.
RUNTIMES = {
    "podman": _Row("podman", "Podman", EXEC),
    "docker": _Row("docker", "Docker", EXEC),
    "apptainer": _Row("apptainer", "Apptainer", ENTER),
    "singularity": _Row("apptainer", "Singularity", ENTER),
    "pyxis": _Row("pyxis", "Pyxis", STEP),
    "none": _Row("none", "NoRuntime", STEP),
}


def make(name: str, node: "NodeApi") -> "Runtime":
    """The runtime of a name in RUNTIMES. Imports no other, as each costs every node time."""
    row = RUNTIMES[name]
    made: "Runtime" = getattr(importlib.import_module("." + row.module, __name__), row.type)(node)
    return made


def choose(node: "NodeApi") -> "Runtime":
    """Choose a runtime that works here: one that has the image, else the first. Unfit where none works."""
    candidates = [make(name, node) for name in node.settings["container"]["runtimes"]]
    working = []
    for runtime in candidates:
        if runtime.works():
            if len(candidates) == 1 or runtime.image_is_here:
                return runtime
            working.append(runtime)
    if not working:
        from ...fixes import fix_for
        from ..facts import user_name

        why = "; ".join(runtime.why for runtime in candidates)
        wanted = " or ".join(runtime.name for runtime in candidates)
        fix = fix_for("use", why, node.name, user_name())
        node.finding("preflight", "container runtime", why, wanted, fix)
        node.require_no_findings()
    return working[0] if working else candidates[0]
