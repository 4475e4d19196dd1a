"""Nodes that cannot run the container: a clear row in the table of findings, with the fix."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.spec.container import DEFAULT_IMAGE

from ..jobs import names
from .case import Fault

NODES = ("node1", "node2")
ROW = "a node cannot run the container"


def check(fault: Fault, code: int, found: str, fix: str) -> None:
    """Check the exit code, and that the table of findings has each node once, with finding and fix."""
    job = fault.wait_end()
    assert job.code == f"{code}:0", job.log
    rows = [line for line in job.log.splitlines() if re.match(r"node\S+ +(?! |subordinate)", line)]
    assert sorted(name for row in rows for name in names(row.split()[0])) == list(NODES), job.log
    for row in rows:
        assert re.search(found, row), job.log
        assert fix.format(node=row.split()[0]) in row, job.log
    assert re.match(rf"failed \({code} [a-z ]+\): node[12]: ", job.last_line), job.log


@contextmanager
def on_both(cluster: SlurmCluster, do: str, undo: str) -> Iterator[None]:
    """Run a command on both nodes, and `undo` at the end."""
    try:
        for node in NODES:
            done = cluster.run(["bash", "-c", do], host=node)
            assert done.returncode == 0, done.stderr
        yield
    finally:
        for node in NODES:
            cluster.run(["bash", "-c", undo], host=node)


@pytest.mark.fault(ROW)
def test_an_image_that_is_not_there(fault: Fault) -> None:
    fault.submit(["true"], container={"image": "docker.io/none/such:1", "pull": "never"})
    check(fault, 66, "docker.io/none/such:1 .*is not on this node", f"{fault.runtime} load it on {{node}}")


@pytest.mark.fault(ROW)
def test_a_registry_out_of_reach(fault: Fault) -> None:
    fault.submit(["true"], container={"image": "docker.io/none/such:1"})
    check(fault, 66, f"{fault.runtime} pull", "{node} does not reach the registry: load the image there")


# A registry that has no image, or requires a login.
_REGISTRY = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Registry(BaseHTTPRequestHandler):
    def do_GET(self):
        code, error = (200, "") if sys.argv[1] == "404" and self.path == "/v2/" else REFUSED[sys.argv[1]]
        text = b'{"errors": [{"code": "%s", "message": "%s"}]}' % ((error.encode(),) * 2) if error else b"{}"
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(text)

    do_HEAD = do_GET

REFUSED = {"404": (404, "MANIFEST_UNKNOWN"), "401": (401, "UNAUTHORIZED")}
server = HTTPServer(("127.0.0.1", 5000), Registry)
print(1, flush=True)
server.serve_forever()
"""


@pytest.mark.fault(ROW)
@pytest.mark.full
@pytest.mark.parametrize("code", ["404", "401"])
def test_a_pull_is_refused(fault: Fault, cluster: SlurmCluster, code: str) -> None:
    # Docker allows plain HTTP on the loopback interface; Podman needs configuration for it.
    conf = r'[[registry]]\nlocation = "localhost:5000"\ninsecure = true\n'
    file = "/etc/containers/registries.conf"
    plain = f"printf '{conf}' >/run/registries.conf && mount --bind /run/registries.conf {file}"
    with ExitStack() as stack:
        for node in NODES:
            enter = ["nsenter", "-t", str(cluster.pids[node]), "-n", "setpriv", "--pdeathsig", "KILL"]
            argv = [*enter, sys.executable, "-c", _REGISTRY, code]
            server = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE))
            stack.callback(server.kill)
            assert server.stdout
            assert server.stdout.readline() == b"1\n"
        if fault.runtime == "podman":
            stack.enter_context(on_both(cluster, plain, f"umount {file}"))
        fault.submit(["true"], container={"image": "localhost:5000/none/such:1"})
        check(fault, 66, f"{fault.runtime} pull", "and whether {node} has to log in to the registry")


@pytest.mark.fault(ROW, "docker")
def test_no_daemon(fault: Fault, cluster: SlurmCluster) -> None:
    # Clients find the daemon by its socket.
    with on_both(cluster, "mv /run/docker.sock /run/away.sock", "mv /run/away.sock /run/docker.sock"):
        fault.submit(["true"])
        check(fault, 65, "container runtime .*docker", "start it on {node}: systemctl start docker")


@pytest.mark.fault(ROW, "docker")
def test_no_permission_on_the_socket(fault: Fault, cluster: SlurmCluster) -> None:
    with on_both(cluster, "chgrp root /run/docker.sock", "chgrp docker /run/docker.sock"):
        fault.submit(["true"])
        check(fault, 65, "permission denied", "as root on {node}: usermod --append --groups docker alice")


@pytest.mark.fault(ROW, "podman")
def test_no_subordinate_ids(fault: Fault, cluster: SlurmCluster) -> None:
    # Like most images, this one has a file that does not belong to root.
    with tarfile.open(fault.jobs.folder / "layer.tar", "w") as tar:
        shadow = tarfile.TarInfo("etc/shadow")
        shadow.gid = 42
        tar.addfile(shadow)
    recipe = fault.jobs.folder / "Containerfile"
    recipe.write_text("FROM scratch\nADD layer.tar /\n")

    def restart_podman() -> None:  # its pause process keeps the old ids
        for node in NODES:
            cluster.run(["podman", "system", "migrate"], "alice", node)

    hide = "for file in /etc/subuid /etc/subgid; do mount --bind /dev/null $file; done"
    with on_both(cluster, hide, "umount /etc/subuid /etc/subgid"):
        restart_podman()
        fault.submit(["true"], container={"image": "localhost/small:1", "build": {"file": str(recipe)}})
        check(
            fault,
            66,
            "podman build.*(invalid argument|UIDs)",
            "add alice:100000:65536 to /etc/subuid and /etc/subgid of {node}",
        )
    restart_podman()


@pytest.mark.fault(ROW)
@pytest.mark.full
def test_a_build_fails(fault: Fault) -> None:
    """A build command's error is not reported as the runtime's error, and its container is removed."""
    recipe = fault.jobs.folder / "Containerfile"
    recipe.write_text(f"FROM {DEFAULT_IMAGE}\nRUN no-such-program --timeout 5\n")
    fault.submit(["true"], container={"image": "localhost/small:1", "build": {"file": str(recipe)}})
    check(fault, 66, f"{fault.runtime} build", f"fix {recipe}: ")


@pytest.mark.fault(ROW, "podman")
def test_no_runtime(fault: Fault, cluster: SlurmCluster) -> None:
    hide = "install -m 644 /dev/null /run/no-program && mount --bind /run/no-program /usr/bin/podman"
    with on_both(cluster, hide, "umount /usr/bin/podman"):
        fault.submit(["true"])
        state = cluster.wait(fault.job, 60)[0]
    assert state == "FAILED"
    check(fault, 65, "cannot execute podman: Permission denied", "install it on {node}")
