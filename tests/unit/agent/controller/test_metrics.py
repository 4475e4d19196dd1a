"""Samples of the nodes for Prometheus."""

from __future__ import annotations

from typing import Any

from slurmray.agent.controller import metrics


def test_the_text_format() -> None:
    job: Any = {"id": "7", "name": 'a "b"\\c\n'}
    nodes: dict[str, dict[str, Any]] = {
        "gpu-1": {"gpu": 97, "cores": 1.5, "age": 3, "error": "x"},
        "gpu-2": {"gpu": 0, "age": 4},
    }
    labels = 'job="7",name="a \\"b\\"\\\\c\\n",node='
    assert metrics.as_text(nodes, job).splitlines() == [
        "# HELP slurmray_gpu_utilization_percent mean utilization of the node's GPUs",
        "# TYPE slurmray_gpu_utilization_percent gauge",
        f'slurmray_gpu_utilization_percent{{{labels}"gpu-1"}} 97',
        f'slurmray_gpu_utilization_percent{{{labels}"gpu-2"}} 0',
        "# HELP slurmray_cpu_cores_busy CPUs that the job uses on the node",
        "# TYPE slurmray_cpu_cores_busy gauge",
        f'slurmray_cpu_cores_busy{{{labels}"gpu-1"}} 1.5',
        "# HELP slurmray_sample_age_seconds how old the node's sample was when this was written",
        "# TYPE slurmray_sample_age_seconds gauge",
        f'slurmray_sample_age_seconds{{{labels}"gpu-1"}} 3',
        f'slurmray_sample_age_seconds{{{labels}"gpu-2"}} 4',
    ]
    assert metrics.as_text({}, job) == ""
