"""Bind mounts of the containers, as --mount options."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..agent_interface import NodeApi
    from ..runtime_interface import Runtime


def mount_options(node: "NodeApi", runtime: "Runtime") -> "List[str]":
    """Options for the job's folder, the job spec's mounts and the submit folder, without duplicates.

    Records findings.
    """
    mounts = [_bind(node, runtime, node.inside, node.folder, [])]
    submit_dir = node.env["SLURM_SUBMIT_DIR"]
    targets = set()
    for mount in node.settings["container"]["mounts"]:
        source = normalize(node.host_path(mount["source"]))
        target = normalize(mount["destination"]) if mount["destination"] else source
        targets.add(target)
        mounts.append(_bind(node, runtime, source, target, mount["options"]))
    if submit_dir not in targets:
        mounts.append(_bind(node, runtime, submit_dir, submit_dir, []))
    options: "List[str]" = []
    for mount_text in mounts:
        if mount_text and mount_text not in options:
            options += ["--mount", mount_text]
    return options


def normalize(path: str) -> str:
    """An absolute path without `.`, `..` and double slashes. Symbolic links stay."""
    return "/" + os.path.normpath(path).lstrip("/")


def private_mount(path: str, job: str, root: str = "/") -> str:
    """The folder above a path that Slurm made for a job (job_container/tmpfs), e.g. /tmp; "" if none.

    root: for tests.
    """
    mount_point, source = "", ""
    with open(os.path.join(root, "proc/self/mountinfo"), "rb") as file:  # proc_pid_mountinfo(5)
        for line in file:
            fields = os.fsdecode(line).split(" ")
            target = fields[4].replace("\\040", " ")
            # Of mounts on one folder, the last one counts.
            if (path + "/").startswith(target.rstrip("/") + "/") and len(target) >= len(mount_point):
                mount_point, source = target, fields[3]
    # As in Slurm's job_container_tmpfs.c: BASE/ID/.ID, and since 23.02 a folder in it.
    return mount_point if "/%s/.%s/" % (job, job) in source + "/" else ""


def csv_field(text: str) -> str:
    """A quoted field of the CSV that --mount takes: a path may have commas, quotes and newlines."""
    return '"%s"' % text.replace('"', '""')


def _bind(node: "NodeApi", runtime: "Runtime", source: str, target: str, options: "List[str]") -> str:
    """The value of a --mount option; "" after a finding."""
    if not os.path.exists(source):
        fix = "create it there, or remove it from container.mounts"
        node.finding("preflight", "mount", "%s: no such file or directory" % source, "an existing path", fix)
        return ""
    private = runtime.private_folder(source)
    if private:
        found = "%s is the job's own (job_container/tmpfs), and %s sees another" % (private, runtime.name)
        fix = "mount another folder than %s" % source
        if source == node.inside:
            fix = "set ray.temp_dir to a folder elsewhere on the node's disk"
        node.finding("preflight", "mount", found, "a folder that is the same for both", fix)
        return ""
    reachable = runtime.reachable_path(source)
    if reachable != source:
        obstacle = "the root of %s cannot enter %s" % (runtime.name, reachable)
        if source != target:
            fix = "mount it at the same path, use Podman, or chmod o+x %s" % reachable
            node.finding("preflight", "mount", obstacle, "access to %s" % source, fix)
            return ""
        node.phase("container", "%s, so all of it is mounted" % obstacle)
        source = target = reachable
    fields = ["type=bind", csv_field("source=" + source), csv_field("target=" + target)]
    for option in options:
        if option == "ro":
            fields.append("readonly")
        else:
            fields.append("bind-propagation=" + option)
    return ",".join(fields)
