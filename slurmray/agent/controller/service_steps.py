"""The services that are steps of their own: with pyxis, those with an image of their own."""

import os
import subprocess

from .. import paths, script_parts
from ..nodes import places
from . import step_environment
from .step import container_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

    from ..job_record import Record
    from ..wire.settings import Job, Settings


class ServiceStep:
    """The step of a service. nodes: on which it runs. srun: argv, environment and log."""

    def __init__(self, name: str, nodes: "List[str]", srun: "Tuple[List[str], Dict[str, str], str]") -> None:
        self.name = name
        self.nodes = nodes
        self.process: "Optional[subprocess.Popen[bytes]]" = None  # once it is started
        self._srun = srun

    def start(self) -> None:
        """Start srun. OSError."""
        argv, env, path = self._srun
        with open(path, "ab", opener=paths.own_file) as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)


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
        log = os.path.join(logs, "service-%s.log" % service["name"])
        yield ServiceStep(service["name"], nodes, (argv, env, log))
