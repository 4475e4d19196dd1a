"""scancel at every stage of a job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from slurmray.rehearsal.lab import Lab
from tests.cluster.jobs import Job, wait_until

from .case import KILL_WAIT, Fault

_LISTEN = (
    "import socket, time; server = socket.create_server(('', 5000)); print(1, flush=True); time.sleep(600)"
)


@pytest.fixture
def silent_registry(lab: Lab) -> Iterator[str]:
    """It takes connections and never says a word. It is in the login host's network only."""
    enter = ["nsenter", "-t", str(lab.pids["login"]), "-n", "setpriv", "--pdeathsig", "KILL"]
    with subprocess.Popen([*enter, sys.executable, "-c", _LISTEN], stdout=subprocess.PIPE) as server:
        assert server.stdout
        assert server.stdout.readline() == b"1\n"
        yield "login:5000"
        server.kill()


def cancelled(fault: Fault, code: str = "143:0", clean_within: float = KILL_WAIT) -> Job:
    fault.strike(["scancel", str(fault.job)])
    job = fault.end(clean_within=clean_within)
    assert (job.state, job.code) == ("CANCELLED", code), job.log
    return job


@pytest.mark.fault("scancel")
@pytest.mark.full
def test_while_the_image_is_pulled(fault: Fault, silent_registry: str) -> None:
    fault.submit(container={"image": f"{silent_registry}/none/such:1"})
    fault.until("] image: ")
    cancelled(fault)


@pytest.mark.fault("scancel", "podman", "docker", "none", "apptainer")
@pytest.mark.full
@pytest.mark.parametrize("phase", ["container", "ray", "probe"])
def test_while_it_comes_up(fault: Fault, phase: str) -> None:
    fault.submit()
    fault.until(f"] {phase}: ")
    log = cancelled(fault).log
    assert "\nstarted\n" not in log, log


@pytest.mark.fault("scancel", "podman", "docker", "none", "apptainer")
def test_before_its_first_process_has_begun(fault: Fault) -> None:
    """Slurm's signal also ends the process that would become it."""
    begun = fault.jobs.folder / "begun"
    fake = fault.jobs.folder / "bin/setsid"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/bash\necho $$ >>{begun}\nexec sleep infinity\n")
    fake.chmod(0o755)
    fault.submit(setup=f"PATH={fake.parent}:$PATH")
    wait_until(lambda: begun.exists() and len(begun.read_text().split()) == 2, fault.log)
    cancelled(fault, clean_within=5)


@pytest.mark.fault("scancel", "podman", "docker", "none", "apptainer")
def test_while_a_node_asks_for_a_name(fault: Fault) -> None:
    """Bash 5.2 breaks where a trap's turn is between two command substitutions of one command.

    That is so when the signal comes after the answer of the first, but before its end.
    """
    asked = fault.jobs.folder / "asked"
    slow = fault.jobs.folder / "bin/id"
    slow.parent.mkdir()
    in_time = f"[[ ! -e /tmp/ray-$SLURM_JOB_ID-0/client ]] || {{ exec >&-; echo >>{asked}; sleep 1; }}"
    slow.write_text(f"#!/bin/bash\ntrap '' TERM\n/usr/bin/id \"$@\"\n{in_time}\n")
    slow.chmod(0o755)
    fault.submit(setup=f"PATH={slow.parent}:$PATH")
    wait_until(lambda: asked.exists() and len(asked.read_text()) == 2, fault.log)
    job = cancelled(fault)
    said = "".join(file.read_text() for file in job.run.glob("logs/*"))
    assert "unexpected EOF" not in said, said


@pytest.mark.fault("scancel", "podman", "docker", "none", "apptainer")
@pytest.mark.full
@pytest.mark.parametrize("stage", ["prepare", "services"])
def test_in_a_stage(fault: Fault, stage: str) -> None:
    save = "trap 'sleep 1; echo saved >>saved; exit 3' TERM; echo up >>up; while :; do sleep 0.1; done"
    item: dict[str, Any] = {"name": "long", "run": save, "where": "all"}
    if stage == "services":
        item["ready"] = {"run": "false"}
    parts: dict[str, Any] = {stage: [item]}
    fault.submit(**parts)
    fault.until("] probe: 2/2 nodes")
    up, saved = fault.jobs.folder / "up", fault.jobs.folder / "saved"
    wait_until(lambda: up.exists() and up.read_text() == "up\n" * 2, fault.log)
    log = cancelled(fault).log
    assert f"] {stage}: long " in log, log
    if stage == "prepare":  # which has the grace of a trainer
        assert saved.read_text() == "saved\n" * 2


@pytest.mark.fault("scancel", "podman", "docker", "none", "apptainer")
def test_while_it_trains(fault: Fault) -> None:
    save = "trap 'echo saving; sleep 1; echo saved; exit 3' TERM; echo started; while :; do sleep 0.1; done"
    fault.train(["bash", "-c", save])
    log = cancelled(fault, "3:0").log
    assert "\nsaved\n" in log, log
