"""The pages show what the program does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from slurmray import __version__
from slurmray.agent import job_log
from slurmray.agent.container import variables
from slurmray.agent.container.node_context import NodeContext
from slurmray.agent.container.ray import readiness
from slurmray.agent.controller.attach_command import attach_argv
from slurmray.cli import slurmray, split
from slurmray.diagnosis import exit_codes
from slurmray.errors import ExitCode
from slurmray.events import EVENTS
from slurmray.loading.load import load_plan
from slurmray.rendering.script import render_script
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of

from ..agent.simulation import Cluster

ROOT = Path(__file__).parents[3]
# They run in tests/cluster: test_rehearse.py, test_verbs.py and test_api.py.
WITH_SLURM = (
    *("rehearse", "doctor", "check", "submit", "up", "list", "status", "report"),
    *("logs", "fetch", "attach", "dashboard", "why", "cancel", "clean", "mcp"),
)
README = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh-CN.md").read_text()
ARCHITECTURE = (ROOT / "docs/inside/architecture.md").read_text()
SCRIPT = (ROOT / "docs/inside/script.md").read_text()
EXIT_CODES = (ROOT / "docs/reference/exit-codes.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(language: str, page: str = README) -> list[str]:
    """Return the fenced blocks of a language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Return the slurmray command lines of the README, in its order."""
    return re.findall(r"^slurmray .+", "".join(blocks("sh")), re.MULTILINE)


def subcommand(line: str) -> str:
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
    rows = re.findall(r"^\| ([0-9]+) \| (\w+) \| (.+) \|$", EXIT_CODES, re.MULTILINE)
    known = exit_codes.EXIT_CODES
    assert rows == [(str(code.value), code.name.lower(), known[code].meaning) for code in ExitCode]


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150
    first_screen = README.splitlines()[:40]
    assert "sbatch generated.sh" in first_screen
    assert any("docs/log.svg" in line for line in first_screen)


def test_changelog_has_this_version() -> None:
    assert __version__ in (ROOT / "CHANGELOG.md").read_text()


def test_translation_has_the_same_sections_and_code() -> None:
    assert "](README.zh-CN.md)" in README.partition("##")[0]
    assert "](README.md)" in CHINESE.partition("##")[0]
    sections = [re.findall("^#+ ", page, re.MULTILINE) for page in (README, CHINESE)]
    assert sections[0] == sections[1]
    assert code_without_comments(README) == code_without_comments(CHINESE)
    links = [re.findall(r"\]\(([^)#]+)", page.partition("##")[2]) for page in (README, CHINESE)]
    assert sorted(links[0]) == sorted(links[1])


def code_without_comments(page: str) -> list[tuple[str, str]]:
    """(language, text) of each fenced block; comments may be translated."""
    matches = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [(language, re.sub(r"(^| +)#.*", "", text, flags=re.MULTILINE)) for language, text in matches]


def test_job_spec_loads(job_folder: Path) -> None:
    spec = load_plan(job_folder / "job.yaml").spec
    assert (spec.slurm.nodes, spec.gpus, dict(spec.slurm.given())["time"]) == (2, 8, "1-00:00:00")
    assert spec.env == {"NCCL_DEBUG": "WARN", "WANDB_API_KEY": None}
    assert spec.run == ["python3", "train.py", "--lr", "1e-6"]


def test_only_subcommands_that_exist_are_shown() -> None:
    assert {subcommand(line) for line in commands()} <= set(slurmray.list_commands(click.Context(slurmray)))


@pytest.mark.parametrize("line", [line for line in commands() if subcommand(line) not in WITH_SLURM])
def test_command_runs(line: str, job_folder: Path) -> None:
    script = f'slurmray() {{ {shlex.quote(sys.executable)} -m slurmray "$@"; }}\n{line}\n'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        ["bash", "-c", script], cwd=job_folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    made = [path.read_text() for path in job_folder.iterdir() if path.name != "job.yaml"]
    assert any(made) or result.stdout


@pytest.mark.parametrize("line", [line for line in commands() if subcommand(line) == "rehearse"])
def test_rehearsal_parses(line: str, job_folder: Path) -> None:
    argv, entrypoint = split(shlex.split(line, comments=True)[1:])
    with slurmray.make_context("slurmray", list(argv)) as context:
        name, command, rest = slurmray.resolve_command(context, argv)
        assert command is not None
        given = command.make_context(name, rest, obj=entrypoint).params
    assert given["job"] is None or (job_folder / given["job"]).is_file()


def rows(page: str, header: str) -> list[list[str]]:
    """Return the cells of the one table of a page with that header, without the header."""
    (table,) = re.findall(rf"^{re.escape(header)}\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    return [re.split(r" ?(?<!\\)\| ?", line.strip()[1:-1].strip(" ")) for line in table.splitlines()]


def names(cell: str) -> list[str]:
    """Return the texts in backticks of a cell."""
    return re.findall(r"`([^`]+)`", cell)


def test_outline_is_that_of_the_script() -> None:
    outline = re.findall(r"^#   ([0-9]\. .+)", render_script(plan_of(JobSpec())), re.MULTILINE)
    assert len(outline) == 3
    assert "".join(f"{line}\n" for line in outline) in SCRIPT


@pytest.mark.parametrize("page", ["docs/log.svg", "docs/guides/first-job.md"])
def test_lines_of_the_log(page: str) -> None:
    text = (ROOT / page).read_text()
    (log,) = re.findall(r"^(?:    <desc>|```text\n)(\[slurmray .*?)(?:</desc>|\n```)$", text, re.M | re.S)
    shown = re.findall(r"^\[slurmray +[0-9]+\.[0-9] s\] (.+)$", log, re.MULTILINE)
    kinds = [re.escape(line) for name, line in job_log.LINES.items() if name != "end"]
    phases = re.findall(r"\w+", EVENTS["phase"][1]["phase"][1])
    kinds = [kind.replace(r"\{phase\}", f"({'|'.join(phases)})") for kind in kinds]
    kinds = [re.sub(r"\\\{\w+\\\}", ".+", kind) for kind in kinds]
    assert [line for line in shown[:-1] if not any(re.fullmatch(kind, line) for kind in kinds)] == []
    assert f"probe: {readiness.progress(2, 16, {}, {'node1': 8, 'node2': 8})}" in shown
    assert shown[-1] == last_line_of_a_trainer(0)


@pytest.mark.parametrize(
    ("page", "job"), [("docs/guides/first-job.md", "1"), ("docs/guides/debugging.md", "7")]
)
def test_how_to_attach(page: str, job: str) -> None:
    node = (job, None, "node1", f"slurmray-{job}-0-node1")
    container: Any = {"command": ""}
    facts = {"runtime": "podman", "folder": f"/tmp/ray-{job}-0-4c81e9", "unset": []}
    command = " ".join(attach_argv(*node, container, facts, ["ray", "status"]))
    assert f"attach: {command}\n" in (ROOT / page).read_text()


def last_line_of_a_trainer(code: int) -> str:
    cluster = Cluster().train()
    cluster.exit(code, *cluster.nodes)
    return cluster.end().text


def test_last_lines_of_the_log() -> None:
    lost, stopped = Cluster(), Cluster()
    lost.train()
    lost.lost.add("node2")
    assert lost.wait(60)
    stopped.train()
    stopped.controller.requests.is_stopping = True
    assert stopped.wait(60)
    ends = [last_line_of_a_trainer(0), last_line_of_a_trainer(137), lost.end().text, stopped.end().text]
    (shown,) = (block for block in blocks("text", EXIT_CODES) if block.startswith("done: "))
    assert shown.splitlines() == ends
    assert f"`{last_line_of_a_trainer(71)}`" in EXIT_CODES


def test_the_template_of_a_site(tmp_path: Path) -> None:
    page = (ROOT / "docs/guides/my-cluster.md").read_text()
    (template,) = blocks("jinja", page)
    (tmp_path / "site.sbatch.j2").write_text(template)
    text = render_script(plan_of(JobSpec(template=str(tmp_path / "site.sbatch.j2"))))
    directives = re.findall("^#SBATCH (.+)$", text, re.MULTILINE)
    assert "--job-name=slurmray" in directives
    assert directives[-1] == "--comment=ray"
    skeleton = (ROOT / "templates/job.sbatch.j2").read_text()
    documented = {name for row in rows(page, "| block | contents |") for name in names(row[0])}
    assert documented <= set(re.findall(r"{% block (\w+) %}", skeleton))


# Programs of Linux systems outside of coreutils -> their packages.
PROGRAMS = {
    **dict.fromkeys(("setsid", "flock", "findmnt", "mount", "prlimit", "nsenter", "unshare"), "util-linux"),
    **dict.fromkeys(("ps", "pgrep", "pkill", "sysctl"), "procps"),
    **dict.fromkeys(("find", "xargs"), "findutils"),
    **{
        name: name for name in ("sed", "grep", "getent", "awk", "git", "nvidia-smi", "jq", "hostname", "curl")
    },
    **dict.fromkeys(("ip", "ss"), "iproute2"),
}


def test_programs_that_nodes_need() -> None:
    """Story and agent call exactly those of PROGRAMS that the README lists."""
    story = "\n".join(path.read_text() for path in (ROOT / "templates").rglob("*.sh.j2"))
    agent = "\n".join(path.read_text() for path in (ROOT / "slurmray/agent").rglob("*.py"))
    code = re.sub(r"^\s*#.*|\{%.*?%\}", "", story, flags=re.MULTILINE)
    begin = r"(?:^\s*|[|({!]\s?|&& |(?:do|if|then|until|exec|command) )"
    called = {
        PROGRAMS[name]
        for name in PROGRAMS
        if re.search(rf"{begin}{name} ", code, re.MULTILINE) or re.search(rf'\[\s*"{name}"', agent)
    }
    (nodes,) = re.findall(r"^- Nodes need (.+?\.) Tested", README, re.MULTILINE | re.DOTALL)
    assert called == {package for package in PROGRAMS.values() if package in re.findall(r"[\w-]+", nodes)}
    (minor,) = re.findall(r"sys\.version_info < \(3, ([0-9]+)\)", story)
    assert f"Python 3.{minor}, " in nodes


def test_variables_of_the_trainer() -> None:
    context = NodeContext("/folder", "node1", lambda _role, _code: None)
    settings: Any = {"ray": {"gpus": 8, "nodes": 1}, "trainer": {"nnodes": 1}}
    job: Any = {
        "nodes": ["node1"],
        "attempt": 0,
        "restarts_before": 0,
        "restart": 0,
        "run_dir": "/",
        "end_time": 0,
    }
    job |= {"id": "8", "name": "x", "name_for_commands": "7_1"}
    context.settings, context.job, context.ports, context.is_ready = settings, job, [0] * 16, True
    given = variables.collect((variables.job, variables.ray_address, variables.master), context)
    numbers = [given[f"SLURM_{name}_ID"] for name in ("JOB", "ARRAY_JOB", "ARRAY_TASK")]
    assert numbers == ["8", "7", "1"]
    page = (ROOT / "docs/reference/environment.md").read_text()
    assert {name for row in rows(page, "| variable | meaning |") for name in names(row[0])} == set(given)


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


def modules(folder: Path) -> set[str]:
    """The modules and packages of a folder, as docs/inside/architecture.md names them."""
    files = {path.name for path in folder.glob("*.py") if path.name != "__init__.py"}
    return files | {f"{path.name}/" for path in folder.iterdir() if (path / "__init__.py").is_file()}


def test_every_module_is_named() -> None:
    templates = {str(path.relative_to(ROOT / "templates")) for path in (ROOT / "templates").rglob("*.*")}
    for header, wanted in (
        ("| `slurmray/` | |", modules(ROOT / "slurmray") - {"__main__.py"}),
        ("| `slurmray/agent/` | |", modules(ROOT / "slurmray/agent")),
        ("| `templates/` | |", {name for name in templates if not name.endswith(".pyc")}),
    ):
        named = [name for row in rows(ARCHITECTURE, header) for name in names(row[0])]
        assert sorted(named) == sorted(wanted), header


def test_every_row_of_systems_is_covered() -> None:
    """tests/systems.md names a test or golden for each row of trainer-guides.md, or why there is none."""
    page, coverage = (
        sections((ROOT / name).read_text())
        for name in ("docs/reference/trainer-guides.md", "tests/systems.md")
    )
    assert [(title, [row[0] for row in table]) for title, table in page] == [
        (title, [row[0] for row in table]) for title, table in coverage
    ]
    entries = [row for _, table in coverage for row in table]
    assert len(entries) > 90
    for _, reason in entries:
        named = re.findall(r"`((?:unit|cluster|judges|goldens)/[^`]+)`", reason)
        assert named or re.match(r"open: \S+ \S|why not: \S+ \S", reason), reason
        for name in named:
            file, _, test = name.partition("::")
            text = (ROOT / "tests" / file).read_text()
            assert not test or f"def {test}(" in text, name


def sections(page: str) -> list[tuple[str, list[list[str]]]]:
    """(heading, rows of its tables) of each section of a page."""
    tables = []
    for section in re.split("^## ", page, flags=re.MULTILINE)[1:]:
        lines = [line.strip("| ") for line in section.splitlines() if line.startswith("| ")]
        table = [re.split(r" (?<!\\)\| ", line) for line in lines if not line.startswith("in the guide ")]
        tables.append((section.partition("\n")[0], table))
    return tables


def test_where_to_find_what_names_existing_code() -> None:
    table = rows((ROOT / "CONTRIBUTING.md").read_text().partition("## Where to find what")[2], "| | |")
    assert len(table) > 13
    for row in table:
        last: list[str] = []
        for name in names(row[1]):
            if "/" not in name:
                last.append(name)
                continue
            text = (ROOT / name).read_text()
            assert all(part in text for part in last), row
            last = []


def test_each_promise_about_security_has_its_test() -> None:
    promises = re.findall(
        r"^\| (?!what|promise|---).* \| (.+) \|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE
    )
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(promises) > 8
    for promise in promises:
        names = re.findall(r"`(\w+)`", promise)
        assert names
        assert [name for name in names if f"def {name}(" not in tests] == []
