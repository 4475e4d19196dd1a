"""Any text of the job spec reaches the agent unchanged; the trainer: container/test_container_process.py."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from slurmray.agent import parts, script_parts
from slurmray.agent.script_parts import read_agent, read_story
from slurmray.rendering import script as rendered
from slurmray.rendering.job_settings import make_settings
from slurmray.rendering.pretty_json import format_json
from slurmray.rendering.script import assemble, render_script
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.types import INVISIBLE
from tests.plans import plan_of
from tests.unit.texts import TEXTS, TOKENS

from .cases import GOLDENS, hello, load_case
from .test_bootstrap import SCONTROL, SMALL_AGENT, SYSTEM_PYTHON, environment, programs

pytestmark = pytest.mark.usefixtures("frozen_agent")
ONE_LINE = TEXTS.map(lambda text: INVISIBLE.sub(" ", text)).filter(bool)
SPECS = st.fixed_dictionaries(
    {
        # A name with blanks and without a slash is refused, as a command written in one item.
        "run": st.tuples(TEXTS.map("/{}".format), st.lists(TEXTS, max_size=3)).map(
            lambda run: [run[0], *run[1]]
        )
        | TEXTS.filter(str.strip),
        "env": st.dictionaries(st.sampled_from(["A", "PATH", "_b1"]), TEXTS),
        "setup": TEXTS,
        "container": st.fixed_dictionaries(
            {
                "args": st.lists(TEXTS, max_size=3),
                "workdir": ONE_LINE.map("/{}".format),
            }
        ),
        "network": st.fixed_dictionaries({"interface": ONE_LINE}),
        "prepare": st.lists(
            st.fixed_dictionaries({"name": st.just("data"), "run": TEXTS.filter(str.strip)}), max_size=1
        ),
    }
)


@hypothesis_settings(max_examples=60)
@given(fields=SPECS, command=TEXTS)
def test_agent_reads_all_values_of_the_job_spec(fields: dict[str, Any], command: str) -> None:
    spec = JobSpec.model_validate(fields)
    text = render_script(plan_of(spec), command)
    settings: Any = script_parts.read_settings(text)
    assert settings == make_settings(plan_of(spec), command)
    run, container = fields["run"], fields["container"]
    assert settings["trainer"]["command"] == (
        ["bash", "-c", run, "slurmray"] if isinstance(run, str) else run
    )
    assert (settings["env"], settings["setup"]) == (fields["env"], fields["setup"])
    assert {key: settings["container"][key] for key in container} == container
    assert settings["network"]["interface"] == fields["network"]["interface"]
    assert [item["run"][-1] for item in settings["prepare"]] == [item["run"] for item in fields["prepare"]]
    assert settings["render_again"] == command
    assert (read_story(text), read_agent(text)) == (
        read_story(hello()),
        rendered.agent_text(parts.needed_parts(settings)).removesuffix("\n"),
    )
    assert "\r" not in text, "sbatch refuses it"


def run_script(bash: str, folder: Path, text: str) -> str:
    """Return the script that bash passes to the controller. The story is real, the agent is a small one."""
    path = folder / "bin"
    if not path.exists():
        programs(path, python3=SYSTEM_PYTHON, scontrol=SCONTROL)
    file = folder / "generated.sh"
    file.write_text(text.replace(read_agent(text) + "\n", SMALL_AGENT))
    done = subprocess.run([bash, file], env=environment(path), cwd=folder, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (7, b"")
    assert {entry.name for entry in folder.iterdir()} == {"bin", "generated.sh"}
    return str(json.loads(done.stdout)["script"])


@hypothesis_settings(max_examples=10)
@given(fields=SPECS, command=TEXTS)
def test_bash_runs_nothing_of_the_job_spec(
    fields: dict[str, Any], command: str, bash: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = JobSpec.model_validate(fields)
    text = run_script(bash, tmp_path_factory.mktemp("job"), render_script(plan_of(spec), command))
    assert script_parts.read_settings(text) == make_settings(plan_of(spec), command)


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("hostile*.yaml")), ids=lambda path: path.stem)
@pytest.mark.usefixtures("in_checkout")
def test_hostile_job_specs(path: Path, bash: str, tmp_path: Path) -> None:
    spec = load_case(path, None)
    command = "it's `id` $HOME \\ \u202e\n"
    text = run_script(bash, tmp_path, render_script(plan_of(spec), command))
    assert script_parts.read_settings(text) == make_settings(plan_of(spec), command)


def test_a_file_name_that_is_not_utf_8() -> None:
    """`slurmray render $'\\xff.yaml'`: the settings contain this command."""
    text = render_script(plan_of(JobSpec()), "slurmray render '\udcff.yaml'")
    assert (
        script_parts.read_settings(text.encode().decode())["render_again"] == "slurmray render '\udcff.yaml'"
    )


@pytest.mark.parametrize("options", [TOKENS, []], ids=["any", "none"])
@pytest.mark.parametrize(
    ("runtime", "first"),
    [("podman", ["name", "image"]), ("docker", ["name", "image"]), ("apptainer", ["image"])],
)
def test_any_option_reaches_the_runtime(
    runtime: str, first: list[str], options: list[str], bash: str, tmp_path: Path
) -> None:
    program = "it's a program"
    path = programs(tmp_path / "bin", **{program: 'printf "%s\\0" "$@"'})
    argv = [bash, "-c", read_story(hello(runtime)), "slurmray", f"run_with_{runtime}", program, *first]
    argv += [str(len(options)), *options, *TOKENS]
    done = subprocess.run(argv, env=environment(path), cwd=tmp_path, capture_output=True, check=True)
    *words, end = done.stdout.decode().split("\0")
    expected = [*options, "image", *TOKENS]
    assert (words[-len(expected) :], end, done.stderr) == (expected, "", b"")


# -- setup on a host without Python ----------------------------------------------------------------


def read_setup(bash: str, folder: Path, setup: str, locale: str) -> str:
    """Return the setup that the story reads from the settings, on a host without Python."""
    text = assemble([], format_json({"version": "1", "setup": setup, "preflight": "fail"}), ["none"], [])
    file = folder / "script.sh"
    file.write_text(text.partition("\n# ---- 3. agent")[0] + "\n")
    env = {"LC_ALL": locale, "PATH": os.environ["PATH"], "HOME": "/", "SHELL": "/bin/sh"}
    done = subprocess.run([bash, file, "setup_of_settings"], env=env, capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout.decode()


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
@pytest.mark.parametrize(
    "setup",
    [
        "",
        "module load python",
        'it\'s "quoted" \\"\\\\ \\n %s %% $HOME `id`\n\tnext\n',
        "a\rb\x01\x7f\\c\\0101 é☃",
        '\\\\"',
        "one\nSETTINGS\nAGENT\n",
    ],
)
def test_bash_reads_the_setup(setup: str, locale: str, bash: str, tmp_path: Path) -> None:
    assert read_setup(bash, tmp_path, setup, locale) == setup


@hypothesis_settings(max_examples=40)
@given(setup=TEXTS.filter(lambda text: not re.search("[\U000e0000-\U000e0fff]", text)))
def test_bash_reads_any_setup(bash: str, tmp_path_factory: pytest.TempPathFactory, setup: str) -> None:
    """Except invisible characters beyond U+FFFF: JSON escapes them as pairs that `printf %b` cannot read."""
    assert read_setup(bash, tmp_path_factory.mktemp("setup"), setup, "C.UTF-8") == setup
