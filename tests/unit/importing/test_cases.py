"""Small scripts of one kind each: what became of them, what they start in the job, and what to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmray import yaml_source
from slurmray.importing.launcher import read_launcher
from slurmray.loading.load import load_plan
from tests.unit.importing.scripts import execute, verdicts

FOLDER = Path(__file__).parent / "cases"
GPUS: dict[str, Any] = {"slurm": {"nodes": "2", "gpus_per_node": "8"}}
RUNS = ["python train.py"]
# Name -> fields other than container and run, what the trainer starts, and parts of the lines' verdicts.
CASES: dict[str, tuple[dict[str, Any], list[str], dict[int, str]]] = {
    "uv-run-ray": (GPUS, ["uv run python train.py --steps 10"], {4: "not needed", 6: "not needed"}),
    "ntasks-only": ({"slurm": {"nodes": "4", "gpus_per_node": "8"}}, RUNS, {2: "became slurm"}),
    "generated-password": (GPUS, RUNS, {4: "not needed", 5: "not needed", 6: "not needed"}),
    "step-resources": (
        {"slurm": {"nodes": "2", "gpus_per_node": "8", "cpus_per_task": "56"}},
        RUNS,
        {4: "please look: -c 56", 5: "--gpus-per-task of a step"},
    ),
    "apptainerenv": ({**GPUS, "env": {"TRITON_CACHE_DIR": "/tmp/t", "NCCL_DEBUG": "INFO"}}, RUNS, {}),
    "default-of-user": (
        {**GPUS, "node_env": 'export CACHE="$SLURM_TMPDIR/cache-$USER"'},
        ["python train.py --out /s/out"],
        {4: "became node_env"},
    ),
    "rank-is-no-address": (
        GPUS,
        ["python train.py --rank 0 --tp 8 --nodelist n1"],
        {9: "SLURM_NODEID of the head node"},
    ),
    "script-variable-in-node-env": (
        GPUS,
        ["scontrol show job 7", *RUNS],
        {5: "please look: TOTAL_GPUS", 7: "please look: STEPS"},
    ),
    "script-argument": (GPUS, [r"python train.py --model FILL IN: \$1 \(MODEL\)"], {4: "became run"}),
    "gpus-twice": (GPUS, RUNS, {3: "the same as --gpus-per-node"}),
    "tee": (GPUS, RUNS, {5: "left out because: the job's log"}),
    "no-such-service": (
        GPUS,
        ["vllm serve M --port 8000 --distributed-executor-backend ray"],
        {6: "not needed", 7: "not needed"},
    ),
    "string-of-several-lines": (
        {**GPUS, "env": {"UNKNOWN": None}},
        ["accelerate launch --config_file a.yaml --num_machines 2 --machine_rank 0 --extra train.py"],
        {8: "UNKNOWN", 9: "it ran on every node"},
    ),
    "visible-devices": (
        {"slurm": {"nodes": "2"}, "ray": {"gpus_per_node": "2"}},
        RUNS,
        {3: "please look: the directives ask for no GPUs"},
    ),
    "quotes-in-a-default": (GPUS, [r"python -c import\ ray\;\ ray.init\(\)"], {4: "became run"}),
    "braces": (GPUS, ["python train.py --exp FILL_v2 --tag FILLx"], {}),
    "slurm-gpus-per-task": (GPUS, ["python train.py --gpus 8 --tasks 2"], {}),
    "ray-address-prefix": (
        {**GPUS, "launch": "ray-job", "ray": {"runtime_env": {"working_dir": "."}}},
        RUNS,
        {5: "RAY_ADDRESS: the trainer joins the job's own Ray"},
    ),
    "docker-e-rank": (GPUS, RUNS, {4: "use NODE_RANK"}),
    "site-flag": ({"slurm": {"extra": ["--mysiteflag"], "nodes": "4", "gpus_per_node": "8"}}, RUNS, {}),
    "container-directive": (GPUS, RUNS, {4: "became container", 5: "became container"}),
    "exported-address": (GPUS, RUNS, {5: "please look: REWARD_URL"}),
    "dotenv": (GPUS, RUNS, {4: "env_file"}),
    "trap-requeue": ({**GPUS, "stop": {"signal": "USR1", "lead": "300"}}, RUNS, {5: "requeue.max"}),
    "ranked-launcher": (
        GPUS,
        ["torchrun --nnodes 2 --nproc-per-node 8 --rdzv-endpoint head:29500 train.py"],
        {5: "it ran on every node"},
    ),
    "stderr": (
        {**GPUS, "services": [{"name": "server", "run": "./server.sh > logs/s 2>&1", "where": "all"}]},
        RUNS,
        {5: "please look"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case(name: str, tmp_path: Path) -> None:
    expected, starts, about = CASES[name]
    imported = read_launcher(f"{name}.sh", (FOLDER / f"{name}.sh").read_bytes())
    made = yaml_source.read("job.yaml", imported.text).data
    assert isinstance(made, dict)
    assert {key: value for key, value in made.items() if key not in ("run", "container")} == expected
    job = {**made.get("env", {}), "SCRATCH": "/s", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "n1"}
    assert execute(made["run"], tmp_path, env=job) == (0, starts)
    found = verdicts(imported.text)
    for line, text in about.items():
        assert text in found[line]
    if "FILL IN" not in imported.text:
        (tmp_path / "job.yaml").write_text(imported.text)
        load_plan(tmp_path / "job.yaml")


def test_every_case_is_compared() -> None:
    assert sorted(CASES) == sorted(path.stem for path in FOLDER.iterdir())
