"""Finds settings, story and agent in the text of a rendered script."""

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .wire.settings import Settings

SETTINGS_BEGIN = "\n: <<'SETTINGS'\n"
SETTINGS_END = "\nSETTINGS\n"
# Functions of the story that run commands of the job spec or the site.
WITH_FOREIGN_COMMANDS = ("run_setup", "site_epilogue")
STORY_BEGIN = "\n# ---- 2. story"
STORY_END = '\n"${@:-main}"\n'
AGENT_BEGIN = "\n: <<'AGENT'\n"
AGENT_END = "\nAGENT\n"


def read_settings(script: str) -> "Settings":
    """The job's settings. ValueError where the script has none or they are not JSON."""
    settings: "Settings" = json.loads(cut_between(script, SETTINGS_BEGIN, SETTINGS_END))
    return settings


def read_start_settings(script: str, nodes: int) -> "Settings":
    """The settings of a start on that many nodes, which may be fewer than slurm.nodes: see `fewer_nodes`."""
    settings = read_settings(script)
    for path, value in settings.get("fewer_nodes", {}).get(str(nodes), {}).items():
        *sections, last = [int(name) if name.isdigit() else name for name in path.split(".")]
        here: "Any" = settings
        for name in sections:
            here = here[name]
        here[last] = value
    return settings


def read_story(script: str) -> str:
    """The bash functions of the script, for `bash -c STORY slurmray FUNCTION ARGUMENT...`.

    ValueError where the script has none.
    """
    return STORY_BEGIN[1:] + cut_between(script, STORY_BEGIN, STORY_END) + STORY_END


def story_command(script: str, function: str, *arguments: str) -> "list[str]":
    """The command that runs a function of the story.

    -p: without BASH_ENV, SHELLOPTS and exported functions, unless commands of others run in this shell.
    """
    options = ["-c"] if function in WITH_FOREIGN_COMMANDS else ["-p", "-c"]
    return ["/bin/bash", *options, read_story(script), "slurmray", function, *arguments]


def has_function(script: str, name: str) -> bool:
    """Whether the story has a function of that name."""
    return "\n%s() {" % name in read_story(script)


def read_agent(script: str) -> str:
    """The agent's text, without a newline at its end. ValueError where the script has none."""
    return cut_between(script, AGENT_BEGIN, AGENT_END)


def cut_between(script: str, begin: str, end: str) -> str:
    """The text between the first `begin` and the next `end`. ValueError where one is missing."""
    _, opened, rest = script.partition(begin)
    part, closed, _ = rest.partition(end)
    if not (opened and closed):
        raise ValueError("the script has no line " + (end if opened else begin).strip())
    return part
