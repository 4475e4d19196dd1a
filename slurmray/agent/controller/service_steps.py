"""The services that are steps of their own: with pyxis, those with an image of their own."""

import collections
import os

from .. import script_parts
from ..nodes import places
from . import step_environment
from .step import container_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..job_record import Record
    from ..wire.settings import Job, Settings

# name: of the service. nodes: on which it runs. argv, env: of srun.
ServiceStep = collections.namedtuple("ServiceStep", "name nodes argv env")


def list_steps(
    text: str, settings: "Settings", job: "Job", record: "Record", folder: str
) -> "Iterator[ServiceStep]":
    """Yield the steps: see start_service in the story. text: the script. folder: the job's on the nodes."""
    for service in settings["services"]:
        if not service.get("image"):
            continue
        nodes = places(service["where"], job["nodes"], settings["ray"]["nodes"])
        options = ["--nodelist=" + ",".join(nodes)]
        if settings["on_node_loss"] != "fail":
            options += ["--no-kill", "--kill-on-bad-exit=0"]
        options += container_options(settings, job, service["image"])
        logs = os.path.join(job["run_dir"], "logs")
        counts = [str(len(nodes)), str(job["cpus"][0])]
        argv = script_parts.story_command(
            text, "start_service", *counts, folder, service["name"], logs, *options
        )
        env = step_environment.step_environment(os.environ, text, record)
        yield ServiceStep(service["name"], nodes, argv, env)
