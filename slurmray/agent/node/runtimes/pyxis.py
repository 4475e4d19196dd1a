"""Pyxis: srun starts the node agents in containers, where they run the job as with runtime none."""

import os
import re

from ...errors import JobError
from .mounts import normalize
from .none import NoRuntime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Set

    from ...settings import Job, Settings


class Pyxis(NoRuntime):
    """Pyxis on one node: the container that srun has started."""

    name = "pyxis"

    @property
    def exec_prefix(self) -> "List[str]":
        """As in Runtime: srun's options that start a container of the same image."""
        temp_dir = self.node.settings["temp_dir"]
        mounts = "--container-mounts=%s:%s" % (temp_dir, temp_dir)
        return ["--container-image=" + self.image, mounts, *super().exec_prefix]

    def prepare_container(self) -> None:
        """As in Runtime. Makes the FIFOs of the story's start_service, which runs after it on all nodes."""
        super().prepare_container()
        for service in self.node.settings["services"]:
            if service.get("image"):
                for name in ("tether-", "code-", "closed-"):
                    os.mkfifo(os.path.join(self.node.inside, name + service["name"]), 0o600)

    def active_jobs(self, jobs: "Set[str]") -> "Optional[Set[str]]":
        """As in Runtime. The controller asks: the container has no Slurm commands."""
        return jobs - self.node.ended_jobs(jobs)

    def service_argv(self, name: str, image: str, script: str) -> "List[str]":  # noqa: ARG002
        """As in Runtime: the story's use_service."""
        return self.node.story_command("use_service", self.node.folder, name)


def step_options(settings: "Settings", job: "Job", submit_dir: str, image: str) -> "List[str]":
    """Options for the srun of a step in a container. JobError where Pyxis cannot express a mount."""
    container = settings["container"]
    mounts = [
        (path, path, "") for path in (settings["temp_dir"], os.path.dirname(job["run_dir"]), submit_dir)
    ]
    for mount in container["mounts"]:
        text = mount["source"]
        if text == "~" or text.startswith("~/"):
            text = os.environ["HOME"] + text[1:]
        source = normalize(os.path.join(submit_dir, text))
        flags = "+".join(mount["options"])
        mounts.append((source, mount["destination"] or source, flags))
    for source, target, _ in mounts:
        for path in (source, target):
            if re.search(r"[\s,:]", path):
                message = "pyxis cannot mount %s. Use a path without blanks, commas and colons" % path
                raise JobError("config", message)
    texts = ["%s:%s%s" % (source, target, flags and ":" + flags) for source, target, flags in mounts]
    return [
        "--no-container-remap-root",
        "--container-mounts=" + ",".join(texts),
        "--container-image=" + image,
        *container["step_args"],
    ]
