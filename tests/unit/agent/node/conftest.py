"""A node agent without settings of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..fake_node import FakeNode


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path)
