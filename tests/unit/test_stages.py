"""What is done before the trainer starts and runs beside it; on the real Slurm: tests/cluster."""

import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurmray.plan import make_plan
from slurmray.rendering import template_root
from slurmray.spec import JobSpec

# They have no package: in the container they lie side by side in one folder.
sys.path.insert(0, str(template_root() / "node"))
children: Any = importlib.import_module("children")
Records: Any = importlib.import_module("records").Records
stages: Any = importlib.import_module("stages")
ready_program: Any = importlib.import_module("ready")
services: Any = importlib.import_module("services")
NOT_IN_TIME = services.NOT_IN_TIME
GiveUp: Any = importlib.import_module("give_up").GiveUp
sys.path.pop(0)


class Node(Records):  # type: ignore[misc] # programs of nodes have no types
    """What stages ask of a node, with real children; `said` is what the batch script would hear."""

    def __init__(self, folder: Path, spec: dict[str, Any], name: str = "gpu-1") -> None:
        plan = make_plan(JobSpec.model_validate(spec), "", template_root() / "node")
        super().__init__(name)
        self.conf["nodes"] = ["gpu-1", "gpu-2"]
        mine = [f"rank={0 if name == 'gpu-1' else 1}", "job=7-1"]
        for key, _, value in (record.partition("=") for record in [*plan.records, *mine]):
            self.conf.setdefault(key, []).append(value)
        self.temp_dir = str(folder)
        shutil.copy(template_root() / "node/ready.py", folder)
        self.said: list[tuple[str, ...]] = []
        self.children = children.Children(self.ended)
        self.is_whole = False
        self.deadline: float | None = None
        env = {"PATH": os.environ["PATH"], "OF_RAY": "1"}
        self.ray = SimpleNamespace(env=env, place=lambda: "10.0.0.1:6379")
        self.stages = stages.Stages(self)

    def say(self, *words: str) -> None:
        self.said.append(words)

    def until_said(self, *words: str) -> None:
        self.until(lambda: words in self.said)

    def ended(self, role: str, code: int) -> None:
        self.stages.ended(role, code)

    def until(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + 30  # bounds a hang
        while not holds():
            assert time.monotonic() < deadline, self.said
            self.children.reap()
            time.sleep(0.02)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    made: list[Node] = []

    def make(name: str = "gpu-1", **spec: Any) -> Node:
        made.append(Node(tmp_path, spec, name))
        return made[-1]

    yield make
    for each in made:
        each.children.ended = lambda *_: None
        for pid in each.children.roles:
            os.killpg(pid, 9)
        for pid in list(each.children.roles):
            os.waitpid(pid, 0)


def write(path: Path, *words: str) -> str:
    return f"echo {' '.join(words)} >>{path}"


def test_the_order(node: Callable[..., Node], tmp_path: Path) -> None:
    log = tmp_path / "log"
    one = node(
        prepare=[
            {"name": "one", "run": write(log, "one")},
            {"name": "late", "run": write(log, "late $RAY_ADDRESS"), "needs_ray": True},
            {
                "name": "two",
                "run": write(log, "two $NODE_RANK $NNODES $SLURMRAY_ATTEMPT $OF_RAY-$RAY_ADDRESS"),
            },
        ],
        services=[{"name": "reward", "run": write(log, "reward") + "; sleep 60"}],
    )
    one.stages.begin()
    one.until_said("done", "gpu-1", "prepare")
    assert log.read_text() == "one\ntwo 0 2 1 1-\n"
    assert one.stages.progress.doing() == "prepare"
    one.stages.record("gpu-1", "prepare")
    assert one.said[-1] == ("phase", "prepare", "1/2 nodes, waiting for gpu-2")
    assert "reward" not in log.read_text()
    one.stages.record("gpu-2", "prepare")
    one.until(lambda: "reward" in log.read_text())
    assert ("done", "gpu-1", "services") in one.said
    assert "late" not in log.read_text()
    one.is_whole = True
    one.stages.begin()
    one.until_said("done", "gpu-1", "prepare-with-ray")
    assert "late 10.0.0.1:6379\n" in log.read_text()
    for stage in ("services", "prepare-with-ray"):
        assert not one.stages.are_done()
        for name in ("gpu-1", "gpu-2"):
            one.stages.record(name, stage)
    assert one.stages.are_done()
    assert one.stages.progress.doing() == ""


def test_what_takes_long_is_told_of_once_a_minute(node: Callable[..., Node]) -> None:
    one = node(services=[{"name": "reward", "run": "sleep 60"}])
    one.stages.begin()
    one.stages.progress.mind()
    assert ("alive", "services") in one.said
    assert not [words for words in one.said if "waiting for" in words[-1]]
    one.stages.progress.begun["services"] -= 121
    one.stages.record("gpu-1", "services")
    one.stages.progress.mind()
    assert one.said[-1] == ("phase", "services", "1/2 nodes, waiting for gpu-2"), "5 s are not over"
    for _ in range(2):
        one.stages.progress.alive_at = 0.0
        one.stages.progress.mind()
    told = ("phase", "services", "1/2 nodes after 2 min, waiting for gpu-2")
    assert one.said[-3:] == [("alive", "services"), told, ("alive", "services")]


def test_why_a_service_is_not_ready_is_said_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ready_program, "SAY_EVERY", 0.1)
    monkeypatch.setattr(sys, "argv", ["ready.py", json.dumps({"tcp": "127.0.0.1:9", "timeout": 1})])
    assert ready_program.main() == NOT_IN_TIME
    assert "not ready yet: [Errno 111] Connection refused\n" in capsys.readouterr().err


def test_a_worker_has_nothing_to_do_for_the_head(node: Callable[..., Node]) -> None:
    worker = node("gpu-2", prepare=[{"name": "data", "run": "exit 1"}])
    worker.stages.begin()
    assert worker.said == [("done", "gpu-2", "prepare")]


@pytest.mark.parametrize("run", ["exit 3", ["/no/such/program"]])
def test_a_command_that_fails(node: Callable[..., Node], run: object) -> None:
    one = node(prepare=[{"name": "data", "run": run}])
    with pytest.raises(GiveUp) as caught:
        one.stages.begin()
        one.until(lambda: False)
    kind, text = caught.value.args
    assert kind == "prepare"
    assert text in ("data ended with 3", "data: /no/such/program: No such file or directory")


def test_what_is_not_done_twice(node: Callable[..., Node], tmp_path: Path) -> None:
    log = tmp_path / "log"
    items = [
        {"name": "data", "run": write(log, "data"), "once": True},
        {"name": "model", "run": write(log, "model"), "once": True, "where": "all"},
        {"name": "each", "run": write(log, "each")},
    ]
    first = node(prepare=items)
    first.stages.begin()
    first.until_said("done", "gpu-1", "prepare")
    marks = [words[1] for words in first.said if words[0] == "prepared"]
    assert marks == ["data", "model@gpu-1"]
    for name, expected in (("gpu-1", "each\n"), ("gpu-2", "model\n")):
        log.write_text("")
        again = node(name, prepare=items)
        again.conf["skip"] = marks
        again.stages.begin()
        again.until_said("done", name, "prepare")
        assert log.read_text() == expected


def test_the_grace_of_a_command(node: Callable[..., Node], tmp_path: Path) -> None:
    log = tmp_path / "log"
    save = f"trap 'echo saved >>{log}; exit 3' USR1; echo up >>{log}; while :; do sleep 0.05; done"
    items = [{"name": "data", "run": save, "once": True}, {"name": "next", "run": write(log, "next")}]
    one = node(prepare=items, services=[{"name": "reward", "run": write(log, "reward")}])
    one.stages.begin()
    one.until(lambda: log.exists() and log.read_text() == "up\n")
    one.deadline = time.monotonic() + 60
    assert one.stages.send("USR1")
    one.until_said("done", "gpu-1", "prepare")
    one.stages.record("gpu-1", "prepare")
    assert one.stages.send("USR1"), "the one of another node runs"
    with pytest.raises(SystemExit):
        one.stages.record("gpu-2", "prepare")
    assert not one.stages.are_done()
    assert not one.children.roles
    assert log.read_text() == "up\nsaved\n"
    assert "prepared" not in [words[0] for words in one.said]


def test_a_service_starts_again_so_often(node: Callable[..., Node], tmp_path: Path) -> None:
    log = tmp_path / "log"
    one = node(services=[{"name": "reward", "run": write(log, "begins") + "; exit 5", "restarts": 2}])
    with pytest.raises(GiveUp) as caught:
        one.stages.begin()
        one.until(lambda: False)
    assert caught.value.args == ("service", "reward ended with 5")
    assert log.read_text() == "begins\n" * 3
    again = [words[2] for words in one.said if "starts again" in words[-1]]
    assert again == [f"reward ended with 5 on gpu-1 and starts again, {count} of 2" for count in (1, 2)]


def test_a_service_whose_end_is_only_logged(node: Callable[..., Node]) -> None:
    one = node(services=[{"name": "reward", "run": "exit 5", "on_end": "ignore"}])
    one.stages.begin()
    one.until_said("phase", "services", "reward ended with 5 on gpu-1; the job goes on")


def test_a_service_that_ends_before_it_is_ready(node: Callable[..., Node]) -> None:
    service = {"name": "reward", "run": "exit 5", "on_end": "ignore", "ready": {"run": "exit 1"}}
    one = node(services=[service])
    with pytest.raises(GiveUp) as caught:
        one.stages.begin()
        one.until(lambda: False)
    assert caught.value.args == ("service", "reward ended with 5")


def test_the_gpus_of_services(node: Callable[..., Node], tmp_path: Path) -> None:
    log = tmp_path / "log"
    show = f'echo "$NAME: $CUDA_VISIBLE_DEVICES" >>{log}; sleep 60'
    one = node(
        slurm={"gpus_per_node": "8"},
        services=[
            {"name": name, "run": show, "env": {"NAME": name}, "gpus": gpus}
            for name, gpus in (("a", 2), ("b", 0), ("c", 1))
        ],
    )
    one.stages.begin()
    one.until(lambda: log.exists() and log.read_text().count("\n") == 3)
    assert set(log.read_text().splitlines()) == {"a: 5,6", "b: ", "c: 7"}
    assert one.stages.mask() == {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"}
    assert one.one("gpus") == "5"
    assert node().stages.mask() == {}


def test_services_end_in_order(node: Callable[..., Node], tmp_path: Path) -> None:
    log = tmp_path / "log"
    run = "trap 'echo $NAME >>LOG; exit' TERM; echo up >>LOG; while :; do sleep 0.05; done".replace(
        "LOG", str(log)
    )
    deaf = {"name": "deaf", "run": "trap '' TERM; echo up >>LOG; sleep 60".replace("LOG", str(log))}
    one = node(services=[{"name": n, "run": run, "env": {"NAME": n}} for n in ("first", "last")] + [deaf])
    one.stages.begin()
    one.until(lambda: log.exists() and log.read_text() == "up\n" * 3)
    one.stages.services.stop()
    assert log.read_text() == "up\n" * 3 + "last\nfirst\n"


@contextmanager
def handed_out(
    node: Callable[..., Node], tmp_path: Path, run: list[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A service outside of the container, as the task of the node runs it."""
    env = {"PATH": "/nowhere", "MINE": 'it\'s "$HOME"\n`id`'}
    one = node(services=[{"name": "reward", "run": run, "image": "some/image", "env": env}])
    one.stages.begin()
    assert one.said[-1] == ("done", "gpu-1", "services")
    script = tmp_path / "begin-reward"
    words = ["/bin/sh", str(script), str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as service:
        try:
            yield service
        finally:
            if service.poll() is None:
                os.killpg(service.pid, signal.SIGKILL)


def test_a_service_outside_of_the_container(node: Callable[..., Node], tmp_path: Path) -> None:
    show = 'printf "%s" "$MINE $NODE_RANK ${OF_RAY-nothing of Ray}" >out; exit 5'
    with handed_out(node, tmp_path, ["/bin/sh", "-c", show]) as service:
        assert service.wait(20) == 5
    assert (tmp_path / "out").read_text() == 'it\'s "$HOME"\n`id` 0 nothing of Ray'


@pytest.mark.parametrize("trap", [":", "''"])
def test_a_service_outside_ends_with_its_tether(node: Callable[..., Node], tmp_path: Path, trap: str) -> None:
    run = f"trap {trap} TERM; echo >up; while :; do /bin/sleep 0.1; done"
    with handed_out(node, tmp_path, ["/bin/sh", "-c", run]) as service:
        deadline = time.monotonic() + 20  # bounds a hang
        while not (tmp_path / "up").exists():
            assert service.poll() is None
            assert time.monotonic() < deadline
        assert service.stdin
        service.stdin.close()
        assert service.wait(20) != 0


# -- ready.py --------------------------------------------------------------------------------------


def ready(**how: object) -> int:
    words = [sys.executable, str(template_root() / "node/ready.py"), json.dumps({"timeout": 1, **how})]
    return subprocess.run(words, check=False, capture_output=True, timeout=30).returncode


class Retriever(BaseHTTPRequestHandler):
    """Takes the one POST that it knows, as Search-R1's retriever does; a GET finds nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        good = json.loads(body) == {"queries": ["x"], "topk": 1} and "json" in self.headers["Content-Type"]
        self.send_response(200 if good else 422)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def retriever() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Retriever)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_service_is_ready(retriever: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    url = f"http://{retriever}/retrieve"
    assert ready(http=url, post='{"queries": ["x"], "topk": 1}') == 0
    assert ready(http=url, post='{"queries": []}') == NOT_IN_TIME
    assert ready(http=url) == NOT_IN_TIME
    assert ready(tcp=retriever) == 0
    assert ready(run=["true"]) == 0
    assert ready(run=["false"]) == NOT_IN_TIME


def test_a_service_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
    assert ready(tcp=place) == NOT_IN_TIME
    assert ready(http=f"http://{place}") == NOT_IN_TIME
