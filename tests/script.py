"""A rendered script, with something else in the place of its last line, in a real bash."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

CALL = 'main "$@"\n'


def run_instead(
    script: str,
    call: str,
    folder: Path,
    *words: str,
    bash: str = "/bin/bash",
    env: Mapping[str, str] | None = None,
    stderr: IO[str] | int = subprocess.PIPE,
) -> subprocess.CompletedProcess[bytes]:
    """Run that call of the script's functions in a folder, as script.sh, with these words."""
    assert script.endswith(f"\n{CALL}")
    file = folder / "script.sh"
    file.write_bytes((script.removesuffix(CALL) + call).encode())
    return subprocess.run(
        [bash, file, *words],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=stderr,
        check=False,
        timeout=60,
    )
