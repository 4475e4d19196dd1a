"""How busy GPUs were over time, by samples of a node."""

from __future__ import annotations

from slurmray.slurm.usage import Sample, count_columns, measure_heat


def test_cells_are_means_over_gpus_and_samples() -> None:
    samples = [
        Sample(99, [100]),  # before
        Sample(100, [100, 80]),
        Sample(109, [70]),
        Sample(125, [0, 1]),
        Sample(140, [100]),  # after
    ]
    heat = measure_heat(samples, 100, 40, 4)
    assert heat
    assert heat.cells == [80, None, 0.5, None]
    assert (round(heat.mean, 1), round(heat.idle, 2)) == (53.5, 0.33)
    assert measure_heat(samples[:1], 100, 40, 4) is None


def test_the_page_stays_small_with_many_nodes() -> None:
    assert [count_columns(nodes) for nodes in (1, 100, 1024, 10_000)] == [120, 120, 23, 12]
