"""Imports the agent from its text in the script.

This file is the first section of that text: the story's bootstrap executes it.
"""

import importlib
import importlib.machinery
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

PACKAGE = "slurmray_agent"
SECTION = "#### agent/"  # followed by the file's name; each section is one file of the package


def split_sections(agent: str) -> "dict[str, str]":
    """Split the agent's text into {file: its text}, e.g. of the file `node/runtimes/podman.py`."""
    files = {}
    for part in ("\n" + agent).split("\n" + SECTION)[1:]:
        name, _, text = part.partition("\n")
        files[name] = text + "\n"
    return files


def remove_sections(agent: str, paths: "Sequence[str]") -> str:
    """Remove files and folders, e.g. `job_record.py` and `controller/`, from the agent's text."""
    kept = [(name, text) for name, text in split_sections(agent).items() if not name.startswith(tuple(paths))]
    return "".join(SECTION + name + "\n" + text for name, text in kept)[:-1]


def load(agent: str) -> "ModuleType":
    """Make PACKAGE importable and return its module `__main__`. agent: the agent's text."""
    sys.meta_path.insert(0, SectionFinder(split_sections(agent)))
    return importlib.import_module(PACKAGE + ".__main__")


# Follows this module's text and runs a role with the package in PATH.txt. Unless it is isolated (-I), Python
# looks for modules in the script's folder first.
_LAUNCH = """
if os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]
with open(__file__ + ".txt", encoding="utf-8") as file:
    text = file.read()
sys.exit(load(text).main(sys.argv[1], sys.argv[2:]))
"""


def write_program(path: str, agent: str) -> None:
    """Write a program, `python3 PATH ROLE ARGUMENT...`, and PATH.txt, which it reads.

    agent: the agent's text. Two files, because writing each file of the package takes every node 15 ms
    more.
    """
    for name, content in ((path, split_sections(agent)["loader.py"] + _LAUNCH), (path + ".txt", agent)):
        with open(name, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(name, 0o644)  # readable for the container's user, whatever the umask is


class SectionFinder:
    """Finder and loader of PACKAGE for importlib. A section is compiled when it is imported."""

    def __init__(self, files: "dict[str, str]") -> None:
        self.files = files

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "importlib.machinery.ModuleSpec | None":
        """The spec of a module of PACKAGE; None for any other."""
        del path, target
        name = self._file(fullname)
        if name is None:
            return None
        # With a colon, so that no file of the submit folder is taken for the source.
        spec = importlib.machinery.ModuleSpec(fullname, self, origin="slurmray:agent/" + name)  # type: ignore[arg-type]
        if name.endswith("__init__.py"):
            spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: "Any") -> None:
        """Return None, for an ordinary module."""

    def exec_module(self, module: "ModuleType") -> None:
        """Run a section in its module."""
        spec = module.__spec__
        assert spec and spec.origin  # noqa: S101 - find_spec made it
        module.__file__ = spec.origin
        exec(compile(self.get_source(module.__name__), spec.origin, "exec", 0, True), module.__dict__)  # noqa: S102

    def get_source(self, fullname: str) -> str:
        """A module's text. linecache calls this, so that tracebacks show source lines."""
        return self.files[str(self._file(fullname))]

    def _file(self, fullname: str) -> "str | None":
        """The section of a module."""
        if fullname.partition(".")[0] != PACKAGE:
            return None
        stem = fullname[len(PACKAGE) + 1 :].replace(".", "/")
        for name in (stem + ".py", (stem + "/__init__.py").lstrip("/")):
            if name in self.files:
                return name
        return None
