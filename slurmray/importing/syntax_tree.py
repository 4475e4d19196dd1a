"""Parses bash with shfmt, whose parser reads all of bash's grammar, and returns its syntax tree."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from slurmray import local_commands
from slurmray.errors import UsageError

# A node of the tree, as `shfmt --to-json` prints it: the types of mvdan.cc/sh/v3/syntax, with `Type` where
# several are possible; and `Last`: see _measure.
Node: TypeAlias = dict[str, Any]

_SINCE = (3, 14)  # of mvdan.cc/sh: earlier ones write operators as numbers
_FIX = "pip install 'shfmt-py>=4.1', or put shfmt 3.14 of github.com/mvdan/sh/releases on PATH"
_TIMEOUT = 60  # seconds
_MAX_TREE = 64 << 20  # bytes
_MAX_MEMORY = 2 << 30  # Go itself reserves half of it
_TOO_DEEP = "1:1: too long or nested too deeply; write a job spec by hand"


class BashSyntaxError(Exception):
    """A text is not valid bash; the message begins with line and column."""


def find_parser() -> str:
    """Return the path of shfmt; UsageError if it is not installed, or too old."""
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    parser = shutil.which("shfmt", path=os.pathsep.join(folders))
    if parser is None:
        raise UsageError(f"slurmray init --from needs shfmt, which reads bash: {_FIX}")
    version = local_commands.run([parser, "--version"], timeout=_TIMEOUT).stdout.strip().removeprefix("v")
    found = re.match(r"([0-9]{1,9})\.([0-9]{1,9})", version)
    if not found or (int(found[1]), int(found[2])) < _SINCE:
        raise UsageError(f"{parser} is shfmt {version or 'of no version'}, too old for init --from: {_FIX}")
    return parser


def parse(parser: str, text: bytes) -> Node:
    """Return the syntax tree of a script. parser: path of shfmt. BashSyntaxError."""
    process = local_commands.start(
        [parser, "--to-json", "--language-dialect", "bash"], stderr=subprocess.STDOUT
    )
    assert process.stdin and process.stdout  # noqa: S101 - both are pipes
    # Before it gets the text: its output, and its memory, grow with the square of the nesting.
    resource.prlimit(process.pid, resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    with process:
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(text)
        output = process.stdout.read(_MAX_TREE + 1)
        if len(output) > _MAX_TREE:
            process.kill()
    if len(output) > _MAX_TREE:
        raise BashSyntaxError(_TOO_DEEP)
    if process.returncode:
        line = output.decode(errors="replace").partition("\n")[0]
        match = re.fullmatch(r"(?:<standard input>:)?([0-9]+:[0-9]+): (.*)", line)
        raise BashSyntaxError(f"{match[1]}: not valid bash: {match[2]}" if match else _TOO_DEEP)
    try:
        tree: Node = json.loads(output)
        _measure(tree)
    except RecursionError:
        raise BashSyntaxError(_TOO_DEEP) from None
    return tree


def walk(node: Any, prune: Callable[[Node], bool] = lambda _: False) -> Iterator[Node]:
    """Yield nodes and those below them, without what `prune` is true of."""
    children: Iterable[Any] = node if isinstance(node, list) else ()
    if isinstance(node, dict) and not prune(node):
        yield node
        children = node.values()
    for child in children:
        yield from walk(child, prune)


def calls_in(node: Any) -> Iterator[Node]:
    """Yield the simple commands below nodes, also those in substitutions."""
    return (each for each in walk(node) if each.get("Type") == "CallExpr")


def _measure(node: Any) -> tuple[int, int]:
    """Set `Last` of each node below, and return it: offset and line behind it and its here-documents."""
    last = (0, 0)
    if isinstance(node, list):
        return max(map(_measure, node), default=last)
    if isinstance(node, dict):
        if "End" in node:
            last = (node["End"]["Offset"], node["End"]["Line"])
        node["Last"] = last = max([last, *map(_measure, node.values())])
    return last
