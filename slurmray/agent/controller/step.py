"""A step of the job: one srun with a task on each node, in a heterogeneous job one for each component."""

import os
import subprocess
import zlib

from .. import background_io, loader, script_parts
from ..nodes import may_be_lost
from ..wire import codec
from . import step_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from ..wire.settings import Job, Settings
    from .allocation import Component

# Files of the agent that are not sent to nodes: srun sends its input in pieces of 1 KiB, each to every node.
CONTROLLER_ONLY = ("controller/", "job_record.py")


class Step:
    """A running srun. Its tasks read messages from its standard input and write theirs to its output.

    output, errors: the descriptors of its standard output and standard error, with a decoder for each.
    """

    def __init__(self, argv: "List[str]", env: "Dict[str, str]", job: str, nodes: "List[str]") -> None:
        """Start srun. job: for scancel. nodes: of its tasks, in their order."""
        self.job = job
        self.nodes = nodes
        self.number = ""  # Slurm's, for scancel; "": no task has started
        self.has_ended = False  # no task runs any more
        self.decoder = codec.LineDecoder(codec.MAX_TEXT)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
        assert self.process.stdin and self.process.stdout and self.process.stderr  # noqa: S101 - PIPE
        self.errors = self.process.stderr.fileno()
        self.error_decoder = codec.LineDecoder(codec.MAX_TEXT)
        self.outbox = background_io.PipeWriter(os.dup(self.process.stdin.fileno()))
        self.process.stdin.close()
        self.output = self.process.stdout.fileno()


def start_steps(text: str, job: "Job", components: "List[Component]") -> "List[Step]":
    """Start one task on every node, and send each the script. components: of the job."""
    settings = script_parts.read_settings(text)
    options = ["--no-kill"] if may_be_lost(settings) else []
    options += container_options(settings, job, settings["container"]["image"])
    agent = script_parts.read_agent(text)
    sent = text.replace(agent, loader.remove_sections(agent, CONTROLLER_ONLY))
    data = zlib.compress(sent.encode("utf-8", "surrogateescape"))
    steps = []
    for number, component in enumerate(components):
        nodes = [node for node in component.in_order if node in job["nodes"] or node in job["spares"]]
        counts = [str(len(nodes)), str(component.cpus)]
        group = ["--het-group=%d" % number] if len(components) > 1 else []
        if nodes != component.in_order:  # some were set aside
            group.append("--nodelist=" + ",".join(nodes))
        argv = script_parts.story_command(text, "start_step", *counts, *group, *options)
        env = step_environment.step_environment(component.env, text, component.record, number)
        env["SLURM_JOB_ID"] = job["id"]  # srun refuses the id of a component
        env["SLURMRAY_SETUP"] = settings["setup"]  # for a node where only `setup` provides a Python
        name = component.env["SLURM_JOB_ID"] if number else job["name_for_commands"]
        steps.append(Step(argv, env, name, nodes))
        steps[-1].outbox.send(data)
    return steps


def container_options(settings: "Settings", job: "Job", image: str) -> "List[str]":
    """Options of a step whose tasks srun may start in a container."""
    if settings["container"]["runtimes"] != ["pyxis"]:
        return settings["container"]["step_args"]
    from ..node.runtimes import pyxis

    return pyxis.step_options(settings, job, image)
