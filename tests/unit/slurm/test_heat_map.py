"""How busy GPUs were over time, from files of samples, which anything in the job can have written."""

from __future__ import annotations

import json

import pytest

from slurmray.slurm.heat_map import count_columns, measure_heat

HEADER = json.dumps({"v": 1, "columns": ["clock", "utilization"]})


def line(time: float, *gpus: float | None) -> str:
    return json.dumps({"time": time, "gpus": [[1755, gpu] for gpu in gpus]})


def test_cells_are_means_over_gpus_and_samples() -> None:
    samples = [
        line(99, 100),  # before
        line(100, 100, 80),
        line(109, 70, None),
        line(125, 0, 1),
        json.dumps({"time": 130, "cores": 1.5}),
        line(140, 100),  # after
    ]
    heat = measure_heat("\n".join([HEADER, *samples]).encode(), 100, 40, 4)
    assert heat
    assert heat.cells == [80, None, 0.5, None]
    assert (round(heat.mean, 1), round(heat.idle, 2)) == (53.5, 0.33)


@pytest.mark.attack("a file of the run directory", inputs=8)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 1000,
        "[" * 100_000,
        '{"columns": 7}',
        '{"time": 110, "gpus": 7}',
        '{"time": 110, "gpus": [[], [true], ["1"], {}]}',
        '{"time": NaN, "gpus": [[1]]}',
        '{"time": 1e400, "gpus": [[1]]}',
    ],
)
def test_what_no_node_writes(text: str) -> None:
    assert measure_heat(text.encode(), 100, 40, 4) is None


def test_the_page_stays_small_with_many_nodes() -> None:
    assert [count_columns(nodes) for nodes in (1, 100, 1024, 10_000)] == [120, 120, 23, 12]
