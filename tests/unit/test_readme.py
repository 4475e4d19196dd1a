"""What the documents show is what the program does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from slurmray.cli import slurmray, split
from slurmray.errors import ExitCode
from slurmray.loading import load_spec
from slurmray.rendering import render
from slurmray.spec import JobSpec

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of that language in the README."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Return the slurmray command lines of the README, in its order."""
    return re.findall(r"^slurmray .+", "".join(blocks("sh")), re.MULTILINE)


def verb(line: str) -> str:
    return line.split()[1]


def targets(page: Path) -> Iterator[tuple[str, str]]:
    """Yield (file, heading) of every link of a page into this repository."""
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        file, _, heading = target.partition("#")
        yield file, heading


@pytest.fixture
def job_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder that holds the README's job.yaml."""
    (spec,) = blocks("yaml")
    (tmp_path / "job.yaml").write_text(spec)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_exit_codes() -> None:
    rows = re.findall(r"^\| ([0-9]+) \| (.+) \|$", README, re.MULTILINE)
    assert rows == [(str(code.value), code.meaning) for code in ExitCode]


def test_job_spec_loads(job_folder: Path) -> None:
    spec = load_spec(job_folder / "job.yaml")
    assert (spec.slurm.nodes, spec.gpus, dict(spec.slurm.given())["time"]) == (2, 8, "1-00:00:00")
    assert spec.env == {"NCCL_DEBUG": "WARN", "WANDB_API_KEY": None}
    assert spec.run == ["python3", "train.py", "--lr", "1e-6"]


def test_every_verb_is_shown() -> None:
    assert {verb(line) for line in commands()} == set(slurmray.list_commands(click.Context(slurmray)))


@pytest.mark.parametrize("line", [line for line in commands() if verb(line) != "rehearse"])
def test_command_runs(line: str, job_folder: Path) -> None:
    script = f'slurmray() {{ {shlex.quote(sys.executable)} -m slurmray "$@"; }}\n{line}\n'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        ["bash", "-c", script], cwd=job_folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    made = [path.read_text() for path in job_folder.iterdir() if path.name != "job.yaml"]
    assert any(made) or result.stdout


@pytest.mark.parametrize("line", [line for line in commands() if verb(line) == "rehearse"])
def test_rehearsal_parses(line: str, job_folder: Path) -> None:
    words, entrypoint = split(shlex.split(line, comments=True)[1:])
    with slurmray.make_context("slurmray", list(words)) as context:
        name, command, rest = slurmray.resolve_command(context, words)
        assert command is not None
        given = command.make_context(name, rest, obj=entrypoint).params
    assert given["job"] is None or (job_folder / given["job"]).is_file()


def test_outline_is_that_of_the_script() -> None:
    (outline,) = (block for block in blocks("text") if block.startswith("1. "))
    assert outline == "".join(
        f"{line}\n" for line in re.findall(r"^#   ([0-9]\. .+)", render(JobSpec()), re.MULTILINE)
    )


# Programs that Linux systems have outside of coreutils, and what brings them.
PROGRAMS = {
    **dict.fromkeys(("setsid", "flock", "findmnt", "mount", "prlimit", "nsenter", "unshare"), "util-linux"),
    **dict.fromkeys(("ps", "pgrep", "pkill", "sysctl"), "procps"),
    **dict.fromkeys(("find", "xargs"), "findutils"),
    **{
        name: name for name in ("sed", "grep", "getent", "awk", "git", "nvidia-smi", "jq", "hostname", "curl")
    },
    **dict.fromkeys(("ip", "ss"), "iproute2"),
}


def test_what_a_node_needs() -> None:
    """Of these a script calls just what the README says: a program stands where a command begins."""
    text = "\n".join(path.read_text() for path in (ROOT / "templates").rglob("*.sh.j2"))
    code = re.sub(r"^\s*#.*|\{%.*?%\}", "", text, flags=re.MULTILINE)
    begin = r"(?:^\s*|[|({!]\s?|&& |(?:do|if|then|until|exec) |timeout \d+ )"
    called = {PROGRAMS[name] for name in PROGRAMS if re.search(rf"{begin}{name} ", code, re.MULTILINE)}
    (nodes,) = re.findall(r"^- Nodes: (.+?\.) Tried", README, re.MULTILINE | re.DOTALL)
    assert called == {package for package in PROGRAMS.values() if package in re.findall(r"[\w-]+", nodes)}


def test_variables_of_the_trainer() -> None:
    program = "from ray_environment import *; print(*trainer_environment({}, ('10.0.0.1', range(16)), 2, 8))"
    names = subprocess.run(
        [sys.executable, "-B", "-c", program],
        cwd=ROOT / "templates/node",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert re.findall(r"^\| `([A-Z_]+)` \|", README, re.MULTILINE) == names


def test_make_targets_exist() -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {
        target for page in PAGES for target in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.M)
    }
    assert {"demo", "test"} <= shown <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    for file, heading in targets(page):
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name}: {file}"
        titles = re.findall(r"^#+ (.+)", target.read_text(), re.MULTILINE) if heading else []
        anchors = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
        assert not heading or heading in anchors, f"{page.name}: #{heading}"


def test_every_room_is_named() -> None:
    rooms = [path.name for path in (ROOT / "slurmray").glob("*.py") if not path.name.startswith("__")]
    rooms += [f"{path.name}/" for path in (ROOT / "slurmray").iterdir() if (path / "__init__.py").is_file()]
    rooms += [str(path.relative_to(ROOT / "templates")) for path in (ROOT / "templates").rglob("*.*")]
    rooms = [room for room in rooms if not room.endswith(".pyc")]
    assert [room for room in rooms if f"`{room}`" not in ARCHITECTURE] == []


def test_every_message_is_named() -> None:
    partials = ROOT / "templates/partials"
    takers = (partials / "cluster.sh.j2").read_text() + (partials / "step.sh.j2").read_text()
    verbs = set(re.findall(r"^\t+([a-z]+)\)", takers, re.MULTILINE)) - {"over"}
    table = ARCHITECTURE.partition("| verb | |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)) == verbs


def test_what_is_said_to_be_covered() -> None:
    """docs/systems.md: a row names tests or goldens that there are, or says what is open, or why not."""
    page = (ROOT / "docs/systems.md").read_text()
    rows = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in page.splitlines() if line.startswith("|")]
    rows = [row for row in rows if row[0] != "in the guide" and set(row[0]) != {"-"} and row[0][:3] != "---"]
    assert len(rows) > 90
    for row in rows:
        assert len(row) == 3, row
        named = re.findall(r"`((?:unit|cluster|judges|goldens)/[^`]+)`", row[2])
        assert named or re.match(r"open: \S+ \S|why not: \S+ \S", row[2]), row
        for name in named:
            file, _, test = name.partition("::")
            text = (ROOT / "tests" / file).read_text()
            assert not test or f"def {test}(" in text, name
