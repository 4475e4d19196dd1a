"""RayExecutor without a Slurm: on this machine, and what it would submit."""

from __future__ import annotations

import os
import pickle
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from submitit.core.utils import DelayedSubmission

from slurmray.agent.script import settings_of
from slurmray.errors import SlurmError, SpecError
from slurmray.native import RayExecutor, bundle
from slurmray.native.driver import REQUEUE_EXIT_CODE, mismatch
from slurmray.native.on_slurm import RayJob, RaySlurmExecutor
from slurmray.native.parameters import job_data
from slurmray.native.watcher import FORGOTTEN, Watcher

from ..test_events import event_line

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/guides/native.md").read_text()
VERSION = "{}.{}".format(*sys.version_info)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{Path(__file__).parent}")  # for functions of this module
    return tmp_path


# -- on this machine -------------------------------------------------------------------------------


def add(first: int, second: int) -> int:
    return first + second


@pytest.mark.parametrize("cluster", ["local", "debug"])
def test_the_same_program_without_slurm(cluster: Any) -> None:
    executor = RayExecutor("runs", cluster=cluster)
    executor.update_parameters(nodes=4, timeout_min=1, container={"image": "my/image"}, slurm_partition="gpu")
    assert executor.submit(add, 1, second=2).result() == 3
    assert [job.result() for job in executor.map_array(add, [1, 2], [3, 4])] == [4, 6]
    with executor.batch():
        job = executor.submit(add, 5, 6)
    assert job.result() == 11
    assert "ZeroDivisionError" in repr(executor.submit(divmod, 1, 0).exception())


def test_the_example_on_this_machine() -> None:
    argv = [sys.executable, str(ROOT / "examples/native.py"), "--cluster", "local"]
    output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300).stdout
    assert re.fullmatch(r"job [0-9]+, logs in \S+/runs\n[0-9.]+ +[0-9]+ GPUs\n", output), output


def test_the_page(folder: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    text = "".join(blocks).replace('(folder="runs")', '(folder="runs", cluster="local")')
    (folder / "app.py").write_text(text)
    (folder / "config.yaml").write_text("lr: 0.5\njob: {nodes: 2, timeout_min: 5}\n")
    argv = [sys.executable, "app.py", "--multirun", "lr=0.25,0.125"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(?:[0-9]+ )?(\(.*\)|3)$", done.stdout, re.MULTILINE) == [
        "(1e-06, 0)",
        "3",
        "(0.25, 0)",
        "(0.125, 0)",
    ]


def test_slurm_where_there_is_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert RayExecutor("runs").cluster == "local"
    (folder / "sbatch").write_text("#!/bin/sh\n")
    (folder / "sbatch").chmod(0o755)
    assert RayExecutor("runs").cluster == "slurm"


# -- parameters ------------------------------------------------------------------------------------


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
        ({"slurm_use_srun": True}, r"slurm_use_srun: there is one task, the driver: leave it out"),
        ({"slurm_srun_args": ["-v"]}, r"slurm_srun_args: there is one task, the driver: leave it out"),
        ({"slurm_setup": [5]}, r"slurm_setup: expected a list of commands, got \[5\]"),
        *(
            ({"slurm_array_parallelism": few}, rf"slurm_array_parallelism: expected .* 1 or more, got {few}")
            for few in (0, -1, True)
        ),
        ({"mem_gb": float("nan")}, r"mem_gb: expected GiB as a number, got nan"),
        ({"mem_gb": float("inf")}, r"mem_gb: expected GiB as a number, got inf"),
        ({"timeout_min": True}, r"timeout_min: expected minutes as a whole number, got True"),
        ({"nodes": 0}, r"slurm\.nodes: .*1.*"),
        ({"timeout_min": "1:00:00"}, r"timeout_min: expected minutes as a whole number, got '1:00:00'"),
        ({"timeout_min": 0}, r"timeout_min: expected minutes as a whole number, got 0"),
        ({"mem_gb": "4G"}, r"mem_gb: expected GiB as a number, got '4G'"),
        ({"stop": "TERM"}, r"stop: .*"),
        ({"stop": {"signal": "TERM"}}, r"stop\.signal: RayExecutor sets it: leave it out"),
        ({"stop": {"lead": 0}}, r"stop\.lead: the driver needs a warning: .*"),
        ({"requeue": {"exit_code": 3}}, r"requeue\.exit_code: RayExecutor sets it: leave it out"),
        ({"container": "my/image"}, r"container: .*"),
        ({"ray": {"prot": 1}}, r"ray\.prot: unknown option, did you mean port\?"),
        ({"container": {"imago": "x"}}, r"container\.imago: unknown option, did you mean image\?"),
        ({"slurm_tasks_per_node": 2}, r"slurm\.tasks_per_node: .*"),
        ({"slurm_ntasks_per_node": 2}, r"slurm\.ntasks_per_node: .*"),
        ({"slurm_wait": True}, r"slurm_wait: result\(\) waits: leave it out"),
        ({"slurm_signal_delay_s": 9, "stop": {"lead": 8}}, r"stop\.lead: slurm_signal_delay_s sets .*"),
        (
            {"timeout_min": 3, "stop": {"lead": 180}},
            r"stop: lead of 180 s is no less than slurm\.time, 3: .*",
        ),
        ({"slurm_array": "0-3"}, r"slurm\.array: an array is not supported.*"),
    ],
)
@pytest.mark.parametrize("cluster", ["slurm", "local", "debug"])
def test_mistakes_are_the_same_everywhere(cluster: Any, parameters: dict[str, Any], message: str) -> None:
    executor = RayExecutor("runs", cluster=cluster)
    executor.update_parameters(name="before")
    with pytest.raises(SpecError) as error:
        executor.update_parameters(**parameters)
    assert re.fullmatch(message, str(error.value))
    assert executor.parameters == {"name": "before"}


def test_none_removes_a_parameter() -> None:
    executor = RayExecutor("runs", cluster="slurm")
    executor.update_parameters(name="a", nodes=2, container={"image": "x"})
    executor.update_parameters(nodes=3, container=None)
    assert executor.parameters == {"name": "a", "nodes": 3}


def script(array: int = 0, **parameters: Any) -> str:
    executor = RaySlurmExecutor("runs", 3)
    executor.parameters = parameters
    executor.home.mkdir(exist_ok=True)
    return executor.script(array)


def test_what_is_submitted(folder: Path) -> None:
    text = script(
        name="n", nodes=2, gpus_per_node=8, cpus_per_task=4, mem_gb=1.5, timeout_min=90,
        slurm_partition="gpu", slurm_setup=["module load podman"], slurm_signal_delay_s=40,
        slurm_additional_parameters={"wckey-x": "y"}, container={"image": "i", "mounts": ["/m"]},
        env={"A": "it's", "PYTHONPATH": "/mine"}, stop={"grace": 3},
    )  # fmt: skip
    for line in (
        "#SBATCH --job-name=n", "#SBATCH --nodes=2", "#SBATCH --gpus-per-node=8", "#SBATCH --mem=1536M",
        "#SBATCH --time=90", "#SBATCH --partition=gpu", "#SBATCH --wckey-x=y", "#SBATCH --signal=B:USR1@40",
        f"#SBATCH --output={folder}/runs/%j_0_log.out", f"#SBATCH --error={folder}/runs/%j_0_log.err",
        "#SBATCH --requeue",
    ):  # fmt: skip
        assert f"\n{line}\n" in text, line
    settings = settings_of(text)
    assert settings["setup"] == "module load podman"
    assert settings["run_dir"] == f"{folder}/runs/slurmray-runs"
    assert settings["requeue"] == {"max": 0, "exit_code": REQUEUE_EXIT_CODE}
    assert settings["stop"] == {"lead": 40, "grace": 3, "signal": "USR2", "cancel_signal": "TERM"}
    assert settings["env_from_submitter"] == ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"]
    driver = ["-m", "slurmray.native.driver", f"{folder}/runs", VERSION, cloudpickle.__version__]
    assert settings["trainer"]["command"] == ["python3", "-u", *driver]
    (packed,) = folder.glob("runs/slurmray-*.zip")
    first, *_, last = settings["env"]["PYTHONPATH"].split(":")
    assert (first, last) == (str(packed), "/mine")
    assert settings["env"]["A"] == "it's"


def test_a_variable_that_is_not_set_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"^env\.NOT_THERE is not set here: "):
        script(nodes=1, env={"NOT_THERE": None})


def test_what_is_submitted_without_a_container(folder: Path) -> None:
    text = script(nodes=1, slurm_setup=["module load cuda"])
    assert script(nodes=1, slurm_setup=["module load cuda"], container={"runtime": "none"}) == text
    assert settings_of(text)["container"]["runtimes"] == ["none"]
    first, path, packages = settings_of(text)["setup"].split("\n")
    assert first == "module load cuda"
    assert path == f"export PATH={Path(sys.executable).parent}:$PATH"
    assert packages.startswith(f"export PYTHONPATH={folder}/runs/slurmray-")
    assert packages.endswith("${PYTHONPATH:+:$PYTHONPATH}")


def test_a_short_time_limit_has_a_short_lead() -> None:
    assert "\n#SBATCH --signal=B:USR1@90\n" in script(timeout_min=3)
    assert "\n#SBATCH --signal=B:USR1@30\n" in script(timeout_min=1)


def test_a_colon_in_a_path_is_refused(folder: Path) -> None:
    executor = RaySlurmExecutor(folder / "a:b", 3)
    executor.parameters = {"nodes": 1}
    with pytest.raises(SpecError, match="a:b: PYTHONPATH and mounts cannot have paths with a colon"):
        executor.submit(add, 1, 2)
    assert [path.suffix for path in executor.home.iterdir()] == [".zip"]


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    """Install an sbatch that prints this, and a scancel that records its arguments."""
    for name, text in (("sbatch", f"echo '{output}'"), ("scancel", f'echo "$@" >{folder}/cancelled')):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_job_without_its_pickle_is_cancelled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is there already, as a folder."""
    fake_slurm(folder, monkeypatch, "7")
    (folder / "runs/7_submitted.pkl").mkdir(parents=True)
    executor = RaySlurmExecutor("runs", 3)
    executor.parameters = {"nodes": 1}
    with pytest.raises(OSError, match=r"7_submitted\.pkl"):
        executor.submit(add, 1, 2)
    assert (folder / "cancelled").read_text() == "7\n"


def test_a_job_that_went_to_another_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(folder, monkeypatch, "7;other")
    executor = RaySlurmExecutor("runs", 3)
    executor.parameters = {"nodes": 1}
    with pytest.raises(SlurmError, match="the job went to the cluster other, and was cancelled: "):
        executor.submit(add, 1, 2)
    assert (folder / "cancelled").read_text() == "--clusters=other 7\n"


def test_an_array_has_files_of_its_own(folder: Path) -> None:
    text = script(array=4, nodes=1, stderr_to_stdout=True)
    assert f"\n#SBATCH --output={folder}/runs/%A_%a_0_log.out\n" in text
    assert "--error" not in text
    of_array = ["SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"]
    assert settings_of(text)["env_from_submitter"][-2:] == of_array


def test_the_number_of_the_job_in_the_folder(folder: Path) -> None:
    data = job_data({}, folder / "%j", "%A_%a")
    assert data["slurm"]["output"] == f"{folder}/%A_%a/%A_%a_0_log.out"


# -- bundle ----------------------------------------------------------------------------------------


def test_the_same_bundle_is_one_file(folder: Path) -> None:
    first = bundle.pack(folder)
    assert bundle.pack(folder) == first
    assert list(folder.iterdir()) == [first]
    names = zipfile.ZipFile(first).namelist()
    assert {"slurmray/native/driver.py", "submitit/__init__.py", "cloudpickle/__init__.py"} < set(names)


def test_a_module_that_imports_the_executor_needs_nothing_of_it_in_the_image(folder: Path) -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('pydantic', 'jinja2', 'yaml', 'click', 'ray')));"
        "from slurmray.native import RayExecutor, driver; print(RayExecutor.__module__)"
    )
    argv = [sys.executable, "-S", "-c", program]
    env = {"PYTHONPATH": str(bundle.pack(folder))}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("slurmray.native.executor\n", "")


def test_folders_of_the_caller(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "code").mkdir()
    others = [str(folder / "not there"), "/", *(path for path in sys.path if "site-packages" in path)]
    monkeypatch.setattr(sys, "path", ["", str(folder / "code"), str(folder / "code"), str(ROOT), *others])
    assert bundle.code_folders() == [folder, folder / "code"]
    monkeypatch.setattr(sys, "path", [str(ROOT), *others])
    assert bundle.code_folders() == [ROOT]  # where the program is


# -- driver ----------------------------------------------------------------------------------------


class Driver:
    """A driver in a job with the number 7."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.env = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_NTASKS": "5", "SLURMRAY_ATTEMPT": "0"}
        self.mark = folder / "slurmray-runs/7-0/mark"
        self.mark.parent.mkdir(parents=True)
        self.mark.touch()

    def submit(self, function: Callable[..., Any], *args: Any, minutes: int = 60) -> None:
        delayed = DelayedSubmission(function, *args)
        delayed.set_timeout(minutes, 3)
        delayed.dump(self.folder / "7_submitted.pkl")

    def start(self, version: str = VERSION) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "slurmray.native.driver", str(self.folder)]
        argv += [version, cloudpickle.__version__]
        return subprocess.Popen(argv, env=self.env, stderr=subprocess.PIPE, text=True)

    def run(self, version: str = VERSION) -> tuple[int, str]:
        process = self.start(version)
        output = process.communicate(timeout=60)[1]
        return process.returncode, output

    def interrupt(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal once the function runs."""
        process = self.start()
        deadline = time.monotonic() + 60  # bounds a hang
        while not Path("started").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        output = process.communicate(timeout=60)[1]
        return process.returncode, output

    def outcome(self) -> Any:
        return pickle.loads((self.folder / "7_0_result.pkl").read_bytes())  # noqa: S301 - our own


@pytest.fixture
def driver(folder: Path) -> Driver:
    return Driver(folder)


def test_a_driver_writes_the_result(driver: Driver) -> None:
    driver.submit(lambda: os.environ["SLURM_NTASKS"])
    assert driver.run()[0] == 0
    assert driver.outcome() == ("success", "1")


def test_a_driver_writes_the_traceback(driver: Driver) -> None:
    driver.submit(lambda: 1 // 0)
    assert driver.run()[0] == 1
    kind, text = driver.outcome()
    assert kind == "error"
    assert "ZeroDivisionError" in text


def test_another_python_is_one_line(driver: Driver) -> None:
    driver.submit(add, 1, 2)
    code, output = driver.run("3.7")
    line = (
        f"the function comes from Python 3.7, {sys.executable} in the job is {VERSION}:"
        f" use an image with Python 3.7, or submit from Python {VERSION}"
    )
    assert (code, output) == (2, f"slurmray: {line}\n")
    assert driver.outcome() == ("error", line)


def test_another_cloudpickle_is_one_line() -> None:
    assert mismatch(VERSION, cloudpickle.__version__) == ""
    assert mismatch(VERSION, "1.0").startswith(
        f"the function comes from cloudpickle 1.0, the job has {cloudpickle.__version__}: remove "
    )


class Count:
    """Creates the file `started`, and waits for the signal to write a checkpoint."""

    def __init__(self, start: int):
        self.start = start

    def __call__(self) -> int:
        Path("started").touch()
        threading.Event().wait(60)
        return self.start

    def checkpoint(self) -> DelayedSubmission:
        return DelayedSubmission(add, self.start, 1)


def test_a_driver_ends_at_scancel(driver: Driver) -> None:
    driver.submit(Count(41))
    assert driver.interrupt(signal.SIGTERM)[0] == 128 + signal.SIGTERM
    assert not (driver.folder / "7_0_result.pkl").exists()


def test_a_checkpoint_is_what_the_next_attempt_runs(driver: Driver) -> None:
    driver.submit(Count(41))
    code, output = driver.interrupt(signal.SIGUSR2)
    assert code == REQUEUE_EXIT_CODE
    assert "requests a requeue" in output
    assert not (driver.folder / "7_0_result.pkl").exists()
    assert driver.run()[0] == 0
    assert driver.outcome() == ("success", 42)


def waits() -> None:
    Path("started").touch()
    threading.Event().wait(60)


def test_the_time_limit_includes_the_start_of_ray(driver: Driver) -> None:
    """A time limit, not a preemption, though the function runs for a moment only."""
    long_ago = time.time() - 3000
    os.utime(driver.mark, (long_ago, long_ago))
    driver.submit(waits, minutes=60)
    code, output = driver.interrupt(signal.SIGUSR2)
    assert code not in (0, REQUEUE_EXIT_CODE)
    assert "timed-out and not checkpointable" in output + str(driver.outcome())


# -- states ----------------------------------------------------------------------------------------


@pytest.fixture
def answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a squeue and a sacct that run these shell commands."""

    def answer(squeue: str, sacct: str = "exit 1") -> None:
        for name, text in {"squeue": squeue, "sacct": sacct}.items():
            (folder / name).write_text(f"#!/bin/sh\necho {name} >>asked\n{text}\n")
            (folder / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return answer


def states(watcher: Watcher, *jobs: str) -> list[str]:
    for job in jobs:
        watcher.register_job(job)
    watcher.update()
    return [watcher.get_state(job, mode="cache") for job in jobs]


def test_states_of_all_jobs_in_one_request(answers: Callable[..., None], folder: Path) -> None:
    answers("printf '7|RUNNING|7\\n8_0|COMPLETED|9\\n8_1|PENDING|8\\n'")
    watcher = Watcher()
    assert states(watcher, "7", "8_0", "8_1") == ["RUNNING", "COMPLETED", "PENDING"]
    assert [watcher.is_done(job, mode="cache") for job in ("7", "8_0", "8_1")] == [False, True, False]
    assert (folder / "asked").read_text() == "squeue\n"
    answers("""case $* in *8_0*) exit 1;; esac; printf '7|REQUEUE_HOLD|7\\n8_1|RUNNING|8\\n'""")
    assert states(watcher, "7", "8_0", "8_1") == ["REQUEUE_HOLD", "COMPLETED", "RUNNING"]
    assert not watcher.is_done("7", mode="cache")


@pytest.mark.parametrize("job_id", ["9", "7_1"])
def test_a_job_that_slurm_cannot_complete(job_id: str, answers: Callable[..., None], folder: Path) -> None:
    """The run directory has SLURM_JOB_ID, which is not part of an array task's id."""
    answers(f"echo '{job_id}|COMPLETING|9'")
    job: RayJob[Any] = RayJob(folder / "%j", job_id)
    assert not job.done(force_check=True)

    def write(attempt: str, *names: str) -> None:
        run = folder / "slurmray-runs" / attempt
        run.mkdir(parents=True, exist_ok=True)
        (run / "events.jsonl").write_text("".join(map(event_line, names)))

    write("7-0", "start", "end")  # another job
    write("9-9", "start", "requeue", "end")
    assert not job.done(force_check=True)
    write("9-10", "start")
    assert not job.done(force_check=True)
    write("9-10", "start", "end")
    assert job.done(force_check=True)


def test_forgotten_jobs(answers: Callable[..., None]) -> None:
    unknown = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    answers(unknown, "echo '7|CANCELLED by 1001'")
    assert states(Watcher(), "7", "8") == ["CANCELLED", FORGOTTEN]
    answers(unknown)
    assert states(Watcher(), "9") == [FORGOTTEN]


def test_a_slurm_that_does_not_answer(answers: Callable[..., None]) -> None:
    answers("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert states(Watcher(), "7") == ["UNKNOWN"]


def test_without_submitit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "slurmray.native.executor", raising=False)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ModuleNotFoundError, match=r"slurmray\.native needs submitit: pip install "):
        runpy.run_path(str(ROOT / "examples/native.py"))
