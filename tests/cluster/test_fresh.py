"""`make demo` in a new minimal Debian, of another suite than this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .faults.rows import OTHER_SUITE

FRESH = Path(__file__).parents[2] / ".ci/fresh"


@pytest.mark.full  # `make fresh` does more
def test_the_demo(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stream:
        argv = [str(FRESH), "--demo", OTHER_SUITE]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
        try:
            code = process.wait(1800)
        finally:
            process.terminate()  # then it cleans up
            process.wait(60)
    output = log.read_text()
    assert code == 0, output
    assert output.count("2 nodes, 16 GPUs") == 2, output
    assert output.count("no leftovers on any host") == 2, output
    assert output.count("\ninstalling packages for the demo") == 1, output
