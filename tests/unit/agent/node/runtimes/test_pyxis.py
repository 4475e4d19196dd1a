"""Options of pyxis for srun, and services in steps. tests/cluster/test_pyxis.py has a real pyxis."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from slurmray.agent import job_errors, script_parts
from slurmray.agent.node import runtimes
from tests.unit.agent.users import needs_root
from tests.unit.rendering.cases import hello

from ...fake_node import FakeNode

HANG = 20  # seconds
# Runs the task of a step on this machine.
SRUN = """while [ "$1" != sh ]; do echo "$1" >>"$OPTIONS"; shift; done
exec "$@"
"""


def test_step_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from slurmray.agent.node.runtimes import pyxis

    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setenv("SLURM_SUBMIT_DIR", "/submit")
    monkeypatch.setenv("SCRATCH", "/scratch")
    mounts = [
        {"source": "data/../x", "destination": "", "options": []},
        {"source": "~/y", "destination": "/y", "options": ["ro", "rslave"]},
        {"source": "/z", "destination": "/z", "options": []},
        {"source": "$SCRATCH/${SCRATCH}", "destination": "/$$", "options": []},
    ]
    node = FakeNode(tmp_path, {"mounts": mounts, "step_args": ["--container-mount-home"]}, temp_dir="/tmp")
    node.job["run_dir"] = "/runs/9-0"
    own = "/tmp:/tmp,/runs:/runs,/submit:/submit"
    assert pyxis.step_options(node.settings, node.job, "vllm/vllm-openai") == [
        "--no-container-remap-root",
        f"--container-mounts={own},/submit/x:/submit/x,/home/alice/y:/y:ro+rslave,/z:/z,/scratch/scratch:/$",
        "--container-image=vllm/vllm-openai",
        "--container-mount-home",
    ]
    for path in ("/a b", "/a,b", "/a\nb", "/a:b"):
        with pytest.raises(job_errors.JobError, match="pyxis cannot mount") as error:
            monkeypatch.setenv("SLURM_SUBMIT_DIR", path)
            pyxis.step_options(node.settings, node.job, "a")
        assert error.value.kind == "config"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """A node with the FIFOs of the service web."""
    node = FakeNode(
        tmp_path, {"accelerators": []}, services=[{"name": "web", "image": "x"}, {"name": "inside"}]
    ).make_folder()
    runtimes.make("pyxis", node).prepare()
    node.program("srun", SRUN)
    node.env |= {"OPTIONS": str(tmp_path / "options"), "SLURMD_NODENAME": "node1"}
    return node


@pytest.fixture
def step(node: FakeNode) -> Iterator[subprocess.Popen[bytes]]:
    """The step of the service web."""
    with start_step(node, node.folder) as step:
        yield step


@contextmanager
def start_step(node: FakeNode, head_folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the step of the service web. head_folder: the job's on the head node."""
    logs = Path(node.log_path).parent
    args = ["2", "4", head_folder, "web", str(logs), "--nodelist=node1"]
    argv = script_parts.story_command(hello("pyxis"), "start_service", *args)
    with (logs / "service-web.log").open("wb") as log:
        step = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=node.env, start_new_session=True
        )
    yield step
    with suppress(ProcessLookupError):
        os.killpg(step.pid, signal.SIGKILL)
    step.wait()


def use(node: FakeNode, service: str) -> subprocess.Popen[bytes]:
    """Begin the service, as HostServices does."""
    Path(node.inside, "service-web").write_text(service)
    _, function, *args = runtimes.make("pyxis", node).service_argv("web", "x", "")
    argv = script_parts.story_command(hello("pyxis"), function, *args)
    return subprocess.Popen(argv, stdin=subprocess.PIPE, env=node.env)


def wait_for(path: Path, begun: subprocess.Popen[bytes]) -> None:
    while not path.exists():
        assert begun.poll() is None
        time.sleep(0.01)


def test_a_service_in_a_step(node: FakeNode, step: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert not list(Path(node.inside).glob("*-inside"))
    # It ends by itself, while its tether is open.
    assert use(node, "echo output of $SLURMRAY_TEMP in $1; exit 3").wait(HANG) == 3
    output = f"output of {node.folder} in {node.env['SLURM_SUBMIT_DIR']}\n"
    assert Path(node.service_log_path("web")).read_text() == output
    assert use(node, "exit 0").wait(HANG) == 0
    # It ends when its tether does, and kills its process group.
    begun = use(node, f"echo >{tmp_path}/begun; read -r line; kill -KILL 0")
    wait_for(tmp_path / "begun", begun)
    assert begun.stdin
    begun.stdin.close()
    assert begun.wait(HANG) == 137
    for code in range(20):
        assert use(node, f"exit {code}").wait(HANG) == code
    assert step.poll() is None
    assert (Path(node.log_path).parent / "service-web.log").read_text() == ""
    options = (tmp_path / "options").read_text().split()
    assert {"--nodes=2", "--ntasks=2", "--cpus-per-task=4", "--nodelist=node1"} <= set(options)


@needs_root
@pytest.mark.attack("a job's folder that another user has made on the node")
@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_of_another_user(node: FakeNode, tmp_path: Path, is_link: bool) -> None:
    """The head node's has its name: this node's has other digits."""
    folder, hit = Path(node.folder[:-6] + "000000"), tmp_path / "hit"
    made = tmp_path / "elsewhere" if is_link else folder
    (made / "inside").mkdir(parents=True)
    os.mkfifo(made / "inside/tether-web")
    (made / "inside/service-web").write_text(f"touch {hit}\n")
    for path in (made, *made.rglob("*")):
        os.chown(path, 12345, 12345)
    if is_link:
        folder.symlink_to(made)
    with start_step(node, str(folder)) as step:
        assert use(node, "echo fine; exit 3").wait(HANG) == 3
        assert step.poll() is None
    assert not hit.exists()


def test_a_service_whose_step_is_killed(
    node: FakeNode, step: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Its client stays until the node agent ends it: the controller ends the job."""
    begun = use(node, f"echo >{tmp_path}/begun; read -r line")
    wait_for(tmp_path / "begun", begun)
    os.killpg(step.pid, signal.SIGKILL)
    step.wait()
    assert begun.poll() is None
    begun.kill()
    begun.wait()
