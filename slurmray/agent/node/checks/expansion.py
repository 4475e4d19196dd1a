"""Expands the variables in the paths of the job spec, e.g. $SCRATCH, to their values on this node."""

import os

from ... import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..agent_interface import NodeApi


def expand_paths(node: "NodeApi") -> None:
    """Expand the paths in the node's settings, in place. Records a finding where a variable is not set.

    Not `run_dir`, which the controller expands.
    """

    def expand(field: str, path: str) -> str:
        try:
            return paths.expand(path, node.env)
        except paths.UnsetError as error:
            fix = "set it in setup, or write the path"
            node.finding("preflight", field, "%s is not set" % error, "a variable of this node", fix)
            return path

    def resolve(field: str, path: str) -> str:
        expansion = expand(field, path)
        if expansion and expansion != path and not expansion.startswith("/"):
            fix = "let %s begin with / there" % path
            node.finding("preflight", field, expansion, "an absolute path", fix)
        return expansion

    settings = node.settings
    container, checks, trainer = settings["container"], settings["checks"], settings["trainer"]
    settings["temp_dir"] = _shorten(node, settings["temp_dir"], resolve("ray.temp_dir", settings["temp_dir"]))
    settings["env_file"] = expand("env_file", settings["env_file"])
    container["image"] = expand("container.image", container["image"])
    container["source"] = expand("container.image", container["source"])
    container["archive"] = expand("container.archive", container["archive"])
    container["workdir"] = resolve("container.workdir", container["workdir"])
    container["python"] = resolve("container.python", container["python"])
    build = container["build"]
    if build:
        build["file"] = expand("container.build.file", build["file"])
        build["context"] = expand("container.build.context", build["context"])
    for mount in container["mounts"]:
        mount["source"] = expand("container.mounts", mount["source"])
        mount["destination"] = resolve("container.mounts", mount["destination"])
    checks["paths"] = [expand("checks.paths", path) for path in checks["paths"]]
    checks["same_commit"] = expand("checks.same_commit", checks["same_commit"])
    if isinstance(trainer["runtime_env"], str):
        trainer["runtime_env"] = expand("ray.runtime_env", trainer["runtime_env"])


def _shorten(node: "NodeApi", path: str, expansion: str) -> str:
    """The expanded temp folder. Records a finding if Ray's sockets cannot be in it."""
    if expansion == path:
        return expansion
    import re

    expansion = os.path.normpath(expansion)
    if len(expansion) > paths.TEMP_DIR_MAX or not re.fullmatch(paths.TEMP_DIR_PATTERN, expansion):
        wanted = "at most %d of the characters A-Z a-z 0-9 _ . - /" % paths.TEMP_DIR_MAX
        node.finding("preflight", "ray.temp_dir", expansion, wanted, "use a shorter path, e.g. /tmp")
    return expansion
