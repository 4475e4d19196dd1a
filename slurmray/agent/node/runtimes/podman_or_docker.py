"""The base of the runtimes Podman and Docker."""

from .. import facts, image, job_folder
from ..leftovers import REMOVE_TIMEOUT, remove_container
from ..runtime_interface import ImageStore
from .limits import allocation_options, step_cgroup
from .mount_options import mount_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from ..checks.gpus import Devices


class Engine(ImageStore):
    """A runtime with the subcommands of Docker and a store of images on each node."""

    is_engine = True
    image_is_here = False
    image_query: "Tuple[str, ...]" = ()  # before the name of an image: exits with 0 if it is on this node

    @property
    def description(self) -> str:
        return "%s run %s" % (self.program, self.image)

    def prepare(self) -> None:
        node, settings = self.node, self.node.settings["container"]
        for label, value in (
            ("job", node.job["id"]),
            ("node", node.name),
            ("user", facts.user_name()),
            ("mark", node.job["mark"]),
        ):
            self.options += ["--label", "slurmray.%s=%s" % (label, value)]
        self.options += ["--shm-size", settings["shm_size"] or str(_shm_size())]
        if settings["user"] == "auto":
            self.options += self.user_options()
        group = step_cgroup()
        if group:
            self.options += self.limit_options(group)
        else:  # e.g. with proctrack/linuxproc; Slurm then enforces nothing, either
            node.phase("container", "jobs have no cgroups here, so containers get no CPU and memory limits")
        self.options += mount_options(node, self)
        self.add_devices()
        self.options += settings["args"]
        image.check_never_pulled(node, self)

    def user_options(self) -> "List[str]":
        """Options that make the container's user the submitter on the host."""
        return []

    def limit_options(self, group: str) -> "List[str]":  # noqa: ARG002
        """Options that limit containers to the job's CPUs and memory. group: a line of /proc/self/cgroup."""
        return allocation_options(self.node, self.name)

    def _warn_of_foreign_cgroups(self, foreign: "List[str]") -> None:
        """Warn that the container is not in the job's cgroup. foreign: lines of its /proc/PID/cgroup."""
        fix = "Slurm's limits do not hold for it: ask the site why %s leaves them on %s"
        found = "the container is in " + ", ".join(foreign)
        if foreign:
            self.node.finding("warn", "cgroup", found, "the job's", fix % (self.program, self.node.name))

    def has_image(self, image: str) -> bool:
        return self.node.run([self.program, *self.image_query, image]).code == 0

    def image_id(self, image: str) -> str:
        import re

        answer = self.node.run([self.program, "image", "inspect", "--format", "{{.Id}}", image])
        match = re.match("(?:sha256:)?([0-9a-f]{64})$", answer.out.strip())
        return match.group(1) if match and answer.code == 0 else ""

    def ensure_images(self) -> None:
        image.ensure(self.node, self)
        for service in self.node.settings["services"]:
            name = service.get("image")
            if name and not self.has_image(name):
                from ..pull import pull

                pull(self.node, self, service["image_with_registry"])

    def argv(self) -> "List[str]":
        node = self.node
        options = ["--entrypoint", node.settings["container"]["python"], *self.options]
        command = ["-I", "%s/agent" % node.folder, "container", node.name]
        return self._run_argv(node.container_name, self.image, options, command)

    def service_argv(self, name: str, image: str, script: str) -> "List[str]":
        node = self.node
        inside = node.folder + script[len(node.inside) :]
        options = [*self.options, "--entrypoint", "/bin/sh"]
        command = [inside, node.env["SLURM_SUBMIT_DIR"]]
        return self._run_argv("%s-%s" % (node.container_name, name), image, options, command)

    def _run_argv(self, name: str, image: str, options: "List[str]", command: "List[str]") -> "List[str]":
        return self.node.story_command(
            "run_with_" + self.name, self.program, name, image, str(len(options)), *options, *command
        )

    def device_options(self, devices: "Devices") -> "List[str]":
        options: "List[str]" = []
        if devices.nvidia is not None:
            options += self._nvidia_options(devices.nvidia)
        for path, group in devices.amd or []:  # by number, as its name may differ in the container
            options += ["--device", path, "--group-add", str(group)]
        for path in devices.network:
            options += ["--device", path]
        return options

    def _nvidia_options(self, uuids: "List[str]") -> "List[str]":
        """Options that pass these GPUs to the containers."""
        raise NotImplementedError

    def remove(self) -> bool:
        """Finds containers by the mark of this attempt.

        The exit code of `podman run` or `docker run` is no evidence: interrupted early, it may be 0.
        """
        ids = self._marked_ids()
        if ids:
            for container in ids:  # kill: without it, `rm` gives a container 10 s to end
                self.node.run([self.program, "kill", container], timeout=REMOVE_TIMEOUT)
                remove_container(self.node, self.program, container, "--force")
            ids = self._marked_ids()
        return self._end_host_services() and ids == []

    def _end_host_services(self) -> bool:
        """End what is left of services on the host, e.g. daemons. Return whether nothing is left."""
        has_services = any(service.get("host") for service in self.node.settings["services"])
        return not has_services or job_folder.end_processes(self.node.folder)

    def _marked_ids(self) -> "Optional[List[str]]":
        """Ids of all containers of this attempt; None if the runtime fails or prints something else."""
        import re

        mark = "label=slurmray.mark=" + self.node.job["mark"]
        result = self.node.run([self.program, "ps", "--all", "--quiet", "--no-trunc", "--filter", mark])
        ids = result.out.split()
        if result.code or not all(re.match("[0-9a-f]{12,64}$", container) for container in ids):
            return None
        return ids


def _shm_size() -> int:
    """Size of the node's /dev/shm in bytes."""
    import os

    status = os.statvfs("/dev/shm")
    return status.f_blocks * status.f_frsize
