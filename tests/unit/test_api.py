"""The package's functions without a Slurm; see also tests/cluster/test_api.py."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slurmray
from slurmray.cli import main
from slurmray.errors import SlurmError, SpecError, UsageError
from slurmray.loading.load import load_plan
from slurmray.rendering.verification import verify
from slurmray.resources import data_folder

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
    argv = [sys.executable, "-c", program]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


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


def test_exported_names() -> None:
    assert set(slurmray.__all__) <= set(dir(slurmray))
    assert all(getattr(slurmray, name) for name in slurmray.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Jobs'"):
        slurmray.Jobs  # type: ignore[attr-defined]  # noqa: B018


def test_python_values_and_file_give_the_same_spec(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "slurm: {nodes: 2, time: 12:00:00}\nenv: {A: 7, B: null}\nrun: [a, 1]\n"
    )
    fields: Any = {"slurm": {"nodes": 2, "time": "12:00:00"}, "env": {"A": 7, "B": None}, "run": ["a", 1]}
    assert slurmray.load(tmp_path / "job.yaml") == slurmray.JobSpec(**fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"nodes": 2}, "nodes: unknown field, did you mean slurm.nodes?"),
        ({"self": 2}, "self: unknown field; known here: name, "),
        ({"slurm": {"nodes": 0}}, "slurm.nodes: expected 1 or more, got '0'"),
        ({"slurm": 3}, "slurm: expected `name: value` pairs, got '3'"),
        ({"env": {"A-B": "1"}}, "env.A-B: not a valid name of a variable; "),
        ({"run": ["a", ["b"]]}, "run: item 2: expected text, got a list"),
        (
            {"launch": "ray-job", "ray": {"runtime_env": {"working_dir": Path("x")}}},
            "ray.runtime_env: working_dir: expected text, a number, true, false, null, a list or a mapping",
        ),
        ({"run": []}, "run: is empty; leave it out to run the built-in check"),
        ({"services": [{"name": "a"}]}, "services, item 1, run: is required"),
    ],
)
def test_mistakes_have_the_messages_of_the_command_line(fields: dict[str, Any], expected: str) -> None:
    assert mistakes(lambda: slurmray.JobSpec(**fields)).startswith(expected)


def test_all_mistakes_at_once() -> None:
    message = mistakes(lambda: slurmray.JobSpec(slurm={"nodes": "two", "gpu_per_node": 8}))
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert message + "\n" == shown


def test_render_gives_the_script_of_the_command_line(
    in_checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = str(in_checkout / "examples/verl.yaml")
    assert main(["render", job, "-o", "-"]) == 0
    by_command = capsys.readouterr().out.splitlines()
    by_function = slurmray.render(slurmray.load(job)).splitlines()
    differ = [pair for pair in zip(by_command, by_function, strict=True) if pair[0] != pair[1]]
    assert [line.partition(":")[0].strip() for _, line in differ] == [
        "# slurmray-sha256",
        '"render_again"',
    ]


def test_fields_override_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("slurm: {nodes: 2, mem: 1G}\nenv: {A: 1}\nrun: [x]\n")
    spec = slurmray.load(path, slurm={"nodes": 4}, env={"B": "2"}, run=["y"], name="n")
    assert (spec.slurm.nodes, dict(spec.slurm.given())["mem"], spec.env) == (4, "1G", {"A": "1", "B": "2"})
    assert (spec.run, spec.name) == (["y"], "n")
    expected = "slurm.nodes, given to load(): expected 1 or more, got '0'"
    assert mistakes(lambda: slurmray.load(path, slurm={"nodes": 0})) == expected
    expected = "nam, given to load(): unknown field, did you mean name?"
    assert mistakes(lambda: slurmray.load(path, nam="x")) == expected  # type: ignore[call-arg]


def test_a_file_in_place_of_a_job_spec(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("slurm: {nodes: 2}\n")
    for path in (tmp_path / "job.yaml", str(tmp_path / "job.yaml")):
        assert slurmray.render(path) == slurmray.render(slurmray.load(path))


def test_render_uses_the_template_of_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data_folder("templates"))
    verdict = verify(slurmray.render(slurmray.JobSpec(template="sites/archive.sbatch.j2")))
    assert verdict
    assert "; commands of the site's template sites/archive.sbatch.j2: " in verdict.text
    assert verdict.code == 0
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
@pytest.mark.usefixtures("current_folder")
def test_mistakes_that_only_render_finds(fields: dict[str, Any]) -> None:
    spec = slurmray.JobSpec(**fields)
    by_function = mistakes(lambda: slurmray.render(spec))
    Path("job.yaml").write_text(spec.model_dump_json(exclude_unset=True))
    by_command = mistakes(lambda: load_plan(Path("job.yaml")).spec)
    assert re.sub(r"^job\.yaml:\d+:\d+: ", "", by_command, flags=re.MULTILINE) == by_function


def test_a_host_without_slurm(monkeypatch: pytest.MonkeyPatch, current_folder: Path) -> None:
    monkeypatch.setenv("PATH", str(current_folder))
    monkeypatch.delenv("NOT_SET", raising=False)
    spec = slurmray.JobSpec(env={"NOT_SET": None, "API_KEY": "x"})
    with (
        pytest.warns(UserWarning, match=r"env\.NOT_SET is not set here"),
        pytest.warns(UserWarning, match=r"env\.API_KEY: its value is in the script"),
        pytest.raises(SlurmError) as caught,
    ):
        slurmray.submit(spec)
    assert str(caught.value).startswith("sbatch: no such command here: ")
    assert list(current_folder.iterdir()) == []
    for ask in (slurmray.Job(7).wait, slurmray.Job(7).logs, slurmray.Job(7).cancel):
        with pytest.raises(SlurmError):
            ask()


def test_an_array_is_no_single_job() -> None:
    with pytest.raises(UsageError, match="use sweep, or sbatch"):
        slurmray.submit(slurmray.JobSpec(slurm={"array": "0-3"}))
