"""Stand-ins for packages that trainers import and a machine without GPUs lacks; they accept any use."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

_VERSION = "999"
_ANSWERS = {"is_available": False, "device_count": 0, "get_current_node_num_accelerators": 0}


def _attribute(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return (lambda: _ANSWERS[name]) if name in _ANSWERS else Anything


class _AcceptsAnything(type):
    def __getattr__(cls, name: str) -> Any:
        return _attribute(name)

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return Anything if cls is Anything else super().__call__(*args, **options)

    def __iter__(cls) -> Iterator[Any]:
        return iter((Anything, Anything))  # enough for an address and a port

    def __getitem__(cls, key: Any) -> Any:
        return Anything


class Anything(metaclass=_AcceptsAnything):
    """Serves as base class, decorator, function and value: attributes and calls return this class again."""

    def __init__(self, *args: Any, **options: Any) -> None: ...


class _Module(ModuleType):
    __version__ = _VERSION

    def __getattr__(self, name: str) -> Any:
        return _attribute(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in self.packages:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


def install(*packages: str) -> None:
    """Make these packages and all their modules importable, with a very high version."""
    sys.meta_path.insert(0, _Finder(packages))
    real = importlib.metadata.version

    def version(distribution_name: str) -> str:
        return _VERSION if distribution_name in packages else real(distribution_name)

    importlib.metadata.version = version
