"""The text of an sbatch script: directives, settings, story, agent."""

from __future__ import annotations

import functools
import re
import shlex
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from slurmray import agent as package
from slurmray._version import __version__
from slurmray.agent import parts, script_parts
from slurmray.agent.loader import SECTION
from slurmray.errors import UsageError
from slurmray.plan import Plan
from slurmray.rendering import site_template
from slurmray.rendering.directives import make_directives
from slurmray.rendering.job_settings import make_settings
from slurmray.rendering.output import HEADER, sha256
from slurmray.rendering.pretty_json import format_json
from slurmray.resources import data_folder
from slurmray.spec.runtimes import RUNTIMES, candidates

_OF_TYPES = re.compile(r"\nTYPE_CHECKING = False\nif TYPE_CHECKING:\n(?: {4}.*\n|\n(?= {4}))+\n")
MAX_BYTES = 4 << 20  # of a script: sbatch's default (man slurm.conf, max_script_size)
# In place of a site's template that is not read.
_REBUILT_SITE = """{% extends "job.sbatch.j2" %}
{% block site_prologue %}{{ site_blocks.prologue | verbatim }}{% endblock %}
{% block site_epilogue %}{{ site_blocks.epilogue | verbatim }}{% endblock %}
"""


class _Verbatim(str):
    """Text that templates do not quote for bash: slurmray's own, or quoted for Slurm."""

    __slots__ = ()


class _Environment(ImmutableSandboxedEnvironment):
    @staticmethod
    def concat(data: Iterable[str]) -> _Verbatim:
        """Return rendered blocks as verbatim text, as `super()` inserts them again."""
        return _Verbatim("".join(data))


def render_script(plan: Plan, command: str = "slurmray render", *, only_checks: bool = False) -> str:
    """Return the script of a job without a seal. The same input gives the same script on every machine.

    command: the shell command that renders it again; the job's messages append options, e.g. `--nodes 4`.
    only_checks: the job ends after the node checks, and its nodes have no leftovers then. UsageError if the
    spec's template cannot be used.
    """
    spec = plan.spec
    settings = make_settings(plan, command, only_checks=only_checks)
    template = Path(spec.template) if spec.template else None
    runtimes, names = candidates(spec.container.runtime), parts.needed_parts(settings)
    text = assemble(make_directives(spec), format_json(settings), runtimes, names, template)
    if (size := len(text.encode())) > MAX_BYTES:
        raise UsageError(
            f"the script would have {size / 1e6:.1f} MB, and sbatch takes at most 4 MB (max_script_size); "
            "put long commands and texts into files"
        )
    return text


def assemble(
    directives: Sequence[str],
    settings: str,
    runtimes: Sequence[str],
    names: Sequence[str],
    template: Path | None = None,
) -> str:
    """Return a script. directives: `#SBATCH` lines. settings: JSON, no newline at its end.

    names: of the parts of the agent that it has. template: a site's file that extends job.sbatch.j2;
    UsageError if it cannot be used.
    """
    site = format_json(str(template or ""))[1:-1]  # escaped, so that it stays on a comment's line
    values = make_values(directives, settings, runtimes, names, site)
    if template is None:
        return rebuild(values, {})
    try:
        text = site_template.load(template, _make_environment(), values).render(values)
    except (jinja2.TemplateError, TypeError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        *_, line = (frame.lineno for frame in frames if frame.filename == "<template>")
        why = f"{getattr(error, 'message', error)}; correct the template"
        if isinstance(error, jinja2.TemplateNotFound):
            why = f"template {error.name} does not exist; extend job.sbatch.j2"
        raise UsageError(f"{template}:{line}: {why}") from None
    if not text.startswith("#!") or HEADER not in text:
        raise UsageError(f'{template}: its first line must be {{% extends "job.sbatch.j2" %}}')
    return text


def rebuild(values: Mapping[str, str | list[str]], blocks: Mapping[str, str]) -> str:
    """Return the script that `assemble` makes of these values, without reading a site's template.

    blocks: `prologue` and `epilogue` of that template.
    """
    environment = _make_environment()
    if values["site"]:
        return environment.from_string(_REBUILT_SITE).render(values, site_blocks=blocks)
    return environment.get_template("job.sbatch.j2").render(values)


@functools.cache
def agent_files() -> dict[str, str]:
    """Return the agent's text: {file: its text after a line with its name}, in the order of scripts.

    Without what only type checkers read.
    """
    folder = Path(package.__file__).parent
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.py"))
    names.sort(key=lambda name: name != "loader.py")  # the bootstrap executes the first one
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in names}
    return {name: f"{SECTION}{name}\n" + _OF_TYPES.sub("\n", text) for name, text in texts.items()}


def agent_text(names: Collection[str]) -> str:
    """Return the text of the agent's core, with these parts."""
    files = agent_files().items()
    return "".join(text for file, text in files if parts.part_of(file) in (parts.CORE, *names))


@functools.cache
def part_sha256(name: str) -> str:
    """Return the hash of a part of the installed version's agent."""
    return sha256("".join(text for file, text in agent_files().items() if parts.part_of(file) == name))


@functools.cache
def story_sha256(runtimes: tuple[str, ...]) -> str:
    """Return the hash of the installed version's story for these runtimes."""
    story = _make_environment().get_template("partials/story.sh.j2")
    return sha256(story.render(runtimes=_find_templates(runtimes)) + script_parts.STORY_END)


def make_values(
    directives: Sequence[str], settings: str, runtimes: Sequence[str], names: Sequence[str], site: str
) -> dict[str, str | list[str]]:
    """Return what job.sbatch.j2 and the templates of sites get.

    site: the name of a site's template as in the header; "": none.
    """
    return {
        "directives": list(directives),
        "settings": settings,
        "runtimes": _find_templates(runtimes),
        "version": __version__,
        "story_sha256": story_sha256(tuple(runtimes)),
        "parts": [f"{name}: {part_sha256(name)}" for name in (parts.CORE, *names)],
        "agent": agent_text(names).removesuffix("\n"),
        "site": site,
    }


def _find_templates(runtimes: Sequence[str]) -> list[str]:
    return [template for name in runtimes for template in RUNTIMES[name].templates]


@functools.cache
def _make_environment() -> jinja2.Environment:
    environment = _Environment(
        loader=jinja2.FileSystemLoader(data_folder("templates")),
        undefined=jinja2.StrictUndefined,
        finalize=_quote,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # The default, {#, is in bash's ${#array[@]}.
        comment_start_string="{%#",
        comment_end_string="#%}",
        autoescape=False,
    )
    environment.globals.clear()
    environment.filters["verbatim"] = _Verbatim
    return environment


def _quote(value: object) -> str:
    """Return what `{{ value }}` in a template renders. jinja2.UndefinedError for an undefined value."""
    return value if isinstance(value, _Verbatim) else shlex.quote(str(value))
