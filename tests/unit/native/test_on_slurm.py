"""What RayExecutor submits to Slurm; sbatch is a stand-in."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from slurmray.agent import paths
from slurmray.agent.script_parts import read_settings
from slurmray.errors import SlurmError, SpecError, UsageError
from slurmray.native import RayExecutor
from slurmray.native.driver import REQUEUE_EXIT_CODE
from slurmray.native.on_slurm import RayJob, RaySlurmExecutor, make_folder

from ..programs import install
from ..test_events import event_line
from .functions import add

VERSION = "{}.{}".format(*sys.version_info)


def script(array: int = 0, **parameters: Any) -> str:
    executor = RaySlurmExecutor("runs", 3)
    executor.parameters = parameters
    executor.home.mkdir(exist_ok=True)
    return executor.script(array)


def test_directives_and_settings(folder: Path) -> None:
    text = script(
        name="n", nodes=2, gpus_per_node=8, cpus_per_task=4, mem_gb=1.5, timeout_min=90,
        slurm_partition="gpu", slurm_setup=["module load podman"], slurm_signal_delay_s=40,
        slurm_additional_parameters={"wckey-x": "y"}, container={"image": "i", "mounts": ["/m"]},
        env={"A": "it's", "PYTHONPATH": "/mine"}, stop={"grace": 3},
        on_node_loss="restart", spares=1, restart={"max": 2},
    )  # fmt: skip
    for line in (
        "#SBATCH --job-name=n", "#SBATCH --nodes=3", "#SBATCH --gpus-per-node=8", "#SBATCH --mem=1536M",
        "#SBATCH --time=90", "#SBATCH --partition=gpu", "#SBATCH --wckey-x=y", "#SBATCH --signal=B:URG@40",
        f"#SBATCH --output={folder}/runs/%j_0_log.out", f"#SBATCH --error={folder}/runs/%j_0_log.err",
        "#SBATCH --requeue",
    ):  # fmt: skip
        assert f"\n{line}\n" in text, line
    settings = read_settings(text)
    assert settings["setup"] == "module load podman"
    assert settings["run_dir"] == f"{folder}/runs/slurmray-runs"
    assert settings["requeue"] == {"max": 0, "exit_code": REQUEUE_EXIT_CODE}
    (group,) = settings["groups"]
    assert (group["spares"], settings["on_node_loss"], settings["restart"]["max"]) == (1, "restart", 2)
    assert settings["stop"] == {"lead": 40, "grace": 3, "signal": "USR2", "cancel_signal": "TERM"}
    assert settings["env_from_submitter"] == ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"]
    driver = ["-m", "slurmray.native.driver", f"{folder}/runs", VERSION, cloudpickle.__version__]
    assert settings["trainer"]["command"] == ["python3", "-u", *driver]
    (packed,) = folder.glob("runs/slurmray-*.zip")
    first, *_, last = settings["env"]["PYTHONPATH"].split(":")
    assert (first, last) == (str(packed), "/mine")
    assert settings["env"]["A"] == "it's"


def test_warning_about_a_variable_that_is_not_set() -> None:
    with pytest.warns(UserWarning, match=r"^env\.NOT_THERE is not set here: "):
        script(nodes=1, env={"NOT_THERE": None})


def test_setup_without_a_container(folder: Path) -> None:
    text = script(nodes=1, slurm_setup=["module load cuda"])
    assert script(nodes=1, slurm_setup=["module load cuda"], container={"runtime": "none"}) == text
    assert read_settings(text)["container"]["runtimes"] == ["none"]
    first, path, packages = read_settings(text)["setup"].split("\n")
    assert first == "module load cuda"
    assert path == f"export PATH={Path(sys.executable).parent}:$PATH"
    assert packages.startswith(f"export PYTHONPATH={folder}/runs/slurmray-")
    assert packages.endswith("${PYTHONPATH:+:$PYTHONPATH}")


def test_a_short_time_limit_has_a_short_lead() -> None:
    assert "\n#SBATCH --signal=B:URG@90\n" in script(timeout_min=3)
    assert "\n#SBATCH --signal=B:URG@30\n" in script(timeout_min=1)


def test_a_colon_in_a_path_is_refused(folder: Path) -> None:
    executor = RaySlurmExecutor(folder / "a:b", 3)
    executor.parameters = {"nodes": 1}
    with pytest.raises(SpecError, match="a:b: PYTHONPATH and mounts cannot have paths with a colon"):
        executor.submit(add, 1, 2)
    assert [path.suffix for path in executor.home.iterdir()] == [".zip"]


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    """Install an sbatch that prints this, and a scancel that records its arguments."""
    install(folder, sbatch=f"echo '{output}'", scancel=f'echo "$@" >{folder}/cancelled')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_job_without_its_pickle_is_cancelled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickle cannot be written, because a folder has its name."""
    fake_slurm(folder, monkeypatch, "7")
    (folder / "runs/7_submitted.pkl").mkdir(parents=True)
    executor = RaySlurmExecutor("runs", 3)
    executor.parameters = {"nodes": 1}
    with pytest.raises(OSError, match=r"7_submitted\.pkl"):
        executor.submit(add, 1, 2)
    assert (folder / "cancelled").read_text() == "7\n"


def test_only_the_owner_can_read_the_script(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(folder, monkeypatch, "7")
    executor = RaySlurmExecutor("runs", 3)
    executor.parameters = {"nodes": 1}
    executor.submit(add, 1, 2)
    assert (folder / "runs/7_submission.sh").stat().st_mode & 0o777 == 0o600


BOB = 65530


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.attack("pickles of another user")
@pytest.mark.parametrize("cluster", ["slurm", "local"])
def test_a_folder_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any) -> None:
    """submitit unpickles what is in it."""
    fake_slurm(folder, monkeypatch, "7")
    (folder / "runs").mkdir()
    os.chown(folder / "runs", BOB, BOB)
    executor = RayExecutor("runs/%j", cluster=cluster)
    with pytest.raises(UsageError, match=r"/runs: belongs to 65530, .*; choose another folder$"):
        executor.submit(add, 1, 2)
    assert not list((folder / "runs").iterdir())


def test_a_new_folder_is_for_its_owner_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(folder / "new/runs")
        make_folder(folder / "new/runs")
    finally:
        os.umask(before)
    assert (folder / "new/runs").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("mode", "is_refused"), [(0o777, True), (0o1777, True), (0o2775, False)])
def test_a_folder_to_which_every_user_may_write(folder: Path, mode: int, is_refused: bool) -> None:
    """Also with the sticky bit: the pickle with the result may be made by somebody else."""
    (folder / "my runs").mkdir()
    (folder / "my runs").chmod(mode)
    if is_refused:
        with pytest.raises(UsageError, match=r"every user may write to it, .*; .* chmod o-w '.*/my runs'$"):
            make_folder(folder / "my runs")
    else:
        make_folder(folder / "my runs")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_folders_of_root_and_of_a_server_that_maps_owners(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(folder / "mapped")
    os.chown(folder / "mapped", BOB, BOB)
    monkeypatch.setattr(paths, "probe_owner", lambda _: BOB)
    make_folder(folder / "mapped")
    make_folder(folder / "roots")
    monkeypatch.setattr(os, "geteuid", lambda: BOB + 1)
    make_folder(folder / "roots")


def test_a_job_that_went_to_another_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(folder, monkeypatch, "7;other")
    executor = RaySlurmExecutor("runs", 3)
    executor.parameters = {"nodes": 1}
    with pytest.raises(SlurmError, match="the job went to cluster other, and was cancelled: "):
        executor.submit(add, 1, 2)
    assert (folder / "cancelled").read_text() == "--clusters=other 7\n"


def test_an_array_has_separate_log_files(folder: Path) -> None:
    text = script(array=4, nodes=1, stderr_to_stdout=True)
    assert f"\n#SBATCH --output={folder}/runs/%A_%a_0_log.out\n" in text
    assert "--error" not in text
    of_array = ["SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"]
    assert read_settings(text)["env_from_submitter"][-2:] == of_array


@pytest.mark.parametrize("job_id", ["9", "7_1"])
def test_a_job_that_slurm_cannot_complete(job_id: str, answers: Callable[..., None], folder: Path) -> None:
    answers(f"echo '{job_id}|COMPLETING'")
    job: RayJob[Any] = RayJob(folder / "%j", job_id)
    assert not job.done(force_check=True)

    def write(attempt: str, *names: str) -> None:
        run = folder / "slurmray-runs" / attempt
        run.mkdir(parents=True, exist_ok=True)
        (run / "events.jsonl").write_text("".join(map(event_line, names)))

    write("7-0", "start", "end")  # another job
    write(f"{job_id}-9", "start", "requeue", "end")
    assert not job.done(force_check=True)
    write(f"{job_id}-10", "start")
    assert not job.done(force_check=True)
    write(f"{job_id}-10", "start", "end")
    assert job.done(force_check=True)


def test_mistakes_and_warnings_at_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """A failed submission leaves only the bundle."""
    sbatch = "echo 'sbatch: the QOS ends soon' >&2\necho 7\nexit 3  # slurm.wait"
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'bin', sbatch=sbatch)}:{os.environ['PATH']}")
    executor = RayExecutor(tmp_path / "runs", cluster="slurm")
    build = {"image": "mine", "build": {"file": "no-such-file"}}
    executor.update_parameters(container=build)
    with pytest.raises(SpecError, match=r"container\.build\.file: no such file: /.*/no-such-file"):
        executor.submit(print)
    assert [path.suffix for path in (tmp_path / "runs").iterdir()] == [".zip"]
    executor.update_parameters(container=None)
    assert executor.submit(print).job_id == "7"
    assert [str(warning.message) for warning in recwarn] == ["job 7: sbatch: the QOS ends soon"]
