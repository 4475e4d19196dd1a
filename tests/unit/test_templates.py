"""Rules for bash on nodes (stories, site templates, dstack tasks) and other scripts; part of `make lint`."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from slurmray.agent import script_parts
from slurmray.rendering.output import seal
from slurmray.rendering.script import assemble
from slurmray.rendering.verification import STORIES
from slurmray.resources import data_folder
from tests.unit.examples import ROOT
from tests.unit.rendering.cases import before_agent, hello

TEMPLATES = data_folder("templates")
SCRIPTS = [
    *sorted(file for folder in ("slurmray", "bench", "examples") for file in (ROOT / folder).rglob("*.sh")),
    *sorted(file for file in (ROOT / ".ci").iterdir() if file.read_bytes().startswith(b"#!")),
]
DSTACK = sorted((TEMPLATES / "dstack").glob("*.sh"))
SITES = sorted((TEMPLATES / "sites").iterdir())

every_story = pytest.mark.parametrize("name", STORIES)
every_script = pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: str(file.relative_to(ROOT)))


def run_checker(*argv: str | Path) -> str:
    """Return what a checker prints, and its exit code unless it is 0; "" if it finds nothing."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)
    return f"{done.stdout}{done.stderr}{done.returncode or ''}"


def tool(name: str) -> Path:
    return Path(sysconfig.get_path("scripts"), name)


def check(text: str, folder: Path, bash_44: str) -> None:
    """Assert that no checker finds anything in a script."""
    file = folder / "generated.sh"
    file.write_text(text)
    assert run_checker("bash", "-n", file) == ""
    assert run_checker(bash_44, "-n", file) == ""
    assert run_checker(tool("shellcheck"), file) == ""
    assert run_checker(tool("shfmt"), "-d", file) == ""


def test_a_complete_script(bash_44: str, tmp_path: Path) -> None:
    check(seal(hello()), tmp_path, bash_44)


@every_story
def test_a_script_before_its_agent(name: str, bash_44: str, tmp_path: Path) -> None:
    check(before_agent(hello(name)), tmp_path, bash_44)


@pytest.mark.parametrize("template", SITES, ids=lambda file: file.name)
def test_a_script_with_a_site_s_blocks(template: Path, bash_44: str, tmp_path: Path) -> None:
    check(before_agent(assemble([], "{}", ["podman"], [], template)), tmp_path, bash_44)


@every_story
def test_a_story_as_nodes_get_it(name: str, bash_44: str) -> None:
    """As the argument of `bash -c`, with nothing before or after it."""
    story = script_parts.read_story(hello(name))
    assert run_checker("bash", "-n", "-c", story) == ""
    assert run_checker(bash_44, "-n", "-c", story) == ""


@every_script
def test_other_scripts(file: Path) -> None:
    assert run_checker("bash", "-n", file) == ""
    assert run_checker(tool("shellcheck"), file) == ""


@pytest.mark.parametrize("file", SCRIPTS + DSTACK, ids=lambda file: str(file.relative_to(ROOT)))
def test_shfmt(file: Path) -> None:
    """shellcheck must see all parts of a dstack task together: see rendering/dstack/test_node_commands.py."""
    assert run_checker(tool("shfmt"), "-d", file) == ""


# -- rules -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bash() -> str:
    """All bash that runs on nodes."""
    return "\n".join(
        [script_parts.read_story(hello(name)) for name in STORIES] + [file.read_text() for file in DSTACK]
    )


@pytest.mark.parametrize(
    "newer",
    [
        r"EPOCH(SECONDS|REALTIME)|BASH_ARGV0|SRANDOM|BASH_REMATCH_|BASH_MONOSECONDS|GLOBSORT",
        r"\bwait (-\w )*-[fp]",
        r"\$\{[^}]*@[UuLKk]\}",
        r"\blocal -I|\bread -E|\bassoc_expand_once|\blocalvar_inherit",
        r"\$\{[ |][^}]",
    ],
)
def test_nothing_newer_than_bash_44(newer: str, bash: str) -> None:
    assert re.findall(f".*(?:{newer}).*", bash) == []


@pytest.mark.parametrize(
    "unwanted",
    [
        r"(?<![\w-])sleep ",  # no fixed sleeps
        r"(?<!<)<<-?['\"\w]",  # a here-document is a file in the host's /tmp
        r"\bray stop\b|\bpkill\b|\bkillall\b",  # they may end processes of other users or jobs
    ],
)
def test_no_script_does(unwanted: str, bash: str) -> None:
    assert re.findall(f".*(?:{unwanted}).*", bash) == []


def test_steps_do_not_wait_for_each_other() -> None:
    for name in STORIES:
        steps = re.findall(r"\bsrun --.*", script_parts.read_story(hello(name)).replace("\\\n", " "))
        assert len(steps) == (3 if name == "pyxis" else 2)
        for step in steps:
            assert {"--overlap", "--export=ALL", "--cpu-bind=none"} <= set(step.split())
            assert "--cpus-per-task=" in step


def test_the_story_calls_the_containers_of_all_runtimes() -> None:
    """The agent calls these functions by the names of its runtimes. srun starts those of pyxis."""
    for file in (TEMPLATES / "runtimes").iterdir():
        functions = re.findall(r"^(\w+)\(\) \{", file.read_text(), re.MULTILINE)
        name = file.name.removesuffix(".sh.j2")
        assert functions == (["start_service", "use_service"] if name == "pyxis" else [f"run_with_{name}"])
    runtimes = {file.stem for file in (ROOT / "slurmray/agent/node/runtimes").glob("*.py")}
    assert {file.name.removesuffix(".sh.j2") for file in (TEMPLATES / "runtimes").iterdir()} <= runtimes
