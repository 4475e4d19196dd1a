"""What a task of dstack runs on each node: environment and shell commands, and their quoting.

dstack joins the commands with && and gives them to `bash -i -c`, after it has looked for `$$` and `${{` in
them: `dstack apply` once, its server again, and in the values of variables the server once.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from slurmray import agent
from slurmray.errors import ExitCode
from slurmray.presets.context import Fact
from slurmray.resources import own
from slurmray.spec.job import JobSpec

GCS_PORT, MASTER_PORT = 6379, 29500
# A node is its run's alone, so nobody else takes them, nor does the kernel hand them out.
NODE_PORTS = {
    "--node-manager-port": 6380,
    "--object-manager-port": 6381,
    "--dashboard-agent-listen-port": 6382,
    "--dashboard-agent-grpc-port": 6383,
    "--runtime-env-agent-port": 6384,
    "--metrics-export-port": 6385,
}
# What a preset tells each node, as bash knows it there.
FACTS: dict[Fact, str] = {
    "rank": '"$DSTACK_NODE_RANK"',
    "nodes": '"$NODES"',
    "head": '"${DSTACK_MASTER_NODE_IP:-127.0.0.1}"',
    "ray_port": '"$PORT"',
}
_SPECIAL = re.compile(r"\$(?=\$|\{\{)")


def environment(spec: JobSpec) -> list[str]:
    """Return `NAME=VALUE`, and `NAME` for the value of who applies the task.

    Not values of several lines, which dstack's list can't hold; they are in commands().
    """
    env: dict[str, str | None] = {
        "PYTHONUNBUFFERED": "1",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_register_timeout_seconds": "120",
        "RAY_TMPDIR": spec.ray.temp_dir,
    }
    if not spec.ray.metrics:
        # No port, as slurmray/agent/container/ray/environment.py has it.
        env |= {
            "RAY_enable_metrics_collection": "0",
            "DASHBOARD_METRIC_PORT": "65536",
            "AUTOSCALER_METRIC_PORT": "65536",
        }
    env.update(spec.env)
    env["RAY_AUTH_MODE"] = "disabled" if spec.ray.auth == "none" else "token"
    if spec.ray.auth != "none":
        env["RAY_AUTH_TOKEN_PATH"] = f"{spec.ray.temp_dir}/slurmray/token"
    return [
        name if value is None else f"{name}={value.replace('$', '$$') if _SPECIAL.search(value) else value}"
        for name, value in env.items()
        if "\n" not in (value or "")
    ]


def commands(spec: JobSpec, dashboard_port: int, node_env: Mapping[str, Fact]) -> list[str]:
    """Return the commands: values, programs, then what is the same for all; ValueError for clashing ports.

    node_env: of a preset, as Advice has it.
    """
    gcs_port = GCS_PORT if spec.ray.port == "auto" else spec.ray.port
    _refuse_clashes(gcs_port, dashboard_port)
    programs = {"PROBE": f"{_agent_file('container/ray/readiness.py')}\n{_file('probe.py')}"}
    if spec.run is None:
        programs["CHECK"] = f"{_agent_file('container/check_cluster.py')}\nsys.exit(main([]))"
    values = [
        f"CONFIG={ExitCode.CONFIG.value} BRING_UP={ExitCode.BRING_UP.value} NOT_WHOLE={ExitCode.PROBE.value}",
        f"NODES={spec.slurm.nodes}",
        f"GPUS_PER_NODE={spec.gpus}",
        f"PORT={gcs_port} MASTER_PORT={MASTER_PORT}",
        f"READY_TIMEOUT={spec.ray.ready_timeout}",
        f"STOP_SIGNAL={spec.stop.signal}",
        *_array("RAY_ARGS", [*_ray_args(spec), *spec.ray.args]),
        *_array(
            "HEAD_ARGS", [f"--port={gcs_port}", f"--dashboard-port={dashboard_port}", *spec.ray.head_args]
        ),
        *_array("WORKER_ARGS", spec.ray.worker_args),
        *(f"export {name}={_quoted(value)}" for name, value in spec.env.items() if value and "\n" in value),
        *(f"export {name}={FACTS[fact]}" for name, fact in node_env.items() if fact in FACTS),
    ]
    if spec.run is not None:
        values += _array("RUN", ["bash", "-c", spec.run] if isinstance(spec.run, str) else spec.run)
    parts = ["\n".join(values), "\n".join(f"{name}={_quoted(text)}" for name, text in programs.items())]
    if spec.run is None:
        parts[1] += '\nRUN=(python3 -c "$CHECK")'
    if spec.prepare:
        parts.append("\n".join([*_array("PREPARE", _prepare(spec)), _file("prepare.sh")]))
    if spec.setup:
        # As on Slurm its errors are its own business; but a failure here would skip the next command.
        parts.append(f"eval {_quoted(spec.setup)} </dev/null >&2 || true")
    if spec.ray.auth != "none":
        parts.append(f"AUTH={spec.ray.auth}\n{_file('token.sh')}")
    return [*parts, _file("task.sh")]


def _refuse_clashes(gcs_port: int, dashboard_port: int) -> None:
    ports = {**NODE_PORTS, "MASTER_PORT": MASTER_PORT, "--port": gcs_port, "--dashboard-port": dashboard_port}
    for name, other in itertools.combinations(ports, 2):
        if ports[name] == ports[other]:
            raise ValueError(f"{other} and {name} are both {ports[name]} under dstack; set it to auto")


def _ray_args(spec: JobSpec) -> list[str]:
    """Options of `ray start` on every node, as slurmray/agent/container/ray/command.py has them."""
    words = [f"--num-gpus={spec.gpus}"]
    if spec.slurm.cpus_per_task:
        words.append(f"--num-cpus={spec.slurm.cpus_per_task}")
    words += [f"{name}={port}" for name, port in NODE_PORTS.items()]
    return [*words, "--min-worker-port=0", "--max-worker-port=0"]


def _prepare(spec: JobSpec) -> list[str]:
    """The arguments of prepare.sh."""
    words = [str(ExitCode.PREPARE.value), str(len(spec.prepare))]
    for item in spec.prepare:
        words += [item.name, item.run if isinstance(item.run, str) else shlex.join(item.run)]
    return words


def _array(name: str, words: list[str]) -> list[str]:
    quoted = [_quoted(word) for word in words]
    short = f"{name}=({' '.join(quoted)})"
    return [short] if len(short) < 100 else [f"{name}=(", *(f"  {word}" for word in quoted), ")"]


def _quoted(text: str) -> str:
    """A word for bash in which dstack finds nothing to replace: empty quotes split `$$` and `${{`.

    dstack's own `$$` for `$` would not do: what the first reader makes of it is the second one's to replace.
    """
    return _SPECIAL.sub("$''", shlex.quote(text))


def _agent_file(name: str) -> str:
    """A module of the agent that imports nothing of it."""
    return (Path(agent.__file__).parent / name).read_text(encoding="utf-8")


def _file(name: str) -> str:
    # PyYAML writes no text with a tab as it is.
    return (own("templates") / "dstack" / name).read_text(encoding="utf-8").rstrip("\n").expandtabs(2)
