"""The rendered script: deterministic, readable, and divided into parts that the agent finds."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurmray import agent
from slurmray.agent import loader, parts
from slurmray.agent.script_parts import read_agent, read_settings, read_story
from slurmray.rendering import script as rendered
from slurmray.rendering.output import seal, sha256
from slurmray.rendering.script import (
    agent_text,
    assemble,
    part_sha256,
    render_script,
    story_sha256,
)
from slurmray.rendering.verification import STORIES
from slurmray.resources import data_folder
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of
from tests.unit.examples import ROOT

from .cases import MARKED, MARKS, RUNTIMES, every_case, hello, left_at_default, load_case

AGENT = Path(agent.__file__).parent
SITES = sorted((data_folder("templates") / "sites").iterdir())


def render_case(path: Path, runtime: str | None) -> str:
    return render_script(plan_of(load_case(path, runtime)), f"slurmray render {path.relative_to(ROOT)}")


@every_case
@pytest.mark.usefixtures("in_checkout", "frozen_agent")
def test_every_example(path: Path, runtime: str | None, tmp_path: Path) -> None:
    spec = load_case(path, runtime)
    text = render_case(path, runtime)
    assert text == render_case(path, runtime), "rendering is deterministic"
    settings = read_settings(text)
    assert read_agent(text) + "\n" == rendered.agent_text(parts.needed_parts(settings))
    story = read_story(hello(spec.container.runtime))
    assert read_story(text) == story, "the story depends on the runtime alone"
    file = tmp_path / "generated.sh"
    file.write_text(seal(text))
    done = subprocess.run(["bash", "-n", file], check=True, capture_output=True, timeout=120)
    assert done.stderr == b""


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_story_is_short(runtime: str) -> None:
    story = read_story(hello(runtime))
    assert story.startswith("# ---- 2. story")
    assert story.endswith('\n"${@:-main}"\n')
    assert len([line for line in story.splitlines() if line and not line.startswith("#")]) < 100
    assert max(map(len, story.splitlines())) <= 130


@pytest.mark.usefixtures("in_checkout")
def test_hello_is_short_before_the_story() -> None:
    text = render_case(ROOT / "examples/hello.yaml", "auto")
    assert text[: text.index("# ---- 2. story")].count("\n") < 140


def test_the_story_shows_the_commands_themselves() -> None:
    story = read_story(hello())
    for command in ("scontrol show hostnames", "exec srun --overlap"):
        assert command in story
    assert story.count('exec "$program" run --rm --interactive') == 2  # Podman and Docker
    assert len(re.findall(r"\bsrun --", story)) == 2  # the nodes, and a head node on another host
    assert {"--export=ALL", "--mpi=none", "--overlap"} <= set(story.split())
    assert 'exec "$program" exec --containall' in read_story(hello("apptainer"))
    assert read_story(hello("singularity")) == read_story(hello("apptainer"))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_only_the_containers_of_the_runtime_are_in_the_story(runtime: str) -> None:
    names = {"pyxis": ("none",)}.get(runtime, STORIES[runtime])
    functions = re.findall(r"^run_with_(\w+)\(\) \{$", read_story(hello(runtime)), re.MULTILINE)
    assert tuple(functions) == names


def test_the_table_of_the_story_names_functions_of_the_agent() -> None:
    table = read_story(hello()).partition("set -Eeuo")[0]
    named = re.findall(r" (?:[a-z]+/)?([a-z_]+)\.([a-z_]+)$", table, re.M)
    assert len(named) > 8
    for module, function in named:
        (path,) = AGENT.rglob(f"{module}.py")  # file names occur once
        assert f"def {function}(" in path.read_text(), f"{module}.{function}"


@pytest.mark.parametrize(
    ("image", "others"),
    [
        ({"build": {"file": "Zmark-file", "context": "Zmark-context"}}, ["archive"]),
        ({"archive": "Zmark-archive", "stage": "node"}, ["build", "stage"]),
    ],
)
def test_values_are_only_in_directives_and_settings(image: dict[str, Any], others: list[str]) -> None:
    spec = JobSpec.model_validate({**MARKED, "container": MARKED["container"] | image})
    files = {"preset.config", "template", "include", "sync"}  # read before or while the job is submitted
    # Fields that others in MARKED exclude.
    unset = {*files, "container.step_args", "ray.gpus_per_node"}
    unset |= {f"container.{name}" for name in others}
    unset |= {f"slurm.{name}" for name in ("mem_per_cpu", "mem_per_gpu", "cpus_per_gpu", "groups")}
    assert set(left_at_default(spec)) == unset, "give a new field a value in MARKED"
    text = render_script(plan_of(spec), "Zmark-command")
    head, _, rest = text.partition("\n: <<'SETTINGS'\n")
    settings, _, rest = rest.partition("\nSETTINGS\n")
    own = ("trap '' HUP", '    *("HUP"')  # of the story and of the agent: lists of signals
    lines = [line for line in rest.splitlines() if any(mark in line for mark in MARKS)]
    assert [line for line in lines if not line.startswith(own)] == []
    lines = [line for line in head.splitlines() if any(mark in line for mark in MARKS)]
    assert all(line.startswith(("#SBATCH --", "# slurmray-")) for line in lines)
    assert "Zmark-command" in settings
    for text in ("Zmark-command", *re.findall("Zmark-context|Zmark-archive", str(image))):
        assert text in settings


@pytest.mark.parametrize(("fields", "array"), [({}, "0-5"), ({"slurm": {"array": "%2"}}, "0-5%2")])
def test_a_sweep_is_an_array(fields: dict[str, Any], array: str) -> None:
    text = hello(sweep={"lr": ["1e-6", "$(exit)"], "batch": ["1", "2", "3"]}, **fields)
    assert re.findall("#SBATCH --array=(.*)", text) == [array]
    assert read_settings(text)["sweep"] == {"lr": ["1e-6", "$(exit)"], "batch": ["1", "2", "3"]}


def test_a_job_does_not_wait_for_ever_for_another() -> None:
    line = "#SBATCH --kill-on-invalid-dep="
    assert f"{line}yes\n" in hello(slurm={"dependency": "afterok:1"})
    kept = hello(slurm={"dependency": "afterok:1", "kill_on_invalid_dep": "no"})
    assert (f"{line}no\n" in kept, f"{line}yes" in kept, line in hello()) == (True, False, False)


def test_the_users_own_options_of_slurm() -> None:
    text = hello(slurm={"gres": "gpu:h100:2,nvme:1", "extra": ["--odd=a b"]})
    assert '\n#SBATCH --odd="a b"\n' in text
    assert "\n#SBATCH --gres=gpu:h100:2,nvme:1\n" in text


def test_the_header_names_the_hashes() -> None:
    text = hello("podman")
    assert f"\n# slurmray-story: {sha256(read_story(text))}\n" in text
    assert story_sha256(("podman",)) == sha256(read_story(text))
    assert f"\n# slurmray-agent core: {part_sha256('core')}\n" in text
    assert story_sha256(("podman",)) != story_sha256(("docker",))


# -- the agent's text ------------------------------------------------------------------------------


def test_the_agent_is_the_package() -> None:
    files = loader.split_sections(agent_text(parts.PARTS).removesuffix("\n"))
    names = {str(file.relative_to(AGENT)) for file in AGENT.rglob("*.py")}
    assert set(files) == names
    assert next(iter(files)) == "loader.py"
    assert list(files)[1:] == sorted(names - {"loader.py"})
    assert {"__init__.py", "wire/codec.py", "script_parts.py"} <= names


@pytest.mark.parametrize("file", sorted(AGENT.rglob("*.py")), ids=lambda file: str(file.relative_to(AGENT)))
def test_a_file_of_the_agent_can_be_part_of_the_script(file: Path) -> None:
    raw = file.read_bytes()
    text = raw.decode()
    assert b"\r" not in raw, "sbatch refuses it"
    assert b"\0" not in raw
    assert not text or text.endswith("\n")
    assert "AGENT" not in text.split("\n")
    assert not [line for line in text.split("\n") if line.startswith(loader.SECTION)]
    files = loader.split_sections(f"{loader.SECTION}a.py\n{text}".removesuffix("\n"))
    assert files["a.py"] == text or not text


def test_the_parts_of_a_script() -> None:
    text = hello("none", name="parts", setup="a\n")
    assert read_settings(text)["setup"] == "a\n"
    assert read_agent(text) + "\n" == agent_text(["check", "commands", "none"])
    for read in (read_settings, read_story, read_agent):
        with pytest.raises(ValueError, match="no line"):
            read("#!/bin/bash\n")


# -- sites -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", SITES, ids=lambda file: file.name)
def test_examples_of_sites(template: Path) -> None:
    assert len(template.read_text().splitlines()) < 20
    text = render_script(plan_of(JobSpec(template=str(template))))
    assert f"\n# slurmray-site: {template}\n" in text
    (line,) = re.findall(r"\n# slurmray-story: .*\n", text)
    assert line in hello(), "the site's blocks are not part of the story"
    assert read_agent(text) == read_agent(hello())


def site(folder: Path, blocks: str) -> Path:
    file = folder / "site.j2"
    file.write_text('{% extends "job.sbatch.j2" %}\n' + blocks)
    return file


def test_blocks_of_a_site(tmp_path: Path) -> None:
    blocks = (
        "{% block directives %}{{ super() -}}\n#SBATCH --qos=site\n{% endblock %}"
        "{% block site_prologue %}\necho prologue\n{% endblock %}"
        '{% block site_epilogue %}\n\techo "epilogue $*"\n{% endblock %}'
    )
    text = render_script(plan_of(JobSpec(name="it's", template=str(site(tmp_path, blocks)))))
    lines = text.splitlines()
    assert lines[lines.index("#SBATCH --qos=site") + 1] == "#"
    assert lines[1] == '#SBATCH --job-name="it\'s"'
    prologue = lines.index("echo prologue")
    assert lines.index("SETTINGS") < prologue < next(i for i, s in enumerate(lines) if "# ---- 2. story" in s)
    file = tmp_path / "generated.sh"
    file.write_text(text)
    argv = ["bash", str(file), "site_epilogue", "a", "b"]
    assert subprocess.check_output(argv, text=True) == "prologue\nepilogue a b\n"
    # The agent calls it like any function of the story, without the prologue.
    argv = ["bash", "-c", read_story(text), "slurmray", "site_epilogue", "a b"]
    assert subprocess.check_output(argv, text=True) == "epilogue a b\n"


def test_a_value_in_a_site_s_block_is_quoted(tmp_path: Path) -> None:
    blocks = "{% block site_prologue %}printf '%s|' {{ settings }} {{ directives[0] }}; exit{% endblock %}"
    file = tmp_path / "generated.sh"
    text = render_script(plan_of(JobSpec(name="it's $(id)", template=str(site(tmp_path, blocks)))))
    file.write_text(text)
    settings = text.partition("\n: <<'SETTINGS'\n")[2].partition("\nSETTINGS\n")[0]
    assert (
        subprocess.check_output(["bash", file], text=True) == f'{settings}|#SBATCH --job-name="it\'s $(id)"|'
    )


def test_the_name_of_a_template_is_one_line(tmp_path: Path) -> None:
    odd = tmp_path / "a\nrm -rf b.j2"
    odd.write_text('{% extends "job.sbatch.j2" %}{% block site_prologue %}true{% endblock %}')
    text = assemble([], "{}", ["podman"], [], odd)
    assert "\nrm -rf" not in text


def test_spare_nodes_are_nodes_of_the_allocation_alone() -> None:
    text = hello(slurm={"nodes": 2}, spares=1)
    assert "\n#SBATCH --nodes=3\n" in text
    assert "\n#SBATCH --no-kill\n" in text, "else Slurm ends the job with the first node"
    settings = read_settings(text)
    (group,) = settings["groups"]
    assert (group["nodes"], group["spares"], settings["trainer"]["nnodes"]) == (2, 1, 2)
    assert "#SBATCH --no-kill" not in hello(slurm={"nodes": 2})


def test_spare_nodes_of_groups() -> None:
    head = {"name": "head", "spares": 1}
    text = hello(slurm={"groups": [head, {"name": "gpu", "nodes": 4, "spares": 2, "gpus_per_node": 8}]})
    assert re.findall("^#SBATCH (?:--nodes=.*|hetjob)$", text, re.MULTILINE) == [
        "#SBATCH --nodes=2",
        "#SBATCH hetjob",
        "#SBATCH --nodes=6",
    ]
    assert "#SBATCH --no-kill" not in text, "Slurm ends the job all the same"
    settings = read_settings(text)
    assert [(group["nodes"], group["spares"]) for group in settings["groups"]] == [(1, 1), (4, 2)]
    assert settings["trainer"]["nnodes"] == 4
