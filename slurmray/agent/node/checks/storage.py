"""Checks the node's temp folder."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..agent_interface import NodeApi

MIB = 1024 * 1024
FREE = 100  # MiB in the temp folder: logs and sockets of Ray
# Network file systems, as stat(1) names them.
REMOTE = ("lustre", "gpfs", "cifs", "afs", "panfs", "beegfs")
REMOTE_PREFIXES = ("nfs", "ceph", "fuse", "smb")  # e.g. nfs4, fuseblk, smb2


def file_system(node: "NodeApi", path: str) -> str:
    """The type of file system, e.g. ext2/ext3 or nfs; "missing" where the path does not exist.

    Runs stat(1) with a timeout, as a file server may hang.
    """
    result = node.run(["stat", "--file-system", "--format=%T", path])
    return result.out.strip() if result.code == 0 else "missing"


def is_remote(file_system_type: str) -> bool:
    """Whether it is a network file system."""
    return file_system_type in REMOTE or file_system_type.startswith(REMOTE_PREFIXES)


def check_temp_folder(node: "NodeApi") -> None:
    """Check that ray.temp_dir is on this node's own disk and has free space."""
    folder = node.settings["temp_dir"]
    file_system_type = file_system(node, folder)
    if file_system_type == "missing" or is_remote(file_system_type):
        wanted = "a folder on this node's own disk"
        node.soft_finding("temp folder", "%s: %s" % (folder, file_system_type), wanted, "set ray.temp_dir")
        return
    free = os.statvfs(folder)
    free_mib = free.f_bavail * free.f_frsize // MIB
    if free_mib < FREE:
        node.soft_finding(
            "temp folder",
            "%d MB free in %s" % (free_mib, folder),
            "%d MB" % FREE,
            "free some, or set ray.temp_dir",
        )
