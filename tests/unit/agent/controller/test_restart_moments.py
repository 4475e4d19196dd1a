"""A restart in bad moments: each event in each phase, with simulated nodes, Slurm and time.

The controller's process, its loop over messages, roster and decisions are the real ones.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from slurmray.agent import command_runner, heartbeat, inherited, job_log, loop, signals
from slurmray.agent.command_runner import Result
from slurmray.agent.controller import controller_process, job_run
from slurmray.agent.controller.losses import SLURMCTLD
from slurmray.agent.wire import codec
from slurmray.loading.validate import make_plan
from slurmray.rendering.script import render_script
from slurmray.spec.job_spec import JobSpec
from tests.unit.agent.simulation import RecordedLog
from tests.unit.agent.wire_types import TO_CONTROLLER, TO_NODES, checked

NODES = ["node1", "node2", "node3", "node4", "node5"]  # head node, two workers, two spare nodes
FIRST = "node2"  # the worker that is lost in the first start
SECOND = "node3"  # the one that may be lost in the restart
GRACE = 60  # seconds for the trainer before a restart
END = 3600.0  # seconds of the simulated clock until which every job has ended
# Phases of a restart, in their order.
STOP, WAIT, CHECKS, CONTAINERS, RAY, PREPARE = PHASES = (
    "stop",
    "wait for slurmctld",
    "checks",
    "containers",
    "Ray",
    "prepare",
)
KILLED = "the container process was killed"
# Recorded: srun of Slurm 22.05.8 while slurmctld does not run, after 9 s.
NO_SLURMCTLD = (
    "srun: error: Unable to confirm allocation for job 7: "
    "Unable to contact slurm controller (connect failure)\n"
    "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 7\n"
)
# src/api/step_launch.c. See tests/unit/agent/controller/test_roster.py.
LAUNCH = "srun: error: Task launch for StepId=7.1 failed on node {}: Communication connection failure\n"


class Start:
    """A start of Ray and trainer: an srun with its nodes, which send what healthy ones do.

    fails: what srun prints instead of starting tasks.
    """

    def __init__(self, world: World, job: Any, fails: str = "") -> None:
        self.world = world
        self.number = ""
        self.job = "7"
        self.nodes = [node for node in NODES if node in [*job["nodes"], *job["spares"]]]
        self.members = job["nodes"]
        self.decoder, self.error_decoder = codec.LineDecoder(codec.MAX_TEXT), codec.LineDecoder()
        self.has_ended = False
        self.code: int | None = None
        self.process = SimpleNamespace(poll=lambda: self.code, kill=self.end)
        self.outbox = SimpleNamespace(send=self.receive, close=self.close)
        self.output, self.errors = object(), object()  # in place of descriptors
        self.up = dict.fromkeys(self.nodes, True)  # whether it sends; False: lost
        self.gone: set[str] = set()
        self.is_training = self.has_stop = False
        self.heartbeat_due = world.now
        self.has_tasks = not fails
        self.containers: set[str] = set()
        if fails:
            world.queue(self.errors, fails.encode())
            self.end(1)

    def end(self, code: int = 0) -> None:
        if self.code is None:
            self.code = code
            self.world.queue(self.output, b"")
            self.world.queue(self.errors, b"")

    def send(self, node: str, type_: str, **fields: Any) -> None:
        if self.up[node] and node not in self.gone and self.code is None:
            message = checked(TO_CONTROLLER, {"type": type_, **fields})
            self.world.queue(self.output, codec.encode_to_controller(message, node))

    def send_all(self, type_: str, **fields: Any) -> None:
        for node in self.nodes:
            self.send(node, type_, **fields)

    def clean_up(self, node: str) -> None:
        self.send(node, "gone")
        if self.up[node]:
            self.gone.add(node)
        if self.gone == set(self.nodes):
            self.end()

    def close(self) -> None:
        for node in self.nodes:
            self.clean_up(node)

    def receive(self, data: bytes) -> None:
        """Handle a message of the controller as nodes and containers do."""
        message = codec.decode(data.rstrip(b"\n"))
        assert message
        checked(TO_NODES, dict(message))
        kind = message["type"]
        if self.code is not None:
            return
        if kind == "job":
            self.send_all("started", step="0")
            self.world.come_to(CHECKS, self.check)
        elif kind == "start_ray":
            if self.has_stop:
                self.close()
            else:
                self.world.come_to(CONTAINERS, self.join)
        elif kind == "join":
            self.world.come_to(RAY, self.be_ready)
        elif kind == "ready":
            self.world.come_to(PREPARE, self.prepare)
        elif kind == "stage_done":
            self.is_training = True
            self.send(self.members[0], "trainer", command="python3 train.py")
            self.world.train(self)
        elif kind == "check_health":
            self.send_all("healthy")
        elif kind in ("stop", "stop_at_limit", "stop_before_restart"):
            self.stop(kind)

    def check(self) -> None:
        for number, node in enumerate(self.nodes, 1):
            address = [f"10.0.0.{number}"]
            self.send(node, "checked", addresses=address, proxy=False, folder="/tmp/ray-7-0-abcdef")
            self.containers.add(node)

    def join(self) -> None:
        self.send(self.members[0], "versions", text="Ray 2.60.0, Python 3.11.2")
        self.send(self.members[0], "join", address="10.0.0.1:6379")

    def be_ready(self) -> None:
        self.send(self.members[0], "joined", nodes=self.members, gpus=0)
        self.send(self.members[0], "ready")

    def prepare(self) -> None:
        for node in self.members:
            self.send(node, "stage_done", stage="prepare")

    def stop(self, kind: str) -> None:
        if self.is_training and kind == "stop_before_restart":
            self.world.come_to(STOP, lambda: self.exit(143))
        elif self.is_training:
            self.exit(143)
        elif self.containers:
            self.close()
        self.has_stop = True

    def exit(self, code: int) -> None:
        self.send(self.members[0], "exit", code=code)
        self.is_training = False

    def terminate(self) -> None:
        """Slurm's SIGTERM for the tasks."""
        self.send_all("stop_requested")
        if not self.containers:
            self.close()


class World:
    """Slurm, the nodes and the time around a controller. It plays one event in one phase of a restart.

    event: called once, when the phase has begun; returns the seconds until the phase goes on.
    """

    def __init__(self, phase: str, event: Callable[[World], float]) -> None:
        self.phase, self.event = phase, event
        self.now = 100.0
        self.starts: list[Start] = []
        self.failing: list[str] = []  # what the next sruns print
        self.is_slurmctld_up = True
        self.is_ending = False  # Slurm ends the job
        self.late_starts = 0  # after that
        self.answered = -END  # when slurmctld did, after it had not
        self.early_starts = 0  # within 6 s of that: srun of 22.05.8 then waits for two minutes
        self.pings: list[bool] = []
        self._data: list[tuple[object, bytes]] = []
        self._readers: dict[object, Callable[[bytes], None]] = {}
        self._notes: dict[int, Callable[[], object]] = {}
        self._waiting: Callable[[], object] | None = None
        self._resume_at: float | None = None
        self.back_at = END  # when slurmctld answers again
        self.log = RecordedLog()

    # -- what the controller uses ------------------------------------------------------------------------

    def make_loop(self, _on_signal: object) -> World:
        return self

    def catch(self, number: int, note: Callable[[], object]) -> None:
        self._notes[number] = note

    def add(self, descriptor: object, handle: Callable[[bytes], None]) -> None:
        self._readers[descriptor] = handle

    def turn(self, seconds: float) -> bool:
        """Let the time pass, and hand over what was sent until then."""
        assert self.now < END, "the job hangs:\n" + "\n".join(self.log.lines)
        self.now += seconds
        if not self.is_slurmctld_up and self.now > self.back_at:
            self.answer()
        for start in self.starts:
            if self.now >= start.heartbeat_due:
                start.heartbeat_due = self.now + heartbeat.LONGEST
                start.send_all("heartbeat", doing="")
        if self._waiting and self._resume_at is None:
            self._resume_at = self.now + self.event(self)
        elif self._waiting and self._resume_at is not None and self.now >= self._resume_at:
            resume, self._waiting = self._waiting, None
            resume()
        data, self._data = self._data, []
        for descriptor, part in data:
            (self._readers[descriptor] if part else self._readers.pop(descriptor))(part)
        return bool(data)

    def start_steps(self, _text: str, job: Any, _parts: object) -> list[Start]:
        self.late_starts += self.is_ending
        self.early_starts += self.now - self.answered < 6
        fails = "" if self.is_slurmctld_up else NO_SLURMCTLD
        self.starts.append(Start(self, job, self.failing.pop(0) if self.failing else fails))
        return self.starts[-1:]

    def run_slurm(self, argv: list[str], *_: object, **_options: object) -> Result:
        if argv == ["scontrol", "ping"]:
            if self.phase == WAIT and not self.pings:
                self.is_slurmctld_up = False
                self._waiting = self.answer
            self.pings.append(self.is_slurmctld_up)
            return Result(0 if self.is_slurmctld_up else 1)
        answers = {"hostnames": "\n".join(NODES), "config": "KillWait = 30 sec", "job": RECORD}
        return Result(0, answers.get(argv[2], ""))

    def answer(self) -> None:
        self.is_slurmctld_up, self.answered = True, self.now

    def find_answers(self, run: job_run.JobRun) -> None:
        if self.is_slurmctld_up:
            run.controller.losses.on_answer(SLURMCTLD, run.clock.now())

    # -- for the nodes -----------------------------------------------------------------------------------

    def queue(self, descriptor: object, data: bytes) -> None:
        self._data.append((descriptor, data))

    def come_to(self, phase: str, go_on: Callable[[], None]) -> None:
        """Go on, unless the event is to come in this phase of the restart."""
        is_restart = phase == STOP or len(self.starts) > 1
        if phase == self.phase and is_restart and self._resume_at is None:
            self._waiting = go_on
        else:
            go_on()

    def train(self, start: Start) -> None:
        """The first trainer loses a node; the later one ends."""
        if len(self.starts) == 1:
            start.send(FIRST, "failed", kind="ray", message=KILLED)
        elif not start.has_stop:
            start.exit(0)

    # -- events ------------------------------------------------------------------------------------------

    def signal(self, number: int) -> None:
        self.is_ending = True
        self._notes[number]()
        if number == signal.SIGTERM and self.starts[-1].code is None:
            self.starts[-1].terminate()

    @property
    def has_come(self) -> bool:
        """Whether the event has."""
        return self._resume_at is not None

    def left(self) -> list[str]:
        """Nodes with a task or a container, and steps that have not ended."""
        ran = [start for start in self.starts if start.has_tasks]
        left = [node for start in ran for node in start.nodes if start.up[node] and node not in start.gone]
        return [*left, *("an srun" for start in self.starts if start.code is None)]


RECORD = "JobId=7 JobName=x\n   Requeue=1 Restarts=0 BatchFlag=1\n"


def scancel(world: World) -> float:
    world.signal(signal.SIGTERM)
    return 1


def time_limit(world: World) -> float:
    world.signal(signals.WARNING)
    return 1


def container_killed(world: World) -> float:
    world.starts[-1].send(SECOND, "failed", kind="ray", message=KILLED)
    return 1


def power_lost(world: World) -> float:
    """Of a host between two starts, srun notices it, else its heartbeats stop."""
    if world.starts[-1].code is not None:
        world.failing.append(LAUNCH.format(SECOND))
        return 1
    world.starts[-1].up[SECOND] = False
    return 45


def slurmctld_gone(world: World) -> float:
    """For 100 s. Between two starts: it answers, and is gone again when srun asks."""
    if world.starts[-1].code is not None:
        world.failing.append(NO_SLURMCTLD)
        return 1
    world.is_slurmctld_up = False
    world.back_at = world.now + 100
    return 5


def suspended(world: World) -> float:
    """For longer than every deadline. Nodes and controller stand still."""
    world.now += 2000
    return 1


def stopped(world: World) -> float:
    """The controller alone, for less than heartbeat_timeout: the nodes go on."""
    for _ in range(4):
        world.now += 5
        world.starts[-1].send_all("heartbeat", doing="")
    return 1


class Cell(NamedTuple):
    """What is to become of a job.

    code: its exit code. last: last line of its log. lines: others in it. starts: how many there are.
    """

    code: int
    last: str
    lines: tuple[str, ...] = ()
    starts: int = 2


def and_lines(cell: Cell, *lines: str, starts: int = 2) -> Cell:
    return cell._replace(lines=(*cell.lines, *lines), starts=starts)


NEAR = "failed (72 time limit): time limit or preemption near: the trainer "
STOPPED = Cell(143, "stopped by Slurm: scancel, preemption or the time limit", ("stop: scancel",))
LIMIT = Cell(
    72, NEAR + "had not started, or ended without an exit code", ("time limit or preemption near: ",)
)
LOST = f"{FIRST}: {KILLED}; the trainer has 60 s to end"
WELL = Cell(0, "done: trainer exited with 0", (LOST, f"restart 1 of 3: {FIRST}: {KILLED}; "))
BOTH = f"restart 1 of 3: {FIRST}: {KILLED}; node4 and node5 take the place of node2 and node3"
SILENT = f"{SECOND}: no heartbeat for 25 s. Has it lost power or its network?"
AGAIN = f"start again: {SILENT}; node5 takes the place of {SECOND}"
KILLED_AGAIN = f"start again: {SECOND}: {KILLED}; node5 takes the place of {SECOND}"
NO_ANSWER = "slurmctld does not answer; the next start waits for it"

# Phase -> event -> what becomes of the job.
TABLE: dict[str, dict[Callable[[World], float], Cell]] = {
    STOP: {
        scancel: STOPPED._replace(starts=1),
        time_limit: LIMIT._replace(last=NEAR + "was stopped and exited with 143", starts=1),
        container_killed: and_lines(WELL, f"{SECOND}: {KILLED}; the trainer has 60 s to end", BOTH),
        power_lost: and_lines(WELL, SILENT + "; the trainer has ", BOTH),
        slurmctld_gone: and_lines(WELL, NO_ANSWER),
        suspended: WELL,
        stopped: WELL,
    },
    WAIT: {
        scancel: STOPPED._replace(starts=1),
        time_limit: LIMIT._replace(starts=1),
        # container_killed: none runs between two starts.
        power_lost: and_lines(WELL, f"start again: {SECOND}: Slurm could not start its task", starts=3),
        slurmctld_gone: and_lines(
            WELL, "restart 2 of 3: the step ended unexpectedly; srun exited with 1", starts=3
        ),
        suspended: and_lines(WELL, NO_ANSWER),
        stopped: and_lines(WELL, NO_ANSWER),
    },
    CHECKS: {
        scancel: STOPPED,
        time_limit: LIMIT,
        # container_killed: none runs before the checks are done.
        power_lost: and_lines(WELL, AGAIN, starts=3),
        slurmctld_gone: WELL,
        suspended: WELL,
        stopped: WELL,
    },
    **{
        phase: {
            scancel: STOPPED,
            time_limit: LIMIT,
            container_killed: and_lines(WELL, KILLED_AGAIN, starts=3),
            power_lost: and_lines(WELL, AGAIN, starts=3),
            slurmctld_gone: WELL,
            suspended: WELL,
            stopped: WELL,
        }
        for phase in (CONTAINERS, RAY, PREPARE)
    },
}


def play(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, **spec: Any) -> int:
    """Run a job to its end; return its exit code."""
    spec = {
        "slurm": {"nodes": 3},
        "spares": 2,
        "on_node_loss": "restart",
        "restart": {"grace": GRACE},
        **spec,
    }
    text = render_script(make_plan(JobSpec.model_validate({"prepare": [{"name": "a", "run": "b"}], **spec})))
    variables = {"JOB_ID": "7", "JOB_NODELIST": "node[1-5]", "JOB_NUM_NODES": "5", "JOB_CPUS_PER_NODE": "4"}
    for name, value in {**variables, "SUBMIT_DIR": str(folder)}.items():
        monkeypatch.setenv("SLURM_" + name, value)
    monkeypatch.setattr(inherited, "add_account", lambda _: None)
    monkeypatch.setattr(inherited, "raise_soft_limits", lambda: None)
    monkeypatch.setattr(signals, "ignore", lambda: None)
    monkeypatch.setattr(loop, "Loop", world.make_loop)
    monkeypatch.setattr(heartbeat, "Clock", functools.partial(heartbeat.Clock, lambda: world.now))
    monkeypatch.setattr(command_runner, "run_slurm", world.run_slurm)
    monkeypatch.setattr(job_run, "start_steps", world.start_steps)
    monkeypatch.setattr(job_run.JobRun, "read_trainer_output", lambda *_: None)
    monkeypatch.setattr(job_run.JobRun, "find_answers", lambda run, _: world.find_answers(run))
    monkeypatch.setattr(job_log, "JobLog", lambda _: world.log)
    return controller_process.run_controller(text, NODES, 0.0)


@pytest.mark.parametrize(
    ("phase", "event"),
    [
        pytest.param(phase, event, id=f"{phase}-{event.__name__}")
        for phase, cells in TABLE.items()
        for event in cells
    ],
)
def test_an_event_in_a_phase(
    phase: str, event: Callable[[World], float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, cell = World(phase, event), TABLE[phase][event]
    code = play(world, tmp_path, monkeypatch)
    log = "\n".join(world.log.lines)
    assert world.has_come, log
    assert (code, world.log.lines[-1]) == (cell.code, cell.last), log
    assert [line for line in cell.lines if line not in log] == [], log
    assert len(world.starts) == cell.starts, log
    assert not world.left(), log
    assert not world.late_starts, log
    assert not world.early_starts, log


def test_the_table_has_all_phases_and_events() -> None:
    """But containers that do not run, which have a comment."""
    events = {event for cells in TABLE.values() for event in cells}
    assert [*TABLE] == [*PHASES]
    assert len(events) == 7
    missing = [(phase, event) for phase in TABLE for event in events if event not in TABLE[phase]]
    assert sorted(missing) == [(CHECKS, container_killed), (WAIT, container_killed)]
