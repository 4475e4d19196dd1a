"""The base of the runtimes Podman and Docker."""

from .. import facts, image, job_folder
from ..checks import gpus
from .base import Runtime
from .limits import allocation_options, cgroup_of_step
from .mounts import mount_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from ..api import NodeApi

REMOVE_TIMEOUT = 60.0  # seconds


class Engine(Runtime):
    """A runtime with the subcommands of Docker and a store of images on each node."""

    isolates_devices = True

    def __init__(self, node: "NodeApi") -> None:
        super().__init__(node)
        self.image_is_here = False  # whether the node has Ray's image; set by works()

    @property
    def description(self) -> str:
        """As in Runtime."""
        return "%s run %s" % (self.program, self.image)

    @property
    def exec_prefix(self) -> "List[str]":
        """As in Runtime."""
        return [self.program, "exec", self.node.container_name]

    def prepare_container(self) -> None:
        """As in Runtime."""
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
        group = cgroup_of_step()
        if group:
            self.options += self.limit_options(group)
        else:  # e.g. with proctrack/linuxproc; Slurm then enforces nothing, either
            node.phase("container", "jobs have no cgroups here, so containers get no CPU and memory limits")
        self.options += mount_options(node, self)
        self.options += gpus.options(node, self)
        self.options += settings["args"]

    def user_options(self) -> "List[str]":
        """Options that make the container's user the submitter on the host."""
        return []

    def limit_options(self, group: str) -> "List[str]":  # noqa: ARG002
        """Options that limit containers to the job's CPUs and memory. group: a line of /proc/self/cgroup."""
        return allocation_options(self.node, self.name)

    def _report_foreign_cgroup(self, group: str) -> None:
        """Warn that the container is not in the job's cgroup. group: a line of its /proc/PID/cgroup."""
        fix = "Slurm's limits do not hold for it: ask the site why %s leaves them on %s"
        found = "the container is in " + group
        self.node.finding("warn", "cgroup", found, "the job's", fix % (self.program, self.node.name))

    def has_image(self, image: str = "") -> bool:
        """As in Runtime."""
        raise NotImplementedError

    def ensure_image(self) -> None:
        """As in Runtime."""
        image.ensure(self.node, self)

    def pull_service_images(self) -> None:
        """As in Runtime."""
        for service in self.node.settings["services"]:
            name = service.get("image")
            if name and not self.has_image(name):
                image.pull_unless_never(self.node, self, name, service["image_with_registry"])

    def container_argv(self) -> "List[str]":
        """As in Runtime."""
        node = self.node
        command = ["-I", "%s/agent" % node.folder, "container", node.name]
        return self._run_argv(node.container_name, self.image, self.options, command)

    def service_argv(self, name: str, image: str, script: str) -> "List[str]":
        """As in Runtime."""
        node = self.node
        inside = node.folder + script[len(node.inside) :]
        options = [*self.options, "--entrypoint", "/bin/sh"]
        command = [inside, node.env["SLURM_SUBMIT_DIR"]]
        return self._run_argv("%s-%s" % (node.container_name, name), image, options, command)

    def remove_container(self, container_id: str, force: bool) -> bool:
        """As in Runtime."""
        argv = [self.program, "rm", *(["--force"] if force else []), "--volumes", container_id]
        return self.node.run(argv, timeout=REMOVE_TIMEOUT).code == 0

    def _run_argv(self, name: str, image: str, options: "List[str]", command: "List[str]") -> "List[str]":
        return self.node.story_command(
            "run_with_" + self.name, self.program, name, image, str(len(options)), *options, *command
        )

    def device_options(self, path: str) -> "List[str]":
        """As in Runtime."""
        return ["--device", path]

    def list_containers(self, name: str) -> "List[Tuple[str, str, str]]":
        """As in Runtime."""
        template = "{{.ID}} {{.Names}} {{.Labels}}"
        argv = [self.program, "ps", "--all", "--no-trunc", "--filter", "name=" + name, "--format", template]
        found = self.node.run(argv)
        rows = []
        for line in [] if found.code else found.out.splitlines():
            fields = line.split(" ", 2)
            if len(fields) > 1:
                rows.append((fields[0], fields[1], fields[2] if len(fields) > 2 else ""))
        return rows

    def remove(self) -> bool:
        """As in Runtime. Finds containers by the mark of this attempt.

        The exit code of `podman run` or `docker run` is no evidence: interrupted early, it may be 0.
        """
        ids = self._marked_ids()
        if ids:
            self.node.run([self.program, "kill", *ids], timeout=REMOVE_TIMEOUT)
            self.node.run([self.program, "rm", "--force", "--volumes", *ids], timeout=REMOVE_TIMEOUT)
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
        found = self.node.run([self.program, "ps", "--all", "--quiet", "--no-trunc", "--filter", mark])
        ids = found.out.split()
        if found.code or not all(re.match("[0-9a-f]{12,64}$", each) for each in ids):
            return None
        return ids


def _shm_size() -> int:
    """Size of the node's /dev/shm in bytes."""
    import os

    found = os.statvfs("/dev/shm")
    return found.f_blocks * found.f_frsize
