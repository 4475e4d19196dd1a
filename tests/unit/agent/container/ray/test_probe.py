"""The readiness probe's messages about nodes that have joined."""

from __future__ import annotations

from typing import Any

from slurmray.agent.container.ray.probe import send_joined
from slurmray.agent.wire.codec import MAX_BYTES_TO_CONTROLLER, encode_to_controller
from tests.unit.agent.wire_types import TO_CONTROLLER, checked


class Sent(list[tuple[list[str], int]]):
    """The nodes and GPUs of messages."""

    def send(self, message: Any) -> None:
        assert len(encode_to_controller(message, "head")) < MAX_BYTES_TO_CONTROLLER
        assert checked(TO_CONTROLLER, message)["type"] == "joined"
        self.append((message["nodes"], message["gpus"]))


def test_each_node_is_sent_once() -> None:
    unready, sent = {"head": 0, "a": 8, "b": 8}, Sent()
    send_joined({"a": "has not joined", "b": "has 7 of 8 GPUs"}, unready, sent.send)
    assert sent == [(["head"], 0)]
    assert unready == {"a": 8, "b": 8}
    send_joined({}, unready, sent.send)
    assert sent[1:] == [(["a", "b"], 8)]
    send_joined({}, unready, sent.send)
    assert len(sent) == 2


def test_no_name_is_lost_where_many_long_ones_join_at_once() -> None:
    """A message loses what is too long."""
    names, sent = [f"{number:04d}".ljust(64, "n") for number in range(1024)], Sent()
    send_joined({}, dict.fromkeys(names, 8), sent.send)
    assert [name for joined, _ in sent for name in joined] == names
