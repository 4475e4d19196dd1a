"""Runs the commands of a dstack task in a real bash, with a `ray` that only records its arguments."""

import json
import os
import pty
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmray import agent
from slurmray.errors import ExitCode
from slurmray.rendering.dstack.task import make_task, render_task
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of

from .test_task import CASES, render_case

STUB = f"""#!{sys.executable}
import json, os, socket, sys, time
place, rank, argv = os.environ["STUB"], os.environ["DSTACK_NODE_RANK"], sys.argv[1:]
if os.isatty(0):
    sys.exit("Ray would keep the terminal")
if "fails" in argv:
    sys.exit(1)
if "--head" in argv:
    port = next(int(word.partition("=")[2]) for word in argv if word.startswith("--port="))
    server = socket.create_server(("127.0.0.1", port))
    if os.fork():
        server.close()
    else:
        os.setsid()
        os.closerange(1, 3)
        with open(f"{{place}}/server", "w") as file:
            file.write(str(os.getpid()))
        time.sleep(60)
        os._exit(0)
with open(f"{{place}}/new-{{rank}}", "w") as file:
    json.dump({{"argv": argv, "env": dict(os.environ)}}, file)
os.rename(f"{{place}}/new-{{rank}}", f"{{place}}/ray-{{rank}}.json")
"""

# For the real readiness probe: each call of the `ray` above adds a node.
STATE = """
import glob, json, os
class GlobalState:
    def _initialize_global_state(self, options):
        self.address = options
    def node_table(self):
        rows = []
        for name in sorted(glob.glob(os.environ["STUB"] + "/ray-*.json")):
            options = dict(word.split("=", 1) for word in json.load(open(name))["argv"] if "=" in word)
            gpus = {"GPU": float(options["--num-gpus"])}
            rows.append({"Alive": True, "NodeName": options["--node-name"], "Resources": gpus})
        return rows
"""
RAYLET = """
class GcsClientOptions:
    @staticmethod
    def create(address, *_, **__):
        return address
"""
RECORD = """
import json, os, sys
json.dump({"argv": sys.argv[1:], "env": dict(os.environ)}, open(os.environ["STUB"] + "/trainer.json", "w"))
sys.exit(7)
"""
WAIT = """
import signal, sys, time
def handler(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(9)
for name in ("HUP", "INT", "TERM", "USR1"):
    signal.signal(getattr(signal, "SIG" + name), handler)
print("ready", flush=True)
time.sleep(60)
"""


class Nodes:
    """Nodes of a dstack run, with the files and environment that the commands see."""

    def __init__(self, place: Path):
        self.place = place
        (place / "bin").mkdir()
        (place / "bin/ray").write_text(STUB)
        (place / "bin/ray").chmod(0o755)
        (place / "lib/ray/_private").mkdir(parents=True)
        (place / "lib/ray/__init__.py").touch()
        (place / "lib/ray/_private/state.py").write_text(STATE)
        (place / "lib/ray/_raylet.py").write_text(RAYLET)
        (place / "lib/ray-2.51.0.dist-info").mkdir()
        (place / "lib/ray-2.51.0.dist-info/METADATA").write_text("Name: ray\nVersion: 2.51.0\n")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def task(self, **fields: Any) -> dict[str, Any]:
        ray = {"temp_dir": "/TMP", "port": self.port, "ready_timeout": 20, **fields.pop("ray", {})}
        spec = JobSpec.model_validate({"ray": ray, **fields})
        task = yaml.safe_load(render_task(plan_of(spec)))
        assert isinstance(task, dict)
        return task

    def start(
        self, task: dict[str, Any], rank: int = 0, key: str = "key"
    ) -> tuple[subprocess.Popen[bytes], int]:
        """Start bash like dstack's runner; return it with the other end of its terminal."""
        home = self.place / f"home-{rank}"
        (home / ".ssh").mkdir(parents=True, exist_ok=True)
        if key:
            (home / ".ssh/dstack_job").write_text(key)
        addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3"][: task["nodes"]]
        env = dict(entry.split("=", 1) for entry in task["env"] if "=" in entry)
        env = {name: value.replace("/TMP", str(home)) for name, value in env.items()}
        env |= {
            "HOME": str(home),
            "PATH": f"{self.place}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.place / "lib"),
            "STUB": str(self.place),
            "RAY_AUTH_TOKEN": "of the image",
            "DSTACK_NODE_RANK": str(rank),
            "DSTACK_MASTER_NODE_IP": addresses[0] if len(addresses) > 1 else "",
            "DSTACK_NODES_IPS": "\n".join(addresses) if len(addresses) > 1 else "",
        }
        script = " && ".join(command.strip() for command in task["commands"])
        outside, inside = pty.openpty()
        bash = subprocess.Popen(
            # A shell cannot trap a signal that it began with ignored, e.g. in a background job.
            ["env", "--default-signal=INT", "setsid", "--ctty", "bash", "-i", "-c", script],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=env,
            cwd=self.place,
        )
        os.close(inside)
        return bash, outside

    def finish(self, bash: subprocess.Popen[bytes], terminal: int, until: str = "") -> str:
        """Return the output up to a text, or, like dstack, until no process has the terminal open."""
        text = ""
        while not until or until not in text:
            try:
                chunk = os.read(terminal, 65536).decode()
            except OSError:  # no process has the terminal open
                chunk = ""
            if not chunk:
                bash.wait(timeout=60)
                break
            text += chunk.replace("\r\n", "\n")
        return text

    def run(self, task: dict[str, Any], rank: int = 0, key: str = "key") -> tuple[int, str]:
        bash, terminal = self.start(task, rank, key)
        text = self.finish(bash, terminal)
        os.close(terminal)
        return bash.returncode, text

    def recorded(self, name: str) -> dict[str, Any]:
        record = json.loads((self.place / f"{name}.json").read_text())
        assert isinstance(record, dict)
        return record

    def close(self) -> None:
        if (self.place / "server").exists():
            os.kill(int((self.place / "server").read_text()), signal.SIGKILL)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.close()


HOSTILE = [
    *(
        "",
        'it\'s "$HOME" `id` \\',
        "{{ x }} {% y %}",
        "one\ntwo\n",
        "ünïcødé ☃ \U0001d4b3 \u200b\u2028",
        "--",
        "-c",
    ),
    *("\a\b\x1b[31m\x01\x7f", "tab\there ", "\r\n", "~ * ? [a] ! !! !$ && ; | > x # no", "$", "$'a'"),
    *(
        "$$",
        "$$$",
        "$$$$",
        "a$$b$$$c",
        "${{ run.args }}",
        "$${{ x }}",
        "$$${{ x }}",
        "${{",
        "${{ secrets.x }}",
    ),
    "${{ groups[0].nodes[0].IP_ADDRESS }}",
]


def test_two_nodes(nodes: Nodes) -> None:
    task = nodes.task(
        slurm={"nodes": 2, "gpus_per_node": 2, "cpus_per_task": 3},
        ray={"args": ["--labels=it's $$"], "head_args": ["--h"], "worker_args": ["--w", ""]},
        run=["python3", "-c", RECORD, *HOSTILE],
        env={"LINES_": "a\nb's $$ ${{ x }}\n\n"},
        setup="FROM_SETUP=1; export FROM_SETUP\nread -r nothing; false",
    )
    bash, terminal = nodes.start(task, 1)
    assert nodes.run(task)[0] == 7, "the trainer's exit code"
    nodes.finish(bash, terminal)
    os.close(terminal)
    assert bash.returncode == 0

    head, worker, trainer = nodes.recorded("ray-0"), nodes.recorded("ray-1"), nodes.recorded("trainer")
    both = ["--num-cpus=3", "--num-gpus=2"]
    assert head["argv"][:6] == [
        "start",
        "--head",
        "--node-name=127.0.0.1",
        "--node-ip-address=127.0.0.1",
        *both,
    ]
    at = f"--address=127.0.0.1:{nodes.port}"
    own = ["--node-name=127.0.0.2", "--node-ip-address=127.0.0.2"]
    assert worker["argv"][:7] == ["start", "--block", at, *own, *both]
    assert head["argv"][-4:] == ["--labels=it's $$", f"--port={nodes.port}", "--dashboard-port=8265", "--h"]
    assert worker["argv"][-3:] == ["--labels=it's $$", "--w", ""]
    ports = [word.rpartition("=")[2] for word in head["argv"] if "-port=" in word]
    assert len([port for port in ports if port != "0"]) == len({*ports} - {"0"}) == 8

    assert trainer["argv"] == HOSTILE
    assert {name: trainer["env"].get(name) for name in (*FACTS, "LINES_", "FROM_SETUP")} == {
        "RAY_ADDRESS": f"127.0.0.1:{nodes.port}",
        "NNODES": "2",
        "NODE_RANK": "0",
        "GPUS_PER_NODE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "LINES_": "a\nb's $$ ${{ x }}\n\n",
        "FROM_SETUP": "1",
    }
    assert not set(FACTS) & head["env"].keys(), "Ray does not get the trainer's variables"

    tokens = [Path(node["env"]["RAY_AUTH_TOKEN_PATH"]) for node in (head, worker)]
    assert tokens[0] != tokens[1]
    assert len({token.read_text() for token in tokens}) == 1
    assert not any("RAY_AUTH_TOKEN" in process["env"] for process in (head, worker, trainer))
    assert all(stat.S_IMODE(token.stat().st_mode) == 0o600 for token in tokens)


def test_variables_of_a_preset_on_each_node(nodes: Nodes) -> None:
    fields = {"slurm": {"nodes": 2, "gpus_per_node": 2}, "run": ["python3", "-c", RECORD, "main.py"]}
    task = nodes.task(preset="roll", **fields)
    bash, terminal = nodes.start(task, 1)
    assert nodes.run(task)[0] == 7, "the trainer's exit code"
    nodes.finish(bash, terminal)
    os.close(terminal)
    same = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(nodes.port), "WORLD_SIZE": "2"}
    for name, rank in (("ray-0", "0"), ("ray-1", "1"), ("trainer", "0")):
        expected = {**same, "RANK": rank, "NODE_RANK": rank}
        env = nodes.recorded(name)["env"]
        assert {variable: env.get(variable) for variable in expected} == expected, name


def test_prepare_steps_on_the_head(nodes: Nodes) -> None:
    items = [
        {"name": "data", "run": ["bash", "-c", 'echo "$1" >>done', "-", "it's $$ ${{ x }}"]},
        {"name": "model", "run": "test -e ray-0.json && echo $NODE_RANK >>done", "needs_ray": True},
    ]
    run = "echo trained >>done; exit 7"
    code, text = nodes.run(nodes.task(prepare=items, run=run))
    assert code == 7, text
    assert (nodes.place / "done").read_text() == "it's $$ ${{ x }}\n0\ntrained\n"


def test_a_failed_prepare_step(nodes: Nodes) -> None:
    items = [{"name": "data", "run": "exit 9"}, {"name": "model", "run": "touch model"}]
    code, text = nodes.run(nodes.task(prepare=items, run="touch trained"))
    assert (code, "slurmray: prepare: data exited with 9\n" in text) == (69, True), text
    assert not {"model", "trained"} & {path.name for path in nodes.place.iterdir()}


FACTS = ("RAY_ADDRESS", "NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT")


def test_one_node_and_a_bash_command(nodes: Nodes) -> None:
    task = nodes.task(run='echo "$$ it is $NNODES" | tr a-z A-Z; exit 3')
    code, text = nodes.run(task, key="")
    assert code == 3
    assert " IT IS 1\n" in text
    token = nodes.place / "home-0/slurmray/token"
    first = token.read_text()
    nodes.close()
    assert nodes.run(task, key="")[0] == 3
    assert token.read_text() != first


@pytest.mark.parametrize(("limit", "seconds"), [("30", 1800), ("UNLIMITED", 0), (None, 0)])
def test_when_dstack_ends_the_task(nodes: Nodes, limit: str | None, seconds: int) -> None:
    task = nodes.task(slurm={"time": limit}, run="echo ends $SLURMRAY_END_TIME.")
    text = nodes.run(task, key="")[1]
    end = text.partition("ends ")[2].partition(".")[0]
    assert bool(end) == bool(seconds)
    assert not end or seconds - 300 < int(end) - time.time() <= seconds


def test_the_task_ends_with_the_trainer(nodes: Nodes) -> None:
    code, text = nodes.run(nodes.task(run=["bash", "-c", "(sleep 5; echo late) & kill -KILL $$"]))
    assert code == 137
    assert "late" not in text, "a child of the trainer has the terminal open"
    nodes.close()
    assert nodes.run(nodes.task(run=["echo", "last"]))[1].splitlines()[-1] == "last", "no notes on jobs"


def test_without_a_command_the_check_runs(nodes: Nodes) -> None:
    (nodes.place / "lib/ray/__init__.py").write_text("raise SystemExit('the check asks for Ray')")
    (nodes.place / "lib/ray/_private").rename(nodes.place / "lib/private")
    text = nodes.run(nodes.task())[1]
    assert "the check asks for Ray" in text


def test_the_agents_modules_are_in_the_task() -> None:
    folder = Path(agent.__file__).parent
    programs = yaml.safe_load(render_task(plan_of(JobSpec())))["commands"][1]
    for name in ("container/ray/readiness.py", "container/check_cluster.py"):
        assert shlex.quote((folder / name).read_text())[1:-1] in programs


@pytest.mark.parametrize("name", ["USR1", "TERM"])
def test_sigint_of_dstack_becomes_stop_signal(name: str, nodes: Nodes) -> None:
    bash, terminal = nodes.start(nodes.task(run=["python3", "-c", WAIT], stop={"signal": name}))
    nodes.finish(bash, terminal, "ready")
    bash.send_signal(signal.SIGINT)
    text = nodes.finish(bash, terminal)
    os.close(terminal)
    assert f"got SIG{name}" in text
    assert bash.returncode == 9


def test_a_cluster_that_is_not_ready(nodes: Nodes) -> None:
    task = nodes.task(slurm={"nodes": 2, "gpus_per_node": 1}, ray={"ready_timeout": 1}, run=["echo", "ran"])
    code, text = nodes.run(task)
    assert code == ExitCode.PROBE
    assert "slurmray: probe: 1/2 nodes, 1/2 GPUs, waiting for 127.0.0.2\n" in text
    assert "slurmray: cluster not ready after 1 s: 1 of 2 nodes joined, missing 127.0.0.2. Look" in text
    assert "ran" not in text


def test_a_head_that_does_not_start(nodes: Nodes) -> None:
    code, text = nodes.run(nodes.task(slurm={"nodes": 2}, ray={"ready_timeout": 1}), rank=1)
    assert code == ExitCode.PROBE
    assert f"slurmray: head node 127.0.0.1 did not open port {nodes.port} within 1 s" in text


def test_ray_does_not_start(nodes: Nodes) -> None:
    code, text = nodes.run(nodes.task(ray={"args": ["fails"]}, run=["echo", "ran"]))
    assert code == ExitCode.BRING_UP
    assert "ran" not in text


def test_without_a_key_there_is_no_token(nodes: Nodes) -> None:
    code, text = nodes.run(nodes.task(slurm={"nodes": 2}), key="")
    assert code == ExitCode.CONFIG
    assert "slurmray: ~/.ssh/dstack_job, needed for Ray's token, is missing" in text


def test_a_token_needs_ray_2_52(nodes: Nodes) -> None:
    code, text = nodes.run(nodes.task(ray={"auth": "token"}))
    assert code == ExitCode.CONFIG
    assert "slurmray: ray.auth: token needs an image with Ray 2.52 or later" in text
    shutil.move(nodes.place / "lib/ray-2.51.0.dist-info", nodes.place / "lib/ray-2.52.0.dist-info")
    (nodes.place / "lib/ray-2.52.0.dist-info/METADATA").write_text("Name: ray\nVersion: 2.52.0\n")
    assert nodes.run(nodes.task(ray={"auth": "token"}, run=["true"]))[0] == 0
    nodes.close()
    without = nodes.task(ray={"auth": "none"}, run=["true"])
    assert nodes.run(without, key="")[0] == 0


def test_commands_have_no_text_that_dstack_replaces() -> None:
    fields = {"setup": "echo $$ ${{ x }}", "env": {"A": "\n$$"}, "run": HOSTILE, "ray": {"args": HOSTILE[1:]}}
    for command in make_task(plan_of(JobSpec.model_validate(fields)))["commands"]:
        assert "$$" not in command
        assert "${{" not in command


@pytest.mark.parametrize("spec", CASES)
@pytest.mark.usefixtures("in_checkout")
def test_shellcheck(spec: str, tmp_path: Path) -> None:
    script = tmp_path / "commands.sh"
    commands = yaml.safe_load(render_case(spec))["commands"]
    script.write_text(
        "#!/bin/bash\n# shellcheck disable=SC1003,SC2016,SC2054,SC2088,SC2034\n" + " && ".join(commands)
    )
    tool = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([tool, script], check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
