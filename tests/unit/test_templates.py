"""The house rules for what runs on nodes: shell scripts, and the Python files that travel in them."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from slurmray.rendering import template_root

ROOT = Path(__file__).parents[2]
GOLDENS = sorted((ROOT / "tests/goldens").glob("*.sh"))
SCRIPTS = [
    *sorted(file for folder in ("slurmray", "bench") for file in (ROOT / folder).rglob("*.sh")),
    *sorted(file for file in (ROOT / ".ci").iterdir() if file.read_bytes().startswith(b"#!")),
]
TASK = sorted((template_root() / "dstack").iterdir())
# tests/unit/script looks at the new ones: their here-documents are data, which bash does not run.
NEW = {*(template_root() / "agent").rglob("*"), *(template_root() / "sites").iterdir()}
BASH = "\n".join(file.read_text() for file in [*sorted({*template_root().rglob("*.j2")} - NEW), *TASK])
NODE_PROGRAMS = sorted((template_root() / "node").glob("*.py"))

# What the task of a node calls; Podman and Docker share theirs.
OF_A_RUNTIME = ("choose_runtime", "container_args", "ensure_image", "run_words")

every_golden = pytest.mark.parametrize("script", GOLDENS, ids=lambda file: file.name)
every_script = pytest.mark.parametrize(
    "script", GOLDENS + SCRIPTS, ids=lambda file: str(file.relative_to(ROOT))
)


def said_by(*words: str | Path) -> str:
    """What a program has to say, where silence means that all is well."""
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    return f"{done.stdout}{done.stderr}{done.returncode or ''}"


def tool(name: str) -> Path:
    return Path(sysconfig.get_path("scripts"), name)


@every_script
def test_bash_reads_it(script: Path) -> None:
    assert said_by("bash", "-n", script) == ""


@every_golden
def test_bash_44_reads_it(script: Path, bash_44: str) -> None:
    assert said_by(bash_44, "-n", script) == ""


@every_script
def test_shellcheck(script: Path) -> None:
    assert said_by(tool("shellcheck"), script) == ""


@pytest.mark.parametrize("script", GOLDENS + SCRIPTS + TASK, ids=lambda file: str(file.relative_to(ROOT)))
def test_shfmt(script: Path) -> None:
    assert said_by(tool("shfmt"), "-d", script) == ""


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
def test_nothing_newer_than_bash_44(newer: str) -> None:
    assert re.findall(f".*(?:{newer}).*", BASH) == []


@pytest.mark.parametrize(
    "unwanted", [r"(?<![\w-])sleep ", r"(?<!<)<<-?['\"\w]", r"\bray stop\b", r"\bpkill\b|\bkillall\b"]
)
def test_what_no_template_does(unwanted: str) -> None:
    assert re.findall(f".*(?:{unwanted}).*", BASH) == []


def test_nothing_in_the_background_holds_the_tether() -> None:
    """Descriptor 9; what pulls an image runs before there is one."""
    text = "".join(file.read_text() for file in template_root().rglob("*.sh.j2"))
    background = [
        line for line in re.findall(r"^.*[^&]&(?: #.*)?$", text, re.MULTILINE) if "TMPDIR=" not in line
    ]
    assert background
    assert [line for line in background if "9>&-" not in line and "close_tethers" not in line] == []


def test_every_step_waits_for_nobody() -> None:
    steps = re.findall(r"\bsrun --.*", BASH.replace("\\\n", " "))
    assert steps
    for step in steps:
        assert {"--overlap", "--export=ALL"} <= set(step.split())
        assert "--cpus-per-task=" in step


def test_every_runtime_has_the_same_functions() -> None:
    functions = {
        file.name.removesuffix(".sh.j2"): re.findall(r"^(\w+)\(\) \{", file.read_text(), re.MULTILINE)
        for file in (template_root() / "runtimes").iterdir()
    }
    assert set(functions) == {"docker", "podman", "apptainer", "none", "pyxis"}
    engines = {
        frozenset(name.removeprefix(f"{engine}_") for name in functions.pop(engine))
        for engine in ("docker", "podman")
    }
    assert len(engines) == 1
    assert {"works", "args", "nvidia_args"} <= engines.pop()
    assert set(functions.pop("pyxis")) == {"step_args"}  # the others are those of none
    for names in functions.values():
        assert set(OF_A_RUNTIME) <= set(names)


def test_what_others_call_of_a_runtime() -> None:
    partials = template_root() / "partials"
    engines = "".join((partials / f"{name}.sh.j2").read_text() for name in ("image", "container", "engine"))
    others = "".join((partials / f"{name}.sh.j2").read_text() for name in ("supervisor", "leave"))
    for name in OF_A_RUNTIME:
        assert f"\n{name}() {{" in engines
        assert f"\t{name}" in others


@pytest.mark.parametrize("program", NODE_PROGRAMS, ids=lambda file: file.name)
def test_a_program_is_readable_in_the_script(program: Path) -> None:
    assert "'" not in program.read_text(), "a single quote becomes five characters in the script"


def test_every_program_is_in_the_script() -> None:
    assert {"node.py", "probe.py", "check.py"} <= {file.name for file in NODE_PROGRAMS}
    goldens = [ROOT / f"tests/goldens/{name}.sh" for name in ("hostile.podman", "hostile-bare.none")]
    scripts = "".join(golden.read_text() for golden in goldens)
    for program in NODE_PROGRAMS:
        assert f"""PROGRAMS["{program.name}"]='{program.read_text()}'\n""" in scripts
