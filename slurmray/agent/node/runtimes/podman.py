"""Podman, rootless or rootful."""

import os

from ...fixes import fix_for
from ...inherited import LOGIN_SESSION
from ..facts import user_name
from .limits import read_cgroups
from .mount_options import private_mount
from .podman_or_docker import Engine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    from ..agent_interface import NodeApi

# Under Slurm, Podman 4.3 to 5.1 moves itself, and so the container, into a cgroup below user.slice, even with
# --cgroups=disabled. It does so by the user's systemd, which it does not find with this address.
NO_SYSTEMD = "DBUS_SESSION_BUS_ADDRESS=unix:path=/dev/null"
OLDEST = (4, 0)


class Podman(Engine):
    """Podman on one node."""

    name = "podman"
    image_query = ("image", "exists")  # resolves short names
    _warned = False
    _shares_cgroup = False  # whether the container is to be in the task's cgroup

    def __init__(self, node: "NodeApi") -> None:
        super().__init__(node)
        self.unset = [name for name in LOGIN_SESSION if name in os.environ and name not in node.env]
        # Ids of other users of a rootless container are its user namespace's.
        self.rm = [self.program, "unshare", "rm", "-rf"]

    def works(self) -> bool:
        """Checks for the image with the same command, as each takes 0.1 s or more."""
        node = self.node
        result = node.run([self.program, *self.image_query, self.image])
        self.image_is_here = result.code == 0
        self.why = result.why
        if "no subuid ranges" in result.err and not self._warned:
            # Podman still works with images that are here, but cannot unpack most others.
            self._warned = True
            fix = fix_for("use", "subuid", node.name, user_name())
            node.finding("warn", "subordinate ids", "none", "65536", fix)
        # 125 and above: Podman itself fails. Without its pause process it fails, too, but exits with 1.
        return result.code <= 1 and "podman system migrate" not in result.err

    def user_options(self) -> "List[str]":
        # Root in a rootless container is the submitter on the host; in a job of root it is root.
        # The annotation keeps the submitter's supplementary groups (crun supports it, runc ignores it).
        return ["--user", "0:0", "--annotation", "run.oci.keep_original_groups=1"]

    def limit_options(self, group: str) -> "List[str]":
        result = self.node.run([self.program, "info", "--format", "{{.Host.OCIRuntime.Name}}"])
        if result.out.strip() == "crun":
            self._shares_cgroup = True
            return ["--cgroups=disabled"]
        return super().limit_options(group)  # runc needs a cgroup

    def _run_argv(self, name: str, image: str, options: "List[str]", command: "List[str]") -> "List[str]":
        if not self._shares_cgroup:
            return super()._run_argv(name, image, options, command)
        options = [*options, "--pidfile", self._pid_file(name)]
        return ["env", NO_SYSTEMD, *super()._run_argv(name, image, options, command)]

    def _pid_file(self, name: str) -> str:
        """Has the pid of a container's first process once it runs."""
        return os.path.join(self.node.folder, name + ".pid")

    def check(self) -> bool:
        """Whether it is in the task's cgroup."""
        if not self._shares_cgroup:
            return True
        try:
            with open(self._pid_file(self.node.container_name)) as file:
                cgroups = read_cgroups(file.read() or "no pid yet")
        except OSError:  # not started yet, or ended
            return False
        self._warn_of_foreign_cgroups([line for line in cgroups if line not in read_cgroups("self")])
        return True

    def private_folder(self, path: str) -> str:
        """Rootless Podman joins the mount namespace that an earlier one of the user has left."""
        folder = private_mount(path, self.node.job["id"])
        is_seen = not folder or self.node.run([self.program, "unshare", "test", "-e", path]).code != 1
        return "" if is_seen else folder

    def likely_cause(self) -> str:
        """Podman 3.4, of Ubuntu 22.04, knows no quotes in --mount."""
        version = self._version()
        if not (0, 0) < version < OLDEST:
            return ""
        return "Podman %d.%d is too old: slurmray needs %d.%d or later" % (version + OLDEST)

    def _nvidia_options(self, uuids: "List[str]") -> "List[str]":
        """By CDI. The NVIDIA Container Toolkit before 1.15 names GPUs by index only."""
        from . import cdi

        node, version = self.node, self._version()
        if version < (4, 1):
            found, fix = "Podman %d.%d, without CDI" % version, "update Podman on %s" % node.name
            node.finding("preflight", "GPUs", found, "Podman 4.1 or later", fix)
            return []
        # Only Podman 5.5 leaves /var/run/cdi out: containers/podman#26569.
        folders = cdi.FOLDERS[:1] if version == (5, 5) else cdi.FOLDERS
        names, indices = cdi.device_names(folders), cdi.indices()
        fix = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on %s" % node.name
        if not names:
            found = "no CDI specification in %s" % " or ".join(folders)
            node.finding("preflight", "GPUs", found, "one, for Podman", fix)
            return []
        options = []
        for uuid in uuids:
            index = indices.get(uuid, "")
            given = [name for name in (uuid, index, "gpu" + index) if name in names]
            options += ["--device=nvidia.com/gpu=" + name for name in given[:1]]
        if len(options) < len(uuids):
            found = "%d of %d in the CDI specification" % (len(options), len(uuids))
            wanted = "UUIDs (NVIDIA Container Toolkit 1.15 or later) or indices of all"
            node.finding("preflight", "GPUs", found, wanted, fix)
        return options

    def _version(self) -> "Tuple[int, int]":
        """Major and minor version of Podman; (0, 0) if it does not answer."""
        import re

        # podman-hpc knows Podman's commands, but not its option --version.
        answer = self.node.run([self.program, "version", "--format", "{{.Client.Version}}"])
        match = re.match(r"([0-9]+)\.([0-9]+)", answer.out)
        return (int(match.group(1)), int(match.group(2))) if match else (0, 0)
