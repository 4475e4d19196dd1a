"""Parameters of RayExecutor, and the job spec that they make."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from slurmray.errors import SpecError
from slurmray.native import RayExecutor
from slurmray.native.parameters import make_job_data


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"nodez": 2},
            r"nodez: unknown parameter; known are name, nodes, gpus_per_node, .*, slurm_signal_delay_s, .*",
        ),
        ({"slurm_nodes": 3}, r"slurm_nodes: use nodes"),
        ({"slurm_cpus_per_task": 3}, r"slurm_cpus_per_task: use cpus_per_task"),
        ({"slurm_gpus_per_node": 3}, r"slurm_gpus_per_node: use gpus_per_node"),
        ({"slurm_time": 600}, r"slurm_time: use timeout_min"),
        ({"slurm_output": "x"}, r"slurm_output: logs are in the executor's folder: leave it out"),
        (
            {"slurm_clusters": "a"},
            r"slurm_clusters: RayExecutor works with the default cluster only.*",
        ),
        (
            {"slurm_additional_parameters": ["a"]},
            r"slurm_additional_parameters: expected `name: value` pairs.*",
        ),
        ({"slurm_use_srun": True}, r"slurm_use_srun: there is one task, the driver: leave it out"),
        ({"slurm_srun_args": ["-v"]}, r"slurm_srun_args: there is one task, the driver: leave it out"),
        ({"slurm_setup": "module load x"}, r"slurm_setup: expected a list of commands, got 'module load x'"),
        ({"slurm_setup": [5]}, r"slurm_setup: expected a list of commands, got \[5\]"),
        *(
            (
                {"slurm_array_parallelism": few},
                rf"slurm_array_parallelism: expected an integer, 1 or more, got {few}",
            )
            for few in (0, -1, True)
        ),
        ({"mem_gb": float("nan")}, r"mem_gb: expected GiB as a number, got nan"),
        ({"mem_gb": float("inf")}, r"mem_gb: expected GiB as a number, got inf"),
        ({"timeout_min": True}, r"timeout_min: expected minutes as an integer, got True"),
        ({"timeout_min": 1.5}, r"timeout_min: expected minutes as an integer, got 1\.5"),
        ({"nodes": "two"}, r"slurm\.nodes: expected an integer, got 'two'"),
        ({"nodes": 0}, r"slurm\.nodes: .*1.*"),
        ({"timeout_min": "1:00:00"}, r"timeout_min: expected minutes as an integer, got '1:00:00'"),
        ({"timeout_min": 0}, r"timeout_min: expected minutes as an integer, got 0"),
        ({"mem_gb": "4G"}, r"mem_gb: expected GiB as a number, got '4G'"),
        ({"stop": "TERM"}, r"stop: expected `name: value` pairs, got 'TERM'.*"),
        ({"stop": {"signal": "TERM"}}, r"stop\.signal: RayExecutor sets it: leave it out"),
        ({"stop": {"lead": 0}}, r"stop\.lead: the driver needs a warning: .*"),
        ({"requeue": {"exit_code": 3}}, r"requeue\.exit_code: RayExecutor sets it: leave it out"),
        ({"container": "my/image"}, r"container: expected `name: value` pairs, got 'my/image'.*"),
        ({"ray": {"prot": 1}}, r"ray\.prot: unknown field, did you mean port\?"),
        ({"container": {"imago": "x"}}, r"container\.imago: unknown field, did you mean image\?"),
        ({"slurm_tasks_per_node": 2}, r"slurm\.tasks_per_node: .*"),
        ({"slurm_ntasks_per_node": 2}, r"slurm\.ntasks_per_node: .*"),
        ({"slurm_wait": True}, r"slurm_wait: result\(\) waits: leave it out"),
        ({"slurm_signal_delay_s": 9, "stop": {"lead": 8}}, r"stop\.lead: slurm_signal_delay_s sets .*"),
        (
            {"timeout_min": 3, "stop": {"lead": 180}},
            r"stop: lead of 180 s is not less than slurm\.time, 3: .*",
        ),
        ({"slurm_array": "0-3"}, r"slurm_array: use map_array, or batch"),
    ],
)
@pytest.mark.parametrize("cluster", ["slurm", "local", "debug"])
def test_wrong_parameters_set_nothing(cluster: Any, parameters: dict[str, Any], message: str) -> None:
    executor = RayExecutor("runs", cluster=cluster)
    executor.update_parameters(name="before")
    with pytest.raises(SpecError) as error:
        executor.update_parameters(**parameters)
    assert re.fullmatch(message, str(error.value))
    assert executor.parameters == {"name": "before"}


def test_job_id_in_the_folder(folder: Path) -> None:
    data = make_job_data({}, folder / "%j", "%A_%a")
    assert data["slurm"]["output"] == f"{folder}/%A_%a/%A_%a_0_log.out"
