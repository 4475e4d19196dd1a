"""bench.scale: its calculations, its stand-in for Ray, and the controller with simulated nodes."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import scale, simulate, stand_in_ray
from bench.scale import BARE, SLURMRAY, Measured
from bench.simulated_step import AT_ONCE, SPREAD
from slurmray.agent import loader, script_parts
from slurmray.agent.container.ray import fast_start
from slurmray.agent.controller.step import CONTROLLER_ONLY
from slurmray.rendering.script import render_script
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of

HANG = 120  # seconds; bounds a hang

# sdiag 22.05
SDIAG = """\
Server thread count:  3
Remote Procedure Call statistics by message type
\tREQUEST_JOB_STEP_CREATE                 ( 5001) count:1      ave_time:412    total_time:412
\tREQUEST_STEP_COMPLETE                   ( 5016) count:64     ave_time:98     total_time:6272
\tREQUEST_STATS_INFO                      ( 2035) count:3      ave_time:77     total_time:231

Remote Procedure Call statistics by user
\troot            (       0) count:68     ave_time:98     total_time:6915

Pending RPC statistics
\tNo pending RPCs
"""


def stat(pid: int, parent: int, *ticks: int, name: str = "bash") -> str:
    """Text of /proc/PID/stat. ticks: user and system time of the process, then of its ended children."""
    return f"{pid} ({name}) S {parent} {'0 ' * 9}{' '.join(map(str, ticks))} 20 0\n"


def test_cpu_seconds_include_all_descendants() -> None:
    tick = os.sysconf("SC_CLK_TCK")
    stats = [
        stat(1, 0, 900, 900, 900, 900),
        stat(10, 1, tick, 2 * tick, 0, 0),
        stat(11, 10, 0, 0, 3 * tick, tick, name="a) S 1 (b"),
        stat(12, 11, tick, 0, 0, 0),
        stat(13, 1, 500, 0, 0, 0),
    ]
    assert scale.cpu_seconds(stats, 10) == 8


def test_requests_exclude_those_of_sdiag() -> None:
    assert scale.parse_sdiag(SDIAG) == {"REQUEST_JOB_STEP_CREATE": 1, "REQUEST_STEP_COMPLETE": 64}
    assert scale.parse_sdiag("") == {}


def test_tables() -> None:
    results = {
        (2, BARE): [
            Measured(1.0, 2.0, 4.0, {"A": 1}),
            Measured(3.0, 2.0, 4.0, {"A": 1}),
            Measured(2.0, 9.0, 4.0, {}),
        ],
        (2, SLURMRAY): [Measured(5.0, 3.0, 4.0, {"B": 2, "A": 1})],
    }
    assert scale.table(results).splitlines()[2:] == [
        "| 2 | one srun that starts Ray, a probe, no checks | 2.0 (1.0) | 2.0 (1.0) | 4.0 (1.0) | 1 |",
        "| 2 | slurmray | 5.0 (2.5) | 3.0 (1.5) | 4.0 (1.0) | 3 |",
    ]
    assert scale.requests_table(results).splitlines() == [
        "| request, bare / slurmray | 2 hosts |",
        "|---|---|",
        "| A | 1 / 1 |",
        "| B | 0 / 2 |",
    ]


@pytest.mark.parametrize(
    "text, is_over",
    [
        ("[slurmray   1.7 s] done: trainer exited with 0\n", True),
        ("[slurmray   1.7 s] failed (71 node lost): node2: no heartbeat\n", True),
        ("done: trainer exited with 0\n", True),
        ("trainer began 1.5\n", False),
        ("[slurmray   1.7 s] done: trai", False),
    ],
)
def test_last_line_of_a_job_is_recognized(text: str, is_over: bool) -> None:
    assert bool(scale.LAST_LINE.search(text)) == is_over


@pytest.mark.parametrize("mode, code", [(SPREAD, 7), (AT_ONCE, 0)])
def test_controller_of_simulated_nodes_returns_the_trainers_exit_code(
    tmp_path: Path, mode: str, code: int
) -> None:
    result = simulate.simulate(tmp_path, 200, 1, code, mode)
    assert result.exit_seconds >= 0
    log = (tmp_path / "job.log").read_text()
    assert log.endswith(f"done: trainer exited with {code}\n")
    assert len(log.splitlines()) < 10  # no line for each node


def test_failed_simulation_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "_python", lambda: ["false"])
    with pytest.raises(simulate.SimulationError, match="the step ended unexpectedly"):
        simulate.simulate(tmp_path, 2, 0.1)


@pytest.fixture
def ray(tmp_path: Path) -> Iterator[Path]:
    """A folder with the stand-in for Ray."""
    stand_in_ray.install(tmp_path)
    yield tmp_path


def run_python(folder: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=True,
    )
    return done.stdout


def test_stand_in_has_the_internals_that_the_fast_start_patches(ray: Path) -> None:
    root = Path(scale.__file__).parents[1]
    code = f"""
import sys
from ray._private import node, services, utils
from ray.experimental import internal_kv
sys.path.append({str(root)!r})
from slurmray.agent.container.ray import command, fast_start
assert fast_start.missing_internal(services, node, internal_kv, utils) == ""
print(command.ray_version())
"""
    assert run_python(ray, code) == "('2.60.0', (2, 60))\n"
    assert (2, 60) in fast_start.TESTED


def test_stand_in_keeps_a_table_of_nodes(ray: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": str(ray)}
    argv = [sys.executable, str(ray / "bin/ray"), "start", "--block"]
    head = [*argv, "--head", f"--port={port}", "--node-ip-address=127.0.0.1", "--node-name=a", "--num-gpus=8"]
    worker = [*argv, f"--address=127.0.0.1:{port}", "--node-name=b"]
    nodes = [subprocess.Popen(options, env=env, start_new_session=True) for options in (head, worker)]
    code = f"""
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions
state = GlobalState()
state._initialize_global_state(GcsClientOptions.create("127.0.0.1:{port}", None))
print(sorted((row["NodeName"], row["Resources"]["GPU"]) for row in state.node_table() if row["Alive"]))
"""
    try:
        deadline, output = time.monotonic() + HANG, ""
        while output != "[('a', 8), ('b', 0)]\n" and time.monotonic() < deadline:
            try:
                output = run_python(ray, code)
            except subprocess.CalledProcessError:  # the GCS is not there yet
                time.sleep(0.1)
        assert output == "[('a', 8), ('b', 0)]\n"
        assert [node.poll() for node in nodes] == [None, None]
    finally:
        for node in nodes:
            os.killpg(node.pid, 9)
            node.wait()


def test_the_size_of_the_script_in_the_documentation() -> None:
    """docs/inside/scale.md: the figure may be wrong by 15%."""
    page = (Path(scale.__file__).parents[1] / "docs/inside/scale.md").read_text()
    figure = re.search(r"(\d+) KB of compressed script", page)
    assert figure
    text = render_script(plan_of(JobSpec()))
    agent = script_parts.read_agent(text)
    sent = text.replace(agent, loader.remove_sections(agent, CONTROLLER_ONLY))
    assert len(zlib.compress(sent.encode())) == pytest.approx(int(figure[1]) * 1000, rel=0.15)
