"""A restart in bad moments: each event in each phase, on a real Slurm.

tests/unit/agent/controller/test_restart_moments.py has the same table with simulated nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from tests.cluster.jobs import HANG, wait_until

from .case import CONTROLLER, KILL_WAIT, NODE_AGENT, Fault
from .test_host_loss import boot_again

STOP, WAIT, CHECKS, CONTAINERS, RAY, PREPARE = PHASES = (
    "stop",
    "wait",
    "checks",
    "containers",
    "ray",
    "prepare",
)
PAUSE = 12  # seconds; a job that stands still for 10 s counts as suspended
# Waits for the event where the phase is the one under test.
HOOK = "if [[ -e phase-{0} ]]; then touch here; until [[ -e go ]]; do sleep 0.1; done; fi; "
ON_WORKERS = "[[ $(</proc/sys/kernel/hostname) == node1 ]] || {{ {0}:; }}"
TRAINER = f"""
trap 'if [[ -e phase-{STOP} ]]; then touch here; else exit 1; fi' TERM
((SLURMRAY_RESTART)) && exit
echo started
until [[ -e go ]]; do sleep 0.1; done
exit 1
"""
# What the controller sees of slurmctld: the truth, or what a file says.
SCONTROL = """#!/bin/bash
if [[ $1 == ping ]]; then
	[[ ! -e {0}/phase-wait ]] || touch {0}/here
	[[ ! -e {0}/is-down ]] || exit 1
	[[ ! -e {0}/is-up || -e {0}/is-tried ]] || exit 0
fi
exec /usr/bin/scontrol "$@"
"""
# slurmctld seems to be up until the next start: it must have answered for some seconds before.
SRUN = """#!/bin/bash
[[ ! -e {0}/is-up ]] || touch {0}/is-tried
exec /usr/bin/srun "$@"
"""
SITE = """{{% extends "job.sbatch.j2" %}}
{{% block site_prologue %}}
export PATH={0}/bin:$PATH
{{% endblock %}}
"""


@pytest.fixture
def cluster_config() -> ClusterConfig:
    """Three small hosts."""
    options = {"KillWait": str(KILL_WAIT)}
    return ClusterConfig(nodes=("node1", "node2", "node3"), cpus=2, options=options)


class Restart:
    """A job of three nodes whose restart on all of them, or on two, has come to a phase."""

    def __init__(self, fault: Fault, phase: str) -> None:
        self.fault, self.cluster, self.phase = fault, fault.cluster, phase
        self.folder = fault.jobs.folder
        self.hosts_back: list[str] = []  # to be booted at the end
        self._start_job()

    def _start_job(self) -> None:
        (self.folder / "bin").mkdir()
        for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
            (self.folder / "bin" / name).write_text(text.format(self.folder))
            (self.folder / "bin" / name).chmod(0o755)
        (self.folder / "site.sbatch.j2").write_text(SITE.format(self.folder))
        setup = HOOK.format(CONTAINERS) + ON_WORKERS.format(HOOK.format(RAY))
        self.fault.start_trainer(
            ["bash", "-c", TRAINER],
            slurm={"nodes": 3},
            template=str(self.folder / "site.sbatch.j2"),
            on_node_loss="restart",
            restart={"grace": 60, "min_nodes": 2},
            setup='echo "$SLURM_STEP_ID" >>steps; ' + HOOK.format(CHECKS),
            container={} if self.fault.runtime == "none" else {"setup": setup},
            prepare=[{"name": "data", "run": HOOK.format(PREPARE), "where": "all"}],
        )
        (self.folder / f"phase-{self.phase}").touch()
        if self.phase == WAIT:
            (self.folder / "is-down").touch()
        self.fault.kill_container("node2")
        wait_until(self._has_come, self.fault.log)
        self.fault.start_clock()

    def _has_come(self) -> bool:
        is_in_ray = self.phase != RAY or self.fault.log().count("] ray: head at ") == 2
        return (self.folder / "here").exists() and is_in_ray

    def go_on(self) -> None:
        (self.folder / "is-down").unlink(missing_ok=True)
        (self.folder / "go").touch()

    def steps(self) -> int:
        """How many steps had tasks."""
        return len(set((self.folder / "steps").read_text().split()))

    def stop_slurmctld(self) -> None:
        self.fault.inject(
            ["bash", "-c", "pid=$(</run/slurmctld.pid); kill $pid && tail --pid=$pid -f /dev/null"]
        )

    def start_slurmctld(self) -> None:
        if self.cluster.run(["scontrol", "ping"]).returncode:
            self.cluster.run(["slurmctld"])
            wait_until(lambda: self.cluster.run(["scontrol", "ping"]).returncode == 0, lambda: "no slurmctld")


# -- events: each returns when the job has noticed it ------------------------------------------------------


def scancel(restart: Restart) -> None:
    restart.fault.inject(["scancel", str(restart.fault.job)], user="alice")


def time_limit(restart: Restart) -> None:
    """Where nothing runs, the warning a minute before is the end."""
    restart.fault.set_time_left(50 if restart.phase == WAIT else 0)


def second_loss(restart: Restart) -> None:
    fault = restart.fault
    if restart.phase == WAIT:  # nothing of the job runs there, and Slurm does not know
        restart.cluster.power_off("node3")
        restart.hosts_back.append("node3")
        return
    if restart.phase == CHECKS:
        fault.kill("node3", "-f", NODE_AGENT)
    else:
        fault.kill_container("node3")
    fault.wait_for_log("] node3: " if restart.phase == STOP else "] start again: node3: ")


def slurmctld_gone(restart: Restart) -> None:
    """Until the phase is over. Between two starts it has answered, and srun does not find it."""
    restart.stop_slurmctld()
    if restart.phase in (STOP, WAIT):
        if restart.phase == WAIT:
            (restart.folder / "is-up").touch()
        restart.go_on()
        again = (
            "restart 2 of 3: " if restart.phase == WAIT else "slurmctld does not answer; the next start waits"
        )
        restart.fault.wait_for_log("] " + again)
        restart.start_slurmctld()


def suspended(restart: Restart) -> None:
    job = str(restart.fault.job)
    restart.fault.inject(["scontrol", "suspend", job])
    time.sleep(PAUSE)
    assert restart.cluster.run(["scontrol", "resume", job]).returncode == 0


def stopped(restart: Restart) -> None:
    """The controller alone, for less than heartbeat_timeout."""
    restart.fault.inject(["pkill", "-STOP", "-f", CONTROLLER], "node1")
    time.sleep(PAUSE)
    restart.fault.inject(["pkill", "-CONT", "-f", CONTROLLER], "node1")


Event = Callable[[Restart], None]
ENDS: tuple[Event, ...] = (scancel, time_limit)
EVENTS: tuple[Event, ...] = (*ENDS, second_loss, slurmctld_gone, suspended, stopped)
ORDINARY = {(WAIT, scancel), (STOP, second_loss)}


@pytest.fixture
def restart(fault: Fault, cluster: SlurmCluster, phase: str) -> Iterator[Restart]:
    restart = Restart(fault, phase)
    yield restart
    restart.go_on()
    restart.start_slurmctld()
    for host in restart.hosts_back:
        boot_again(cluster, host)


def cells(phases: tuple[str, ...]) -> list[object]:
    return [
        pytest.param(
            phase,
            event,
            id=f"{phase}-{event.__name__}",
            marks=[] if (phase, event) in ORDINARY else pytest.mark.full,
        )
        for phase in phases
        for event in EVENTS
    ]


@pytest.mark.fault("a spare node", "podman")
@pytest.mark.parametrize(("phase", "event"), cells(PHASES))
def test_an_event_in_a_phase(restart: Restart, phase: str, event: Event) -> None:
    check(restart, phase, event)


@pytest.mark.fault("a spare node", "none")
@pytest.mark.full
# Without a container nothing can wait in the other two.
@pytest.mark.parametrize(("phase", "event"), cells((STOP, WAIT, CHECKS, PREPARE)))
def test_an_event_in_a_phase_without_containers(restart: Restart, phase: str, event: Event) -> None:
    check(restart, phase, event)


def check(restart: Restart, phase: str, event: Event) -> None:
    event(restart)
    fault = restart.fault
    if event == time_limit and phase == WAIT:
        job = fault.wait_end("] failed (72 time limit): ", clean_within=100)
        assert (job.state, job.code) == ("FAILED", "72:0"), job.log
        assert restart.steps() == 1
    elif event in ENDS:
        job = fault.wait_end("] stop: ", clean_within=100 if event == time_limit else 40)
        assert job.state == ("CANCELLED" if event == scancel else "TIMEOUT"), job.log
        assert job.code == "143:0" or event == time_limit, job.code
        assert job.last_line == "stopped by Slurm: scancel, preemption or the time limit", job.log
        assert restart.steps() == 1 + (phase not in (STOP, WAIT))
    else:
        check_end(restart, phase, event)


def check_end(restart: Restart, phase: str, event: Event) -> None:
    """Go on, and check that the trainer runs to its end."""
    fault = restart.fault
    restart.go_on()
    is_lost = bool(restart.hosts_back)
    if event == slurmctld_gone:
        wait_until(lambda: "done: trainer exited with 0\n" in fault.log(), fault.log, HANG)
        restart.start_slurmctld()
    job = fault.wait_end(dead=event == second_loss, lost=is_lost)
    assert job.last_line == "done: trainer exited with 0", job.log
    assert "] restart 1 of 3: node2: " in job.log, job.log
    if event == second_loss:
        assert "] start again: node3: " in job.log or phase == STOP, job.log
    if event == slurmctld_gone and phase == WAIT:
        assert "] restart 2 of 3: the step ended unexpectedly; srun exited with 1; " in job.log, job.log
