"""The readiness probe's messages about nodes that have joined."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurmray.agent.container.ray.probe import send_joined
from slurmray.agent.wire.codec import MAX_BYTES_TO_CONTROLLER


def sent(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    lines = capfd.readouterr().out.splitlines()
    assert all(len(line) < MAX_BYTES_TO_CONTROLLER for line in lines)
    return [json.loads(line) for line in lines]


def test_each_node_is_sent_once(capfd: pytest.CaptureFixture[str]) -> None:
    unready = {"head": 0, "a": 8, "b": 8}
    send_joined("head", {"a": "has not joined", "b": "has 7 of 8 GPUs"}, unready)
    assert [(message["type"], message["nodes"], message["gpus"]) for message in sent(capfd)] == [
        ("joined", ["head"], 0)
    ]
    assert unready == {"a": 8, "b": 8}
    send_joined("head", {}, unready)
    assert [(message["nodes"], message["gpus"]) for message in sent(capfd)] == [(["a", "b"], 8)]
    send_joined("head", {}, unready)
    assert sent(capfd) == []


def test_no_name_is_lost_where_many_long_ones_join_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    """A message loses what is too long."""
    names = [f"{number:04d}".ljust(64, "n") for number in range(1024)]
    send_joined(names[0], {}, dict.fromkeys(names, 8))
    assert [name for message in sent(capfd) for name in message["nodes"]] == names
