from pathlib import Path

import pytest

from slurmray import __version__
from slurmray.cli import main
from slurmray.rendering.output import seal
from slurmray.rendering.script import agent_sha256, render_script, story_sha256
from slurmray.rendering.verify import STORIES, verify
from slurmray.spec.job import JobSpec

from .cases import GOLDENS

pytestmark = pytest.mark.usefixtures("frozen_agent")

SPEC = JobSpec.model_validate(
    {"name": "job", "setup": "true", "slurm": {"nodes": 2, "partition": "gpu"}, "run": ["python", "train.py"]}
)


def script(runtime: str = "auto", template: Path | None = None) -> str:
    container = SPEC.container.model_copy(update={"runtime": runtime})
    fields = {"container": container, "template": str(template) if template else None}
    return seal(render_script(SPEC.model_copy(update=fields)))


def verdict_on(text: str) -> str:
    verdict = verify(text)
    assert verdict
    assert verdict.is_changed is not verdict.text.startswith(("as rendered", "unchanged"))
    return verdict.text


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize("runtime", [*STORIES, "singularity"])
def test_as_rendered(runtime: str) -> None:
    assert verdict_on(script(runtime)) == f"as rendered by slurmray {__version__}"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('"nodes": 2', '"nodes": 3', "settings edited (line {})"),
        ('  "setup": "true",\n', "", "settings edited (line {})"),
        ("--partition=gpu", "--partition=cpu", "directives edited (line {})"),
        ("--pids-limit=-1", "--pids-limit=9", "story changed, line {}"),
        ("--mpi=none", "--mpi=pmix", "story changed, line {}"),
        ("\n#### agent/protocol.py\n", "\nimport this\n#### agent/protocol.py\n", "agent changed, line {+1}"),
        ("\n# ---- 2. story", "\nrm -rf x\n# ---- 2. story", "text between the parts changed, line {+1}"),
        ("\nexit\n", "\ntrue\n", "text between the parts changed, line {+1}"),
        ("\nAGENT\n", "\nAGENT\nevil\n", "text between the parts changed, line {+2}"),
        ("#!/bin/bash", "#!/bin/sh", "text between the parts changed, line {}"),
    ],
)
@pytest.mark.parametrize("is_sealed_again", [False, True])
def test_one_edit(before: str, after: str, expected: str, is_sealed_again: bool) -> None:
    text = script("podman")
    at = line_of(text, before)
    for later in (0, 1, 2):
        expected = expected.replace(f"{{{f'+{later}' if later else ''}}}", str(at + later))
    edited = text.replace(before, after, 1)
    if is_sealed_again:
        line = next(line for line in edited.splitlines() if line.startswith("# slurmray-sha256"))
        edited = seal(edited.replace(f"{line}\n", "", 1))
    assert verdict_on(edited) == expected


def test_two_edits() -> None:
    text = script().replace('"nodes": 2', '"nodes": 3', 1).replace("--rm --interactive", "--interactive")
    lines = [i for i, line in enumerate(text.splitlines(), 1) if "run --interactive" in line]
    at = line_of(text, '"nodes": 3')
    assert verdict_on(text) == f"settings edited (line {at}); story changed, lines {lines[0]}, {lines[1]}"


def test_edited_neighbouring_lines_are_a_range() -> None:
    text = script("none")
    at = line_of(text, "# run_setup COMMANDS")
    changed = text.replace("\tset +Eeuo pipefail\n\teval", "\tset +E\n\ttrue\n\teval")
    assert verdict_on(changed) == f"story changed, lines {at + 3}-{at + 4}"


def test_settings_that_are_gone() -> None:
    text = script().replace("\nSETTINGS\n", "\n", 1)
    assert "settings removed" in verdict_on(text)


def test_an_edited_header() -> None:
    text = script()
    assert verdict_on(text.replace(agent_sha256(), "0" * 64)) == "header edited"


def test_another_version() -> None:
    other = script().replace(f"slurmray {__version__} ", "slurmray 0.0.1 ")
    line = next(line for line in other.splitlines() if line.startswith("# slurmray-sha256"))
    other = seal(other.replace(f"{line}\n", ""))
    assert verdict_on(other).startswith(
        "as rendered by slurmray 0.0.1 by the hashes in its header (installed: "
    )
    assert verdict_on(other.replace("--mpi=none", "")) == "story changed"
    assert verdict_on(other.replace("import json", "import os", 1)) == "agent changed"
    at = line_of(other, '"nodes": 2')
    assert verdict_on(other.replace('"nodes": 2', '"nodes": 3', 1)) == f"settings edited (line {at})"


def test_a_site(tmp_path: Path) -> None:
    site = tmp_path / "site.j2"
    site.write_text(
        '{% extends "job.sbatch.j2" %}'
        "{% block directives %}{{ super() -}}\n#SBATCH --qos=site\n{% endblock %}"
        "{% block site_prologue %}echo prologue\n{% endblock %}"
        "{% block site_epilogue %}\techo epilogue\n{% endblock %}"
    )
    text = script(template=site)
    added = f"site block added by {site}"
    assert verdict_on(text) == f"as rendered by slurmray {__version__}; {added}"
    assert verdict_on(text.replace("echo prologue", "echo other")) == f"site block or header edited; {added}"
    assert verdict_on(text.replace("--rm ", "", 1)).startswith("story changed, line ")
    assert verdict_on(text.replace("--rm ", "", 1)).endswith(added)


def test_task_of_dstack_is_checked_by_its_seal() -> None:
    text = (GOLDENS / "hello.dstack.yml").read_text()
    about = f"rendered by the dstack target of slurmray {__version__}, only the seal can be checked"
    assert verdict_on(text) == f"unchanged; {about}"
    assert verdict_on(text + "\n") == f"edited; {about}"


@pytest.mark.parametrize("text", ["", "#!/bin/bash\necho\n", "\udcff\0"])
def test_not_a_script_of_slurmray(text: str) -> None:
    assert verify(text) is None


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, edited, other = (tmp_path / name for name in ("good.sh", "edited.sh", "other.sh"))
    good.write_text(script())
    edited.write_text(script().replace("--mpi=none", ""))
    other.write_bytes(b"\xff")
    assert main(["verify", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: as rendered by slurmray {__version__}\n"
    assert main(["verify", str(edited), str(good)]) == 1
    assert capsys.readouterr().out.count("\n") == 2
    assert main(["verify", str(good), str(other), str(tmp_path / "none.sh")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"{other}: not rendered by slurmray",
        f"{tmp_path / 'none.sh'}: No such file or directory",
    ]
    assert main(["verify"]) == 2
    assert "no file given" in capsys.readouterr().err


def test_print_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--print-hash"]) == 0
    lines = dict(line.rsplit(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert {name.strip(): value for name, value in lines.items()} == {
        "agent": agent_sha256(),
        **{f"story {name}": story_sha256(runtimes) for name, runtimes in STORIES.items()},
    }
