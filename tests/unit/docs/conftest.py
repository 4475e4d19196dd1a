"""Scripts of docs/scripts, which are in no package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[3] / "docs/scripts"


@pytest.fixture
def import_script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a script by its name, in place of a module with the same name."""

    def import_new(name: str) -> Any:
        monkeypatch.syspath_prepend(str(SCRIPTS))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return import_new
