"""A RayProcess for tests, without a container process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from slurmray.agent.container.node_context import NodeContext
from slurmray.agent.container.ray import start
from tests.unit.agent.wire_types import TO_CONTROLLER, checked


class FakeContext:
    """The attributes of NodeContext that RayProcess uses."""

    send_finding = NodeContext.send_finding

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.is_head = True
        self.address = "10.0.0.1"
        self.ports = [20000, 20001]
        self.is_ready = False
        self.trainer_started: float | None = None
        self.children = SimpleNamespace(kill=lambda _: None)
        self.sent: list[tuple[str, str]] = []
        self.messages: list[dict[str, Any]] = []

    def phase(self, phase: str, text: str) -> None:
        self.sent.append((phase, text))

    def send(self, message: Any) -> None:
        self.messages.append(checked(TO_CONTROLLER, message))


def ray_process(folder: Path) -> Any:
    return start.RayProcess(FakeContext(folder))  # type: ignore[arg-type]
