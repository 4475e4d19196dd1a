"""Images for Podman and Docker on a node: load, build, pull or share them."""

from .image_commands import load, record_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .agent_interface import NodeApi
    from .runtime_interface import ImageStore


def ensure(node: "NodeApi", runtime: "ImageStore") -> None:
    """Make the image of Ray's container available. Records findings."""
    container = node.settings["container"]
    archive = container["archive"]
    if runtime.image_is_here and (container["pull"] != "always" or container["build"] or archive):
        return
    if archive:
        load_archive(node, runtime, node.host_path(archive))
    elif container["stage"] == "shared":
        from . import shared_image

        shared_image.ensure(node, runtime, lambda: fetch(node, runtime))
    else:
        fetch(node, runtime)


def check_never_pulled(node: "NodeApi", runtime: "ImageStore") -> None:
    """With `pull: never`: record a finding about each image that is not on this node."""
    container = node.settings["container"]
    if container["pull"] != "never":
        return
    images = [service["image"] for service in node.settings["services"] if service.get("image")]
    missing = [image for image in images if not runtime.has_image(image)]
    if not (runtime.image_is_here or container["build"] or container["archive"]):
        missing.insert(0, runtime.image)
    for image in missing:
        wanted = "the image, as container.pull is never"
        fix = "%s load it on %s" % (runtime.program, node.name)
        node.finding("image", image, "is not on this node", wanted, fix)


def fetch(node: "NodeApi", runtime: "ImageStore") -> bool:
    """Build or pull the image of Ray's container; return whether it is there. Records findings."""
    container = node.settings["container"]
    if container["build"]:
        from .image_build import build

        return build(node, runtime, container["build"])
    from .pull import pull

    name = container["image_with_registry"]
    if not pull(node, runtime, name):
        return False
    runtime.image = name
    return True


def load_archive(node: "NodeApi", runtime: "ImageStore", archive: str) -> None:
    """Load container.archive. Records findings."""
    result = load(node, runtime, archive)
    if result.code:
        record_failure(node, runtime.program, "load", runtime.image, result)
    elif not (runtime.works() and runtime.image_is_here):
        fix = "set container.image to the name that %s load prints" % runtime.program
        node.finding("image", archive, "has no image of that name", runtime.image, fix)
