"""What the nodes of a job use: files of its run directory, which anything in the job can have written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurmray.slurm.usage import (
    NodeUse,
    Sample,
    Usage,
    amount,
    describe_use,
    find_unusual,
    mean_utilization,
    parse_samples,
    parse_usage,
)


def usage(**nodes: Any) -> Any:
    return parse_usage(json.dumps({"v": 1, "time": 1000, "output": 990, "nodes": nodes}).encode())


def test_the_nodes_together() -> None:
    a = {"gpu": 90, "gpu_memory": 60, "power": 600, "cores": 8.2, "memory": 2048}
    b = {"gpu": 50, "gpu_memory": 64, "power": 400, "cores": 1.1, "memory": 8192}
    text = (
        "GPUs 70 % busy; their memory 62 % full; 500 W each; CPUs 9.3 busy; memory 10.0 GiB, 8.0 of them on b"
    )
    assert describe_use(usage(a=a, b=b)) == text
    assert describe_use(usage(a={"cores": 1.0, "memory": 1024})) == "CPUs 1.0 busy; memory 1.0 GiB"
    assert describe_use(usage(a={})) == ""


CLOCK = "has lowered its clock: heat, or its power supply"


def test_nodes_that_deserve_a_look() -> None:
    rows = find_unusual(
        usage(
            a={"lowest": 0, "idlest": 5, "idle": 720, "age": 4},
            b={"lowest": 0, "idlest": 5, "idle": 60},
            c={"slowed": 3},
            d={"age": 400, "idlest": 0, "idle": 400},
            e={"error": "nvidia-smi does not answer"},
            f={"other": "GPU 3: 8000 MiB held by python3 (pid 4711) of bob"},
        )
    )
    assert rows == [
        ("a", "GPU 5 has been at 0 % for 12 min"),
        ("c", f"GPU 3 {CLOCK}"),
        ("d", "no sample for 7 min"),
        ("e", "its GPUs cannot be read: nvidia-smi does not answer"),
        ("f", "GPU 3: 8000 MiB held by python3 (pid 4711) of bob, not of this job"),
    ]


@pytest.mark.attack("a file of the run directory", inputs=1)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[1]",
        b"[" * 100_000,
        b'{"time": 1}',
        b'{"time": "x", "nodes": {}}',
        b'{"time": 1, "nodes": []}',
        b'{"time": NaN, "nodes": {}}',
        b'{"time": true, "nodes": {}}',
        b'{"time": 1%s, "nodes": {}}' % (b"0" * 400),
    ],
)
def test_what_no_job_writes(data: bytes) -> None:
    assert parse_usage(data) is None


def test_wrong_values_are_not_known() -> None:
    nodes = usage(
        a={"gpu": "90", "cores": -1, "memory": 1e400, "error": 5, "other": [], "more": 1}, b=3
    ).nodes
    assert nodes == {"a": NodeUse()}


HEADER = '{"v": 1, "columns": ["clock", "utilization"]}'


def test_samples_of_a_node() -> None:
    lines = [
        HEADER,
        '{"time": 100, "gpus": [[1755, 100], [1755, 80]]}',
        '{"time": 130, "cores": 1.5}',
        '{"time": 160, "gpus": [[1755, 70], [1755, null]], "states": [{}, {}]}',
        '{"time": 190, "gpus": [[1755, nul',
    ]
    text = "\n".join(lines).encode()
    assert list(parse_samples(text)) == [Sample(100, [100, 80]), Sample(160, [70])]


@pytest.mark.parametrize(
    "broken",
    [
        *('{"time": 130, "gp', "[" * 100_000, "7", "[]", "null", '"x"', "\0\0", '{"time": 130}'),
        *('{"gpus": [[1, 2]]}', '{"time": 5, "gpus": {}}'),
    ],
)
def test_samples_after_a_broken_line(broken: str) -> None:
    """A node whose disk was full for a while goes on."""
    lines = [HEADER, '{"time": 100, "gpus": [[1755, 5]]}', broken, '{"time": 160, "gpus": [[1, 0]]}', broken]
    samples = list(parse_samples("\n".join(lines).encode()))
    assert samples == [Sample(100, [5]), Sample(160, [0])]


def test_samples_after_a_line_that_is_no_text() -> None:
    assert list(parse_samples(b'\xff\n{"time": 1, "gpus": [[7]]}')) == [Sample(1, [7])]


def test_a_file_whose_columns_change() -> None:
    """A later attempt appends to it. Some have no utilization. Before any columns, the first one counts."""
    lines = [
        '{"time": 90, "gpus": [[10, 1], [8, 10]]}',
        HEADER,
        '{"time": 100, "gpus": [[1, 90], [8], []]}',
        '{"v": 1, "columns": ["clock"]}',
        '{"time": 110, "gpus": [[7, 9]]}',
        '{"v": 1, "columns": ["utilization", "clock"]}',
        '{"v": 1, "columns": ["clock"]}',
        '{"time": 130, "gpus": [[70, 1], [null, 2], []]}',
        '{"time": 160, "gpus": [[null, 1]]}',
    ]
    samples = list(parse_samples("\n".join(lines).encode()))
    assert samples == [Sample(90, [10, 8]), Sample(100, [90]), Sample(110, [9]), Sample(130, [70])]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ({"idle": 119, "idlest": 0, "age": 180}, []),
        ({"idle": 120, "idlest": 0, "age": 180}, ["GPU 0 has been at 0 % for 2 min"]),
        ({"idle": 900}, []),
        ({"idlest": 1}, []),
        ({"idle": 120, "idlest": 0, "age": 181}, ["no sample for 3 min"]),
        ({"age": 181}, ["no sample for 3 min"]),
        ({"slowed": 0, "error": "x"}, ["its GPUs cannot be read: x", f"GPU 0 {CLOCK}"]),
    ],
)
def test_the_limits_of_what_is_unusual(use: dict[str, Any], expected: list[str]) -> None:
    assert find_unusual(usage(n=use)) == [("n", text) for text in expected]


def test_nodes_whose_use_is_not_known_do_not_count() -> None:
    both = usage(a={"gpu": 80, "memory": 2048}, b={"gpu": None, "memory": None, "gpu_memory": 0})
    assert mean_utilization(both) == 80
    assert describe_use(both) == "GPUs 80 % busy; their memory 0 % full; memory 2.0 GiB"
    assert mean_utilization(usage(a={"cores": 1})) is None
    assert mean_utilization(usage(a={"gpu": 0}, b={}, c={"gpu": 50})) == 25
    known = usage(a={"gpu": 0, "gpu_memory": 0, "power": 0, "cores": 0, "memory": 0})
    text = "GPUs 0 % busy; their memory 0 % full; 0 W each; CPUs 0.0 busy; memory 0.0 GiB"
    assert describe_use(known) == text
    assert describe_use(usage(a={"memory": 3072}, b={"memory": 1024})) == "memory 4.0 GiB, 3.0 of them on a"


@pytest.mark.attack("a file of the run directory", inputs=1)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 1000,
        "[" * 100_000,
        '{"columns": 7}',
        '{"time": 110, "gpus": 7}',
        '{"time": 110, "gpus": [[], [true], ["1"], {}, [-1]]}',
        '{"time": NaN, "gpus": [[1]]}',
        '{"time": 1e400, "gpus": [[1]]}',
        '{"time": 110, "gpus": [[1%s]]}' % ("0" * 400),
        '{"time": 110, "gpus": [[1%s]]}' % ("0" * 9000),
    ],
)
def test_samples_that_no_node_writes(text: str) -> None:
    assert list(parse_samples(text.encode())) == []


@pytest.mark.attack("a file of the run directory", inputs=1)
def test_utilization_is_100_percent_at_most() -> None:
    assert list(parse_samples(b'{"time": 1, "gpus": [[1e18], [1e18]]}')) == [Sample(1, [100, 100])]


def test_a_sample_of_idle_gpus_is_one() -> None:
    assert list(parse_samples(b'{"time": 0, "gpus": [[0], [0]]}')) == [Sample(0, [0, 0])]


def test_several_things_of_a_node_in_the_order_of_nodes() -> None:
    bad = {"error": "no driver", "other": "GPU 0: bob", "slowed": 1, "age": 500, "idle": 500, "idlest": 0}
    rows = find_unusual(usage(b={"slowed": 0}, a=bad))
    assert [name for name, _ in rows] == ["a", "a", "a", "a", "b"]
    assert [text.split()[0] for _, text in rows] == ["its", "no", "GPU", "GPU", "GPU"]


@pytest.mark.parametrize(("value", "known"), [(0, 0), (2**62, 2**62), (2**63, None), (-1, None)])
def test_amounts(value: float, known: float | None) -> None:
    assert amount(value) == known
    assert amount(float(value)) == known


def test_when_the_log_last_grew() -> None:
    assert usage().output == 990
    text = json.dumps({"time": 1, "nodes": {}, "output": None}).encode()
    assert parse_usage(text) == Usage(None, {})
