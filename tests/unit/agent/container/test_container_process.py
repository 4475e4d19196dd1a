"""The container process, from its first message to its end; Ray and the controller are stand-ins."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from slurmray.agent import heartbeat
from slurmray.agent.container import container_setup, ports
from slurmray.agent.container.ray import fast_start
from tests.unit.agent.containers import (
    RAY,
    Cluster,
    Node,
    cluster,
    group,
    job,
    left_over,
    prepare,
    service,
    settings,
)
from tests.unit.agent.waiting import wait_for_text, wait_until
from tests.unit.texts import TEXTS, TOKENS


def trainer(*argv: str, **more: object) -> dict[str, object]:
    return {"command": list(argv), **more}


def shell(commands: str) -> dict[str, object]:
    return trainer("bash", "-c", commands)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    """One node. No process is left over at the end."""
    with cluster(tmp_path) as new:
        yield new
    assert left_over(tmp_path) == []


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes, likewise."""
    with cluster(tmp_path, "gpu-1", "gpu-2") as new:
        yield new
    assert left_over(tmp_path) == []


SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()])); sys.exit(7)"


def test_two_nodes_from_start_to_an_empty_folder(tmp_path: Path) -> None:
    spec = settings(
        env={"MINE": "yes"},
        preset_env={"PRESET_RANK": "rank", "PRESET_NODES": "nodes"},
        trainer=trainer(sys.executable, "-c", SHOW, "it's", '"$HOME"', "a\nb"),
    )
    with cluster(tmp_path, "gpu-1", "gpu-2") as made:
        assert made.exit_code(spec, job(env={"FROM_ME": "1"})) == 7
        head, worker = made.nodes
        wanted = ["versions", "join", "ready", "attach", "trainer", "exit"]
        assert [kind for kind in head.kinds() if kind in wanted] == wanted
        (reachable,) = [m for m in worker.received if m["type"] == "reachable_at"]
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
        assert [low <= port <= high for port in reachable["ports"]] == [False, True]
        findings = [m for node in made.nodes for m in node.received if m["type"] == "finding"]
        assert not findings, [node.received for node in made.nodes]
        joined = [m["text"] for m in head.received if m["type"] == "phase" and m["phase"] == "probe"]
        assert joined[-1] == "2/2 nodes, 4/4 GPUs"
        assert "job-gpu-1/agent" in " ".join(left_over(tmp_path))
        assert {node.close() for node in made.nodes} == {0}
        assert worker.next() == {"type": "tether_lost", "node": "gpu-2"}
        assert not list(head.folder.iterdir()) + list(worker.folder.iterdir())
        assert left_over(tmp_path) == []
    argv, env, folder = json.loads(made.output())
    assert (argv, folder) == (["it's", '"$HOME"', "a\nb"], "/")
    facts = ("NNODES", "NODE_RANK", "GPUS_PER_NODE", "SLURMRAY_ATTEMPT", "MINE", "FROM_ME", "PRESET_RANK")
    assert [env[name] for name in facts] == ["2", "0", "2", "0", "yes", "1", "0"]
    job_facts = ("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURMRAY_RUN_DIR", "SLURMRAY_END_TIME")
    assert [env[name] for name in job_facts] == [str(os.getpid()), "my job", "/nowhere", ""]
    assert "SLURM_ARRAY_TASK_ID" not in env
    assert (env["PRESET_NODES"], env["MASTER_ADDR"], env["RAY_AUTH_MODE"]) == ("2", "127.0.0.1", "token")
    attach = next(message for message in head.received if message["type"] == "attach")
    assert (attach["runtime"], attach["folder"]) == ("podman", f"{tmp_path}/job-gpu-1")
    assert (attach["unset"], attach["command"]) == (["XDG_RUNTIME_DIR"], ["ray", "status"])
    assert env["RAY_ADDRESS"].startswith("127.0.0.1:")


def test_when_slurm_ends_the_job(two: Cluster) -> None:
    """A file on each node follows `scontrol update`, and what starts later gets the new time."""
    wait = (
        "touch $RAY_TMPDIR/x; until [[ $(<$RAY_TMPDIR/end_time) != $SLURMRAY_END_TIME ]]; do sleep 0.05; done"
    )
    run = shell("echo $SLURMRAY_END_TIME $(<$RAY_TMPDIR/end_time)")
    two.start(settings(prepare=[prepare("wait", wait)], trainer=run), job(end_time=1795998000))
    wait_until((two.head.folder / "x").exists, two.head.log.read_text)
    two.send("end_time", end_time=1796000000)
    assert two.run_until("exit")["code"] == 0
    assert wait_for_output(two) == "1796000000 1796000000\n"
    two.send("end_time", end_time=0)
    files = [node.folder / "end_time" for node in two.nodes]
    wait_until(lambda: [file.read_text() for file in files] == ["\n", "\n"], two.head.log.read_text)


def test_the_head_node_offers_less_than_the_others(two: Cluster) -> None:
    head = {"gpus": 0, "cpus": 1, "memory": 5 * 2**30}
    show = "import json, os; print(json.dumps([os.environ[name] for name in ('NNODES', 'GPUS_PER_NODE')]))"
    command = trainer(sys.executable, "-c", show, nnodes=1)
    assert two.exit_code(settings(ray={"head": head}, trainer=command)) == 0
    received = two.head.received
    joined = [m["text"] for m in received if m["type"] == "phase" and m["phase"] == "probe"]
    assert joined[-1] == "2/2 nodes, 2/2 GPUs"
    starts = [re.findall(r"--(?:num-\w+|memory)=\d+", node.log.read_text()) for node in two.nodes]
    assert json.loads(wait_for_output(two)) == ["1", "2"]
    assert starts[0] == ["--memory=5368709120", "--num-cpus=1", "--num-gpus=0"]
    assert starts[1][-2:] == ["--num-cpus=4", "--num-gpus=2"]


def test_groups_of_nodes(tmp_path: Path) -> None:
    """Each offers the GPUs of its group, and its group as a further resource."""
    groups = [group(2, 0, "cpu"), group(1, 2, "gpu")]
    options = {"head": {"gpus": 0, "cpus": None, "memory": None}, "args": ['--resources={"disk": 3}']}
    with cluster(tmp_path, "c-1", "c-2", "g-1") as made:
        assert made.exit_code(settings(ray=options, groups=groups), job(cpus=[4, 7])) == 0
        texts = [message.get("text") for message in made.head.received]
        assert "3/3 nodes, 2/2 GPUs" in texts
        starts = [
            re.findall(r"--(num-\w+=\d+|resources=\{.*?\})", node.log.read_text()) for node in made.nodes
        ]
    cpu, gpu = (f'resources={{"disk": 3, "group:{name}": 1}}' for name in ("cpu", "gpu"))
    assert starts == [["num-cpus=4", "num-gpus=0", cpu]] * 2 + [["num-cpus=7", "num-gpus=2", gpu]]


SHOW_ALL = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


@hypothesis_settings(max_examples=10)
@given(arguments=st.lists(TEXTS, max_size=20), values=st.lists(TEXTS, max_size=20))
@example(arguments=TOKENS, values=TOKENS)
def test_any_text_reaches_the_trainer(
    arguments: list[str], values: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    env = {f"V{number}": value for number, value in enumerate(values)}
    env |= {"BASH_ENV": "/etc/passwd", "HOME": "/ho\nme"}
    with cluster(tmp_path_factory.mktemp("job")) as made:
        assert (
            made.exit_code(settings(env=env, trainer=trainer(sys.executable, "-c", SHOW_ALL, *arguments)))
            == 0
        )
        argv, environ = json.loads(wait_for_output(made))
    assert argv == arguments
    assert {name: environ[name] for name in env} == env


def test_nodes_are_exempt_from_the_proxy(made: Cluster) -> None:
    spec = settings(env={"http_proxy": "http://proxy"}, trainer=trainer(sys.executable, "-c", SHOW_ALL))
    assert made.exit_code(spec, peers=["10.0.0.1", "fd00::1", "10.0.0.2"]) == 0
    env = json.loads(wait_for_output(made))[1]
    assert {"gpu-1", "127.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::1"} <= set(env["no_proxy"].split(","))
    assert env["NO_PROXY"] == env["no_proxy"]


def test_fast_publishes_the_dashboard_and_starts_the_raylet_before_it_answers(made: Cluster) -> None:
    made.start(settings())
    made.run_until("exit")
    port = dashboard_message(made)["port"]
    assert made.events() == [
        "ray start --block",
        "start gcs_server",
        "start dashboard later",
        f"put webui:url 127.0.0.1:{port} ns",
        "start raylet",
        "wait for dashboard",
        "wait for dashboard",
        f"put webui:url 127.0.0.1:{port} ns",
        "started gpu-1",
    ]
    assert not [m for m in made.head.received if m.get("text", "").startswith("using Ray's own start")]


def test_what_ray_starts_later_begins_when_the_cluster_is_ready(two: Cluster) -> None:
    two.train(settings(trainer=trainer("sleep", "60")))
    assert all((node.folder / fast_start.READY).exists() for node in two.nodes)


@pytest.mark.parametrize(
    "needs_it",
    [
        {"ray": {"dashboard_port": "18265"}},
        {"prepare": [prepare("data", "true", needs_ray=True)]},
        {"services": [service("judge", "sleep 600", needs_ray=True)]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_nothing_starts_later_where_the_dashboard_may_be_needed_at_once(
    made: Cluster, needs_it: dict[str, Any]
) -> None:
    made.start(settings(**needs_it))
    made.run_until("ready")
    assert [event for event in made.events() if "start dashboard" in event] == ["start dashboard"]


def dashboard_message(made: Cluster) -> dict[str, Any]:
    """The message `dashboard`, which may come after the trainer's end."""
    messages = [message for message in made.head.received if message["type"] == "dashboard"]
    return messages[0] if messages else made.run_until("dashboard")


def standard_events(port: int) -> list[str]:
    """Events of an unchanged Ray."""
    return [
        "ray start --block",
        "start gcs_server",
        "start dashboard",
        "wait for dashboard",
        "wait for dashboard",
        f"put webui:url 127.0.0.1:{port} ns",
        "start raylet",
        "started gpu-1",
    ]


def run_standard(made: Cluster, start: str, reason: str) -> None:
    assert made.exit_code(settings(ray={"start": start})) == 0
    port = dashboard_message(made)["port"]
    assert made.events() == standard_events(port)
    texts = [message["text"] for message in made.head.received if message.get("phase") == "ray"]
    assert [text for text in texts if "own start" in text] == [f"using Ray's own start: {reason}"]


def test_the_standard_start_changes_nothing_in_ray(made: Cluster) -> None:
    run_standard(made, "standard", "ray.start is standard")


def test_an_untested_ray_gets_the_standard_start(tmp_path: Path) -> None:
    reason = "ray.start: fast was tested with Ray 2.44, 2.52, 2.60, this is 2.61.0"
    with cluster(tmp_path, version="2.61.0") as made:
        run_standard(made, "fast", reason)


@pytest.mark.parametrize(
    ("module", "old", "new", "reason"),
    [
        (
            "ray/_private/node.py",
            "def start_api_server(self, *, include_dashboard, raise_on_failure):",
            "def start_api_server(self, options):\n        include_dashboard = None",
            "ray._private.node.Node.start_api_server takes other arguments in this Ray",
        ),
        (
            "ray/experimental/internal_kv.py",
            "def _internal_kv_del(",
            "def _kv_del(",
            "this Ray has no ray.experimental.internal_kv._internal_kv_del",
        ),
        (
            "ray/_private/node.py",
            "start_ray_processes",
            "start_all_processes",
            "this Ray has no ray._private.node.Node.start_ray_processes",
        ),
    ],
)
def test_a_ray_with_other_internals_gets_the_standard_start(
    tmp_path: Path, module: str, old: str, new: str, reason: str
) -> None:
    source = RAY[module].replace(old, new)
    if "options" in new:
        source = source.replace(
            "self.start_api_server(include_dashboard=None, raise_on_failure=False)",
            "self.start_api_server(None)",
        )
    with cluster(tmp_path, **{module[:-3].replace("/", "__"): source}) as made:
        made.env["DASHBOARD_SECONDS"] = "0.8"  # the reason is read once a second while Ray starts
        run_standard(made, "fast", reason)


def test_a_fixed_dashboard_port_is_waited_for(made: Cluster, tmp_path: Path) -> None:
    made.env["DASHBOARD_SECONDS"] = "0.7"
    made.start(settings(ray={"dashboard_port": "18265"}))
    made.run_until("ready")
    assert "started gpu-1" in (tmp_path / "events").read_text()
    texts = [message.get("text") for message in made.head.received]
    assert "waiting for the dashboard, because ray.dashboard_port is set" in texts
    dashboard = dashboard_message(made)
    assert (dashboard["address"], dashboard["port"]) == ("127.0.0.1", 18265)


@pytest.mark.attack("another user listens on a port of the job", inputs=1)
def test_a_dashboard_whose_port_another_process_takes(made: Cluster) -> None:
    """The log has a line about it, and the trainer runs."""
    lease, leased = ports.lease_ports(job()["id"] + "-0")
    lease.close()
    made.env["DASHBOARD_SECONDS"] = "0.5"
    made.start(settings())
    made.run_until("versions")  # the GCS answers
    with socket.create_server(("127.0.0.1", leased[ports.DASHBOARD])):
        assert made.run_until("exit")["code"] == 0
        findings = [message for message in made.head.received if message["type"] == "finding"]
        finding = findings[0] if findings else made.run_until("finding")
        assert (finding["kind"], finding["check"]) == ("warn", f"port {leased[ports.DASHBOARD]}")
        time.sleep(1.5)  # longer than a turn of the loop
        assert "dashboard" not in made.head.kinds()
        assert made.head.process.poll() is None


def test_a_dashboard_that_fails_has_no_address(made: Cluster) -> None:
    made.env["RAY_FAULT"] = "no dashboard"
    assert made.exit_code(settings()) == 0
    assert made.events()[-2:] == ["del webui:url ns", "started gpu-1"]


def test_processes_of_the_trainer_end_with_the_tether(made: Cluster, tmp_path: Path) -> None:
    """Also daemons, and processes that ignore SIGTERM."""
    leave = "(setsid sleep 600 & setsid bash -c 'trap : TERM; sleep 601; sleep 602' &) & sleep 603"
    made.train(settings(trainer=shell(leave)))
    wait_until(lambda: "602" in " ".join(left_over(tmp_path)))
    made.head.close()
    assert left_over(tmp_path) == []
    assert not list(made.head.folder.iterdir())


def test_guard_kills_processes_of_a_killed_container_process(made: Cluster, tmp_path: Path) -> None:
    made.train(settings(trainer=shell("setsid sleep 600 & sleep 601")), role="guard")
    wait_until(lambda: "601" in " ".join(left_over(tmp_path)))
    path = f"/proc/{made.head.process.pid}/task/{made.head.process.pid}/children"
    os.kill(int(Path(path).read_text().split()[0]), signal.SIGKILL)
    assert made.head.process.wait(30) == 128 + signal.SIGKILL
    assert left_over(tmp_path) == []


SAVE = "trap 'echo saved; exit 5' {0}; trap 'echo no' {1}; echo up; while :; do sleep 0.05; done"


def wait_for_output(made: Cluster, text: str = "\n") -> str:
    return wait_for_text(made.folder / "out", text)


@pytest.mark.parametrize(
    ("kind", "mine", "other"),
    [
        ("stop", "USR1", "USR2"),
        ("stop_at_limit", "USR2", "USR1"),
        ("stop_before_restart", "USR2", "USR1"),
    ],
)
def test_the_grace_period_of_the_trainer(made: Cluster, kind: str, mine: str, other: str) -> None:
    stop = {"signal": "USR2", "cancel_signal": "USR1"}
    made.train(settings(stop=stop, trainer=shell(SAVE.format(mine, other))), text="up")
    made.send(kind, seconds=30)
    assert made.run_until("exit")["code"] == 5
    assert wait_for_output(made, "saved\n") == "up\nsaved\n"


def test_a_trainer_that_ignores_its_signal_is_killed(made: Cluster) -> None:
    made.train(settings(trainer=shell("trap '' TERM; echo up; while :; do sleep 0.05; done")), text="up")
    made.send("stop", seconds=3600)
    made.send("stop", seconds=0.5)  # a second message can only shorten the time
    assert made.run_until("exit")["code"] == 128 + signal.SIGKILL


def test_a_stop_without_grace_period(two: Cluster, tmp_path: Path) -> None:
    """Once the trainer is killed, all nodes end."""
    two.train(settings(trainer=shell("trap '' TERM; echo up; while :; do sleep 0.05; done")), text="up")
    two.send("stop", seconds=3600)
    two.send("stop", seconds=0)
    assert two.nodes[1].process.wait(30) == 0
    assert two.head.until("exit")["code"] == 128 + signal.SIGKILL
    assert two.head.process.wait(30) == 0
    assert left_over(tmp_path) == []


def test_a_signal_to_the_container_stops_the_trainer(made: Cluster) -> None:
    made.train(settings(trainer=shell(SAVE.format("TERM", "USR1"))), text="up")
    made.head.process.terminate()
    assert made.run_until("exit")["code"] == 5
    assert made.head.kinds()[-2:] == ["signalled", "exit"]


def test_a_job_that_is_stopped_before_its_trainer(made: Cluster, tmp_path: Path) -> None:
    made.env["RAY_FAULT"] = "no gpu-1"
    made.start(settings())
    made.run_until("phase", phase="probe")
    made.send("stop", seconds=60)
    assert made.head.process.wait(30) == 0
    assert left_over(tmp_path) == []


def test_stop_before_the_settings(made: Cluster, tmp_path: Path) -> None:
    node = Node(tmp_path / "job", "gpu-1", made.env)
    node.send("stop", seconds=60)
    assert node.process.wait(30) == 0
    node.close()


def failure(made: Cluster, **changes: Any) -> tuple[str, str]:
    made.start(settings(**changes))
    message = made.run_until("failed")
    return message["kind"], message["message"]


def test_ray_start_exits(made: Cluster) -> None:
    made.env["RAY_FAULT"] = "exits"
    message = "ray start exited with 9 while Ray was starting. The node's log has its last lines"
    assert failure(made) == ("ray", message)
    assert made.head.process.wait(30) == 0


def test_an_image_without_ray(made: Cluster) -> None:
    made.env.update(PYTHONPATH="", PYTHON="/usr/bin/python3")  # the tests' own Python may have Ray
    fix = "Install ray[default] for it, or set container.python to the image's Python that has it"
    message = f"/usr/bin/python3 has no Ray. {fix}"
    assert failure(made) == ("image", message)


def test_a_python_without_ray_is_a_finding_without_a_container(made: Cluster) -> None:
    made.env.update(PYTHONPATH="", PYTHON="/usr/bin/python3")
    made.start(settings(trainer=shell("true"), container={"runtimes": ["none"]}), role="guard")
    row = made.run_until("finding")
    assert (row["kind"], row["check"], row["found"]) == ("preflight", "/usr/bin/python3", "no Ray")
    assert row["fix"] == "activate its environment in setup, or set container.python"
    made.head.close()


def test_a_ray_without_tokens(tmp_path: Path) -> None:
    with cluster(tmp_path, version="2.44.1") as made:
        kind, message = failure(made, ray={"auth": "token"})
        assert (kind, message.partition(".")[0]) == ("config", "ray")
        assert "Use Ray 2.52 or later" in message


def test_no_folder_for_the_trainer(made: Cluster) -> None:
    kind, message = failure(made, container={"workdir": "/no/such"})
    assert kind == "config"
    assert message.startswith(
        "/no/such: No such file or directory. It is the trainer's working directory: mount it"
    )


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, cluster(tmp_path) as made:
        port = str(server.getsockname()[1])
        message = f"port {port} is taken on this node. Set ray.port to auto or to another port"
        assert failure(made, ray={"port": port}) == ("bring_up", message)


@pytest.mark.parametrize(("command", "code"), [(["/no/such"], 127), (["/etc/passwd"], 126)])
def test_a_trainer_that_cannot_be_started(made: Cluster, command: list[str], code: int) -> None:
    assert made.exit_code(settings(trainer=trainer(*command))) == code


def test_resume_arguments_come_in_later_attempts(made: Cluster) -> None:
    given = trainer("bash", "-c", 'echo "$@ $SLURMRAY_ATTEMPT"', "it", "a", resume=["--resume"])
    assert made.exit_code(settings(trainer=given), job(attempt=2)) == 0
    wait_for_output(made, "a --resume 2\n")


def test_the_values_of_a_sweep(made: Cluster) -> None:
    show = "import os, sys; print(sys.argv[1], os.environ['lr'])"
    given = trainer(sys.executable, "-c", show, "--lr=$lr")
    made.start(settings(trainer=given, sweep={"lr": ["1", "$(x)"]}), job(env={"lr": "$(x)"}))
    assert "--lr=$(x)" in made.run_until("trainer")["command"]
    assert made.run_until("exit")["code"] == 0
    wait_for_output(made, "--lr=$(x) $(x)\n")


def test_a_node_that_does_not_join(two: Cluster) -> None:
    two.env["RAY_FAULT"] = "no gpu-2"
    kind, reason = failure(two, timeouts={"ready": 1, "heartbeat": 25})
    assert kind == "probe"
    assert reason.startswith("cluster not ready after 1 s: 1 of 2 nodes joined, missing gpu-2. Look at")
    missing = [message for message in two.head.received if message["type"] == "not_ready"]
    assert [(message["missing"], message["why"]) for message in missing] == [("gpu-2", "has not joined")]


def replace_gpu_2(made: Cluster) -> str:
    """Let the spare node join Ray in its place; return Ray's address."""
    (gcs,) = [message["address"] for message in made.head.received if message["type"] == "join"]
    made.send("replace", node="gpu-3", lost="gpu-2", address=gcs)
    return str(gcs)


def test_a_spare_node_joins_ray_in_place_of_another(tmp_path: Path) -> None:
    with cluster(tmp_path, "gpu-1", "gpu-2", "gpu-3") as made:
        made.train(settings(trainer=trainer("sleep", "60")), job(spares=["gpu-3"]))
        assert not find_pids_of("gpu-3", tmp_path)
        replace_gpu_2(made)
        made.events()
        assert find_pids_of("gpu-3", tmp_path)
        made.nodes[2].send("check_health")
        made.nodes[2].until("healthy")


@pytest.mark.parametrize("start", ["fast", "standard"])
def test_a_spare_node_has_its_stages_when_it_joins(tmp_path: Path, start: str) -> None:
    """No other node waits for them. Its Ray runs before those that need Ray, and after the others."""
    events = tmp_path / "events"  # of the stand-in for Ray

    def run(name: str) -> str:
        return f"echo {name} $NODE_RANK ${{RAY_ADDRESS:+Ray}} >>{events}; "

    def waited_for(name: str, **fields: object) -> dict[str, Any]:
        ready = {"run": ["grep", "-q", f"{name} 1", str(events)], "timeout": 30}
        return service(name, run(name) + "sleep 600", ready=ready, **fields)

    spec = settings(
        prepare=[
            prepare("data", run("data"), where="all", once=True),
            prepare("model", run("model"), where="all"),
            prepare("head", run("head")),
        ],
        services=[waited_for("reward"), waited_for("judge", needs_ray=True, where="workers")],
        trainer=trainer("sleep", "60"),
        ray={"start": start, "worker_args": ["--node-manager-port=0"]},
    )
    with cluster(tmp_path, "gpu-1", "gpu-2", "gpu-3") as made:
        made.train(spec, job(spares=["gpu-3"]))
        events.write_text("")
        replace_gpu_2(made)
        made.nodes[2].until("stage_done", stage="services-with-ray")
        lines = events.read_text().splitlines()
        own = [line for line in lines if line.split()[0] in ("data", "model", "head", "reward", "judge")]
        assert own == ["data 1", "model 1", "reward 1", "judge 1 Ray"]
        assert lines.index("reward 1") < lines.index("start raylet") < lines.index("judge 1 Ray")
        marks = [message["name"] for message in made.nodes[2].received if message["type"] == "prepared"]
        assert marks == ["data@gpu-3"]


def test_a_spare_node_whose_services_have_nothing_to_wait_for(tmp_path: Path) -> None:
    """The prepare step is the last child that ends before Ray starts."""
    spec = settings(
        prepare=[prepare("data", ["sleep", "0.5"], where="all")],
        services=[service("reward", ["sleep", "600"])],
        trainer=trainer("sleep", "60"),
    )
    with cluster(tmp_path, "gpu-1", "gpu-2", "gpu-3") as made:
        made.train(spec, job(spares=["gpu-3"]))
        gcs = replace_gpu_2(made)
        made.events()
        wait_for_text(tmp_path / "job-gpu-3/attach", f"RAY_ADDRESS={gcs}\n")


def find_pids_of(node: str, folder: Path) -> list[int]:
    return [pid for pid in find_pids("raylet") if in_folder(pid, node, folder)]


def test_check_health_is_answered_only_while_ray_runs(two: Cluster, tmp_path: Path) -> None:
    assert two.exit_code(settings(trainer=trainer("false"))) == 1
    two.send("check_health")
    for node in two.nodes:
        node.until("healthy")
    raylet = next(pid for pid in find_pids("raylet") if in_folder(pid, "gpu-2", tmp_path))
    os.kill(raylet, signal.SIGKILL)
    wait_until(lambda: not in_folder(raylet, "gpu-2", tmp_path))  # an ended process has no environment
    two.send("check_health")
    two.head.until("healthy")
    answers = []
    with contextlib.suppress(TimeoutError):  # no further message
        while message := two.nodes[1].next(1):
            answers.append(message["type"])
    assert "healthy" not in answers


def find_pids(name: str) -> list[int]:
    pids = []
    for pid in (path.name for path in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                pids.append(int(pid))
    return pids


def in_folder(pid: int, node: str, folder: Path) -> bool:
    """Whether the process belongs to that node of the job in the folder."""
    with contextlib.suppress(OSError):  # it has ended
        return f"RAY_TMPDIR={folder}/job-{node}\0" in Path(f"/proc/{pid}/environ").read_text()
    return False


def test_versions_that_differ_from_the_head_node_s(two: Cluster) -> None:
    two.start(settings())
    two.run_until("ready")
    two.send("head_versions", text="Ray 2.60.0, Python 3.9.1")
    finding = two.run_until("finding")
    assert (finding["node"], finding["check"], finding["kind"]) == ("gpu-2", "versions", "preflight")
    assert finding["wanted"] == "Ray 2.60.0, Python 3.9.1, as on the head node"
    assert two.run_until("unfit")["node"] == "gpu-2"


def test_stages_on_two_nodes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    spec = settings(
        prepare=[
            prepare("data", f"sleep 1; echo data $NODE_RANK >>{log}", where="all", once=True),
            prepare("late", f"echo late $RAY_ADDRESS >>{log}", needs_ray=True),
        ],
        services=[
            service(
                "reward",
                f"echo up >>{log}; sleep 600",
                where="head",
                gpus=1,
                ready={"run": ["grep", "-q", "up", str(log)]},
            )
        ],
        trainer=shell("echo $CUDA_VISIBLE_DEVICES"),
        ray={"gpus": 1},
    )
    with cluster(tmp_path, "gpu-1", "gpu-2") as made:
        assert made.exit_code(spec) == 0
        for node in made.nodes:
            done = [message["stage"] for message in node.received if message["type"] == "stage_done"]
            assert sorted(done) == ["prepare", "prepare-with-ray", "services"]
        marks = {m["name"] for node in made.nodes for m in node.received if m["type"] == "prepared"}
        assert marks == {"data@gpu-1", "data@gpu-2"}
        assert {"type": "heartbeat", "node": "gpu-1", "doing": "prepare"} in made.head.received
        wait_for_output(made, "0\n")
        lines = log.read_text().splitlines()
        assert sorted(lines[:2]) == ["data 0", "data 1"]
        assert lines.index("up") > 1
        assert any(line.startswith("late 127.0.0.1:") for line in lines)
        made.send("service_ended", name="reward", code=3)
        failed = made.run_until("failed")
        assert failed["message"].startswith("service reward exited with 3")
        assert failed["log"] == "service-reward@gpu-1"
    assert "service reward: bash " in (tmp_path / "service-reward@gpu-1.log").read_text()
    assert "service reward: bash -c" not in made.head.log.read_text()


CHECKS = {"paths": [], "same_commit": "", "bf16": False, "burn_in": 1}


@pytest.fixture
def torch(tmp_path: Path) -> dict[str, str]:
    """Variables with which `import torch` fails as without PyTorch; `TORCH=1`: what it measures is empty."""
    text = "import os\nif not os.environ.get('TORCH'): raise ImportError('No module named torch')\n"
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "torch.py").write_text(text)
    return {"PYTHONPATH": f"{folder}:{tmp_path}/lib"}  # and the stand-in for Ray


def test_a_burn_in_needs_pytorch(tmp_path: Path, torch: dict[str, str]) -> None:
    with cluster(tmp_path, "gpu-1") as made:
        made.start(settings(checks=CHECKS, env=torch))
        failed = made.run_until("failed")
    text = "checks.burn_in: No module named torch. Install PyTorch in the image"
    assert (failed["kind"], failed["message"]) == ("image", text)


def test_prepare_steps_wait_for_the_burn_in(tmp_path: Path, torch: dict[str, str]) -> None:
    """The head node has no GPU: it only keeps PyTorch's store, until the others are done."""
    groups = [group(1, 0, "head"), group(2, 2, "workers")]
    head = {"gpus": 0, "cpus": None, "memory": None}
    spec = settings(
        checks=CHECKS,
        prepare=[prepare("data", ["true"])],
        groups=groups,
        ray={"head": head},
        env={**torch, "TORCH": "1"},
    )
    show = shell("pgrep -af '[a]gent burn-in'; exit 0")
    with cluster(tmp_path, "gpu-1", "gpu-2", "gpu-3") as made:
        made.start(
            {**spec, "trainer": {**spec["trainer"], **show}}, job(cpus=[4, 4], spares_of_groups=[0, 0])
        )
        made.run_until("exit")
        received = [(message["type"], message.get("text")) for message in made.head.received]
        kinds = [[message["type"] for message in node.received] for node in made.nodes]
    assert [own.count("burn_in") for own in kinds] == [0, 1, 1]
    assert received.index(("stage_done", None)) < received.index(("phase", "data begins"))
    assert made.output() == ""
    assert left_over(tmp_path) == []


def test_an_unknown_protocol_version_is_reported(made: Cluster, tmp_path: Path) -> None:
    node = Node(tmp_path / "job", "gpu-1", made.env)
    assert node.process.stdin
    node.process.stdin.write(b'no message\n{"type":"unknown","v":1}\n{"type":"job","v":99}\n')
    node.process.stdin.flush()
    message = node.until("failed")
    assert message["kind"] == "internal"
    assert "protocol version 99" in message["message"]
    node.close()


def setup_in_container(commands: str, timeout: int = 600, **spec: Any) -> dict[str, Any]:
    return settings(container={"setup": commands, "setup_timeout": timeout}, trainer=trainer("true"), **spec)


def test_setup_in_the_container(two: Cluster, tmp_path: Path) -> None:
    """It can install Ray itself; the worker's messages wait for it."""
    (tmp_path / "lib").rename(tmp_path / "later")
    (tmp_path / "lib").mkdir()
    install = (
        f"flock {tmp_path} cp -r {tmp_path}/later/. {tmp_path}/lib; echo installed by $USER, $MINE, $PWD"
        "; stat -c mode=%a $0"
    )
    slow = {"gpu-2": {"env_file": {}, "node_env": {"SLOW": "4"}}}
    spec = setup_in_container("sleep ${SLOW-1}; " + install, env={"MINE": "mine"})
    assert two.exit_code(spec, variables=slow) == 0
    for node in two.nodes:
        assert "installed by alice, mine, /\nmode=600\n" in node.log.read_text()
        assert node.close() == 0
        assert list(node.folder.iterdir()) == []


def make_venv(folder: Path) -> Path:
    """The Python of the tests under another path."""
    (folder / "venv").mkdir()
    python = folder / "venv/python3"
    python.symlink_to(sys.executable)
    return python


SHOW_PYTHON = "import os, sys; print(sys.executable, *map(os.environ.get, ('MINE', 'ENV', 'GONE')))"


def test_what_a_setup_in_the_container_exports(two: Cluster, tmp_path: Path) -> None:
    """Also over `env`; and another Python first in PATH is that of the container process, and so of Ray."""
    python = make_venv(tmp_path)
    commands = f"export MINE=mine ENV=changed PATH={python.parent}:$PATH; unset GONE; set -- a; exit 0"
    spec = setup_in_container(commands, env={"ENV": "env", "GONE": "env"})
    spec["trainer"].update(trainer("python3", "-c", SHOW_PYTHON))
    two.start(spec)
    two.run_until("phase", text=f"container.setup has activated {python}")
    two.run_until("ready")
    for node in two.nodes:
        argv = Path(f"/proc/{node.process.pid}/cmdline").read_text().split("\0")
        assert argv[0] == str(python)
        assert not (node.folder / "resume").exists()
    assert two.run_until("exit")["code"] == 0
    wait_for_output(two, f"{python} mine changed None\n")
    assert {node.close() for node in two.nodes} == {0}


def test_a_setup_in_the_container_finds_ray(made: Cluster) -> None:
    lib = made.env.pop("PYTHONPATH")
    made.env["PYTHON"] = "/usr/bin/python3"  # the tests' own Python may have Ray
    assert made.exit_code(setup_in_container(f"export PYTHONPATH={lib}")) == 0


def test_the_job_ends_while_another_python_is_activated(made: Cluster, tmp_path: Path) -> None:
    python = make_venv(tmp_path)
    made.start(setup_in_container(f"export PATH={python.parent}:$PATH"))
    made.run_until("phase", text=f"container.setup has activated {python}")
    assert made.head.close() == 0


def test_the_python_of_the_job_spec_comes_first_in_path(made: Cluster, tmp_path: Path) -> None:
    python = make_venv(tmp_path)
    spec = settings(container={"python": str(python)}, trainer=trainer("python3", "-c", SHOW_PYTHON))
    assert made.exit_code(spec) == 0
    wait_for_output(made, f"{python} None None None\n")


def test_a_setup_in_the_container_that_leaves_a_process(made: Cluster) -> None:
    """E.g. Xvfb: it is not awaited, although it has the pipe of the output."""
    assert made.exit_code(setup_in_container("sleep 600 & echo started")) == 0
    assert "started\n" in made.head.log.read_text()
    assert made.head.close() == 0


def test_the_last_lines_of_a_setup_in_the_container(tmp_path: Path) -> None:
    """They are awaited, for the finding: tee may be slow."""
    tee = tmp_path / "tee"
    tee.write_text(f'#!/bin/sh\nsleep 0.5; exec {shutil.which("tee")} "$@"\n')
    tee.chmod(0o755)
    files = [str(tmp_path / name) for name in ("commands", "output", "environment")]
    Path(files[0]).write_text("echo ERROR: no such package; exit 3")
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", container_setup.SCRIPT, *files], env=env, check=False, timeout=60)
    assert (done.returncode, Path(files[1]).read_text()) == (3, "ERROR: no such package\n")


ONE = "echo one\nfalse | true\necho ERROR: no such package >&2\n(exit 3)\necho not reached"
NO_PACKAGE = ("exited with 3: ERROR: no such package", "correct it; the node's log has its output")


@pytest.mark.parametrize(
    ("commands", "more", "row"),
    [
        (ONE, {}, NO_PACKAGE),
        (ONE, {"preflight": "none"}, NO_PACKAGE),
        (
            "export A=b; exec true",
            {},
            ("exited with 0 before its end", "it must not exec, nor exit with a trap of its own"),
        ),
        (
            "trap '' TERM; sleep 1000",
            {"timeout": 1},
            ("no end after 1 s", "raise container.setup_timeout"),
        ),
    ],
    ids=["fails", "fails without preflight", "leaves its shell", "has no end"],
)
def test_a_setup_in_the_container_that(
    made: Cluster, commands: str, more: dict[str, Any], row: tuple[str, str]
) -> None:
    made.start(setup_in_container(commands, **more))
    if "timeout" in more:
        assert made.run_until("heartbeat")["doing"] == "container.setup"
    finding = made.run_until("finding")
    made.run_until("unfit")
    assert "not reached" not in made.head.log.read_text()
    assert made.head.close() == 0
    kind, check, wanted = (finding[name] for name in ("kind", "check", "wanted"))
    assert (kind, check, wanted) == ("preflight", "container.setup", "exit code 0")
    assert (finding["found"], finding["fix"]) == row


def test_a_setup_in_the_container_with_a_trap_of_its_own(made: Cluster) -> None:
    spec = setup_in_container("trap 'echo bye' EXIT; export MINE=mine")
    spec["trainer"].update(trainer("sh", "-c", "echo is $MINE"))
    assert made.exit_code(spec) == 0
    wait_for_output(made, "is mine\n")


@pytest.mark.parametrize("kind", ["stop", "stop_at_limit", "stop_before_restart", "tether"])
def test_the_job_ends_during_the_setup_in_the_container(made: Cluster, kind: str) -> None:
    made.start(setup_in_container("sleep 1000"))
    made.run_until("phase", text="container.setup runs")
    if kind == "tether":
        assert made.head.close() == 0
    else:
        made.send(kind, seconds=1)
        assert made.head.process.wait(20) == 0


def test_variables_that_the_node_knows(made: Cluster) -> None:
    """env_file < env of the job spec < node_env."""
    names = ("A", "B", "C", "RAY_ADDRESS")
    show = f"import json, os; print(json.dumps([os.environ[name] for name in {names}]))"
    spec = settings(env={"B": "spec", "C": "spec"}, trainer=trainer(sys.executable, "-c", show))
    given = dict.fromkeys(names, "file")
    assert made.exit_code(spec, variables={"gpu-1": {"env_file": given, "node_env": {"C": "node"}}}) == 0
    values = json.loads(wait_for_output(made))
    assert values[:3] == ["file", "spec", "node"]
    assert values[3].startswith("127.0.0.1:")


@pytest.mark.attack("GPU masks of an image or a shell", inputs=1)
@pytest.mark.parametrize("given", [{}, {"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": ""}])
def test_gpu_masks_are_those_of_the_node_agent(made: Cluster, given: dict[str, str]) -> None:
    run = "import json, os; print(json.dumps({n: os.environ[n] for n in os.environ if 'VISIBLE' in n}))"
    made.env.update(CUDA_VISIBLE_DEVICES="7", HIP_VISIBLE_DEVICES="7", ROCR_VISIBLE_DEVICES="0,1")
    spec = settings(trainer=trainer(sys.executable, "-c", run))
    assert made.exit_code(spec, variables={"gpu-1": {"gpu_masks": given}}) == 0
    assert json.loads(wait_for_output(made)) == given


def test_programs_of_the_job_have_the_submitter_s_umask(tmp_path: Path) -> None:
    """The file system has no other way to tell who may read what a trainer writes."""
    spec = settings(
        container={"setup": f"umask >>{tmp_path}/setup"},
        prepare=[prepare("data", f"umask >>{tmp_path}/prepare", needs_ray=True)],
        services=[service("judge", "umask; sleep 60", on_end="continue")],
        # The container process has it only while it starts a program.
        trainer=shell("umask; until grep -q ^Umask:.0022 /proc/$PPID/status; do sleep 0.1; done; echo 0022"),
    )
    with cluster(tmp_path) as made:
        assert made.exit_code(spec) == 0
        wait_for_output(made, "0027\n0022\n")
    assert [(tmp_path / name).read_text() for name in ("setup", "prepare")] == ["0027\n"] * 2
    assert "\n0027\n" in (tmp_path / "service-judge@gpu-1.log").read_text()


@pytest.mark.parametrize("has_succeeded", [True, False])
def test_ray_s_logs_stay_for_the_node_agent(tmp_path: Path, has_succeeded: bool) -> None:
    with cluster(tmp_path) as made:
        made.start(settings(trainer=trainer("true")))
        made.run_until("exit")
        logs = made.head.folder / "session_latest/logs"
        logs.mkdir(parents=True)
        (logs / "raylet.out").write_text("raylet")
        if has_succeeded:
            made.send("succeeded")
        assert made.head.close() == 0
    left = [str(path.relative_to(made.head.folder)) for path in sorted(made.head.folder.rglob("*"))]
    assert left == ([] if has_succeeded else ["ray-logs", "ray-logs/raylet.out"])


def test_a_node_for_services_alone(two: Cluster, tmp_path: Path) -> None:
    """It is not in Ray, does the prepare steps of all nodes, and is healthy."""
    log = tmp_path / "log"
    run = (
        f"echo $NODE_RANK $CUDA_VISIBLE_DEVICES ${{RAY_ADDRESS-none}} >>{log}; "
        f"until [[ -e {log}.end ]]; do sleep 0.1; done; rm {log}.end"
    )
    spec = settings(
        prepare=[prepare("data", ["true"], where="all", needs_ray=needs_ray) for needs_ray in (False, True)],
        services=[service("judge", run, where=1, gpus=2, restarts=1)],
        trainer=shell(f"echo $SERVICE_JUDGE_HOSTS; until [[ -e {log}.over ]]; do sleep 0.1; done"),
        ray={"nodes": 1},
    )
    two.train(spec)
    assert "1/1 nodes, 2/2 GPUs" in [m["text"] for m in two.head.received if m["type"] == "phase"]
    assert wait_for_output(two) == "gpu-2\n"
    two.send("check_health")
    assert {two.run_until("healthy")["node"] for _ in two.nodes} == {"gpu-1", "gpu-2"}
    (tmp_path / "log.end").touch()
    two.run_until("phase", text="service judge exited with 0 on gpu-2: restart 1 of 1")
    wait_until(lambda: log.read_text() == "1 0,1 none\n" * 2, log.read_text)
    assert "ray start" not in two.nodes[1].log.read_text()
    (tmp_path / "log.over").touch()
    assert two.run_until("exit")["code"] == 0
    assert {node.close() for node in two.nodes} == {0}


def test_heartbeats_while_the_loop_waits(tmp_path: Path) -> None:
    """Before the first message and with nothing to do."""
    folder = tmp_path / "job"
    node = Node(folder, "gpu-1", {"PATH": os.environ["PATH"]})
    wait_until((folder / heartbeat.FILE).exists)
    first = (folder / heartbeat.FILE).stat().st_mtime_ns
    wait_until(lambda: (folder / heartbeat.FILE).stat().st_mtime_ns > first)
    assert node.close() == 0
    assert list(folder.iterdir()) == []
