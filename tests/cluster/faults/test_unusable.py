"""A node that cannot run the container: one clear line for each, with the remedy."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slurmray.rehearsal.lab import Lab

from .case import Fault

NODES = ("node1", "node2")
ROW = "a node cannot run the container"


def check(fault: Fault, code: int, found: str, remedy: str) -> None:
    """The job ends with that code, and both nodes say what they found and what helps."""
    job = fault.end()
    assert job.code == f"{code}:0", job.log
    for node in NODES:
        rows = [line for line in job.log.splitlines() if re.match(rf"{node} +(?! |subordinate)", line)]
        assert len(rows) == 1, job.log
        assert re.search(found, rows[0]), job.log
        assert remedy.format(node=node) in rows[0], job.log
    assert re.match(rf"end: exit code {code} from slurmray: node[12]: ", job.last_line), job.log


@contextmanager
def on_both(lab: Lab, do: str, undo: str) -> Iterator[None]:
    """Both nodes are changed by a command, and mended by another."""
    try:
        for node in NODES:
            done = lab.run(["bash", "-c", do], host=node)
            assert done.returncode == 0, done.stderr
        yield
    finally:
        for node in NODES:
            lab.run(["bash", "-c", undo], host=node)


@pytest.mark.fault(ROW)
def test_an_image_that_is_not_there(fault: Fault) -> None:
    fault.submit(["true"], container={"image": "docker.io/none/such:1", "pull": "never"})
    check(fault, 66, "docker.io/none/such:1 .*is not on this node", f"{fault.runtime} load it on {{node}}")


@pytest.mark.fault(ROW)
def test_a_registry_out_of_reach(fault: Fault) -> None:
    fault.submit(["true"], container={"image": "docker.io/none/such:1"})
    check(fault, 66, f"{fault.runtime} pull", "{node} does not reach the registry: load the image there")


@pytest.mark.fault(ROW, "docker")
def test_no_daemon(fault: Fault, lab: Lab) -> None:
    # The daemon's socket is what a client has of it.
    with on_both(lab, "mv /run/docker.sock /run/away.sock", "mv /run/away.sock /run/docker.sock"):
        fault.submit(["true"])
        check(fault, 65, "container runtime .*docker", "start it on {node}: systemctl start docker")


@pytest.mark.fault(ROW, "docker")
def test_no_permission_on_the_socket(fault: Fault, lab: Lab) -> None:
    with on_both(lab, "chgrp root /run/docker.sock", "chgrp docker /run/docker.sock"):
        fault.submit(["true"])
        check(fault, 65, "permission denied", "let alice use it: usermod --append --groups docker alice")


@pytest.mark.fault(ROW, "podman")
def test_no_subordinate_ids(fault: Fault, lab: Lab) -> None:
    # As most images do, this one has a file that does not belong to root.
    with tarfile.open(fault.jobs.folder / "layer.tar", "w") as tar:
        shadow = tarfile.TarInfo("etc/shadow")
        shadow.gid = 42
        tar.addfile(shadow)
    recipe = fault.jobs.folder / "Containerfile"
    recipe.write_text("FROM scratch\nADD layer.tar /\n")

    def anew() -> None:  # what Podman keeps running for a user has the old numbers
        for node in NODES:
            lab.run(["podman", "system", "migrate"], "alice", node)

    hide = "for file in /etc/subuid /etc/subgid; do mount --bind /dev/null $file; done"
    with on_both(lab, hide, "umount /etc/subuid /etc/subgid"):
        anew()
        fault.submit(["true"], container={"image": "localhost/small:1", "build": {"file": str(recipe)}})
        check(fault, 66, "podman build", "add alice:100000:65536 to /etc/subuid and /etc/subgid of {node}")
    anew()


@pytest.mark.fault(ROW, "podman")
def test_no_runtime(fault: Fault, lab: Lab) -> None:
    hide = "install -m 644 /dev/null /run/no-program && mount --bind /run/no-program /usr/bin/podman"
    with on_both(lab, hide, "umount /usr/bin/podman"):
        fault.submit(["true"])
        state = lab.wait(fault.job, 60)[0]
    assert state == "FAILED"
    check(fault, 65, "failed to run command .podman", "install it on {node}")
