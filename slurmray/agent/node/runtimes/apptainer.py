"""Apptainer and Singularity: an image is a file or folder, a container is a process of the user."""

import os

from ... import paths
from ...job_errors import JobError
from .. import job_folder, shared_file
from ..image_commands import record_failure, run_with_tmpdir
from ..runtime_interface import Runtime
from .mount_options import mount_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..checks.gpus import Devices


class Apptainer(Runtime):
    """Apptainer on one node."""

    name = "apptainer"
    variables = "APPTAINER"  # prefix of its environment variables

    @property
    def description(self) -> str:
        return "%s exec %s" % (self.program, self.image)

    def works(self) -> bool:
        result = self.node.run([self.program, "--version"])
        self.why = result.why
        return result.code == 0

    def prepare(self) -> None:
        """The container's writable file systems are in the job's folder or in memory."""
        node = self.node
        work = os.path.join(node.folder, "work")
        os.mkdir(work)
        self.options += ["--workdir", work, "--env", _env_value(paths.FOLDER_VARIABLE, node.folder)]
        self.options += mount_options(node, self)
        self.add_devices()
        self.options += node.settings["container"]["args"]

    def device_options(self, devices: "Devices") -> "List[str]":
        """Containers see all GPUs that the cgroup allows; Slurm's mask selects the job's."""
        options: "List[str]" = []
        if devices.nvidia is not None:
            options += ["--nv", *self._mask("CUDA_VISIBLE_DEVICES")]
        if devices.amd is not None:
            options += ["--rocm", *self._mask("ROCR_VISIBLE_DEVICES")]
        for path in devices.network:
            options += ["--bind", path]
        return options

    def _mask(self, name: str) -> "List[str]":
        value = self.node.env.get(name)
        return ["--env", _env_value(name, value)] if value else []

    def ensure_images(self) -> None:
        """Runs a command in a container, which shows that Apptainer can start the image."""
        node = self.node
        if node.settings["container"]["source"]:
            if not self._make_image():
                return
        else:
            self.image = node.host_path(self.image)
        # Takes long where there is no squashfuse.
        node.phase("image", self.description)
        result = node.run_long(self._run_argv(node.settings["container"]["python"], "--version"), "exec")
        if result.code:
            record_failure(node, self.program, "exec", self.image, result)

    def _make_image(self) -> bool:
        """Build `source` into a cache that nodes share. Return whether the file is there."""
        node, container = self.node, self.node.settings["container"]
        source = container["source"]
        if container["archive"]:
            source = "docker-archive:" + node.host_path(container["archive"])
        cache = node.env.get(self.variables + "_CACHEDIR")
        cache = cache or os.path.join(node.env["HOME"], ".%s/cache" % self.name)
        folder = os.path.join(cache, "slurmray")
        try:
            self.image = shared_file.private_path(folder, self.image, node.env["SLURM_SUBMIT_DIR"])
            if container["pull"] == "never" and not os.path.exists(self.image):
                found, fix = "is not in %s" % folder, "%s build %s %s" % (self.program, self.image, source)
                node.finding("image", source, found, "the image, as container.pull is never", fix)
                return False
            what = "%s build %s" % (self.program, os.path.basename(self.image))
            return shared_file.obtain(node, self.image, what, lambda part: self._build(part, source))
        except OSError as error:
            message = "cannot write to %s: %s. Set %s_CACHEDIR in setup"
            raise JobError("image", message % (folder, error.strerror, self.variables)) from None

    def _build(self, part: str, source: str) -> bool:
        node = self.node
        result = run_with_tmpdir(node, self.program, ["build", "--force", part, source], self.image)
        if result.code:
            record_failure(node, self.program, "build", self.image, result)
        return not result.code

    def _run_argv(self, *command: str) -> "List[str]":
        node = self.node
        argv = node.story_command(
            "run_with_apptainer", self.program, self.image, str(len(self.options)), *self.options, *command
        )
        return ["env", "%s_TMPDIR=%s" % (self.variables, node.folder), *argv]

    def argv(self) -> "List[str]":
        import shlex

        node = self.node
        prefix = " ".join(map(shlex.quote, self._run_argv()))
        path = os.path.join(node.folder, "enter")  # runs a command in the container from outside
        with open(path, "wb") as file:
            file.write(os.fsencode('#!/bin/bash\nexec %s "$@"\n' % prefix))
        os.chmod(path, 0o700)
        agent = os.path.join(node.folder, "agent")
        return self._run_argv(node.settings["container"]["python"], "-I", agent, "container", node.name)

    def remove(self) -> bool:
        return job_folder.end_task(self.node.folder)


class Singularity(Apptainer):
    """Singularity on one node: other names for the same."""

    name = "singularity"
    variables = "SINGULARITY"


def _env_value(name: str, value: str) -> str:
    """The argument of --env: Apptainer parses it as CSV if it has more than one `=`."""
    assignment = "%s=%s" % (name, value)
    return '"%s"' % assignment.replace('"', '""') if assignment.count("=") > 1 else assignment
