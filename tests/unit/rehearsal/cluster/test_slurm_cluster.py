"""The start of a rehearsal's first process."""

import subprocess
import sys
from pathlib import Path

from slurmray.rehearsal.cluster.layout import environment
from slurmray.rehearsal.cluster.slurm_cluster import FIRST_PROCESS


def test_the_first_process_imports_nothing_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the user')")
    argv = [sys.executable, "-c", FIRST_PROCESS]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), input="no plan\n", capture_output=True, text=True, check=False
    )
    assert "JSONDecodeError" in done.stderr
