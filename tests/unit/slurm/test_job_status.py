"""Where a job stands, from Slurm's record and its events."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from slurmray.slurm.job_status import current_phase, make_status
from slurmray.slurm.states import Event

SUBMITTED = "2026-11-25T10:00:00"
T0 = datetime.fromisoformat(SUBMITTED).timestamp()
RECORD = {
    "JobName": "verl",
    "SubmitTime": SUBMITTED,
    "EligibleTime": SUBMITTED,
    "StartTime": "2026-11-25T10:04:00",
    "EndTime": "2026-11-25T22:04:00",  # of a job that runs: its time limit
    "Reason": "None",
    "Restarts": "0",
    "StdOut": "/home/a/slurm-7.out",
}


def event(name: str, after: float, **fields: Any) -> Event:
    """An event so many seconds after sbatch."""
    return {"v": 1, "time": T0 + after, "event": name, **fields}


def phase(name: str, after: float, text: str = "") -> Event:
    return event("phase", after, phase=name, text=text)


BRING_UP = [
    event(
        "start", 240, job="7", attempt=0, nodes=["a", "b"], nodes_text="2 nodes", head="a", run_dir="/r/7-0"
    ),
    phase("container", 241, "podman run x"),
    phase("ray", 244, "head at 10.0.0.1:1"),
    phase("probe", 244.5, "0/2 nodes"),
    phase("probe", 250, "2/2 nodes, 16/16 GPUs"),
    event("attach", 250, command="srun"),
]
TRAINING = [*BRING_UP, event("trainer", 251, command="python train.py")]
END = event("end", 300, exit_code=1, source="trainer", kind="", node="", text="done: trainer exited with 1")


def steps(record: dict[str, str], events: list[Event], after: float, state: str = "RUNNING") -> list[Any]:
    status = make_status(7, state, record, events, T0 + after)
    return [(step.name, step.seconds, step.text) for step in status.steps]


def test_a_job_that_is_queued() -> None:
    record = {**RECORD, "Reason": "Resources", "StartTime": "2026-11-25T12:00:00"}
    status = make_status(7, "PENDING", record, [], T0 + 60)
    assert status.reason == "waits for free nodes (Resources)"
    assert status.expected_start == T0 + 7200
    assert (status.phase, status.nodes, status.run_dir) == ("queued", [], "")
    assert steps(record, [], 60, "PENDING") == [("queued", 60, "")]
    for unknown in ("Unknown", "98400000000", "x", "-1", "9" * 400, f"{T0 + 365 * 86400:.0f}"):
        assert make_status(7, "PENDING", {**record, "StartTime": unknown}, [], T0).expected_start is None
    almost = {**record, "StartTime": f"{T0 + 363 * 86400:.0f}"}
    assert make_status(7, "PENDING", almost, [], T0).expected_start == T0 + 363 * 86400
    assert make_status(7, "RUNNING", record, [], T0).expected_start is None


def test_a_job_that_waits_again() -> None:
    """Slurm has the times of the present wait, the events are of the attempt before."""
    record = {**RECORD, "EligibleTime": "2026-11-25T11:00:00", "Reason": "BeginTime", "Restarts": "1"}
    events = [*TRAINING, END]
    status = make_status(7, "PENDING", record, events, T0 + 4000)
    assert status.phase == "queued"
    assert steps(record, events, 4000, "PENDING")[0] == ("preflight", 1, "")
    assert steps(record, events, 4000, "PENDING")[-1] == ("training", 49, "python train.py")


def test_a_job_that_comes_up() -> None:
    """A step lasts until the next one begins; the last one until now. It has its last message."""
    assert steps(RECORD, BRING_UP, 260) == [
        ("queued", 240, ""),
        ("preflight", 1, ""),
        ("container", 3, "podman run x"),
        ("ray", 0.5, "head at 10.0.0.1:1"),
        ("probe", 15.5, "2/2 nodes, 16/16 GPUs"),
    ]
    assert current_phase(BRING_UP) == "probe"


@pytest.mark.parametrize("late", ["container", "ray", "services"])
def test_a_late_note_does_not_set_the_phase_back(late: str) -> None:
    events = [*TRAINING, phase(late, 277, "using Ray's own start: no gcs_server.out"), END]
    status = make_status(7, "FAILED", RECORD, events, T0 + 400)
    assert status.phase == current_phase(events) == "training"
    assert (status.steps[-1].name, status.steps[-1].seconds) == ("training", 300 - 251)
    events = [*BRING_UP[:3], phase("services", 245), phase("container", 246, "of a slow node")]
    assert [step.name for step in make_status(7, "RUNNING", RECORD, events, T0 + 400).steps] == [
        *("queued", "preflight", "container", "ray", "services"),
    ]


def test_a_job_that_trains_and_ends() -> None:
    assert steps(RECORD, TRAINING, 4000)[-1] == ("training", 3749, "python train.py")
    ended = [*TRAINING, phase("end", 299, "Ray's logs"), END]
    assert steps(RECORD, ended, 4000, "FAILED")[-2:] == [
        ("training", 48, "python train.py"),
        ("end", 1, "Ray's logs"),
    ]
    status = make_status(7, "FAILED", RECORD, ended, T0 + 4000)
    assert status.end == END
    assert json.loads(json.dumps(status.as_dict()))["steps"][0]["name"] == "queued"


def test_a_job_that_could_not_record_its_end() -> None:
    """Its last step does not go on for ever."""
    record = {**RECORD, "EndTime": "2026-11-25T10:05:00"}
    assert steps(record, TRAINING, 4000, "NODE_FAIL")[-1] == ("training", 49, "python train.py")


def test_a_job_that_slurm_has_forgotten() -> None:
    assert steps({}, [], 4000) == []
    names = [name for name, _, _ in steps({}, [*TRAINING, END], 4000)]
    assert names == ["preflight", "container", "ray", "probe", "training"]


def test_a_trainer_that_was_started_again() -> None:
    again = {"nodes": ["a", "c"], "spares": [], "failed": ["b"], "text": "restart 1 of 3: b: no heartbeat"}
    events = [
        *TRAINING,
        event("restart", 300, restart=1, **again),
        phase("container", 301, "podman run x"),
        phase("probe", 304, "2/2 nodes, 16/16 GPUs"),
        event("trainer", 310, command="python train.py"),
    ]
    assert steps(RECORD, events, 400)[-4:] == [
        ("restart", 1.0, "restart 1 of 3: b: no heartbeat"),
        ("container", 3.0, "podman run x"),
        ("probe", 6.0, "2/2 nodes, 16/16 GPUs"),
        ("training", 90.0, "python train.py"),
    ]
    status = make_status(7, "RUNNING", RECORD, events, T0 + 400)
    assert (status.nodes, status.restarts) == (["a", "c"], 1)
    assert [(start.trained, start.failed) for start in status.starts] == [(49, "b"), (90, "")]
    assert json.loads(json.dumps(status.as_dict()))["starts"][1]["nodes"] == ["a", "c"]


def test_demands_that_no_node_can_hold() -> None:
    """Those of the last start that still wait."""
    large, packed = (event("unplaceable", 300, text=text, fix="x") for text in ("large", "packed"))
    end = event("unplaceable_end", 310, text="large", fix="x")
    again = event(
        "restart", 400, restart=1, nodes=["a"], spares=[], failed=["b"], text="restart 1 of 3: b: x"
    )
    for events, shown in (
        ([large, packed], [large, packed]),
        ([large, packed, end], [packed]),
        ([large, packed, end, large], [packed, large]),
        ([large, again], []),
        ([end], []),
    ):
        status = make_status(7, "RUNNING", RECORD, [*BRING_UP, *events], T0 + 500)
        assert status.unplaceable == shown


def test_spare_nodes() -> None:
    start = {**BRING_UP[0], "spares": ["c", "d", "e"]}
    aside = event("set_aside", 300, node="d", text="no heartbeat for 25 s")
    restart = event(
        "restart", 400, restart=1, nodes=["a", "c"], spares=["e"], failed=["b"], text="restart 1 of 3: b: x"
    )
    assert make_status(7, "RUNNING", RECORD, [start], T0).spares == ["c", "d", "e"]
    status = make_status(7, "RUNNING", RECORD, [start, aside], T0)
    assert (status.spares, status.set_aside) == (["c", "e"], [aside])
    status = make_status(7, "RUNNING", RECORD, [start, aside, restart], T0)
    assert (status.spares, status.set_aside) == (["e"], [aside])
    assert make_status(7, "RUNNING", RECORD, BRING_UP, T0).spares == []


def test_a_spare_node_that_joined_the_running_ray() -> None:
    start = {**BRING_UP[0], "spares": ["c", "d"]}
    loss = event("node_loss", 300, node="b", text="no heartbeat for 25 s")
    status = make_status(
        7, "RUNNING", RECORD, [start, loss, event("replacement", 301, node="c", lost="b")], T0
    )
    assert (status.nodes, status.spares) == (["a", "c"], ["d"])
