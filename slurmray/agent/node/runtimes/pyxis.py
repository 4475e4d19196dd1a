"""Pyxis: srun starts the node agents in containers, where they run the job as with runtime none."""

import os
import re

from ... import paths
from ...job_errors import JobError
from .mount_options import normalize
from .none import NoRuntime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ...wire.settings import Job, Settings


class Pyxis(NoRuntime):
    """Pyxis on one node: the container that srun has started."""

    name = "pyxis"
    has_slurm = False

    def prepare(self) -> None:
        """Makes the FIFOs of the story's start_service, which runs after it on all nodes."""
        super().prepare()
        for service in self.node.settings["services"]:
            if service.get("image"):
                for name in ("tether-", "code-", "closed-"):
                    os.mkfifo(os.path.join(self.node.inside, name + service["name"]), 0o600)

    def service_argv(self, name: str, image: str, script: str) -> "List[str]":  # noqa: ARG002
        """The story's use_service."""
        return self.node.story_command("use_service", self.node.folder, name)


def step_options(settings: "Settings", job: "Job", image: str) -> "List[str]":
    """Options for the srun of a step in a container. JobError where Pyxis cannot express a mount."""
    container = settings["container"]
    submit_dir = os.environ["SLURM_SUBMIT_DIR"]
    temp_dir = paths.expand_in_batch("ray.temp_dir", settings["temp_dir"])
    mounts = [(path, path, "") for path in (temp_dir, os.path.dirname(job["run_dir"]), submit_dir)]
    for mount in container["mounts"]:
        source = normalize(paths.host_path(paths.expand_in_batch("container.mounts", mount["source"])))
        target = paths.expand_in_batch("container.mounts", mount["destination"]) or source
        mounts.append((source, target, "+".join(mount["options"])))
    for source, target, _ in mounts:
        for path in (source, target):
            if re.search(r"[\s,:]", path):
                message = "pyxis cannot mount %s. Use a path without blanks, commas and colons" % path
                raise JobError("config", message)
    texts = ["%s:%s%s" % (source, target, flags and ":" + flags) for source, target, flags in mounts]
    return [
        "--no-container-remap-root",
        "--container-mounts=" + ",".join(texts),
        "--container-image=" + paths.expand_in_batch("container.image", image),
        *container["step_args"],
    ]
