"""The package from Python, as far as no Slurm is needed; see also tests/cluster/test_api.py."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import slurmray
from slurmray.cli import main
from slurmray.errors import SlurmError, SpecError, UsageError
from slurmray.loading.load import load_spec
from slurmray.rendering.verify import verify
from slurmray.resources import own
from slurmray.slurm.commands import call, refusal
from slurmray.slurm.states import end_of, is_last_attempt_over, parse_end, parse_events, parse_job

from .test_events import event_line

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guides/python.md").read_text()
HOOK = """
import sys

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("click", "jinja2", "pydantic", "ray", "submitit", "yaml"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Hook())
"""


def python(program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def mistakes(call: Callable[[], object]) -> str:
    with pytest.raises(SpecError) as caught:
        call()
    return str(caught.value)


def test_nothing_is_imported_before_its_use() -> None:
    done = python(
        f"{HOOK}from slurmray import End, Job, load, render, submit\nimport slurmray\ndir(slurmray)\nJob(7)"
    )
    assert done.returncode == 0, done.stderr
    assert "pydantic is imported" in python(f"{HOOK}from slurmray import JobSpec").stderr


def test_what_there_is() -> None:
    assert set(slurmray.__all__) <= set(dir(slurmray))
    assert all(getattr(slurmray, name) for name in slurmray.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Jobs'"):
        slurmray.Jobs  # type: ignore[attr-defined]  # noqa: B018


def test_a_spec_means_what_its_file_means(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "slurm: {nodes: 2, time: 12:00:00}\nenv: {A: 7, B: null}\nrun: [a, 1]\n"
    )
    fields = {"slurm": {"nodes": 2, "time": "12:00:00"}, "env": {"A": 7, "B": None}, "run": ["a", 1]}
    assert slurmray.load(tmp_path / "job.yaml") == slurmray.JobSpec(**fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"nodes": 2}, "nodes: unknown option, did you mean slurm.nodes?"),
        ({"self": 2}, "self: unknown option; known here: name, "),
        ({"slurm": {"nodes": 0}}, "slurm.nodes: expected 1 or more, got '0'"),
        ({"slurm": 3}, "slurm: expected `name: value` pairs, got '3'"),
        ({"env": {"A-B": "1"}}, "env.A-B: not the name of a variable: "),
        ({"run": ["a", ["b"]]}, "run: word 2: expected text, got a list"),
        (
            {"launch": "ray-job", "ray": {"runtime_env": {"working_dir": Path("x")}}},
            "ray.runtime_env: working_dir: expected text, a number, true, false, null, a list or a mapping",
        ),
        ({"run": []}, "run: is empty; leave it out for the built-in check"),
        ({"services": [{"name": "a"}]}, "services, item 1, run: is needed"),
    ],
)
def test_mistakes_have_the_words_of_the_command_line(fields: dict[str, object], expected: str) -> None:
    assert mistakes(lambda: slurmray.JobSpec(**fields)).startswith(expected)


def test_all_mistakes_at_once() -> None:
    said = mistakes(lambda: slurmray.JobSpec(slurm={"nodes": "two", "gpu_per_node": 8}))
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert said + "\n" == shown


def test_render_is_that_of_the_command_line(in_checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = str(in_checkout / "examples/verl.yaml")
    assert main(["render", job, "-o", "-"]) == 0
    by_command = capsys.readouterr().out.splitlines()
    by_function = slurmray.render(slurmray.load(job)).splitlines()
    differ = [pair for pair in zip(by_command, by_function, strict=True) if pair[0] != pair[1]]
    assert [line.partition(":")[0].strip() for _, line in differ] == [
        "# slurmray-sha256",
        "# slurmray-lines",
        '"render_again"',
    ]


def test_render_uses_the_template_of_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own("templates"))
    verdict = verify(slurmray.render(slurmray.JobSpec(template="sites/archive.sbatch.j2")))
    assert verdict
    assert verdict.text.endswith("; site block added by sites/archive.sbatch.j2")
    assert not verdict.is_changed
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UsageError, match=r"^sites/archive\.sbatch\.j2: No such file or directory; name a file "
    ):
        slurmray.render(slurmray.JobSpec(template="sites/archive.sbatch.j2"))


@pytest.mark.parametrize(
    "fields",
    [
        {"container": {"image": "mine", "build": {"file": "no-such-file"}}},
        {"slurm": {"nodes": 2, "gpus_per_node": 8}, "preset": "verl", "run": ["verl", "trainer.nnodes=3"]},
        {"slurm": {"gpus_per_node": 8}, "preset": {"name": "rlinf", "config": "no-such-file"}},
    ],
)
def test_what_only_shows_when_it_is_rendered(
    fields: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = slurmray.JobSpec(**fields)
    by_function = mistakes(lambda: slurmray.render(spec))
    Path("job.yaml").write_text(spec.model_dump_json(exclude_unset=True))
    by_command = mistakes(lambda: load_spec(Path("job.yaml")))
    assert re.sub(r"^job\.yaml:\d+:\d+: ", "", by_command, flags=re.MULTILINE) == by_function


def test_a_host_without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOT_SET", raising=False)
    spec = slurmray.JobSpec(env={"NOT_SET": None})
    with (
        pytest.warns(UserWarning, match=r"env\.NOT_SET is not set here"),
        pytest.raises(SlurmError) as caught,
    ):
        slurmray.submit(spec)
    assert str(caught.value).startswith("sbatch: there is no such command here: ")
    assert list(tmp_path.iterdir()) == []
    for ask in (slurmray.Job(7).wait, slurmray.Job(7).logs, slurmray.Job(7).cancel):
        with pytest.raises(SlurmError):
            ask()


@pytest.mark.parametrize("number", [0, -1, True, "7"])
def test_a_job_is_a_number(number: int) -> None:
    with pytest.raises(UsageError, match="expected the number of a job"):
        slurmray.Job(number)


# What Slurm 22.05 said.
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "sbatch: error: invalid partition specified: x\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "sbatch: invalid partition specified: x; Invalid partition name specified: "
            "`sinfo --format=%P` lists those for slurm.partition",
        ),
        (
            "sbatch: error: Batch job submission failed: Job size specification\n",
            "sbatch: Job size specification: mend",
        ),
        ("slurm_load_jobs error: Invalid job id specified\n\n", "sbatch: Invalid job id specified: mend"),
        ("", "sbatch: it failed without a word: mend"),
    ],
)
def test_a_refusal_is_one_line_with_a_remedy(said: str, expected: str) -> None:
    assert str(refusal(["sbatch", "--parsable"], said, "mend")) == expected


def test_a_job_of_a_misleading_name() -> None:
    # Slurm 22.05, after scancel.
    record = parse_job(
        "JobId=15 JobName=x JobState=FAILED ExitCode=9:9\n"
        "   JobState=CANCELLED Reason=None Dependency=(null)\n"
        "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:15\n"
        "   Comment=a JobState=FAILED\n"
        "   WorkDir=/home/a b\n"
        "   StdOut=/home/a b/slurm-15.out\n"
    )
    assert (record["JobState"], record["ExitCode"], record["WorkDir"]) == ("CANCELLED", "0:15", "/home/a b")


def test_ends() -> None:
    assert parse_end("CANCELLED by 1001", "0:15") == slurmray.End("CANCELLED", 0, 15)
    assert parse_end("FAILED", "7:0") == slurmray.End("FAILED", 7, 0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"exit_code": 0, "source": "trainer"}, slurmray.End("COMPLETED", 0, 0)),
        ({"exit_code": 7, "source": "trainer"}, slurmray.End("FAILED", 7, 0)),
        ({"exit_code": 71, "source": "slurmray", "kind": "node_lost"}, slurmray.End("FAILED", 71, 0)),
        ({"exit_code": 143, "source": "slurm"}, slurmray.End("CANCELLED", 143, 0)),
    ],
)
def test_the_end_in_the_run_directory(fields: dict[str, object], expected: slurmray.End) -> None:
    # The text is for people; the last line is cut off, as on a full file system.
    text = "done: trainer exited with 9"
    start = event_line("start")
    end = event_line("end", **fields, text=text) + event_line("phase")[:9]
    assert end_of(parse_events(start)) is None
    assert end_of(parse_events(start + end)) == expected
    stopped = end_of(parse_events(start + event_line("stop") + end))
    assert stopped == expected._replace(state="CANCELLED")


def test_an_attempt_that_another_one_follows() -> None:
    running, requeue, end = event_line("start"), event_line("requeue"), event_line("end")
    assert not is_last_attempt_over(parse_events(running))
    assert not is_last_attempt_over(parse_events(running + requeue))
    assert not is_last_attempt_over(parse_events(running + requeue + end))
    assert is_last_attempt_over(parse_events(running + end))


def scontrol(folder: Path, monkeypatch: pytest.MonkeyPatch, commands: str) -> None:
    """The only command of Slurm's that there is."""
    program = folder / "bin/scontrol"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{commands}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


@pytest.mark.parametrize("state", ["NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"])
def test_states_that_are_ends(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol(tmp_path, monkeypatch, f"echo JobState={state} ExitCode=0:9; echo WorkDir=/\n")
    assert slurmray.Job(7).wait(timeout=0) == slurmray.End(state, 0, 9)


@pytest.mark.parametrize(("errors", "expected"), [("log", "words\n"), ("errors", "words\nbad\n")])
def test_a_log_is_read_once(
    errors: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_text("words\n")
    (tmp_path / "errors").write_text("bad\n")
    record = (
        "JobState=RUNNING",
        f"WorkDir={tmp_path}",
        f"StdErr={tmp_path / errors}",
        f"StdOut={tmp_path}/log",
    )
    scontrol(tmp_path, monkeypatch, "".join(f"echo '{field}'\n" for field in record))
    assert slurmray.Job(7).logs() == expected


def test_the_command_to_attach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the attempt that runs, from the events: the log's text is for people."""
    record = f"echo JobState=$STATE Restarts=1; echo WorkDir={tmp_path}; echo StdOut={tmp_path}/log"
    scontrol(tmp_path, monkeypatch, record)
    (tmp_path / "log").write_text("[slurmray 9.0 s] attach: srun of the log\n")
    runs = tmp_path / "runs"
    for attempt in (0, 1, 2):
        (runs / f"7-{attempt}").mkdir(parents=True)
        (runs / f"7-{attempt}/events.jsonl").write_text(event_line("attach", command=f"srun {attempt}"))
    monkeypatch.setenv("STATE", "RUNNING")
    assert slurmray.Job(7, run_dir="runs").attach_command() == "srun 1"
    with pytest.raises(
        SlurmError, match=r"job 7: no events in .*/slurmray-runs/7-1 yet; .* the run_dir of its"
    ):
        slurmray.Job(7).attach_command()
    (runs / "7-1/events.jsonl").write_text(event_line("start"))
    with pytest.raises(SlurmError, match="job 7: cluster not ready"):
        slurmray.Job(7, run_dir="runs").attach_command()
    monkeypatch.setenv("STATE", "PENDING")
    with pytest.raises(SlurmError, match="job 7: no cluster to attach to, the job is PENDING"):
        slurmray.Job(7, run_dir="runs").attach_command()


def test_a_run_directory_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol(tmp_path, monkeypatch, f"echo JobState=RUNNING; echo WorkDir={tmp_path}")
    (tmp_path / "slurmray-runs/7-0/events.jsonl").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"7-0/events\.jsonl: can't be read: "):
        slurmray.Job(7).attach_command()


def test_slurm_is_not_waited_for_without_end() -> None:
    with pytest.raises(SlurmError, match=r"^sleep: no answer within 0\.1 s: try again later$"):
        call(["sleep", "60"], timeout=0.1)


def test_a_job_that_slurm_has_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm 22.05's message; there is no sacct. The log is where Slurm writes it by default, or unknown."""
    scontrol(tmp_path, monkeypatch, "echo 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n")
    job = slurmray.Job(7, folder=tmp_path)
    with pytest.raises(SlurmError, match="give Job the folder"):
        job.state()
    with pytest.raises(UsageError, match=r"slurm-7\.out: no such file: .* give Job the folder"):
        job.logs()
    for name, code in (("7-9", 71), ("7-10", 0), ("7-11.old", 5)):
        (tmp_path / "slurmray-runs" / name).mkdir(parents=True)
        event = event_line("end", exit_code=code, source="trainer")
        (tmp_path / "slurmray-runs" / name / "events.jsonl").write_text(event)
    (tmp_path / "slurm-7.out").write_text("words\n")
    assert job.wait() == slurmray.End("COMPLETED", 0, 0)
    assert job.logs() == "words\n"
