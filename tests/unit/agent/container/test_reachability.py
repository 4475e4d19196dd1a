"""Checks of connections between nodes."""

from __future__ import annotations

import errno
import queue
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from slurmray.agent import hosts
from slurmray.agent.container import reachability


def test_nodes_that_cannot_be_reached() -> None:
    findings: queue.Queue[tuple[str, ...]] = queue.Queue()
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        open_port, closed_port = one.getsockname()[1], two.getsockname()[1]
        two.close()
        targets = [("n1", "127.0.0.1", open_port), ("n2", "127.0.0.1", closed_port), ("n3", "fd00::9", 1)]
        assert reachability.find_unreachable(targets, 2) == targets[1:]
        context: Any = SimpleNamespace(is_head=True, name="n0", connection_checks=[])
        context.finding = lambda *row: findings.put(row)
        again = ("n2", "127.0.0.1", 1)  # one finding for both ports of n2
        reachability.check_reachable([*targets[:2], again], context)
        finding = findings.get(timeout=20)
        assert finding[:3] == ("preflight", "connection", f"cannot reach n2 at 127.0.0.1:{closed_port}")
        assert finding[-1] == "n2", "the worker"
        context.is_head, context.name = False, "n2"
        reachability.check_reachable([("the head node", "127.0.0.1", closed_port)], context)
        assert findings.get(timeout=20)[-1] == "n2"
    assert findings.empty()


def test_a_node_that_does_not_answer_in_time() -> None:
    """The queue of connections is full, so further connections get no answer."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        full = [("n", "127.0.0.1", port)] * 4
        with socket.create_connection(("127.0.0.1", port), 5):
            assert reachability.find_unreachable(full, 0.3)


def test_a_host_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(family: int, _kind: int) -> None:
        raise OSError(errno.EAFNOSUPPORT, str(family))

    monkeypatch.setattr(socket, "socket", refuse)
    target = ("n", "fd00::9", 1)
    assert hosts.connect([target], 1) == {target: errno.EAFNOSUPPORT}


def test_a_connection_is_accepted_once() -> None:
    port = reachability.accept_once("127.0.0.1", 0)
    target = [("n", "127.0.0.1", port)]
    assert reachability.find_unreachable(target) == []
    tries = 50
    while not reachability.find_unreachable(target, 1) and tries:
        tries -= 1
    assert tries
