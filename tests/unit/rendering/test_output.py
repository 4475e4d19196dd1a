import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurmray.errors import ExitCode, UsageError
from slurmray.rendering.output import seal, write_files, write_scripts

TEXT = seal("#!/bin/bash\n#SBATCH --nodes=2\n#\n# Rendered by slurmray 1.2 from a job spec.\necho é\n")
OTHER = seal("#!/bin/bash\n# Rendered by slurmray 1.2 from a job spec.\necho other\n")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's rights, which allow all writes."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        write_scripts({path: TEXT}, force=False)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


def test_the_seal_follows_the_header() -> None:
    lines = TEXT.splitlines()
    assert lines[3].startswith("# Rendered by slurmray")
    assert lines[4].startswith("# slurmray-sha256: ")
    assert lines[5] == "echo é"


def test_text_without_a_header_cannot_be_sealed() -> None:
    with pytest.raises(ValueError, match="Rendered by"):
        seal("#!/bin/bash\n")


@pytest.fixture
def umask() -> Iterator[None]:
    """Sets umask 022 for the test."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_written_executable_and_overwritten_while_untouched(tmp_path: Path) -> None:
    script = tmp_path / "generated.sh"
    write_scripts({script: TEXT}, force=False)
    assert script.read_text() == TEXT
    assert script.stat().st_mode & 0o7777 == 0o700
    write_scripts({script: OTHER}, force=False)
    assert script.read_text() == OTHER
    assert list(tmp_path.iterdir()) == [script]
    task = tmp_path / "generated.dstack.yml"
    write_scripts({task: seal("# Rendered by slurmray 1.2 from a job spec.\ntype: task\n")}, force=False)
    assert task.stat().st_mode & 0o7777 == 0o600


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o700), (0o600, 0o600), (0o664, 0o600)])
def test_mode_of_a_script_that_is_replaced(tmp_path: Path, before: int, after: int) -> None:
    script = tmp_path / "generated.sh"
    write_scripts({script: TEXT}, force=False)
    script.chmod(before)
    write_scripts({script: OTHER}, force=False)
    assert script.stat().st_mode & 0o7777 == after


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("umask_of_user", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_other_files_have_the_mode_of_the_umask(tmp_path: Path, umask_of_user: int, mode: int) -> None:
    os.umask(umask_of_user)
    write_files({tmp_path / "job.yaml": "run: true\n"}, None)
    assert (tmp_path / "job.yaml").stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize(
    "edited", [TEXT + "# mine\n", TEXT.replace("nodes=2", "nodes=3"), TEXT.replace("é", "e")]
)
def test_an_edited_script_is_kept(tmp_path: Path, edited: str) -> None:
    script = tmp_path / "generated.sh"
    script.write_text(edited)
    assert "was edited" in refusal(script)
    assert script.read_text() == edited
    write_scripts({script: TEXT}, force=True)
    assert script.read_text() == TEXT


@pytest.mark.parametrize("content", [b"", b"#!/bin/bash\necho mine\n", b"\xff\0"])
def test_other_files_are_kept(tmp_path: Path, content: bytes) -> None:
    script = tmp_path / "generated.sh"
    script.write_bytes(content)
    assert "--force" in refusal(script)
    assert script.read_bytes() == content


def test_a_link_is_followed(tmp_path: Path) -> None:
    script, link = tmp_path / "real.sh", tmp_path / "link.sh"
    write_scripts({script: TEXT}, force=False)
    link.symlink_to("real.sh")
    write_scripts({link: OTHER}, force=False)
    assert link.is_symlink()
    assert script.read_text() == OTHER


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    dangling = tmp_path / "dangling.sh"
    dangling.symlink_to("nowhere")
    assert "link to nowhere" in refusal(dangling)
    circle = tmp_path / "circle.sh"
    circle.symlink_to("circle.sh")
    refusal(circle)
    assert "is a folder" in refusal(tmp_path)
    assert "no folder" in refusal(tmp_path / "missing" / "x.sh")
    (tmp_path / "file").touch()
    refusal(tmp_path / "file" / "x.sh")
    assert "not a regular file" in refusal(Path("/dev/null"))
    refusal(tmp_path / ("x" * 300))
    assert Path("/dev/null").is_char_device()


def test_an_unwritable_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    with as_nobody():
        assert "ermission denied" in refusal(folder / "x.sh")
        refusal(Path("/proc/1/x.sh"))


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "generated.sh"
    write_scripts({script: TEXT}, force=False)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    assert "No space left" in refusal(script)
    assert script.read_text() == TEXT
    assert list(tmp_path.iterdir()) == [script]
