"""Messages that something in a container has written to its standard output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmray.agent.controller import protocol
from slurmray.agent.wire import codec
from tests.attacks import tried
from tests.unit.agent import wire_types
from tests.unit.agent.simulation import FOLDER, Cluster

WRONG: list[dict[str, Any]] = [
    {"type": "exit"},
    {"type": "exit", "code": "0"},
    {"type": "exit", "code": True},
    {"type": "exit", "code": 10**30},
    {"type": "exit", "code": -1},
    {"type": "finding", "kind": "warn", "check": 1, "found": 2, "wanted": 3, "fix": 4},
    {"type": "finding", "kind": "nonsense", "check": "", "found": "", "wanted": "", "fix": ""},
    {"type": "failed", "kind": "nonsense", "message": ""},
    {"type": "failed", "kind": "ray", "message": "", "log": "../../../etc/passwd"},
    {"type": "failed", "kind": ["ray"], "message": ""},
    {"type": "failed", "kind": "ray", "message": "", "log": "\u00e9"},
    {"type": "prepared", "name": "../x"},
    {"type": "prepared", "name": "a\0"},
    {"type": "prepared", "name": "\u00e9"},
    {"type": "phase", "phase": "ray", "text": {"a": [1]}},
    {"type": "phase"},
    {"type": "checked", "addresses": [1, "a"], "proxy": False, "folder": "/"},
    {"type": "checked", "addresses": [], "proxy": "no", "folder": None},
    {"type": "join", "address": "nowhere"},
    {"type": "join", "address": "a\0b:1"},
    {"type": "reachable_at", "address": "a\0", "ports": [1]},
    {"type": "reachable_at", "address": "a" * 65, "ports": [1]},
    {"type": "reachable_at", "address": "10.0.0.1", "ports": [1, 10**9]},
    {"type": "reachable_at", "address": "10.0.0.1", "ports": [1, 2, 3]},
    {"type": "joined", "nodes": ["node1", "nobody"], "gpus": 1},
    {"type": "joined", "nodes": "node1", "gpus": 1},
    {"type": "stage_done", "stage": "unknown"},
    {"type": "not_ready", "missing": "nobody", "why": "x"},
    {"type": "attach", "runtime": "podman", "folder": "/tmp", "unset": [], "command": [None]},
    {"type": "attach", "runtime": "/bin/sh", "folder": "/tmp", "unset": [], "command": []},
    {"type": "attach", "runtime": "none", "folder": "/tmp; id", "unset": [], "command": []},
    {"type": "attach", "runtime": "none", "folder": "/tmp", "unset": ["PATH"], "command": []},
    {"type": "dashboard", "address": None, "port": None},
    {"type": "unplaceable", "text": "a\x1b[2J", "fix": "x", "ended": False},
    {"type": "unplaceable", "text": "a" * 301, "fix": "x", "ended": False},
    {"type": "unplaceable", "text": "a", "fix": "x", "ended": 1},
    {"type": "started", "step": "0 --signal=KILL"},
    {"type": "leftover_jobs", "jobs": 7},
    {"type": "leftover_jobs", "jobs": ["7", "x"]},
    {"type": "leftover_jobs", "jobs": ["7_1"]},
    {"type": "gone", "node": "nobody"},
    {"type": "gone", "node": None},
    {"type": "gone", "node": ["node1"]},
    {"type": "heartbeat", "node": "node9", "doing": ""},
    {"type": "output", "line": "x"},
    {"type": "_message"},
    {"type": "step_over"},
    {"type": ""},
]


@pytest.mark.attack("messages that a program in the container writes")
def test_wrong_messages_change_nothing() -> None:
    cluster = Cluster().train()
    sent, events = list(cluster.sent), list(cluster.log.events)
    for message in tried(WRONG):
        line = json.dumps({"v": 1, "node": "node2", **message}).encode()
        for _ in range(3):
            decoded = codec.decode(line)
            assert decoded
            cluster.controller.on_message(decoded, cluster.now)
    assert not cluster.wait(60)
    assert (cluster.sent, cluster.log.events) == (sent, events)
    lines = [line for line in cluster.log.lines if "ignored a wrong message" in line]
    assert "node2: ignored a wrong message: exit: wrong value of code" in lines
    assert "node2: ignored a wrong message: unknown type" in lines
    assert len(lines) == len(set(lines)) < len(WRONG)
    cluster.exit(0)
    assert cluster.end(10).code == 0


# A right message of each type.
RIGHT: dict[str, dict[str, Any]] = {
    "started": {"step": "0"},
    "heartbeat": {"doing": "", "field": "setup", "use": {"gpu": 7, "cores": 1.5, "error": "x", "other": "y"}},
    "phase": {"phase": "ray", "text": "up"},
    "finding": {"kind": "warn", "check": "a", "found": "b", "wanted": "c", "fix": "d"},
    "leftover_jobs": {"jobs": ["7"]},
    "unfit": {},
    "checked": {"addresses": ["10.0.0.1"], "proxy": False, "folder": FOLDER, "gpus": 8},
    "versions": {"text": "{}"},
    "reachable_at": {"address": "10.0.0.1", "ports": [6379, 41812]},
    "join": {"address": "[fd00::1]:6379"},
    "joined": {"nodes": ["node1"], "gpus": 8},
    "ready": {"burn_in_port": 29500},
    "burn_in": {
        "kind": "NVIDIA H200",
        "products": [701.5, -1],
        "copies": [3900.1, 3899],
        "within": 0,
        "pairs": 45.2,
        "all": -1,
        "problems": [["memory", "GPU 1: no end after 41 s"]],
    },
    "stage_done": {"stage": "prepare-with-ray"},
    "prepared": {"name": "data@all"},
    "trainer": {"command": "python3 a\nb"},
    "attach": {"command": ["b"], "unset": [], "runtime": "none", "folder": "/tmp/x"},
    "dashboard": {"address": "10.0.0.1", "port": 8265},
    "unplaceable": {"text": "x", "fix": "y", "ended": False},
    "not_ready": {"missing": "node1", "why": "x"},
    "exit": {"code": 255},
    "signal": {"name": "USR1"},
    "healthy": {},
    "gpus": {"lost": "GPU-a"},
    "stacks": {"number": 1, "rows": [["rank 7", "f (a.py:1)"]], "is_complete": True},
    "failed": {"kind": "ray", "message": "x", "log": "service-a.b@node1"},
    "stop_requested": {},
    "signalled": {},
    "tether_lost": {},
    "thread_error": {"text": "x"},
    "gone": {},
}


@pytest.mark.attack("messages that a program in the container writes")
def test_each_field_is_checked() -> None:
    assert set(RIGHT) == set(protocol.KINDS)
    nodes = ["node1", "node2"]
    for kind, fields in RIGHT.items():
        right = {"type": kind, "node": "node2", **fields}
        assert protocol.problem(right, nodes) == ""
        for node in tried(("nobody", None, ["node1"])):
            assert protocol.problem({**right, "node": node}, nodes).endswith("no such node")
        for name in fields:
            wrong: Any
            for wrong in ([1], {"a": "b"}, 1.5, 10**7, True, None):
                if (kind, name, wrong) in (
                    ("checked", "proxy", True),
                    ("stacks", "is_complete", True),
                    ("unplaceable", "ended", True),
                    ("checked", "gpus", None),
                    ("heartbeat", "field", None),
                    ("ready", "burn_in_port", None),
                    ("reachable_at", "ports", [1]),
                    *(("burn_in", figures, [1]) for figures in ("products", "copies")),
                    *(("burn_in", figure, 1.5) for figure in ("within", "pairs", "all")),
                    *(("burn_in", figure, 10**7) for figure in ("within", "pairs", "all")),
                    ("heartbeat", "use", None),
                    ("failed", "log", None),
                ):
                    continue
                (message,) = tried([{**right, name: wrong}])
                assert protocol.problem(message, nodes), (kind, name, wrong)
    for use in (
        {"gpu": "7"},
        {"gpu": True},
        {"gpu": -1},
        {"error": 7},
        {"other": 7},
        {"cores": float("nan")},
        {"more": 1},
    ):
        message = {"type": "heartbeat", "node": "node2", **RIGHT["heartbeat"], "use": use}
        assert protocol.problem(message, nodes) == "heartbeat: wrong value of use"
    for of_others in (
        {"type": "not_ready", "missing": "nobody", "why": ""},
        {"type": "finding", **RIGHT["finding"], "worker": "nobody"},
        {"type": "finding", **RIGHT["finding"], "worker": ["node1"]},
        {"type": "ready", "nodes": ["nobody"]},
    ):
        assert protocol.problem({"node": "node2", **of_others}, nodes).endswith("no such node")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = sorted({name for kind in protocol.KINDS.values() for name in kind.fields} | {"node"})


@pytest.mark.attack("messages that a program in the container writes")
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(protocol.KINDS)), st.dictionaries(st.sampled_from(NAMES), JSON))
    )
)
def test_no_message_raises_an_exception(messages: list[tuple[str, dict[str, Any]]]) -> None:
    cluster = Cluster()
    for kind, fields in messages:
        cluster.controller.on_message({"node": "node2", **fields, "type": kind}, 0.0)
        cluster.controller.tick(1.0)


@pytest.mark.attack("messages that a program in the container writes")
@pytest.mark.parametrize("value", [None, 5, [1], ["node3"], {}])
def test_a_field_of_another_type_of_message_changes_nothing(value: object) -> None:
    for kind, right in RIGHT.items():
        cluster, plain = Cluster(), Cluster()
        extra = {} if "nodes" in protocol.KINDS[kind].fields else {"nodes": value}
        for one, more in ((cluster, extra), (plain, {})):
            one.controller.on_message({"node": "node2", **right, **more, "type": kind}, 0.0)
            one.controller.tick(1.0)
        nodes, others = ([vars(node) for node in one.controller.nodes.values()] for one in (cluster, plain))
        assert nodes == others, kind


def test_each_type_has_its_fields() -> None:
    declared = {name: wire_types.fields(kind) for name, kind in wire_types.TO_CONTROLLER.items()}
    assert declared == {name: {*kind.fields} for name, kind in protocol.KINDS.items()}


@pytest.mark.attack("messages that a program in the container writes")
@pytest.mark.parametrize(
    "line",
    [
        b'{"a":' * 5000,
        b'{"v":1,"type":' + b"[" * 200000,
        b'{"v":1,"type":"exit","code":' + b"9" * 9000 + b"}",
    ],
)
def test_lines_that_json_refuses_are_text(line: bytes) -> None:
    assert codec.decode(line) is None
