"""scancel at every stage of a job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from tests.cluster.jobs import Job, wait_until

from .case import KILL_WAIT, Fault

_LISTEN = (
    "import socket, time; server = socket.create_server(('', 5000)); print(1, flush=True); time.sleep(600)"
)


@pytest.fixture
def silent_registry(cluster: SlurmCluster) -> Iterator[str]:
    """A registry in the login host's network that accepts connections and never answers."""
    enter = ["nsenter", "-t", str(cluster.pids["login"]), "-n", "setpriv", "--pdeathsig", "KILL"]
    with subprocess.Popen([*enter, sys.executable, "-c", _LISTEN], stdout=subprocess.PIPE) as server:
        assert server.stdout
        assert server.stdout.readline() == b"1\n"
        yield "login:5000"
        server.kill()


class HangingProgram:
    """A program, first in PATH, that records its start and then sleeps.

    name: the program in /usr/bin that it replaces. only_if: bash; if false, it runs that program.
    """

    def __init__(self, fault: Fault, name: str, only_if: str = "true"):
        self.folder = fault.jobs.folder / "bin"
        self._runs = fault.jobs.folder / "hanging-runs"
        self.folder.mkdir()
        lines = ["#!/bin/bash", f'{only_if} || exec /usr/bin/{name} "$@"']
        lines += [f"echo $$ >>{self._runs}", "exec sleep infinity"]
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o755)

    def runs_on_both(self) -> bool:
        """Return whether it has been started on both nodes."""
        return self._runs.exists() and len(self._runs.read_text().split()) == 2


def cancelled(fault: Fault, code: str = "143:0", clean_within: float = KILL_WAIT) -> Job:
    fault.inject(["scancel", str(fault.job)])
    job = fault.wait_end(clean_within=clean_within)
    assert (job.state, job.code) == ("CANCELLED", code), job.log
    return job


@pytest.mark.fault("scancel")
@pytest.mark.full
def test_while_the_image_is_pulled(fault: Fault, silent_registry: str) -> None:
    fault.submit(container={"image": f"{silent_registry}/none/such:1"})
    fault.wait_for_log("] image: ")
    cancelled(fault)


@pytest.mark.fault("scancel", "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.full
@pytest.mark.parametrize("phase", ["container", "ray", "probe"])
def test_while_it_comes_up(fault: Fault, phase: str) -> None:
    fault.submit()
    fault.wait_for_log(f"] {phase}: ")
    log = cancelled(fault).log
    assert "\nstarted\n" not in log, log


@pytest.mark.fault("scancel", "podman", "docker", "none", "apptainer", "pyxis")
def test_while_the_node_agents_are_started(fault: Fault) -> None:
    """Slurm's signal ends the Python process before it becomes the agent."""
    hanging = HangingProgram(fault, "python3", only_if="[[ ${!#} == node ]]")
    site = fault.jobs.folder / "site.sbatch.j2"
    block = f"{{% block site_prologue %}}\nexport PATH={hanging.folder}:$PATH\n{{% endblock %}}"
    site.write_text(f'{{% extends "job.sbatch.j2" %}}\n{block}\n')
    # With pyxis the agent runs in the container, whose PATH is its own.
    mount = {"mounts": [f"{hanging.folder}/python3:/usr/local/bin/python3"]}
    fault.submit(template=str(site), container=mount if fault.runtime == "pyxis" else {})
    wait_until(hanging.runs_on_both, fault.log)
    cancelled(fault, clean_within=5)


@pytest.mark.fault("scancel", "podman", "docker", "none", "apptainer", "pyxis")
def test_before_the_container_process_exists(fault: Fault) -> None:
    """Slurm's signal ends the program that would start it outside the task's process tree."""
    hanging = HangingProgram(fault, "setsid")
    fault.submit(setup=f"PATH={hanging.folder}:$PATH")
    wait_until(hanging.runs_on_both, fault.log)
    cancelled(fault, clean_within=5)


@pytest.mark.fault("scancel", "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.full
@pytest.mark.parametrize("stage", ["prepare", "services"])
def test_in_a_stage(fault: Fault, stage: str) -> None:
    save = "trap 'sleep 1; echo saved >>saved; exit 3' TERM; echo up >>up; while :; do sleep 0.1; done"
    item: dict[str, Any] = {"name": "long", "run": save, "where": "all"}
    if stage == "services":
        item["ready"] = {"run": "false"}
    parts: dict[str, Any] = {stage: [item]}
    fault.submit(**parts)
    fault.wait_for_log("] probe: 2/2 nodes")
    up, saved = fault.jobs.folder / "up", fault.jobs.folder / "saved"
    wait_until(lambda: up.exists() and up.read_text() == "up\n" * 2, fault.log)
    log = cancelled(fault).log
    assert f"] {stage}: long " in log, log
    if stage == "prepare":  # prepare steps get the trainer's grace period
        assert saved.read_text() == "saved\n" * 2


@pytest.mark.fault("scancel", "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.full
def test_while_it_trains(fault: Fault) -> None:
    save = "trap 'echo saving; sleep 1; echo saved; exit 3' TERM; echo started; while :; do sleep 0.1; done"
    fault.start_trainer(["bash", "-c", save])
    log = cancelled(fault, "3:0").log
    assert "\nsaved\n" in log, log
