"""The controller's decisions with simulated nodes and a simulated clock."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr
from typing import Any, cast

from slurmray.agent.controller.decisions import Controller
from slurmray.agent.controller.outcome import Outcome, outcome_of
from slurmray.agent.controller.state import Requests
from slurmray.agent.job_log import JobLog
from slurmray.events import EVENTS

from . import containers
from .wire_types import TO_CONTROLLER, TO_NODES, checked

FOLDER = "/tmp/ray-9-0-abcdef"
FINDING = {"kind": "preflight", "check": "GPUs", "found": "7", "wanted": "8", "fix": "none"}


class RecordedLog(JobLog):
    """Events and log lines in lists, instead of files."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.lines: list[str] = []

    def event(self, name: str, **fields: Any) -> None:
        assert fields.keys() == EVENTS[name][1].keys(), name  # documented in docs/reference/events.md
        self.events.append((name, fields))
        super().event(name, **fields)

    def write(self, text: str) -> None:
        self.lines.append(text)

    def copy(self, data: bytes, _begins_line: bool) -> None:
        self.lines += data.decode().rstrip("\n").split("\n")


class Cluster:
    """Nodes that behave like healthy ones, unless a test changes that.

    now: seconds. lost: nodes that send nothing any more. answering: hosts, or slurmctld, that answer all the
    same. records: slurmctld's of nodes. asked: when it was asked for them. closed: nodes to which srun has no
    connection any more. sent: the controller's messages except heartbeats. job: what differs in the job's
    record.
    """

    def __init__(
        self,
        nodes: int = 3,
        head: str = "node1",
        spares: int = 0,
        job: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.nodes = [head, *(f"node{number}" for number in range(2, nodes + spares + 1))]
        self.settings: Any = containers.settings(
            render_again="slurmray render",
            stop={"lead": 60},
            timeouts={"ready": 600},
            watch={"interval": 30},
            container={"runtimes": ["podman"], "image": "a/b:1"},
            ray={"nodes": nodes},
            groups=[containers.group(nodes, 8, spares=spares)],
        )
        containers.merge(self.settings, settings)
        self.job: Any = containers.job(
            id="9",
            name_for_commands="9",
            nodes=self.nodes[:nodes],
            spares=self.nodes[nodes:],
            spares_of_groups=[spares],
            batch_host=head,
            run_dir="/r",
        )
        self.job |= job or {}
        self.log = RecordedLog()
        self.controller = Controller(
            cast(Any, self.settings), cast(Any, self.job), self.log, self, Requests()
        )
        self.now = 0.0
        self.lost: set[str] = set()
        self.answering: set[str] = {"slurmctld"}
        self.records = ""
        self.closed: set[str] = set()
        self.asked: list[float] = []
        self.sent: list[dict[str, Any]] = []
        self.heartbeats = self.heartbeat_files = 0
        self.reads_output = self.has_started_services = False
        self.done: list[str] = []
        self.usage: dict[str, dict[str, Any]] = {}

    # Actions of the controller.
    def send(self, message: Any) -> None:
        checked(TO_NODES, message)
        if message["type"] == "heartbeat":
            self.heartbeats += 1
        else:
            self.sent.append(message)

    def find_ended_jobs(self, node: str, jobs: list[str]) -> None:
        """Only nodes without Slurm's commands ask."""

    def find_answers(self, addresses: dict[str, list[str]]) -> None:
        for host in self.answering & {*addresses} or self.answering & {"slurmctld"}:
            self.controller.losses.on_answer(host, self.now)

    def find_connections(self) -> None:
        connected = set(self.nodes) - self.closed
        addresses = {address for node in connected for address in self.addresses(node)}
        self.controller.losses.on_connections(addresses, self.now)

    def find_node_records(self, _nodes: list[str]) -> None:
        self.asked.append(self.now)
        if "slurmctld" in self.answering:
            self.controller.losses.on_node_records(self.records, self.now)

    def start_services(self, folder: str) -> None:
        assert folder == FOLDER
        self.has_started_services = True

    def read_trainer_output(self, folder: str) -> None:
        assert folder == FOLDER
        self.reads_output = True

    def write_heartbeat_file(self) -> None:
        self.heartbeat_files += 1

    def write_usage(self, nodes: dict[str, dict[str, Any]]) -> None:
        self.usage = nodes

    def mark_done(self, name: str) -> None:
        self.done.append(name)

    # Messages and time.
    def receive(self, node: str, type_: str, /, **fields: Any) -> None:
        if node not in self.lost:
            message = checked(TO_CONTROLLER, {"type": type_, "node": node, **fields})
            self.controller.on_message(message, self.now)

    def receive_from_all(self, type_: str, /, **fields: Any) -> None:
        for node in self.nodes:
            self.receive(node, type_, **fields)

    def report(self, *nodes: str, **fields: str) -> None:
        """Nodes send a finding. fields: what differs from FINDING."""
        for node in nodes:
            self.receive(node, "finding", **{**FINDING, **fields})

    def passes(self, seconds: float) -> Iterator[None]:
        """Advance the time, second by second, with heartbeats of all nodes, until the job is over."""
        for _ in range(int(seconds)):
            self.now += 1
            if self.now % 3 == 0:
                self.receive_from_all("heartbeat", doing="")
            self.controller.tick(self.now)
            if self.controller.may_end(self.now):
                return
            yield

    def wait(self, seconds: float) -> bool:
        """Let time pass; return whether the job is over."""
        for _ in self.passes(seconds):
            pass
        return self.controller.may_end(self.now)

    def start(self) -> Cluster:
        """Start the agents of all nodes."""
        self.receive_from_all("started", step="0")
        return self

    def addresses(self, node: str) -> list[str]:
        return [f"10.0.0.{self.nodes.index(node) + 1}"]

    def pass_checks(self, *nodes: str, **fields: Any) -> None:
        """Nodes pass their checks."""
        for node in nodes:
            checks = {"addresses": self.addresses(node), "proxy": False, "folder": FOLDER, **fields}
            self.receive(node, "checked", **checks)

    def check(self) -> Cluster:
        """Start all nodes; they pass their checks."""
        self.start().pass_checks(*self.nodes)
        return self

    def train(self) -> Cluster:
        """Start all nodes, Ray and the trainer."""
        self.check()
        head = self.nodes[0]
        self.receive(head, "versions", text="Ray 2.60.0, Python 3.11.2")
        self.receive(head, "join", address="10.0.0.1:6379")
        self.receive(head, "ready")
        self.receive(head, "trainer", command="python3 train.py")
        self.controller.tick(self.now)
        return self

    def exit(self, code: int, *healthy: str) -> None:
        """The trainer exits; these nodes answer that they are healthy."""
        self.receive(self.nodes[0], "exit", code=code)
        for node in healthy:
            self.receive(node, "healthy")

    def end(self, within: float = 0) -> Outcome:
        """End the step and the job; return the outcome. within: seconds until the job is over."""
        assert not within or self.wait(within), self.log.lines
        self.controller.begin_end()
        with redirect_stderr(io.StringIO()):
            self.receive_from_all("gone")
        self.controller.losses.on_step_over(self.nodes, self.now)
        return self.outcome(0)

    def outcome(self, srun_code: int) -> Outcome:
        return outcome_of(self.controller.state, cast(Any, self.settings), srun_code)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the fields of the events of that name."""
        return [fields for event, fields in self.log.events if event == name]

    def types(self) -> list[str]:
        """Return the types of the sent messages."""
        return [message["type"] for message in self.sent]
