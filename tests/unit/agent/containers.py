"""Container processes of a job, started without containers; Ray and the controller are stand-ins."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurmray.agent import loader
from slurmray.agent.node.agent_interface import NodeApi
from slurmray.agent.node.service_logs import ServiceLogs
from slurmray.agent.parts import PARTS
from slurmray.rendering.script import agent_text

from .peer import Peer
from .waiting import wait_for_text
from .wire_types import TO_CONTAINER, TO_CONTROLLER

TIMEOUT = 60  # seconds; bounds a hang

# A stand-in with the internals of Ray 2.60 that `ray.start: fast` uses. All nodes append their events to the
# file EVENTS, and their rows to the file TABLE.
RAY = {
    "ray/__init__.py": "",
    "ray/_private/__init__.py": "",
    "ray/experimental/__init__.py": "",
    "ray/scripts/__init__.py": "",
    "ray/experimental/internal_kv.py": """
import os

STORE = {}


def event(text):
    with open(os.environ["EVENTS"], "a") as file:
        file.write(text + "\\n")


def _internal_kv_get(key, *, namespace=None):
    if key == "dashboard" and STORE.setdefault("asked", 0) < 2:
        STORE["asked"] += 1
        return None
    return None if os.environ.get("RAY_FAULT") == "no dashboard" else STORE.get((key, namespace), b"x:1")


def _internal_kv_put(key, value, overwrite=True, *, namespace=None):
    event(f"put {key} {value} {namespace}")


def _internal_kv_del(key, *, del_by_prefix=False, namespace=None):
    event(f"del {key} {namespace}")
""",
    "ray/_private/services.py": """
import os
import subprocess
from ray.experimental.internal_kv import event


def start_ray_process(command, process_type, fate_share=True):
    event(f"start {process_type}" + (" later" if any("start-later" in word for word in command) else ""))
    if process_type == "raylet" and os.environ.get("RAY_FAULT") == "raylet":
        return subprocess.Popen(["false"], executable=os.environ["RAYLET_THAT_FAILS"])
    names = {"raylet": "raylet", "gcs_server": "gcs_server"}
    program = os.path.join(os.environ["PROGRAMS"], names.get(process_type, "dashboard"))
    return subprocess.Popen([program, "600"])
""",
    "ray/_private/utils.py": "def get_dashboard_dependency_error(): pass",
    "ray/_private/node.py": """
import os
import socket
import time
from ray._private import services
from ray.experimental import internal_kv


class Node:
    def __init__(self, ray_params, head=False):
        self.params, self._webui_url = ray_params, None
        if head:
            self.gcs = socket.create_server((ray_params["node-ip-address"], int(ray_params["port"])))
            services.start_ray_process(["gcs_server"], "gcs_server")
            self.start_api_server(include_dashboard=None, raise_on_failure=False)
        self.start_ray_processes()

    def start_api_server(self, *, include_dashboard, raise_on_failure):
        port = self.params["dashboard-port"]
        command = ["dashboard", "--host=127.0.0.1", f"--port={port}", "--port-retries=0"]
        services.start_ray_process(command, "dashboard")
        tries = 0
        while tries < 5 and internal_kv._internal_kv_get("dashboard", namespace="ns") is None:
            internal_kv.event("wait for dashboard")
            tries += 1
            time.sleep(float(os.environ.get("DASHBOARD_SECONDS", "0.1")))
        self._webui_url = None if tries == 5 else f"127.0.0.1:{port}"
        if self._webui_url:
            try:
                self.dashboard = socket.create_server(("127.0.0.1", int(port)))
            except OSError:
                self._webui_url = None
        if self._webui_url:
            internal_kv._internal_kv_put("webui:url", self._webui_url, True, namespace="ns")

    def start_ray_processes(self):
        command = ["raylet", f"agent.py --listen-port={self.params['dashboard-agent-listen-port']}"]
        services.start_ray_process(command, "raylet")
        if os.environ.get("RAY_FAULT") != "no " + self.params["node-name"]:
            with open(os.environ["TABLE"], "a") as file:
                file.write(f"{self.params['node-name']} {self.params['num-gpus']}\\n")
""",
    "ray/_private/state.py": """
import os


class GlobalState:
    def _initialize_global_state(self, options):
        pass

    def node_table(self):
        if not os.path.exists(os.environ["TABLE"]):
            return []
        rows = (line.split() for line in open(os.environ["TABLE"]))
        return [{"Alive": True, "NodeName": name, "Resources": {"GPU": float(gpus)}} for name, gpus in rows]
""",
    "ray/_raylet.py": """
class GcsClientOptions:
    @staticmethod
    def create(*_, **__):
        return None
""",
    "ray/scripts/scripts.py": """
import os
import sys
import time
from ray._private import node
from ray.experimental.internal_kv import event


def get_ray_client_dependency_error():
    return None


def main():
    event("ray " + " ".join(sys.argv[1:3]))
    if os.environ.get("RAY_FAULT") == "exits":
        sys.exit(9)
    options = dict(each[2:].partition("=")[::2] for each in sys.argv if each.startswith("--"))
    if "head" in options and not get_ray_client_dependency_error():
        event("ray client on port " + options.get("ray-client-server-port", "10001"))
    started = node.Node(options, head="head" in options)
    event("started " + options["node-name"])
    time.sleep(600)
    del started
""",
}


def group(nodes: int, gpus: int, name: str = "", spares: int = 0) -> dict[str, Any]:
    """Return a group of nodes, as in the settings."""
    return {"name": name, "nodes": nodes, "spares": spares, "gpus_per_node": gpus, "cpus_per_node": 0}


SETTINGS: dict[str, Any] = {
    "version": "0",
    "render_again": "slurmray render job.yaml",
    "groups": [group(1, 2)],
    "slurm_counts_gpus": True,
    "only_checks": False,
    "run_dir": "slurmray-runs",
    "temp_dir": "/tmp",
    "setup": "",
    "preflight": "fail",
    "on_node_loss": "fail",
    "restart": {"max": 3, "window": 600, "exit_codes": [], "grace": 5},
    "requeue": {"max": 0, "exit_code": 0},
    "stop": {"lead": 0, "grace": 10, "signal": "TERM", "cancel_signal": "TERM"},
    "notify": None,
    "timeouts": {"ready": 30, "heartbeat": 25},
    "watch": {"interval": 0, "stall": 0, "action": "report", "progress": ""},
    "container": {
        "runtimes": ["none"],
        "accelerators": [],
        "command": "",
        "image": "",
        "image_with_registry": "",
        "source": "",
        "pull": "missing",
        "stage": "node",
        "build": None,
        "archive": "",
        "user": "auto",
        "mounts": [],
        "args": [],
        "step_args": [],
        "workdir": "/",
        "python": "python3",
        "setup": "",
        "setup_timeout": 600,
        "shm_size": "",
    },
    "checks": {"paths": [], "same_commit": "", "bf16": False, "burn_in": 0},
    "ray": {
        "nodes": 0,
        "gpus": 2,
        "head": {"gpus": 2, "cpus": None, "memory": None},
        "port": "auto",
        "dashboard_port": "auto",
        "auth": "auto",
        "metrics": False,
        "keep_logs": "on_failure",
        "debug": "none",
        "start": "fast",
        "args": [],
        "head_args": [],
        "worker_args": [],
    },
    "network": {"interface": "", "family": "auto"},
    "env": {},
    "env_from_submitter": [],
    "sweep": {},
    "env_file": "",
    "node_env": "",
    "preset_env": {},
    "prepare": [],
    "services": [],
    "trainer": {"nnodes": 2, "launch": "exec", "command": ["true"], "resume": [], "runtime_env": None},
}

JOB: dict[str, Any] = {
    "id": "7",
    "name": "my job",
    "name_for_commands": "7",
    "attempt": 0,
    "chances": 0,
    "restart": 0,
    "restarts_before": 0,
    "batch_host": "gpu-1",
    "nodes": ["gpu-1"],
    "spares": [],
    "spares_of_groups": [0],
    "cpus": [4],
    "memory": [0],
    "grace": 10,
    "end_time": 0,
    "slurmd_port": 1,
    "run_dir": "/nowhere",
    "log_file": "/nowhere/log",
    "mark": "abc",
    "token": "secret",
    "started": 0.0,
    "env": {},
    "done_before": [],
    "stalls": 0,
    "commit": "",
}


def merge(values: dict[str, Any], changes: dict[str, Any]) -> None:
    """Change settings; dicts are merged."""
    for key, value in changes.items():
        if isinstance(values.get(key), dict) and key not in ("env", "preset_env"):
            values[key].update(value)
        else:
            values[key] = value


def settings(**changes: Any) -> dict[str, Any]:
    """Return SETTINGS with changes."""
    result: dict[str, Any] = json.loads(json.dumps(SETTINGS))
    merge(result, changes)
    return result


def prepare(name: str, run: str | list[str], **fields: Any) -> dict[str, Any]:
    """A prepare step of the settings. run: argv, or commands for bash."""
    run = ["bash", "-c", run] if isinstance(run, str) else run
    return {"name": name, "run": run, "where": "head", "needs_ray": False, "once": False, **fields}


def service(name: str, run: str | list[str], **fields: Any) -> dict[str, Any]:
    """Likewise a service."""
    own = {"host": False, "env": {}, "gpus": 0, "restarts": 0, "on_end": "fail"}
    ready = {"ready": {"timeout": 600, **fields.pop("ready")}} if "ready" in fields else {}
    step = prepare(name, run, **{"where": "all", **own, **fields, **ready})
    return {field: value for field, value in step.items() if field != "once"}


def job(**changes: Any) -> dict[str, Any]:
    """Return JOB with changes, and an id that no other test process uses."""
    return {**json.loads(json.dumps(JOB)), "id": str(os.getpid()), **changes}


# Constants of the agent, in seconds -> values for tests in which it would wait for that long.
QUICK = {
    "LONGEST = 2.5": "LONGEST = 0.5",
    "SUCCESSOR_WAIT = 10.0": "SUCCESSOR_WAIT = 2.0",  # a busy machine may stop a process for half a second
    "FILE_WAIT = 10.0": "FILE_WAIT = 2.0",  # likewise
    "LOG_WAIT = 20.0": "LOG_WAIT = 1.0",
    "ENDING_TIME = 60.0": "ENDING_TIME = 0.5",
    "OUTPUT_WAIT = 10.0": "OUTPUT_WAIT = 1.0",
    "LOGS_WAIT = 4.0": "LOGS_WAIT = 1.0",
}


def quick(script: str) -> str:
    """Return a script whose agent waits for less long."""
    for line, other in QUICK.items():
        assert script.count(f"\n{line} ") == 1, line
        script = script.replace(f"\n{line} ", f"\n{other} ")
    return script


def write_agent(folder: Path, agent: str | None = None) -> str:
    """Write the agent's program like a node agent; return its path. agent: a changed one."""
    path = str(folder / "agent")
    loader.write_program(path, agent or agent_text(PARTS))
    return path


def write_ray(lib: Path, version: str = "2.60.0", **replaced: str) -> None:
    """Write the stand-in for Ray into a folder for PYTHONPATH. replaced: path with `__` for `/` -> text."""
    files = {**RAY, **{name.replace("__", "/") + ".py": content for name, content in replaced.items()}}
    files[f"ray-{version}.dist-info/METADATA"] = f"Metadata-Version: 2.1\nName: ray\nVersion: {version}\n"
    for name, content in files.items():
        (lib / name).parent.mkdir(parents=True, exist_ok=True)
        (lib / name).write_text(content)


class LogAgent(NodeApi):
    """A node agent with as much as ServiceLogs needs. inside: the job's folder. logs: for the logs."""

    inside = ""

    def __init__(self, name: str, inside: Path, logs: Path, spec: Any, of_job: Any) -> None:
        self.name, self.settings, self.job = name, spec, of_job
        self.inside = str(inside)
        self.log_path = f"{logs}/{name}.log"


class Node:
    """A container process. received: its messages."""

    def __init__(self, folder: Path, name: str, env: dict[str, str], role: str = "container") -> None:
        self.folder = folder
        self.name = name
        folder.mkdir()
        # The machine of the tests may have no other address.
        address = "ContainerProcess.choose_address = lambda self, family: '127.0.0.1'\n"
        write_agent(
            folder, agent_text(PARTS).replace("\nmain = run_container", f"\n{address}main = run_container")
        )
        for stream in ("out", "err"):
            os.mkfifo(folder / stream)
        self.log = folder.parent / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [env.get("PYTHON", sys.executable), "-I", str(folder / "agent"), role, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                cwd="/",
            )
        assert self.process.stdin
        assert self.process.stdout
        descriptors = self.process.stdout.fileno(), self.process.stdin.fileno()
        self.peer = Peer(*descriptors, TO_CONTAINER, TO_CONTROLLER)
        self.send, self.received = self.peer.send, self.peer.received

    def next(self, seconds: float = TIMEOUT) -> dict[str, Any] | None:
        """Return the next message; None at the end of output."""
        message = self.peer.next(seconds)
        assert not message or message["node"] == self.name
        return message

    def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the next message of that type with those fields."""
        while True:
            try:
                message = self.next()
            except TimeoutError:
                message = None
            assert message, f"no {kind} {fields} in {self.received}\n{self.log.read_text()}"
            if message["type"] == kind and fields.items() <= message.items():
                return message

    def close(self) -> int:
        """Close the input, wait for the end, and return the exit code."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(TIMEOUT)

    def kinds(self) -> list[str]:
        return [message["type"] for message in self.received]


NO_VARIABLES: dict[str, dict[str, str]] = {"env_file": {}, "node_env": {}, "gpu_masks": {}}


class Cluster:
    """Container processes of one job's nodes, and a stand-in for the controller between them."""

    def __init__(self, folder: Path, names: list[str], version: str = "2.60.0", **ray: str) -> None:
        self.folder = folder
        self.names = names
        lib = folder / "lib"
        write_ray(lib, version, **ray)
        programs = folder / "programs"
        programs.mkdir()
        for name in ("raylet", "gcs_server", "dashboard"):
            shutil.copy("/bin/sleep", programs / name)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(lib),
            "EVENTS": str(folder / "events"),
            "TABLE": str(folder / "table"),
            "PROGRAMS": str(programs),
        }
        self.nodes: list[Node] = []
        self.readers: list[subprocess.Popen[bytes]] = []
        self.stages: dict[str, int] = {}
        self.taking_part = 0  # nodes that are not spare

    def start(
        self,
        spec: dict[str, Any],
        this_job: dict[str, Any] | None = None,
        role: str = "container",
        peers: Sequence[str] = (),
        variables: dict[str, dict[str, dict[str, str]]] | None = None,
    ) -> None:
        """Start the container processes, and Ray in them.

        peers: addresses of all nodes. variables: NO_VARIABLES of a node.
        """
        this_job = this_job or job()
        this_job["nodes"] = [name for name in self.names if name not in this_job["spares"]]
        self.taking_part = len(this_job["nodes"])
        spec["ray"]["nodes"] = spec["ray"].get("nodes") or len(this_job["nodes"])
        this_job["spares_of_groups"] = [len(this_job["spares"])]
        if len(spec["groups"]) == 1:
            spec["groups"][0]["nodes"] = len(this_job["nodes"])
        for rank, name in enumerate(self.names):
            node = Node(self.folder / f"job-{name}", name, self.env, role)
            self.nodes.append(node)
            if spec["services"]:
                ServiceLogs(LogAgent(name, node.folder, self.folder, spec, this_job))
            node.send("settings", settings=spec)
            node.send("job", job=this_job)
            node.send(
                "node",
                rank=rank,
                user="alice",
                memory=1024,
                addresses=["127.0.0.1"],
                labels={},
                runtime="podman",
                unset=["XDG_RUNTIME_DIR"],
                umask=0o027,
                workdir=spec["container"]["workdir"],
                **{**NO_VARIABLES, **(variables or {}).get(name, {})},
            )
        self.send("start_ray", peers=list(peers))

    def exit_code(self, spec: dict[str, Any], this_job: dict[str, Any] | None = None, **options: Any) -> int:
        """Start a job as `start` does; return its trainer's exit code."""
        self.start(spec, this_job, **options)
        code: int = self.run_until("exit")["code"]
        return code

    def train(
        self, spec: dict[str, Any], this_job: dict[str, Any] | None = None, text: str = "", **options: Any
    ) -> None:
        """Start a job as `start` does; return once its trainer has printed the text."""
        self.start(spec, this_job, **options)
        self.run_until("trainer")
        wait_for_text(self.folder / "out", text)

    def send(self, kind: str, **fields: Any) -> None:
        for node in self.nodes:
            node.send(kind, **fields)

    @property
    def head(self) -> Node:
        return self.nodes[0]

    def run(self, until: Callable[[Node, dict[str, Any]], bool]) -> dict[str, Any]:
        """Act like the controller until a message fulfils a condition; return the message."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            for node in self.nodes:
                try:
                    message = node.next(0.05)
                except TimeoutError:
                    continue
                assert message, f"{node.name} has ended: {node.received}\n{node.log.read_text()}"
                self._act(node, message)
                if until(node, message):
                    return message
        logs = "\n".join(node.log.read_text() for node in self.nodes)
        raise AssertionError(f"{[node.received for node in self.nodes]}\n{logs}")

    def run_until(self, kind: str, **fields: Any) -> dict[str, Any]:
        return self.run(lambda _, message: message["type"] == kind and fields.items() <= message.items())

    def _act(self, node: Node, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "versions":
            self.send("head_versions", text=message["text"])
        elif kind == "join":
            self.send("join", address=message["address"])
        elif kind == "ready":
            self.send(
                "ready", **({"burn_in_port": message["burn_in_port"]} if "burn_in_port" in message else {})
            )
        elif kind == "reachable_at":
            self.send("check_reachable", targets=[[node.name, message["address"], message["ports"]]])
        elif kind in ("stage_done", "burn_in"):
            stage = message.get("stage", "burn-in")
            count = self.stages[stage] = self.stages.get(stage, 0) + 1
            if count == self.taking_part:
                self.send("stage_done", stage=stage)
        elif kind == "trainer":
            for stream in ("out", "err"):
                target = (self.folder / stream).open("wb")
                with target:
                    reader = subprocess.Popen(["cat", str(node.folder / stream)], stdout=target)
                    self.readers.append(reader)

    def output(self) -> str:
        """Return the trainer's standard output so far."""
        return (self.folder / "out").read_text()

    def events(self) -> list[str]:
        """Return the events of the stand-in for Ray, once the last node has started."""
        path = self.folder / "events"
        return wait_for_text(path, f"started {self.names[-1]}\n").splitlines()


@contextmanager
def cluster(folder: Path, *names: str, version: str = "2.60.0", **ray: str) -> Iterator[Cluster]:
    """A cluster whose processes end with the `with` block."""
    new = Cluster(folder, list(names or ("gpu-1",)), version, **ray)
    try:
        yield new
    finally:
        for node in new.nodes:
            assert node.process.stdin
            node.process.stdin.close()
            try:
                node.process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                node.process.kill()
        for reader in new.readers:
            reader.kill()
            reader.wait()


def left_over(folder: Path) -> list[str]:
    """Return the command lines of processes with the folder in argv or environment, except zombies."""
    command_lines = []
    for pid in (path.name for path in Path("/proc").glob("[0-9]*")):
        try:
            command_line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            data = Path(f"/proc/{pid}/environ").read_bytes() + command_line.encode()
        except OSError:
            continue
        if str(folder).encode() in data and int(pid) != os.getpid():
            command_lines.append(command_line)
    return command_lines
