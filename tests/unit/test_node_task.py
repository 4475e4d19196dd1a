"""Parts of the task of a node, in a real bash, with stand-ins for Slurm and the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurmray.rendering import render
from slurmray.spec import JobSpec
from tests.script import run_instead

TASK = """
NODE=node1 SLURMD_NODENAME=node1 SLURM_JOB_ID=9 ATTEMPT=0 MARK=1 RUNTIME=it RUN_ARGS=() TEMP=$PWD/temp UNFIT=0
CONTAINER=slurmray-9-0-node1 SCRATCH=$PWD/$CONTAINER TEMP_DIR=$PWD SLURM_SUBMIT_DIR=$PWD/submit
it_args() { :; }
it_limit_args() { :; }
it_reach() { echo "$1"; }
"""


def run(folder: Path, call: str, **spec: Any) -> str:
    """What those calls of the script's functions write."""
    (folder / "temp/inside").mkdir(parents=True)
    (folder / "submit/data").mkdir(parents=True)
    done = run_instead(render(JobSpec.model_validate(spec)), TASK + call, folder)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_one_place_is_mounted_once_whatever_it_is_called(tmp_path: Path) -> None:
    mounts = [".", "data/", "data", f"{tmp_path}/submit/./data", f"data/:{tmp_path}/submit/data/"]
    call = 'container_args; printf "%s\\n" "${RUN_ARGS[@]}"'
    found = run(tmp_path, call, container={"mounts": mounts}).splitlines()
    assert [line for line in found if "submit" in line] == [
        f'type=bind,"source={tmp_path}/{name}","target={tmp_path}/{name}"'
        for name in ("submit", "submit/data")
    ]


def test_what_a_job_makes_that_starts_during_the_sweep(tmp_path: Path) -> None:
    """Slurm was asked before it began, so it knows nothing of it."""
    for name in ("ray-7-0", "slurmray-7-0-node1"):
        (tmp_path / name / "inside").mkdir(parents=True)
    call = """
squeue() { :; }
timeout() { "${@:2}"; }
it() {
	[[ $1 != ps ]] || echo "1 slurmray-6-0-node1 slurmray.user=$(id -un)"
	[[ $1 != rm ]] || mkdir -p ray-8-0/inside slurmray-8-0-node1
}
sweep
"""
    assert "removed slurmray-6-0-node1 of an ended job" in run(tmp_path, call)
    assert sorted(path.name for path in tmp_path.glob("*ray-*")) == ["ray-8-0", "slurmray-8-0-node1"]


def test_the_folder_of_somebody_else_is_not_used_for_images(tmp_path: Path) -> None:
    """A link that others have laid: nobody but its owner can say where it leads."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "slurmray-9-0-node1").symlink_to("theirs")
    call = 'fail() { echo "$@"; exit; }; it() { touch "$TMPDIR/layer"; }; run_long pull x'
    found = run(tmp_path, call)
    assert found.splitlines()[-1] == f"preflight cannot make {tmp_path}/slurmray-9-0-node1 (TMPDIR)"
    assert not list((tmp_path / "theirs").iterdir())
