"""Launchers, each with the job spec that it must become, written by hand, and the lines to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmray.importing.draft_text import Imported
from slurmray.importing.launcher import read_launcher
from slurmray.loading.load import load_plan
from tests.unit.importing.scripts import execute, verdicts

FOLDER = Path(__file__).parent / "launchers"
# Lines that nobody but the user can judge.
LOOKS = {
    "abbreviated-directives.slurm": [],
    "array-of-jobs.slurm": [],
    "case-of-modes.sh": [],
    "command-in-a-string.slurm": [],
    "csc-modules.slurm": [25],  # arguments of the script, which are optional
    "docker-entrypoint.sh": [],
    "dotenv-conda.slurm": [12],  # a file that init does not read
    "environment-of-srun.slurm": [9, 21],
    "evaluates-a-server.slurm": [8],
    "head-without-gpus.slurm": [],
    "hydra-multirun.slurm": [20, 21],  # a variable of the user
    "loop-of-runs.slurm": [],
    "lumi-rocm.slurm": [],
    "names-of-interfaces.slurm": [],
    "offline-conda.slurm": [],
    "openrlhf-docker.sh": [],
    "openrlhf-pyxis.slurm": [65],  # a secret in the trainer's command
    "pixi.slurm": [],
    "podman-hpc.sh": [5],  # -G counts GPUs of the whole job
    "poetry.slurm": [5],
    "prepares-data.sh": [],
    "ray-job-with-id.sh": [21],
    "ray-retries.slurm": [],
    "requeue-signal.slurm": [8, 17],
    "retriever-image.sh": [11],  # a mount of a service
    "rlinf-ranks.slurm": [],
    "roles-by-rank.slurm": [9, 14],
    "roll-config.slurm": [],
    "script-in-a-document.slurm": [29],
    "search-r1.sh": [16, 22],  # a limit that Apptainer cannot set, a script that is not read
    "server-by-getopts.slurm": [],
    "sglang-reward-server.sh": [9, 16],
    "shifter.slurm": [15, 17, 19],
    "skyrl-getopts.slurm": [39],
    "slime-arrays.sh": [],
    "ssh-here-documents.sh": [9, 12],
    "symmetric-run.slurm": [],
    "tacc-apptainer.slurm": [20, 22, 27],
    "tee-process-substitution.slurm": [16],
    "tunnel.slurm": [],
    "two-stages.slurm": [16],
    "verl-amd.slurm": [5],  # two tasks on each node
    "verl-apptainer.slurm": [],
    "verl-conda.slurm": [],
    "verl-uv-arrays.slurm": [],
    "vllm-server-client.slurm": [16, 19, 29],
    "waits-for-trainer.slurm": [],
    "words-like-secrets.sh": [],
    "xdan-rl.sh": [],
}
# Fields that are not as in the job spec, where the lines to look at say what is missing.
HONEST = {
    "alliance-venv.slurm": (["setup"], [14, 16, 17, 19]),  # programs on every node before Ray
    "nemo-rl-pyxis.slurm": (["ray"], [26, 33]),  # options of a `ray start` in a text of `$(cat <<EOF)`
    "sourced-arguments.slurm": (["prepare"], [13, 14]),  # a script that is not read
    "submits-itself.sh": (["run", "setup", "slurm"], [8]),  # options of its own sbatch
}
# The arguments with which a launcher is started.
ARGUMENTS = {
    "case-of-modes.sh": ["grpo", "trainer.total_epochs=1"],
    "server-by-getopts.slurm": ["-m", "Qwen/Qwen3-235B-A22B"],
    "submits-itself.sh": ["Qwen/Qwen3-4B", "/data/gsm8k.parquet"],
}
# Variables of the user and of the node.
OF_THE_NODE = {
    "USER": "me",
    "SCRATCH": "/scratch/me",
    "WORK": "/lustre/me",
    "SLURM_ARRAY_JOB_ID": "6",
    "SLURM_ARRAY_TASK_ID": "4",
}


def import_file(path: Path) -> Imported:
    return read_launcher(path.name, path.read_bytes(), ARGUMENTS.get(path.name))


def load(path: Path) -> dict[str, Any]:
    """Return the fields of a job spec, with what its trainer starts in place of `run`."""
    spec = load_plan(path).spec
    env = {
        name: OF_THE_NODE.get(name, "mine") if value is None else value for name, value in spec.env.items()
    }
    job = {**OF_THE_NODE, **env, "NNODES": spec.slurm.nodes, "GPUS_PER_NODE": spec.gpus}
    assert spec.run
    run = f"{spec.node_env or ''}\n{spec.run}" if isinstance(spec.run, str) else spec.run
    return {**spec.model_dump(), "run": execute(run, Path.cwd(), env=job)}


@pytest.mark.parametrize("name", [*LOOKS, *HONEST])
def test_a_launcher_becomes_its_job_spec(name: str, current_folder: Path) -> None:
    (current_folder / "docker").mkdir()  # verl-amd.slurm builds an image
    (current_folder / "docker/Dockerfile.rocm").touch()
    script = FOLDER / name
    made = current_folder / "job.yaml"
    made.write_text(import_file(script).text)
    found, wanted = load(made), load(script.with_suffix(".yaml"))
    other = [field for field in sorted(wanted) if found[field] != wanted[field]]
    assert other == HONEST.get(name, ([],))[0], [(found[field], wanted[field]) for field in other]


def test_every_launcher_is_compared() -> None:
    assert sorted([*LOOKS, *HONEST]) == sorted(
        path.name for path in FOLDER.iterdir() if path.suffix != ".yaml"
    )


@pytest.mark.parametrize("name", [*LOOKS, *HONEST])
def test_every_line_has_one_verdict(name: str) -> None:
    imported = import_file(FOLDER / name)
    lines = (FOLDER / name).read_text().split("\n")
    found = verdicts(imported.text)
    looks = LOOKS[name] if name in LOOKS else HONEST[name][1]
    assert [line for line, verdict in found.items() if verdict.startswith("please look")] == looks
    assert all(
        verdict.startswith(("became ", "not needed because: ", "please look: ")) for verdict in found.values()
    )
    for number, line in enumerate(lines, start=1):
        is_code = bool(line.strip()) and (not line.lstrip().startswith("#") or line.startswith("#SBATCH"))
        assert number in found or not is_code, f"no comment about line {number}: {line}"
    counts = [imported.became, imported.skipped, imported.looks]
    kinds = ["became", "not needed", "please look"]
    assert counts == [sum(verdict.startswith(kind) for verdict in found.values()) for kind in kinds]
