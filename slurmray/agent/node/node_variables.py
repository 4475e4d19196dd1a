"""Variables for Ray and the trainer from `env_file` and `node_env` of the job spec."""

import os

from .. import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from .agent_interface import NodeApi

MAX_VALUE = 120000  # bytes; Linux allows 131,072 for NAME=VALUE, MAX_ARG_STRLEN of execve(2)
# Set by the shell that runs the commands of node_env, not by them.
OF_THE_SHELL = ("_", "OLDPWD", "PWD", "SHLVL")


def env_file(node: "NodeApi") -> "Dict[str, str]":
    """Variables of `env_file`, without paths.MARKS.

    Records a finding where others can read it, or where it has another form.
    """
    import stat

    if not node.settings["env_file"]:
        return {}
    path = node.host_path(node.settings["env_file"])
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        _finding(node, "%s: %s" % (path, why), "a file that the submitter can read", "create it there")
        return {}
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        found = "others have access to %s: mode %04o" % (path, stat.S_IMODE(mode))
        _finding(node, found, "access for its owner alone", "chmod 600 %s" % path)
        return {}
    values = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if len(value.encode()) > MAX_VALUE:
            found = "%s, line %d: %d bytes" % (path, number, len(value.encode()))
            _finding(node, found, "at most %d, as for all programs" % MAX_VALUE, "write the value to a file")
        elif equals and name.isidentifier() and "\0" not in value:
            values[name] = value
        else:  # without the line, which may have a private value
            _finding(node, "%s, line %d" % (path, number), "NAME=VALUE", "correct the line")
    return {name: value for name, value in values.items() if name not in paths.MARKS}


def node_env(node: "NodeApi") -> "Dict[str, str]":
    """Variables that the commands of `node_env` set. JobError where they fail."""
    if not node.settings["node_env"]:
        return {}
    from .commands import environment_after

    after = environment_after(node, node.settings["node_env"], "node_env")
    return {
        name: value
        for name, value in after.items()
        if node.env.get(name) != value and name not in (*OF_THE_SHELL, *paths.MARKS) and name.isidentifier()
    }


def _finding(node: "NodeApi", found: str, wanted: str, fix: str) -> None:
    node.finding("preflight", "env_file", found, wanted, fix)
