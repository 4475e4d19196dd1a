"""One pull or build for all nodes: a node saves its image into an archive, and the others load that.

Archives are in the folder `images` beside the run directories, named by the image's id, so that later jobs
find them. A file in the run directory has the id that all nodes of the attempt use, also where a tag has
moved meanwhile.
"""

import os
import re

from .. import paths
from . import image_commands, shared_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .agent_interface import NodeApi
    from .runtime_interface import ImageStore

ID = "[0-9a-f]{64}"


def ensure(node: "NodeApi", runtime: "ImageStore", fetch: "Callable[[], bool]") -> None:
    """Make the image of Ray's container available, by another node's archive or for all. Records findings.

    fetch: builds or pulls it on this node, and returns whether it is there.
    """
    container, run_dir = node.settings["container"], node.job["run_dir"]
    name = runtime.image if container["build"] else container["image_with_registry"]
    folder = os.path.join(os.path.dirname(run_dir), paths.IMAGES)
    path = os.path.join(run_dir, paths.IMAGE_ID)
    is_fetched = False

    def make(part: str) -> bool:
        nonlocal is_fetched
        is_fetched = fetch()
        if is_fetched:
            with open(part, "w") as file:
                file.write(_save(node, runtime, folder))
        return is_fetched

    what = "%s %s %s" % (runtime.program, "build" if container["build"] else "pull", name)
    if not shared_file.obtain(node, path, what, make) or is_fetched:
        return
    with open(path) as file:
        image_id = file.read()
    if re.fullmatch(ID, image_id) and _load(node, runtime, folder, image_id):
        runtime.image = name if runtime.image_id(name) == image_id else image_id
    else:
        fetch()


def _save(node: "NodeApi", runtime: "ImageStore", folder: str) -> str:
    """Save the image, unless its archive is there. Return its id; "" where that is not possible."""
    image_id = runtime.image_id(runtime.image)
    if not image_id:
        return ""
    try:
        archive = shared_file.private_path(folder, image_id + ".tar", node.env["SLURM_SUBMIT_DIR"])
        if os.path.exists(archive):
            os.utime(archive)  # for `slurmray clean`
            return image_id
        part = "%s.%s" % (archive, node.container_name)
        argv = ["save", "--output", part, runtime.image]
        try:
            result = image_commands.run_with_tmpdir(node, runtime.program, argv, runtime.image)
            if result.code == 0:
                os.rename(part, archive)
                return image_id
            why = result.why
        finally:
            if os.path.exists(part):
                os.unlink(part)
    except OSError as error:
        why = str(error.strerror)
    node.phase("image", "cannot save the image in %s: %s. Each node fetches it for itself" % (folder, why))
    return ""


def _load(node: "NodeApi", runtime: "ImageStore", folder: str, image_id: str) -> bool:
    """Load the image from its archive, unless it is on this node. Return whether it is then.

    Its id is a digest of its contents, so an archive of somebody else's brings no other image.
    """
    if not runtime.has_image(image_id):
        image_commands.load(node, runtime, os.path.join(folder, image_id + ".tar"))
    return runtime.has_image(image_id)
