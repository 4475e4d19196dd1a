"""Generated pages are up to date; picture, site and index are complete."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.container import variables
from slurmray.cli import slurmray
from slurmray.errors import ExitCode

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


@pytest.fixture
def reference(import_script: Callable[[str], Any]) -> Any:
    return import_script("reference")


def test_generated_pages_are_checked_in(reference: Any) -> None:
    for name, text in reference.make_files().items():
        assert (DOCS / name).read_text() == text, f"{name} is outdated: make schema"


def test_each_field_of_the_job_spec_is_listed_once(reference: Any) -> None:
    page = reference.make_files()["reference/job-spec.md"]
    usual, others = page.partition("## All other fields")[::2]
    fields = [re.findall(r"^\| `(\S+)` \|", part, re.MULTILINE) for part in (usual, others)]
    assert tuple(fields[0]) == reference.USUAL_FIELDS
    assert len(set(fields[0] + fields[1])) == len(fields[0] + fields[1]) > 100
    assert "| `services[].run` | list or text | required |" in others
    assert "| `services[].ready.timeout` | 1 or more | `600` |" in others


def test_every_command_and_its_options_are_listed(reference: Any) -> None:
    page = reference.make_files()["reference/command-line.md"]
    sections = re.split(r"^## slurmray ", page, flags=re.MULTILINE)[1:]
    assert [section.split()[0] for section in sections] == slurmray.list_commands(None)  # type: ignore[arg-type]
    render = sections[1]
    assert "| `--env NAME[=VALUE]` |" in render
    assert "slurmray render --nodes 2 --gpus-per-node 8\n" in render  # the examples keep their lines


def test_exit_codes_have_cause_and_fix(reference: Any) -> None:
    page = reference.make_files()["reference/exit-codes.md"]
    titles = re.findall(r"^## (.+)", page, re.MULTILINE)
    assert titles == [f"{code.value} {code.name.lower()}" for code in ExitCode]
    assert page.count("\nCause: ") == page.count("\nFix: ") == len(ExitCode)


def test_every_environment_has_its_layers_in_the_table(reference: Any) -> None:
    tuples = {name: layers for name, layers in vars(variables).items() if isinstance(layers, tuple)}
    known = {name for name, layers in tuples.items() if all(map(callable, layers))}
    assert known - {"LATE", "OF_SERVICE", "GIVEN"} == {"TRAINER", *reference.ENVIRONMENTS}
    page = (DOCS / "reference/environment.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page.partition("<!-- end of layers -->")[0], re.MULTILINE)
    assert set(rows) == {layer.__name__ for name in known for layer in tuples[name]}
    order = [rows.index(name) for name in ("image", "env_file", "env", "node_env", "token", "job", "preset")]
    assert order == sorted(order)


def packages() -> list[str]:
    """Return the package folders of slurmray, relative to it."""
    folder = ROOT / "slurmray"
    return sorted(
        str(path.parent.relative_to(folder))
        for path in folder.rglob("*/__init__.py")
        if path.parent not in (folder, folder / "agent")
    )


@pytest.mark.parametrize("file", ["architecture.dot", "architecture.svg"])
def test_the_picture_has_every_package(file: str) -> None:
    text = (DOCS / "inside" / file).read_text()
    names = set(re.findall(r"[\w/]+", re.sub(r"&#45;", "-", text)))
    assert [package for package in packages() if package not in names] == []


def test_the_site_has_every_page() -> None:
    navigation = (ROOT / ".ci/mkdocs.yml").read_text().partition("nav:")[2]
    listed = re.findall(r"([\w/-]+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    index = re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text())
    assert sorted(["index.md", *index]) == sorted(listed)


def test_links_of_docs_stay_in_docs() -> None:
    """The site contains only the files of docs/."""
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).resolve().is_relative_to(DOCS), f"{page.name}: {target}"


def test_llms_txt_lists_every_page() -> None:
    text = (DOCS / "llms.txt").read_text()
    assert re.match(r"# slurmray\n\n> \S", text)
    base = "https://raw.githubusercontent.com/slurmray/slurmray/main/docs/"
    listed = re.findall(rf"^- \[.+\]\({re.escape(base)}(.+)\): \S", text, re.MULTILINE)
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    assert sorted(listed) == sorted(pages)
    assert text.count("](") == len(listed), "a link has another form"


def test_the_page_for_administrators_shows_its_files() -> None:
    page = (DOCS / "guides/administrators.md").read_text()
    blocks = re.findall(r"^```(?:bash|lua)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    files = [ROOT / "examples/admin" / name for name in ("prolog.sh", "epilog.sh", "job_submit.lua")]
    assert sorted(files) == sorted((ROOT / "examples/admin").iterdir())
    assert blocks == [file.read_text() for file in files]
