"""Podman and Docker: which one is chosen, its options, and how its containers are removed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import job_errors
from slurmray.agent.node import runtimes
from slurmray.agent.node.facts import user_name
from slurmray.agent.node.runtimes import docker, limits, podman, podman_or_docker

from ...fake_node import FakeNode
from ...test_fixes import DENIED, NO_DAEMON

HAS_IMAGE, HAS_NO_IMAGE = "exit 0", "exit 1"
NO_FIELD = (
    '\ntemplate: :1:2: executing "" at <.ServerVersion>: '
    "reflect: indirection through nil pointer to embedded struct field Info"
)
ID = "0123456789ab" + "0" * 52


def docker_client(
    image: str, security: str = "[name=seccomp,profile=builtin]", driver: str = "systemd"
) -> str:
    return f"""case "$1 $*" in
version*) echo 28.2.2 ;;
*SecurityOptions*) echo '{security}' ;;
*CgroupDriver*) echo {driver} ;;
image*) {image} ;;
esac"""


@pytest.mark.parametrize(
    ("podman", "docker_image", "expected"),
    [
        (HAS_IMAGE, HAS_IMAGE, "podman"),
        (HAS_NO_IMAGE, HAS_IMAGE, "docker"),
        (HAS_NO_IMAGE, HAS_NO_IMAGE, "podman"),
        ("exit 125", HAS_NO_IMAGE, "docker"),
        (None, HAS_IMAGE, "docker"),
    ],
)
def test_the_runtime_that_has_the_image(
    tmp_path: Path, podman: str | None, docker_image: str, expected: str
) -> None:
    node = FakeNode(tmp_path, {"runtimes": ["podman", "docker"]})
    node.env["PATH"] = f"{tmp_path}/bin"
    if podman:
        node.program("podman", podman)
    node.program("docker", docker_client(docker_image))
    assert runtimes.choose(node).name == expected
    assert node.findings == []


def test_no_runtime_works(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, {"runtimes": ["podman", "docker"]})
    node.env["PATH"] = f"{tmp_path}/bin"
    with pytest.raises(job_errors.Unfit):
        runtimes.choose(node)
    fix = "install it on node1, load its module in setup, or set container.runtime"
    why = "podman: not found; docker: not found"
    assert node.findings == [("preflight", "container runtime", why, "podman or docker", fix)]


@pytest.mark.parametrize(
    ("why", "info", "fix"),
    [
        pytest.param(NO_DAEMON, NO_FIELD, "start it on node1: systemctl start docker", id="20.10-no-daemon"),
        pytest.param(DENIED, NO_FIELD, "usermod --append --groups docker", id="20.10-denied"),
        pytest.param(NO_DAEMON, NO_DAEMON, "start it on node1: systemctl start docker", id="28.2-no-daemon"),
        pytest.param(DENIED, DENIED, "usermod --append --groups docker", id="28.2-denied"),
    ],
)
def test_docker_without_its_daemon(tmp_path: Path, why: str, info: str, fix: str) -> None:
    (tmp_path / "version").write_text(why)
    (tmp_path / "info").write_text(info)
    node = FakeNode(tmp_path, {"runtimes": ["docker"]}).program("docker", f'cat "{tmp_path}/$1" >&2\nexit 1')
    with pytest.raises(job_errors.Unfit):
        runtimes.choose(node)
    ((_, _, found, _, given),) = node.findings
    assert found == why
    assert fix in given


def test_a_podman_without_its_pause_process(node: FakeNode) -> None:
    message = 'invalid internal status, try resetting the pause process with "podman system migrate": gone'
    node.program("podman", f"echo '{message}' >&2; exit 1")
    with pytest.raises(job_errors.Unfit):
        runtimes.choose(node)
    assert node.findings[0][4] == f"on node1, as {user_name()}: podman system migrate"


def test_a_podman_without_subordinate_ids(node: FakeNode) -> None:
    """It still works for a local image."""
    node.program("podman", "echo 'level=error msg=\"... no subuid ranges found for user\"' >&2")
    runtime = runtimes.choose(node)
    runtime.works()
    ((kind, check, *_, fix),) = node.findings
    assert (kind, check) == ("warn", "subordinate ids")
    assert f"add {user_name()}:100000:65536 to /etc/subuid" in fix


def prepared(node: FakeNode, monkeypatch: pytest.MonkeyPatch, group: str = "") -> podman_or_docker.Engine:
    monkeypatch.setattr(podman_or_docker, "step_cgroup", lambda: group)
    node.make_folder()
    runtime = runtimes.choose(node)
    assert isinstance(runtime, podman_or_docker.Engine)
    runtime.prepare()
    return runtime


def test_podman_s_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container = {"shm_size": "8g", "args": ["--ulimit", "core=0"], "python": "/opt/venv/python"}
    node = FakeNode(tmp_path, container).program("podman", HAS_IMAGE)
    runtime = prepared(node, monkeypatch)
    mounts = [
        f'type=bind,"source={source}","target={target}"'
        for source, target in ((node.inside, node.folder), (f"{tmp_path}/submit", f"{tmp_path}/submit"))
    ]
    options = [
        *["--label", "slurmray.job=9", "--label", "slurmray.node=node1"],
        *[
            "--label",
            f"slurmray.user={user_name()}",
            "--label",
            "slurmray.mark=abcdef0123",
            "--shm-size",
            "8g",
        ],
        *["--user", "0:0", "--annotation", "run.oci.keep_original_groups=1"],
        *["--mount", mounts[0], "--mount", mounts[1], "--ulimit", "core=0"],
    ]
    assert runtime.options == options
    image = "rayproject/ray:2.60.0"
    agent = ["-I", f"{node.folder}/agent", "container", "node1"]
    begin = ["story", "run_with_podman", "podman"]
    python = ["--entrypoint", "/opt/venv/python"]  # before container.args
    assert runtime.argv() == [
        *[*begin, "slurmray-9-0-node1", image, str(len(options) + 2), *python, *options, *agent],
    ]
    assert runtime.service_argv("web", "nginx", f"{node.inside}/service-web") == [
        *[
            *begin,
            "slurmray-9-0-node1-web",
            "nginx",
            str(len(options) + 2),
            *options,
            "--entrypoint",
            "/bin/sh",
        ],
        *[f"{node.folder}/service-web", f"{tmp_path}/submit"],
    ]
    assert runtime.description == f"podman run {image}"


def test_a_container_in_the_job_s_cgroup(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Podman before 5.2 leaves it with the help of the user's systemd. A container outside it is logged."""
    node.program("podman", '[ "$1" != info ] || echo crun')
    runtime = prepared(node, monkeypatch, "4:memory:/slurm/job_9/step_0/task_0")
    argv = runtime.argv()
    assert argv[:3] == ["env", "DBUS_SESSION_BUS_ADDRESS=unix:path=/dev/null", "story"]
    assert "--cgroups=disabled" in argv
    path = Path(argv[argv.index("--pidfile") + 1])
    assert path == Path(node.folder, "slurmray-9-0-node1.pid")
    assert not runtime.check()
    path.touch()
    assert not runtime.check()
    with subprocess.Popen(["sleep", "60"]) as process:
        path.write_text(str(process.pid))
        assert runtime.check()
        own = limits.read_cgroups("self")
        assert node.findings == []
        monkeypatch.setattr(
            podman, "read_cgroups", lambda pid: own if pid == "self" else [*own[:-1], "0::/user.slice"]
        )
        assert runtime.check()
        process.kill()
    fix = "Slurm's limits do not hold for it: ask the site why podman leaves them on node1"
    assert node.findings == [("warn", "cgroup", "the container is in 0::/user.slice", "the job's", fix)]


def test_a_container_without_a_cgroup_of_the_job(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.program("podman", HAS_IMAGE)
    runtime = prepared(node, monkeypatch)
    assert "--pidfile" not in runtime.argv()
    assert runtime.check()
    phase = "container jobs have no cgroups here, so containers get no CPU and memory limits"
    assert (node.phases, node.findings) == ([phase], [])


@pytest.mark.parametrize(
    ("group", "is_foreign"), [("0::/slurmstepd.scope/s1/step_0/user/abc", False), ("0::/docker/abc", True)]
)
def test_a_docker_container_below_the_job_s_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, is_foreign: bool
) -> None:
    """It is looked at once it has a process."""
    node = FakeNode(tmp_path, {"runtimes": ["docker"], "user": "image"})
    pid = f'ps*) cat "{tmp_path}/ids" ;;\ninspect*) cat "{tmp_path}/pid" ;;\nesac'
    node.program("docker", docker_client(HAS_IMAGE, driver="cgroupfs").replace("esac", pid))
    runtime = prepared(node, monkeypatch, "0::/slurmstepd.scope/s1/step_0/user/task_0")
    for ids, content in (("", ""), (ID, "0\n")):
        (tmp_path / "ids").write_text(ids)
        (tmp_path / "pid").write_text(content)
        assert not runtime.check()
    (tmp_path / "pid").write_text("77\n")
    monkeypatch.setattr(docker, "read_cgroups", {"77": [group]}.__getitem__)
    assert runtime.check()
    assert [row[2] for row in node.findings] == ["the container is in " + group] * is_foreign


@pytest.mark.parametrize(
    ("version", "cause"),
    [("3.4.4", "Podman 3.4 is too old: slurmray needs 4.0 or later"), ("4.0.0", ""), ("5.8.1", ""), ("", "")],
)
def test_the_cause_of_a_container_that_fails(version: str, cause: str, node: FakeNode) -> None:
    node.program("podman", f'[ "$1" != version ] || echo {version}')
    assert podman.Podman(node).likely_cause() == cause


def test_a_program_in_place_of_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = FakeNode(tmp_path, {"command": "podman-hpc"}).program("podman-hpc", HAS_IMAGE)
    runtime = prepared(node, monkeypatch)
    runtime.remove()
    assert {argv[0] for argv in node.commands} == {"podman-hpc"}
    assert runtime.argv()[:3] == ["story", "run_with_podman", "podman-hpc"]
    assert runtime.description == "podman-hpc run rayproject/ray:2.60.0"


def test_attached_podman_has_the_job_s_login_session(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attaching shell has the submitter's variables, of which the node may have dropped some."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/2000")
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    assert runtimes.make("podman", node).unset == ["XDG_RUNTIME_DIR"]
    node.env["XDG_RUNTIME_DIR"] = "/run/user/2000"
    assert runtimes.make("podman", node).unset == []


def test_default_shm_size_is_the_node_s(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.program("podman", HAS_IMAGE)
    options = prepared(node, monkeypatch).options
    df = subprocess.check_output(["df", "--block-size=1", "--output=size", "/dev/shm"], text=True)
    assert options[options.index("--shm-size") + 1] == df.split()[-1]


@pytest.mark.parametrize(
    ("name", "user", "security", "expected"),
    [
        ("podman", "image", "", []),
        ("docker", "image", "[]", []),
        ("docker", "auto", "[name=rootless]", ["--user", "0:0"]),
        (
            "docker",
            "auto",
            "[]",
            ["--user", f"{os.getuid()}:{os.getgid()}", "--group-add=44", "--group-add=1234"],
        ),
    ],
)
def test_user_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, user: str, security: str, expected: list[str]
) -> None:
    node = FakeNode(tmp_path, {"user": user, "runtimes": [name], "shm_size": "1g"}).program(
        "podman", HAS_IMAGE
    )
    node.program("docker", docker_client(HAS_IMAGE, security))
    monkeypatch.setattr(os, "getgroups", lambda: [44, 1234])  # root often has none
    options = prepared(node, monkeypatch).options
    assert options[options.index("1g") + 1 : options.index("--mount")] == expected


@pytest.mark.parametrize(
    ("name", "group", "program", "expected"),
    [
        ("podman", "", "echo crun", []),
        ("podman", "0::/slurm/job_9/step_0/task_0", "echo crun", ["--cgroups=disabled"]),
        ("podman", "0::/slurm/job_9/step_0/task_0", "echo runc", ["--memory", "300m"]),
        (
            "docker",
            "0::/slurm/job_9/step_0/user/task_0",
            docker_client(HAS_IMAGE, driver="cgroupfs"),
            ["--cgroup-parent", "/slurm/job_9/step_0/user"],
        ),
        ("docker", "0::/slurm/job_9/step_0/user/task_0", docker_client(HAS_IMAGE), ["--memory", "300m"]),
        (
            "docker",
            "7:memory:/slurm/uid_0/job_9/step_0",
            docker_client(HAS_IMAGE, driver="cgroupfs"),
            ["--memory", "300m"],
        ),
    ],
)
def test_limit_options(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    group: str,
    program: str,
    expected: list[str],
) -> None:
    node = FakeNode(tmp_path, {"user": "image", "runtimes": [name], "shm_size": "1g"})
    node.env["SLURM_MEM_PER_NODE"] = "300"
    node.program(name, program)
    monkeypatch.setattr(limits, "_allowed_cpus", lambda _: "")
    options = prepared(node, monkeypatch, group).options
    assert options[options.index("1g") + 1 : options.index("--mount")] == expected
    assert any("leaves the job's cgroup" in phase for phase in node.phases) == ("--memory" in expected)


@pytest.mark.parametrize(
    ("kind", "file_system", "mode", "expected"),
    [
        ("remote", "nfs", 0o700, "home/alice"),
        ("remote", "nfs", 0o704, "home/alice"),  # others may list it, and not enter it
        ("remote", "nfs", 0o701, "home/alice/data"),
        ("rootless", "nfs", 0o700, "home/alice/data"),
        ("local", "ext2/ext3", 0o700, "home/alice/data"),
    ],
)
def test_reachable_path_of_docker(kind: str, file_system: str, mode: int, expected: str) -> None:
    """Many network file systems treat root as nobody."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # pytest's folders have mode 700
        folder = Path(name)
        folder.chmod(0o755)
        node = FakeNode(folder, {"runtimes": ["docker"]})
        (folder / "home/alice/data").mkdir(parents=True)
        (folder / "home/alice").chmod(mode)
        node.program("docker", docker_client(HAS_IMAGE, f"[name={kind}]"))
        node.program("stat", f"echo {file_system}")
        runtime = docker.Docker(node)
        assert runtime.works()
        assert runtime.reachable_path(f"{folder}/home/alice/data") == f"{folder}/{expected}"


def engine_with(node: FakeNode, answers: list[str], name: str = "podman") -> Any:
    """A runtime whose `ps` gives these answers in order, and then always the last one."""
    for number, answer in enumerate(answers):
        (node.root / f"ps{number}").write_text(answer)
    node.program(
        name,
        f"""cd {node.root}
echo "$@" >>calls
[ "$1" = ps ] || exit 1
n=$(cat count 2>/dev/null || echo 0)
[ $n -ge {len(answers) - 1} ] || echo $((n + 1)) >count
cat ps$n
case $(cat ps$n) in *bad) exit 1 ;; esac""",
    )
    return runtimes.make(name, node)


PS = "ps --all --quiet --no-trunc --filter label=slurmray.mark=abcdef0123"


@pytest.mark.parametrize("name", ["podman", "docker"])
@pytest.mark.parametrize(
    ("answers", "is_gone", "calls"),
    [
        ([""], True, [PS]),
        ([f"{ID}\n", ""], True, [PS, "kill ID", "rm --force --volumes ID", PS]),
        ([f"{ID}\n{ID}\n", ""], True, [PS, *["kill ID", "rm --force --volumes ID"] * 2, PS]),
        ([f"{ID}\n"], False, [PS, "kill ID", "rm --force --volumes ID", PS]),
        (["bad"], False, [PS]),
        (["--all\n"], False, [PS]),
    ],
)
def test_containers_are_removed_by_their_mark(
    tmp_path: Path, name: str, answers: list[str], is_gone: bool, calls: list[str]
) -> None:
    """The exit codes of `kill` and `rm` do not matter, only whether `ps` still lists the container."""
    runtime = engine_with(FakeNode(tmp_path), answers, name)
    assert runtime.remove() == is_gone
    assert (tmp_path / "calls").read_text().replace(ID, "ID").splitlines() == calls


def test_one_container_that_is_gone_keeps_no_other(node: FakeNode, tmp_path: Path) -> None:
    """Podman 4.3.1 removes none of several ids if it does not know one of them, and exits with 0."""
    gone, left = "f" * 64, ID
    (tmp_path / left).touch()
    node.program(
        "podman",
        f"""cd {tmp_path}
verb=$1; shift
case $verb in
ps) if [ -e {left} ]; then echo {gone}; echo {left}; fi ;;
kill) for id; do [ -e $id ] || {{ echo "Error: no container with name or ID \\"$id\\"" >&2; exit 125; }}
    done ;;
rm) for id; do case $id in -*) ;; *) [ -e $id ] || exit 0 ;; esac; done
    for id; do case $id in -*) ;; *) rm $id ;; esac; done ;;
esac""",
    )
    assert runtimes.make("podman", node).remove()


def test_a_daemon_of_a_host_service_is_killed(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, services=[{"name": "web", "host": True}])
    env = {**node.env, "SLURMRAY_TEMP": node.folder, "SLURM_JOB_ID": "9"}
    program = "import time; print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        process.stdout.readline()
        assert engine_with(node, [""]).remove()
        assert process.wait(5) == -9


def test_service_images(tmp_path: Path) -> None:
    services = [
        {"name": "a", "image": "nginx", "image_with_registry": "docker.io/library/nginx"},
        {"name": "b", "host": True},
        {"name": "c", "image": "x/here", "image_with_registry": "docker.io/x/here"},
    ]
    node = FakeNode(tmp_path, services=services).program(
        "podman", f'[ "$1" = pull ] && echo "$2" >>{tmp_path}/pulled || [ "$3" = x/here ]'
    )
    runtime = podman.Podman(node)
    runtime.image_is_here = True
    runtime.ensure_images()
    assert (tmp_path / "pulled").read_text() == "docker.io/library/nginx\n"
