"""Signals that somebody sends to the processes of a job: what docs/guides/requeue.md says about each."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import signals
from slurmray.agent.script_parts import read_story
from tests.attacks import tried

from ..rendering.cases import hello
from .container.test_container_process import shell, wait_for_output
from .containers import cluster, settings
from .controller.test_controller_process import RECEIVE, Job
from .node.test_agent import Start, start  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[3]
_ROW = re.compile(r"^\| ([A-Z][A-Z0-9 ]+) \| (.*?) \| (.*?) \|$", re.MULTILINE)
# What the table says -> signals.
TABLE = {row[1].partition(":")[0]: row[0].split() for row in _ROW.findall(
    (ROOT / "docs/guides/requeue.md").read_text()
)}  # fmt: skip
PASSED_ON = TABLE["passed on to the trainer"]
IGNORED = TABLE["ignored"]


def number(name: str) -> int:
    return 16 if name == "STKFLT" else getattr(signal, f"SIG{name}")


def test_the_table_has_every_signal_once() -> None:
    names = [name for row in TABLE.values() for name in row]
    assert sorted(map(number, names)) == list(range(1, 32))
    assert set(PASSED_ON) == set(signals.PASSED_ON)


def test_bash_ignores_them_until_it_is_an_agent() -> None:
    (trapped,) = re.findall(r"\ntrap '' (.*)\n", read_story(hello()))
    assert trapped == signals.NAMES


@pytest.mark.attack("a signal that nobody meant for the job's own processes")
def test_the_controller_passes_them_on(tmp_path: Path) -> None:
    job = Job(tmp_path, "waits", srun={RECEIVE: f'[receive("signal") for _ in {PASSED_ON}]'})
    job.wait_for("waits")
    for name in tried(IGNORED):
        job.process.send_signal(number(name))
    for name in tried([*PASSED_ON, PASSED_ON[-1]]):
        job.process.send_signal(number(name))
        job.wait_for_log(f"signal {name}: passed on to the trainer")
    log = job.ends(5).log()
    assert re.findall(r"signal (\w+): passed on to the trainer", log) == PASSED_ON


def test_the_controller_in_its_first_moments(tmp_path: Path) -> None:
    """Also bash, before it becomes the controller."""
    job = Job(tmp_path, "0")
    time.sleep(0.01)
    for _ in range(30):
        for name in PASSED_ON:
            job.process.send_signal(number(name))
        time.sleep(0.01)
    job.ends(0)


def test_the_controller_in_its_last_moments(tmp_path: Path) -> None:
    """Python sets handlers back to the default at its end."""
    job = Job(tmp_path, "0")
    job.wait_for_log("warned")
    while job.process.poll() is None:
        job.process.send_signal(signal.SIGUSR1)
    job.ends(0)


@pytest.mark.attack("a signal that nobody meant for the job's own processes")
@pytest.mark.parametrize("head", ["node1", "node2"])
def test_the_head_nodes_task_passes_them_on(start: Start, head: str) -> None:  # noqa: F811
    node = start(slurm={"nodes": 2}).send_job((head, "node1" if head == "node2" else "node2"))
    node.wait_for("checked")
    node.container_log("PYTHON")
    for name in tried(IGNORED):
        node.process.send_signal(number(name))
    for name in tried(PASSED_ON):
        node.process.send_signal(number(name))
        if head == "node1":
            node.wait_for("signal", name=name)
    node.send("signal", name="USR1")
    assert '"name":"USR1"' in node.container_log('"type":"signal"')
    node.end()
    sent = [message["name"] for message in node.messages if message["type"] == "signal"]
    assert sent == (PASSED_ON if head == "node1" else [])


# Signals 32 and 33, which glibc keeps for itself: no program can change what it inherits, e.g. from a CI.
OF_GLIBC = 0b11 << 31

# Prints signals, ignored ones first.
TRAINER = """
grep SigIgn /proc/self/status
for name in {names}; do trap "echo got $name" $name; done
echo up
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("role", ["container", "guard"])
def test_the_trainer_gets_them_from_the_container_process(tmp_path: Path, role: str) -> None:
    names = [name for name in PASSED_ON if name != "INT"]
    given: Any = settings(trainer=shell(TRAINER.format(names=" ".join(PASSED_ON))))
    with cluster(tmp_path) as made:
        made.train(given, role=role, text="up")
        for name in [*IGNORED, *names]:  # to the container process itself
            made.head.process.send_signal(number(name))
        time.sleep(0.2)
        for name in PASSED_ON:
            made.send("signal", name=name)
            wait_for_output(made, f"got {name}\n")
        assert made.output().splitlines()[1:] == ["up", *(f"got {name}" for name in PASSED_ON)]
        ignored = int(made.output().splitlines()[0].partition("SigIgn:")[2], 16)
        assert not ignored & ~OF_GLIBC
