"""Makes the agent importable from its text in the script.

This is the first section of that text: the story's bootstrap executes it as it is.
"""

import importlib
import importlib.machinery
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

PACKAGE = "slurmray_agent"
SECTION = "#### agent/"  # followed by the file's name; each section is one file of the package


def sections(agent: str) -> "dict[str, str]":
    """The files of the package: name, for example `runtimes/podman.py`, and text. agent: the agent's text."""
    files = {}
    for part in ("\n" + agent).split("\n" + SECTION)[1:]:
        name, _, text = part.partition("\n")
        files[name] = text + "\n"
    return files


def load(agent: str) -> "ModuleType":
    """Make PACKAGE importable and return its module `__main__`. agent: the agent's text."""
    sys.meta_path.insert(0, SectionFinder(sections(agent)))
    return importlib.import_module(PACKAGE + ".__main__")


class SectionFinder:
    """Finder and loader of PACKAGE (importlib's protocols). A section is compiled when it is imported."""

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
        # A colon: no file of the submit folder is taken for the source.
        spec = importlib.machinery.ModuleSpec(fullname, self, origin="slurmray:agent/" + name)  # type: ignore[arg-type]
        if name.endswith("__init__.py"):
            spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: "Any") -> None:
        """None: an ordinary module."""

    def exec_module(self, module: "ModuleType") -> None:
        """Run a section in its module."""
        spec = module.__spec__
        assert spec and spec.origin  # noqa: S101 - find_spec made it
        module.__file__ = spec.origin
        exec(compile(self.get_source(module.__name__), spec.origin, "exec", 0, True), module.__dict__)  # noqa: S102

    def get_source(self, fullname: str) -> str:
        """A module's text; linecache asks for it, so tracebacks show source lines."""
        return self.files[str(self._file(fullname))]

    def is_package(self, fullname: str) -> bool:
        """Whether it is a package."""
        return str(self._file(fullname)).endswith("__init__.py")

    def _file(self, fullname: str) -> "str | None":
        """The section of a module."""
        if fullname.partition(".")[0] != PACKAGE:
            return None
        stem = fullname[len(PACKAGE) + 1 :].replace(".", "/")
        for name in (stem + ".py", (stem + "/__init__.py").lstrip("/")):
            if name in self.files:
                return name
        return None
