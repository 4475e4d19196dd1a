"""What a dstack task runs on each node: environment variables and shell commands.

Ray's variables, options and ports come from the agent's modules, so both targets start the same Ray.

Quoting: dstack joins the commands with && and passes them to `bash -i -c`. Before that it replaces `$$` and
`${{ }}` in them twice (in `dstack apply` and in its server), and once in the values of variables (in its
server).
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from slurmray import agent
from slurmray.agent.container import ports as port_places
from slurmray.agent.container import variables
from slurmray.agent.container.ray import command as ray_command
from slurmray.errors import ExitCode
from slurmray.plan import Fact
from slurmray.resources import data_folder
from slurmray.slurm import syntax
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.types import as_argv

# Fixed: dstack gives a node to one run at a time, and these lie below the kernel's ephemeral ports.
DEFAULT_PORTS = {
    port_places.GCS: 6379,
    port_places.DASHBOARD: 8265,
    port_places.MASTER: 29500,
    port_places.NODE_MANAGER: 6380,
    port_places.OBJECT_MANAGER: 6381,
    port_places.AGENT: 6382,
    port_places.AGENT_GRPC: 6383,
    port_places.RUNTIME_ENV: 6384,
    port_places.METRICS: 6385,
}
# Bash expressions for the facts that presets pass to each node.
FACTS: dict[Fact, str] = {
    "rank": '"$DSTACK_NODE_RANK"',
    "nodes": '"$NODES"',
    "head": '"${DSTACK_MASTER_NODE_IP:-127.0.0.1}"',
    "ray_port": '"$PORT"',
}
_SPECIAL = re.compile(r"\$(?=\$|\{\{)")


def choose_ports(spec: JobSpec) -> dict[int, int]:
    """Return the port at each place of the agent's block; the job spec may set two of them."""
    ports = dict(DEFAULT_PORTS)
    if spec.ray.port != "auto":
        ports[port_places.GCS] = spec.ray.port
    if spec.ray.dashboard_port != "auto":
        ports[port_places.DASHBOARD] = spec.ray.dashboard_port
    return ports


def make_environment(spec: JobSpec) -> list[str]:
    """Return `NAME=VALUE` entries, and `NAME` for a value taken from the submitter.

    Multi-line values are left out, because dstack's list cannot hold them: make_commands() exports them.
    """
    token = "" if spec.ray.auth == "none" else f"{spec.ray.temp_dir}/slurmray/token"
    env: dict[str, str | None] = {
        **variables.RAY_DEFAULTS,
        "RAY_TMPDIR": spec.ray.temp_dir,
        **({} if spec.ray.metrics else variables.NO_METRICS),
        **spec.env,
        **variables.auth_variables(token),
    }
    return [
        name if value is None else f"{name}={value.replace('$', '$$') if _SPECIAL.search(value) else value}"
        for name, value in env.items()
        if "\n" not in (value or "")
    ]


def make_commands(spec: JobSpec, node_env: Mapping[str, Fact]) -> list[str]:
    """Return the shell commands: first the job's values, then programs and code that all jobs share.

    node_env: the variables that a preset sets on each node. ValueError if two ports are the same.
    """
    ports, limit = choose_ports(spec), syntax.seconds(dict(spec.slurm.given()).get("time") or "UNLIMITED")
    _refuse_clashes(ports)
    programs = {"PROBE": f"{_read_agent_file('container/ray/readiness.py')}\n{_read_file('probe.py')}"}
    if spec.run is None:
        programs["CHECK"] = f"{_read_agent_file('container/check_cluster.py')}\nsys.exit(main([]))"
    node_options = ray_command.node_options(spec.slurm.cpus_per_task, spec.gpus, ports)
    head_options = ray_command.port_options(ray_command.HEAD_PORTS, ports)
    values = [
        f"CONFIG={ExitCode.CONFIG.value} BRING_UP={ExitCode.BRING_UP.value} NOT_READY={ExitCode.PROBE.value}",
        f"NODES={spec.slurm.nodes}",
        f"GPUS_PER_NODE={spec.gpus}",
        f"PORT={ports[port_places.GCS]} MASTER_PORT={ports[port_places.MASTER]}",
        f"READY_TIMEOUT={spec.ray.ready_timeout}",
        f"STOP_SIGNAL={spec.stop.signal}",
        # dstack counts max_duration from about here (runner/internal/runner/executor).
        f"export SLURMRAY_END_TIME={f'$(($(date +%s) + {limit}))' if limit else ''}",
        *_format_array("RAY_ARGS", [*node_options, *spec.ray.args]),
        *_format_array("HEAD_ARGS", [*head_options, *spec.ray.head_args]),
        *_format_array("WORKER_ARGS", spec.ray.worker_args),
        *(f"export {name}={_quote(value)}" for name, value in spec.env.items() if value and "\n" in value),
        *(f"export {name}={FACTS[fact]}" for name, fact in node_env.items() if fact in FACTS),
    ]
    if spec.run is not None:
        values += _format_array("RUN", as_argv(spec.run) or [])
    parts = ["\n".join(values), "\n".join(f"{name}={_quote(program)}" for name, program in programs.items())]
    if spec.run is None:
        parts[1] += '\nRUN=(python3 -c "$CHECK")'
    if spec.prepare:
        parts.append("\n".join([*_format_array("PREPARE", _list_prepare(spec)), _read_file("prepare.sh")]))
    if spec.setup:
        # Its exit code does not count. Without `|| true`, && would skip the other commands.
        parts.append(f"eval {_quote(spec.setup)} </dev/null >&2 || true")
    if spec.ray.auth != "none":
        since = ".".join(map(str, variables.TOKEN_SINCE))
        parts.append(f"AUTH={spec.ray.auth} TOKEN_SINCE={since}\n{_read_file('token.sh')}")
    return [*parts, _read_file("task.sh")]


def _refuse_clashes(ports: Mapping[int, int]) -> None:
    node = {name: ports[place] for name, place in ray_command.NODE_PORTS.items()}
    head = {name: ports[place] for name, place in ray_command.HEAD_PORTS.items()}
    named = {**node, "MASTER_PORT": ports[port_places.MASTER], **head}
    for name, other in itertools.combinations(named, 2):
        if named[name] == named[other]:
            raise ValueError(f"{other} and {name} are both {named[name]} under dstack; set it to auto")


def _list_prepare(spec: JobSpec) -> list[str]:
    """Return the arguments of prepare_and_run in prepare.sh: exit code, number of steps, steps."""
    args = [str(ExitCode.PREPARE.value), str(len(spec.prepare))]
    for step in spec.prepare:
        args += [step.name, step.run if isinstance(step.run, str) else shlex.join(step.run)]
    return args


def _format_array(name: str, items: list[str]) -> list[str]:
    """Return the lines of a bash array."""
    quoted = [_quote(item) for item in items]
    short = f"{name}=({' '.join(quoted)})"
    return [short] if len(short) < 100 else [f"{name}=(", *(f"  {item}" for item in quoted), ")"]


def _quote(text: str) -> str:
    """Quote a text for bash so that dstack replaces nothing in it: empty quotes split `$$` and `${{`.

    dstack's escape, `$$` for `$`, does not work here: dstack replaces twice.
    """
    return _SPECIAL.sub("$''", shlex.quote(text))


def _read_agent_file(name: str) -> str:
    """Return the text of an agent module. The module must not import the rest of the agent."""
    return (Path(agent.__file__).parent / name).read_text(encoding="utf-8")


def _read_file(name: str) -> str:
    """Return a file of templates/dstack. Tabs become spaces: PyYAML would escape a text that has tabs."""
    return (data_folder("templates") / "dstack" / name).read_text(encoding="utf-8").rstrip("\n").expandtabs(2)
