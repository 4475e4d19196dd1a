"""The head node before the trainer starts."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from slurmray.agent.container.head import Head


def test_the_trainer_waits_for_the_checks_of_connections() -> None:
    """Their finding comes within seconds, and a spare node can only help before the trainer has started."""
    sent: list[dict[str, Any]] = []
    is_connected = threading.Event()
    check = threading.Thread(target=is_connected.wait, args=(20,), daemon=True)
    check.start()
    context: Any = SimpleNamespace(is_head=True, is_ready=True, connection_checks=[check], send=sent.append)
    trainer: Any = SimpleNamespace(shown_command=lambda: "python3 train.py", start=lambda: True)
    ray: Any = SimpleNamespace(watch=SimpleNamespace(has_dashboard=False))
    head = Head(context, ray, trainer, lambda: True)
    head.start_trainer_if_ready()
    head.tick()
    assert sent == []
    assert head.check is not None, "it looks again soon"
    is_connected.set()
    check.join(20)
    head.tick()
    head.tick()
    assert sent == [{"type": "trainer", "command": "python3 train.py"}]
    assert head.check is None
