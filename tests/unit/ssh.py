"""A stand-in for ssh, which runs commands on this host, by the user's shell as sshd does."""

from __future__ import annotations

from pathlib import Path

import pytest

# Options are those of SshHost; with -G it prints the configuration. `nowhere` is a host that does not answer.
_SSH = r"""#!/bin/bash
while [[ $1 == -* ]]; do
	[[ $1 != -G ]] || { echo "controlpath none"; exit; }
	shift
done
[[ $1 != nowhere ]] || { echo 'ssh: connect to host nowhere port 22: Connection refused' >&2; exit 255; }
shift
cd && exec env -i HOME="$HOME" PATH=/usr/bin:/bin "$SHELL" -c "$*"
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install it as the only ssh; return the home folder. Other commands there are in folder/there."""
    for name in ("bin", "there", "home"):
        (folder / name).mkdir()
    ssh = folder / "bin/ssh"
    ssh.write_text(_SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    (folder / "home/.profile").write_text(f"PATH={folder}/there:$PATH\n")
    monkeypatch.setenv("HOME", f"{folder}/home")
    monkeypatch.setenv("SHELL", "sh")
    return folder / "home"
