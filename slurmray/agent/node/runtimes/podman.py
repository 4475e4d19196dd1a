"""Podman, rootless or rootful."""

import os

from ...fixes import fix_for
from ..facts import LOGIN_SESSION, user_name
from .engine import Engine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")


class Podman(Engine):
    """Podman on one node."""

    name = "podman"
    _warned = False

    @property
    def exec_prefix(self) -> "List[str]":
        """As in Runtime, without the login session's variables that the job had to drop."""
        dropped = [name for name in LOGIN_SESSION if name in os.environ and name not in self.node.env]
        unset = ["--unset=" + name for name in dropped]
        return [*(["env", *unset] if unset else []), *super().exec_prefix]

    def works(self) -> bool:
        """As in Runtime. Checks for the image with the same command, as each takes 0.1 s or more."""
        node = self.node
        found = node.run(["podman", "image", "exists", self.image])
        self.image_is_here = found.code == 0
        self.why = found.why
        if "no subuid ranges" in found.err and not self._warned:
            # Podman still works with images that are here, but cannot unpack most others.
            self._warned = True
            fix = fix_for("use", "subuid", node.name, user_name())
            node.finding("warn", "subordinate ids", "none", "65536", fix)
        # 125 and above: Podman itself fails. Without its pause process it fails, too, but exits with 1.
        return found.code <= 1 and "podman system migrate" not in found.err

    def has_image(self, image: str = "") -> bool:
        """As in Runtime. Podman resolves short names."""
        if not image:
            return self.image_is_here
        return self.node.run(["podman", "image", "exists", image]).code == 0

    def user_options(self) -> "List[str]":
        """As in Engine."""
        # Root in a rootless container is the submitter on the host; in a job of root it is root.
        # The annotation keeps the submitter's supplementary groups (crun supports it, runc ignores it).
        return ["--user", "0:0", "--annotation", "run.oci.keep_original_groups=1"]

    def limit_options(self, group: str) -> "List[str]":
        """As in Engine."""
        found = self.node.run(["podman", "info", "--format", "{{.Host.OCIRuntime.Name}}"])
        if found.out.strip() == "crun":
            return ["--cgroups=disabled"]
        return super().limit_options(group)  # runc needs a cgroup

    def nvidia_options(self, uuids: "List[str]") -> "List[str]":
        """As in Runtime, by CDI."""
        import glob

        if not any(glob.glob(os.path.join(folder, "*nvidia*")) for folder in CDI_FOLDERS):
            fix = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on %s" % self.node.name
            self.node.finding("preflight", "GPUs", "no CDI specification", "one, for Podman", fix)
        return ["--device=nvidia.com/gpu=" + uuid for uuid in uuids]
