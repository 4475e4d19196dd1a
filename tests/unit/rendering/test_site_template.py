"""Templates of sites are data: what they may have, and that everything else ends at once with one line."""

import re
import sys
import time
from pathlib import Path

import pytest

from slurmray.cli import main
from slurmray.errors import UsageError
from slurmray.rendering import site_template
from slurmray.rendering.script import _make_environment, assemble
from slurmray.rendering.site_template import MAX_BYTES, MAX_DEPTH

DIRECTIVES = ["#SBATCH --nodes=2", "#SBATCH --mem=9G"]
BEGIN = '{% extends "job.sbatch.j2" %}\n'
LONG = "{% for a in agent %}" * 3 + "{% endfor %}" * 3
# Line 3 of a template -> why that is no template.
MISUSED = {
    "{{ directives.__class__ }}": "getattr is not for templates",
    "{{ directives['__class__'] }}": "getitem is not for templates",
    "{{ ''.join }}": "getattr is not for templates",
    "{{ directives | attr('__class__') }}": "filter is not for templates",
    "{{ range(3) }}": "call is not for templates",
    "{{ lipsum }}": "'lipsum' is undefined",
    "{{ super }}": "'super' is undefined",
    "{{ super(1) }}": "call is not for templates",
    "{{ self.agent() }}": "call is not for templates",
    "{{ 'x' * 1000000000 }}": "mul is not for templates",
    "{{ 10 ** 10 ** 10 }}": "pow is not for templates",
    "{{ 'x' ~ 'y' }}": "concat is not for templates",
    "{{ '%9999999999s' % 1 }}": "mod is not for templates",
    "{{ 'x' | center(1000000000) }}": "filter is not for templates",
    "{% set x = [settings, settings] %}": "list is not for templates",
    "{% set x %}{{ x }}{{ x }}{% endset %}": "assignblock is not for templates",
    "{% set settings.x = 1 %}": "",
    "{% macro m() %}{{ m() }}{% endmacro %}": "macro is not for templates",
    "{% filter verbatim %}x{% endfilter %}": "filterblock is not for templates",
    "{% include '/etc/hostname' %}": "include is not for templates",
    "{% import '/etc/hostname' as x %}": "import is not for templates",
    "{% for x in 'abc' %}{% endfor %}": "for is not for templates",
    "{% for x, y in directives %}{% endfor %}": "for is not for templates",
    "{% for x in [settings] %}{% endfor %}": "for is not for templates",
    "{% for x in nothing %}{% endfor %}": "'nothing' is undefined",
    "{{ nothing }}": "'nothing' is undefined",
    "{% autoescape true %}{% endautoescape %}": "scope is not for templates",
    "{{ directives[2] }}": "has no element 2",
    "{{ 1 < 'x' }}": "not supported between instances of 'int' and 'str'",
    "{{ '\\0' }}": "NUL",
    "{{ '\\ud800' }}": "not UTF-8",
    "{{ 'x }}": "unexpected char",
    "\0": "NUL",
    LONG: "would handle ",
    "{{" + " not" * MAX_DEPTH + " 1 }}": "nested too deeply",
    "{{ " + "(" * 10000 + " }}": "nested too deeply, or",
    "{{ " + "9" * 5000 + " }}": "too long a number",
    "x" * MAX_BYTES: f"is larger than {MAX_BYTES >> 10} KB",
}

if sys.version_info < (3, 13):  # which compiles as many branches as a template may have
    MISUSED["{% if 0 %}" + "{% elif 0 %}" * 5000 + "{% endif %}"] = "nested too deeply"


def render(text: str, folder: Path, settings: str = '{"a": "b"}') -> str:
    file = folder / "site.j2"
    file.write_text(text)
    return assemble(DIRECTIVES, settings, ["podman"], [], file)


def prologue(text: str, folder: Path) -> list[str]:
    """Return the lines that a block with this text writes."""
    script = render(f"{BEGIN}{{% block site_prologue %}}\n{text}\n{{% endblock %}}\n", folder)
    return (
        script.partition("site.j2\n")[2].partition("site.j2\n")[2].partition("\n# ---- end of")[0].split("\n")
    )


@pytest.mark.attack("a site's template that is no text", inputs=1)
@pytest.mark.parametrize(("line", "why"), MISUSED.items(), ids=map(str, range(len(MISUSED))))
def test_what_is_no_text_is_refused(line: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        prologue(line, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/site.j2:")
    assert (why in message, message.count("\n"), len(message) < 400) == (True, 0, True), message
    if not re.search("too deeply|too long|larger|handle", why):
        assert message.startswith(f"{tmp_path}/site.j2:3:"), message


@pytest.mark.attack("a site's template that is no text", inputs=6)
def test_no_other_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "other.j2").write_text("secret")
    for name in (f"{tmp_path}/other.j2", "../other.j2", "other.j2", "partials/../../slurmray/api.py"):
        with pytest.raises(
            UsageError, match=r"site\.j2:1: template .* does not exist; extend job\.sbatch\.j2"
        ):
            render(f'{{% extends "{name}" %}}', tmp_path)
    with pytest.raises(UsageError, match=r"^\S*/site\.j2:1: .*; correct the template$"):
        render('{% extends "report.html.j2" %}', tmp_path)  # of ours, but for other values
    with pytest.raises(UsageError, match=r"site\.j2:1: extends is not for templates"):
        render("{% extends settings %}", tmp_path)
    with pytest.raises(UsageError, match=r"site\.j2:1: extends is not for templates"):
        render("{% extends 5 %}", tmp_path)


@pytest.mark.attack("a site's template that is no text", inputs=3)
@pytest.mark.usefixtures("current_folder")
@pytest.mark.parametrize("argv", [["check"], ["render", "-o", "-"], ["submit", "--test-only"]], ids=" ".join)
def test_commands_refuse_it_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.j2").write_text(f"{BEGIN}{{% block site_prologue %}}{LONG}{{% endblock %}}")
    Path("job.yaml").write_text("template: site.j2\n")
    assert main([argv[0], "job.yaml", *argv[1:]]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("site.j2: would handle")) == ("", 1, True)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("export a=$b '\\0'", ["export a=$b '\\0'"]),
        ("{% raw %}{{ x }}{% endraw %}{# no comment #}", ["{{ x }}{# no comment #}"]),
        (
            "{% set proxy = 'http://p p' %}a={{ proxy }} b={{ proxy | verbatim }}",
            ["a='http://p p' b=http://p p"],
        ),
        ("{% for line in directives %}\n{{ line | verbatim }}\n{% endfor %}", DIRECTIVES),
        (
            "{% for line in directives if 'mem' in line %}{{ line }}{% else %}x{% endfor %}",
            [f"'{DIRECTIVES[1]}'"],
        ),
        ("{% for line in directives if 'x' in line %}{{ line }}{% else %}none{% endfor %}", ["none"]),
        ("{% for name in ['a', 'b c'] %}{{ name }}{% endfor %}", ["a'b c'"]),
        ("{{ directives[1] | verbatim }}", DIRECTIVES[1:]),
        (
            "{% if '\"a\": \"b\"' in settings and not version == '0' %}x{% elif 1 %}y{% else %}z{% endif %}",
            ["x"],
        ),
        ("{{ 'x' if site == 'y' else 'z' }}", ["z"]),
        ("{{ super() }}x", ["x"]),
    ],
)
def test_what_a_template_may_have(text: str, lines: list[str], tmp_path: Path) -> None:
    assert prologue(text, tmp_path) == lines


def test_text_before_extends_is_refused(tmp_path: Path) -> None:
    """sbatch refuses a script whose first line is not #!."""
    for text in ("echo\n", "#!/bin/sh\necho\n"):
        with pytest.raises(UsageError, match="its first line must be"):
            render(text + BEGIN, tmp_path)


def test_what_is_set_is_as_long_as_it_can_be(tmp_path: Path) -> None:
    assert prologue("{% set names = ['a', 'b'] %}{% for x in names %}{{ x }}{% endfor %}", tmp_path) == ["ab"]
    assert prologue("{% set x = 'a' %}" + "{{ x }}" * 1000, tmp_path) == ["a" * 1000]
    with pytest.raises(UsageError, match="would handle"):
        prologue("{% set x = agent %}{% for y in x %}{{ y }}{% endfor %}", tmp_path)


def test_the_limits_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render(BEGIN + "x" * (MAX_BYTES - len(BEGIN)), tmp_path)
    with pytest.raises(UsageError, match="is larger than"):
        render(BEGIN + "x" * (MAX_BYTES - len(BEGIN) + 1), tmp_path)
    # Beside the loops, the template, the last loop's list and the item in it are a level each.
    loops = [
        BEGIN + "{% for a in ['x'] %}" * levels + "{% endfor %}" * levels
        for levels in (MAX_DEPTH - 3, MAX_DEPTH - 2)
    ]
    render(loops[0], tmp_path)
    with pytest.raises(UsageError, match="nested too deeply"):
        render(loops[1], tmp_path)
    monkeypatch.setattr(site_template, "MAX_WORK", measure(BEGIN))
    render(BEGIN, tmp_path)
    monkeypatch.setattr(site_template, "MAX_WORK", measure(BEGIN) - 1)
    with pytest.raises(UsageError, match="would handle"):
        render(BEGIN, tmp_path)


VALUES = {"text": "x" * 7000, "lines": ["x" * 30, "y" * 500, ""]}


def measure(text: str) -> int:
    assigned = {"y": VALUES["text"]} if "set y" in text else {}
    tree = _make_environment().parse(text)
    return site_template._measure(tree, {**VALUES, **assigned}, assigned, MAX_DEPTH)


def measure_loop(body: str, over: str = "lines") -> int:
    """Return the work of what a loop does."""
    return measure(f"{{% for a in {over} %}}{body}{{% endfor %}}") - measure(
        f"{{% for a in {over} %}}{{% endfor %}}"
    )


def test_work_is_characters_and_100_for_each_element() -> None:
    base = measure("{% if 0 %}{% endif %}")
    assert measure("{% if 0 %}{{ text }}{% endif %}") == base + 7000 + 200, "not only in the branch taken"
    assert measure("{% if 0 %}" + "x" * 50 + "{% endif %}") == base + 50 + 200
    assert measure("{% if 0 %}{{ super() }}{% endif %}") > base + 2 * 7000
    assert measure_loop("{{ text }}") == 3 * (7000 + 200)
    assert measure_loop("{{ a }}") == 3 * (500 + 200), "a is as long as the longest line"
    assert measure_loop("{{ a }}", "['1', '22']") == 2 * (2 + 200)
    assert measure_loop("{{ text }}", "text") == 7000 * (7000 + 200)
    assert measure_loop("{% for b in lines %}{{ b }}{% endfor %}") > 9 * (500 + 200)
    assert measure_loop("{% set y = 'z' %}{{ y }}") > 3 * (7000 + 200), "y may have any value"


def test_loops_below_the_limit_end_soon(tmp_path: Path) -> None:
    """They take about 0.1 s here; the bound is for loops that do not end."""
    began = time.monotonic()
    for passes, is_possible in ((230, True), (290, False)):
        loops = "{% for a in settings %}" * 2 + "{% if 'xy' in 'z' %}x{% endif %}" + "{% endfor %}" * 2
        text = f"{BEGIN}{{% block site_prologue %}}{loops}{{% endblock %}}"
        if is_possible:
            render(text, tmp_path, "x" * passes)
        else:
            with pytest.raises(UsageError, match="would handle"):
                render(text, tmp_path, "x" * passes)
    assert time.monotonic() - began < 60
