"""Docker, rootful or rootless."""

import os

from ..checks import storage
from .limits import read_cgroups
from .mount_options import private_mount
from .podman_or_docker import Engine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


class Docker(Engine):
    """Docker on one node."""

    name = "docker"
    image_query = ("image", "inspect", "--format", "1")
    is_rootless = False
    _parent = ""  # the cgroup that is to be the parent of the container's

    def works(self) -> bool:
        # Without a daemon, `docker info --format` fails without a useful message (20.10).
        result = self.node.run([self.program, "version"])
        if result.code == 0:
            result = self.node.run([self.program, "info", "--format", "{{.SecurityOptions}}"])
        self.why = result.why
        if result.code:
            return False
        self.is_rootless = "rootless" in result.out
        self.image_is_here = self.has_image(self.image)
        return True

    def user_options(self) -> "List[str]":
        if self.is_rootless:
            return ["--user", "0:0"]  # root in the container is the submitter on the host
        groups = ["--group-add=%d" % group for group in os.getgroups()]
        return ["--user", "%d:%d" % (os.getuid(), os.getgid()), *groups]

    def limit_options(self, group: str) -> "List[str]":
        """A container can be in the job's cgroup only with cgroup v2 not managed by systemd."""
        if group.startswith("0::"):
            driver = self.node.run([self.program, "info", "--format", "{{.CgroupDriver}}"])
            if driver.out.strip() == "cgroupfs":
                # Below a cgroup with processes, e.g. the task's, there can be no other (cgroups(7)).
                self._parent = group[len("0::") :].partition("/task_")[0]
                return ["--cgroup-parent", self._parent]
        return super().limit_options(group)

    def check(self) -> bool:
        """Whether it is below the job's step, if it is to be."""
        if not self._parent:
            return True
        ids = self._marked_ids()
        argv = [self.program, "inspect", "--format", "{{.State.Pid}}", *(ids or [])]
        pid = self.node.run(argv).out.strip() if ids else ""
        if pid in ("", "0"):  # it has not started yet
            return False
        try:
            cgroups = read_cgroups(pid)
        except OSError:  # ended
            return True
        own = "0::%s/" % self._parent
        self._warn_of_foreign_cgroups([line for line in cgroups if not line.startswith(own)])
        return True

    def _nvidia_options(self, uuids: "List[str]") -> "List[str]":
        """By the NVIDIA Container Toolkit."""
        return ["--gpus", '"device=%s"' % ",".join(uuids)]

    def private_folder(self, path: str) -> str:
        """The daemon has the host's /tmp."""
        return private_mount(path, self.node.job["id"])

    def reachable_path(self, path: str) -> str:
        """On a network file system the daemon's root may become nobody (root_squash)."""
        if self.is_rootless or not storage.is_remote(storage.file_system(self.node, path)):
            return path
        folder = ""
        for name in path.strip("/").split("/"):
            folder += "/" + name
            try:
                if not os.stat(folder).st_mode & 1:
                    return folder
            except OSError:
                return folder
        return path
