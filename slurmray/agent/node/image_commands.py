"""Commands of a runtime about images, and findings about those that fail."""

from ..fixes import error_line, fix_for
from . import job_folder
from .facts import user_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List

    from ..command_runner import Result
    from .agent_interface import NodeApi
    from .runtime_interface import ImageStore


def load(node: "NodeApi", runtime: "ImageStore", archive: str) -> "Result":
    """Load an archive of images."""
    return run_with_tmpdir(node, runtime.program, ["load", "--input", archive], runtime.image)


def run_with_tmpdir(
    node: "NodeApi",
    program: str,
    args: "List[str]",
    image: str,
    is_hopeless: "Callable[[bytearray], bool]" = lambda _: False,
) -> "Result":
    """Run a long command of a runtime with a TMPDIR that is removed afterwards. is_hopeless: see run_long."""
    node.phase("image", "%s %s %s" % (program, args[0], image))
    scratch = job_folder.make_scratch(node)
    try:
        return node.run_long([program, *args], args[0], dict(node.env, TMPDIR=scratch), is_hopeless)
    finally:
        job_folder.remove_tree(scratch)


def record_failure(node: "NodeApi", program: str, verb: str, image: str, result: "Result") -> None:
    """Record a finding about a command that failed."""
    why = error_line(result.out + "\n" + result.err) or result.why
    recipe = node.settings["container"]["build"]
    file = recipe["file"] if recipe else ""
    fix = fix_for(verb, why, node.name, user_name(), program, file, node.log_path)
    node.finding("image", "%s %s" % (program, verb), why, image, fix)
