"""Images on a node: pull, load, build."""

import contextlib
import errno
import fcntl
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import hosts, job_errors
from slurmray.agent.node import image, pull, shared_image
from slurmray.agent.node.runtimes.podman import Podman

from ..fake_node import FakeNode

HANG = 60  # seconds
NAME = "rayproject/ray:2.60.0"
BUILD = {"file": "Dockerfile", "context": "."}


def make(folder: Path, podman: str, is_here: bool = False, **container: Any) -> tuple[FakeNode, Podman]:
    """A node with a podman that runs these commands; it has the image if the file `here` exists."""
    node = FakeNode(folder, container)
    if is_here:
        (folder / "here").touch()
    commands = f'cd {folder}\n[ "$1" = image ] && {{ [ -e here ]; exit; }}\necho "$@" >>calls\n{podman}'
    node.program("podman", commands)
    runtime = Podman(node)
    assert runtime.works()
    return node, runtime


def ensure(folder: Path, podman: str, is_here: bool = False, **container: Any) -> FakeNode:
    """Such a node, which has got its images."""
    node, runtime = make(folder, podman, is_here, **container)
    runtime.ensure_images()
    return node


@pytest.mark.parametrize(
    ("container", "is_here", "expected"),
    [
        ({}, True, []),
        ({}, False, [f"pull docker.io/{NAME}"]),
        ({"pull": "always"}, True, [f"pull docker.io/{NAME}"]),
        ({"pull": "always", "archive": "x.tar"}, True, []),
        ({"pull": "always", "build": BUILD}, True, []),
        ({"archive": "x.tar"}, False, ["load --input SUBMIT/x.tar"]),
        ({"build": BUILD}, False, [f"build --force-rm --tag {NAME} --file SUBMIT/Dockerfile SUBMIT/."]),
        ({"build": BUILD, "pull": "never"}, True, []),
        (
            {"build": BUILD, "pull": "never"},
            False,
            [f"build --force-rm --tag {NAME} --file SUBMIT/Dockerfile SUBMIT/."],
        ),
        ({"archive": "x.tar", "pull": "never"}, False, ["load --input SUBMIT/x.tar"]),
        ({"pull": "never"}, True, []),
    ],
)
def test_pull_load_or_build(
    tmp_path: Path, container: dict[str, Any], is_here: bool, expected: list[str]
) -> None:
    node, runtime = make(tmp_path, "touch here", is_here, **container)
    image.check_never_pulled(node, runtime)
    runtime.ensure_images()
    assert [call.replace(f"{tmp_path}/submit", "SUBMIT") for call in node.calls()] == expected
    assert node.findings == []
    assert not list((tmp_path / "tmp").iterdir())
    # A pulled image runs under the name by which it was pulled.
    assert runtime.image == (f"docker.io/{NAME}" if expected and "pull" in expected[0] else NAME)


@pytest.mark.parametrize("pull", ["missing", "always"])
def test_images_that_may_be_pulled(tmp_path: Path, pull: str) -> None:
    node, runtime = make(tmp_path, "", pull=pull)
    node.settings["services"] = [{"name": "web", "image": "nginx"}]
    image.check_never_pulled(node, runtime)
    assert node.findings == []


@pytest.mark.parametrize("container", [{}, {"build": BUILD}, {"archive": "x.tar"}])
def test_an_image_of_a_service_that_is_never_pulled(tmp_path: Path, container: dict[str, Any]) -> None:
    """The other one is here, built or loaded; a service without an image runs in Ray's container."""
    node, runtime = make(tmp_path, "", not container, pull="never", **container)
    node.settings["services"] = [{"name": "web", "image": "nginx"}, {"name": "data"}]
    (tmp_path / "here").unlink(missing_ok=True)
    image.check_never_pulled(node, runtime)
    assert [finding[:3] for finding in node.findings] == [("image", "nginx", "is not on this node")]


def test_an_image_that_is_never_pulled(tmp_path: Path) -> None:
    """A finding of the checks of the node."""
    node, runtime = make(tmp_path, "", pull="never")
    node.make_folder()
    node.settings["services"] = [{"name": "web", "image": "nginx"}]
    runtime.prepare()
    rest = ("is not on this node", "the image, as container.pull is never", "podman load it on node1")
    assert node.findings == [("image", NAME, *rest), ("image", "nginx", *rest)]
    assert not any(call.startswith("pull") for call in node.calls())


@pytest.mark.parametrize(
    ("answer", "good", "pulls", "is_found"),
    [
        ("toomanyrequests: You have reached your pull rate limit", 2, 2, True),
        ("received unexpected HTTP status: 503 Service Unavailable", 3, 3, True),
        ("net/http: TLS handshake timeout", 9, 3, False),
        ("dial tcp 10.0.0.1:443: i/o timeout", 9, 1, False),
        ("Get https://x/v2/: net/http: request canceled while waiting for connection (Timeout)", 9, 1, False),
        ("manifest unknown", 9, 1, False),
    ],
)
def test_a_pull_is_repeated_after_a_temporary_error(
    tmp_path: Path, answer: str, good: int, pulls: int, is_found: bool
) -> None:
    node, runtime = make(
        tmp_path, f"[ $(wc -l <calls) = {good} ] || {{ echo 'Error: {answer}' >&2; exit 1; }}"
    )
    node.job["nodes"] = [f"node{number}" for number in range(9)]
    runtime.ensure_images()
    assert len(node.calls()) == pulls
    jitter, *pauses = node.waited
    assert 0 <= jitter <= 2
    assert len(pauses) == pulls - 1
    assert all(10 * number <= pause <= 10 * number + 10 for number, pause in enumerate(pauses, 1))
    assert [finding[:4] for finding in node.findings] == (
        [] if is_found else [("image", "podman pull", f"Error: {answer}", f"docker.io/{NAME}")]
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "QUIET", 0.5)
    monkeypatch.setattr(pull, "CONNECT_TIMEOUT", 0.5)


@pytest.fixture
def registry() -> Iterator[socket.socket]:
    """It listens, and accepts nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        yield server


def connect(server: socket.socket) -> socket.socket:
    """A connection to a server. The first is made; the kernel drops those beyond the backlog."""
    made = socket.socket()
    made.setblocking(False)
    assert made.connect_ex(server.getsockname()) == errno.EINPROGRESS
    return made


def pull_from(server: socket.socket, folder: Path, podman: str) -> tuple[bool, FakeNode]:
    node, runtime = make(folder, f"echo Trying to pull x...; {podman}")
    return pull.pull(node, runtime, f"127.0.0.1:{server.getsockname()[1]}/none/such:1"), node


def test_a_pull_ends_when_podman_could_not_connect(tmp_path: Path) -> None:
    why = 'pinging container registry x: Get "https://x/v2/": dial tcp 10.0.0.1:443: i/o timeout'
    escaped = why.replace('"', '\\"')
    line = f'time="2026-11-27" level=warning msg="Failed, retrying in 1s ... (1/3). Error: {escaped}"'
    stay = f"trap 'exit 0' TERM; sleep {HANG} & wait"
    node = ensure(tmp_path, f"echo '{line}' >&2; {stay}")
    fix = "node1 does not reach the registry: load the image there beforehand"
    assert node.findings == [("image", "podman pull", why, f"docker.io/{NAME}", fix)]
    assert len(node.calls()) == 1


@pytest.mark.usefixtures("quick")
def test_a_pull_ends_when_nothing_answers(tmp_path: Path, registry: socket.socket) -> None:
    with connect(registry), connect(registry):
        is_pulled, node = pull_from(registry, tmp_path, f"exec sleep {HANG}")
    assert not is_pulled
    ((_, _, found, wanted, fix),) = node.findings
    assert found == f"no answer from 127.0.0.1:{registry.getsockname()[1]} for 1 s"
    assert fix == "node1 does not reach the registry: load the image there beforehand"
    assert node.phases[1] == f"image podman pull {wanted}: no answer from 127.0.0.1 for 0 s"
    assert len(node.calls()) == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("case", ["slow", "proxy or mirror", "progress", "another port"])
def test_a_pull_that_may_succeed_goes_on(
    tmp_path: Path, registry: socket.socket, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """The registry has accepted its connection, it connects elsewhere, or it has got an answer before."""
    podman = "sleep 3"
    if case == "progress":
        lost = "retrying in 1s ... (1/3). Error: dial tcp 10.0.0.1:443: i/o timeout"
        podman = f"echo Getting image source signatures; echo '{lost}'; {podman}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(connect(registry))
        if case in ("progress", "another port"):
            stack.enter_context(connect(registry))
        if case == "another port":
            other = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            names = [("127.0.0.1", "127.0.0.1", each.getsockname()[1]) for each in (registry, other)]
            monkeypatch.setattr(pull, "registry", lambda _: names)
        elif case == "proxy or mirror":
            monkeypatch.setattr(pull, "registry", lambda _: [("a", "a", 443)])
            monkeypatch.setattr(hosts, "resolve", lambda _: ["192.0.2.1"])  # for documentation: RFC 5737
        is_pulled, node = pull_from(registry, tmp_path, podman)
    assert is_pulled
    assert node.findings == []
    assert len([phase for phase in node.phases if "no answer" in phase]) == (case != "progress")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("docker.io/a/b:1", [("registry-1.docker.io", 443), ("registry-1.docker.io", 80)]),
        ("localhost:5000/a@sha256:1", [("localhost", 5000)]),
        ("[::1]:5000/a", [("[::1]", 5000)]),
        ("ghcr.io/a", [("ghcr.io", 443), ("ghcr.io", 80)]),
    ],
)
def test_the_registry_of_an_image(name: str, expected: list[tuple[str, int]]) -> None:
    assert [(host, port) for host, _, port in pull.registry(name)] == expected


def test_an_archive_with_another_image(tmp_path: Path) -> None:
    node = ensure(tmp_path, "", archive="x.tar")
    ((kind, check, found, wanted, fix),) = node.findings
    assert (kind, check, wanted) == ("image", f"{tmp_path}/submit/x.tar", NAME)
    assert (found, fix) == (
        "has no image of that name",
        "set container.image to the name that podman load prints",
    )


def test_an_archive_that_cannot_be_loaded(tmp_path: Path) -> None:
    node = ensure(tmp_path, "echo 'Error: payload does not match' >&2; exit 125", archive="x.tar")
    ((kind, check, found, wanted, fix),) = node.findings
    assert (kind, check, found) == ("image", "podman load", "Error: payload does not match")
    assert (wanted, fix) == (NAME, "run it on node1 by hand")
    assert not list((tmp_path / "tmp").iterdir())


def test_an_image_that_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With container.stage, unless it is here; an archive is loaded on each node all the same."""
    shared: list[str] = []
    monkeypatch.setattr(shared_image, "ensure", lambda _, runtime, *__: shared.append(runtime.image))
    for number, (is_here, container) in enumerate([(False, {}), (True, {}), (False, {"archive": "x.tar"})]):
        (tmp_path / str(number)).mkdir()
        node = ensure(tmp_path / str(number), "touch here", is_here, stage="shared", **container)
        assert node.findings == []
    assert shared == [NAME]


def test_a_build_that_fails(tmp_path: Path) -> None:
    message = "ERROR: failed to solve: process x did not complete successfully: exit code: 127"
    node = ensure(tmp_path, f"echo '{message}' >&2; exit 1", build=BUILD)
    fix = f"fix Dockerfile: {node.log_path} has the complete output"
    assert node.findings == [("image", "podman build", message, NAME, fix)]
    assert not list((tmp_path / "temp").iterdir())


def lock_file(node: FakeNode) -> Path:
    return node.root / f"temp/slurmray-build-{os.geteuid()}"


def test_one_job_builds_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next job finds the image, although the first one has removed the lock file."""
    node, runtime = make(tmp_path, "touch here", build=BUILD)
    other = lock_file(node).open("w")
    fcntl.flock(other, fcntl.LOCK_EX)
    waits: list[str] = []

    def wait(seconds: float) -> None:
        waits.append(node.doing)
        time.sleep(seconds / 100)
        if len(waits) == 3:
            (tmp_path / "here").touch()
            lock_file(node).unlink()
            other.close()

    monkeypatch.setattr(node, "wait", wait)
    runtime.ensure_images()
    assert waits == ["build"] * 3
    assert node.doing == ""
    assert node.calls() == []
    assert node.phases == ["image waiting for the build of another job on this node"] * 3
    assert not lock_file(node).exists()


def test_the_lock_is_held_during_the_build(tmp_path: Path) -> None:
    check = f"stat -c %a {tmp_path}/temp/slurmray-build-* >mode; "
    check += f"flock --nonblock {tmp_path}/temp/slurmray-build-* true && exit 9; touch here"
    node = ensure(tmp_path, check, build=BUILD)
    assert node.findings == []
    assert (tmp_path / "mode").read_text() == "600\n"  # nobody else can lock it


def test_a_lock_on_a_file_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner has removed it between open() and flock()."""
    node, runtime = make(tmp_path, "touch here", build=BUILD)
    real = fcntl.flock
    files: list[int] = []

    def flock(handle: int, flags: int) -> None:
        if not files:
            lock_file(node).unlink()
        files.append(os.fstat(handle).st_nlink)
        real(handle, flags)

    monkeypatch.setattr(fcntl, "flock", flock)
    runtime.ensure_images()
    assert files == [0, 1]


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_link_or_folder_is_not_used_as_lock_file(tmp_path: Path, kind: str) -> None:
    node, runtime = make(tmp_path, "touch here", build=BUILD)
    if kind == "link":
        lock_file(node).symlink_to(tmp_path / "theirs")
    else:
        lock_file(node).mkdir()
    runtime.ensure_images()
    assert node.calls()[0].startswith("build ")
    assert not (tmp_path / "theirs").exists()
    assert lock_file(node).is_symlink() == (kind == "link")


def test_a_lock_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, runtime = make(tmp_path, "touch here", build=BUILD)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    lock_file(node).touch()
    runtime.ensure_images()
    assert node.calls()[0].startswith("build ")
    assert lock_file(node).exists()


def test_a_wait_that_is_stopped_leaves_no_lock(tmp_path: Path) -> None:
    node, runtime = make(tmp_path, "touch here", build=BUILD)
    other = lock_file(node).open("w")
    fcntl.flock(other, fcntl.LOCK_EX)
    node.is_stopped = True
    with pytest.raises(job_errors.Stopped):
        runtime.ensure_images()
    assert node.doing == ""
    other.close()


@pytest.mark.attack("folders and links in place of temporary names", inputs=3)
def test_names_that_others_make_beforehand_stop_no_pull(tmp_path: Path) -> None:
    node, runtime = make(tmp_path, f'touch "$TMPDIR/layer" && echo "$TMPDIR" >{tmp_path}/where')
    (tmp_path / "theirs").mkdir()
    (tmp_path / "tmp/slurmray-9-0-node1").symlink_to(tmp_path / "theirs")
    (tmp_path / "tmp/slurmray-9-0-node1-00000000").mkdir()
    (tmp_path / "tmp/slurmray-9-0-node1-ffffffff").touch()
    before = sorted((tmp_path / "tmp").iterdir())
    runtime.ensure_images()
    assert node.findings == []
    assert re.fullmatch(
        f"{tmp_path}/tmp/slurmray-9-0-node1-[0-9a-f]{{8}}\n", (tmp_path / "where").read_text()
    )
    assert not list((tmp_path / "theirs").iterdir())
    assert sorted((tmp_path / "tmp").iterdir()) == before


@pytest.mark.attack("FIFOs in place of files", inputs=1)
def test_a_fifo_as_lock_stops_no_build(tmp_path: Path) -> None:
    _, runtime = make(tmp_path, "touch here", build=BUILD)
    os.mkfifo(tmp_path / f"temp/slurmray-build-{os.geteuid()}")
    runtime.ensure_images()
    assert (tmp_path / "here").exists()


def test_two_jobs_build_once(tmp_path: Path) -> None:
    program = "echo x >>built; sleep 0.3; touch here"
    made = [make(tmp_path, program, build=BUILD) for _ in range(2)]
    for node, _ in made:
        node.wait = lambda seconds: time.sleep(seconds / 50)  # type: ignore[method-assign]
    threads = [threading.Thread(target=runtime.ensure_images) for _, runtime in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "built").read_text() == "x\n"
