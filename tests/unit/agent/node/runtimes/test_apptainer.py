"""Apptainer: options, and the image file that it builds."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import job_errors
from slurmray.agent.node import runtimes
from slurmray.agent.node.runtimes import apptainer
from tests.unit.agent.users import BOB, needs_root

from ...fake_node import FakeNode
from ...test_fixes import AFTER, SQUASHFS

SOURCE = {"source": "docker://docker.io/rayproject/ray:1", "image": "ray-1-abc.sif"}


def make(
    folder: Path, program: str = "exit 0", name: str = "apptainer", **container: Any
) -> tuple[FakeNode, apptainer.Apptainer]:
    node = (
        FakeNode(folder, {"runtimes": [name], "image": "x.sif", **container})
        .make_folder()
        .program(container.get("command") or name, f'echo "$@" >>{folder}/calls\n{program}')
    )
    node.program("story", 'shift; exec "$@"')
    runtime = runtimes.make(name, node)
    assert isinstance(runtime, apptainer.Apptainer)
    return node, runtime


def test_the_container(tmp_path: Path) -> None:
    node, runtime = make(tmp_path, args=["--bind", "/a b"])
    runtime.prepare()
    runtime.ensure_images()
    image = f"{tmp_path}/submit/x.sif"
    mounts = [
        f'type=bind,"source={source}","target={target}"'
        for source, target in ((node.inside, node.folder), (f"{tmp_path}/submit", f"{tmp_path}/submit"))
    ]
    options = [
        *["--workdir", f"{node.folder}/work", "--env", f"SLURMRAY_TEMP={node.folder}"],
        *["--mount", mounts[0], "--mount", mounts[1], "--bind", "/a b"],
    ]
    assert runtime.options == options
    command = ["python3", "-I", f"{node.folder}/agent", "container", "node1"]
    argv = ["story", "run_with_apptainer", "apptainer", image, str(len(options)), *options]
    begin = ["env", f"APPTAINER_TMPDIR={node.folder}", *argv]
    assert runtime.argv() == [*begin, *command]
    assert node.calls()[-1].endswith(" /a b python3 --version")
    assert runtime.description == f"apptainer exec {image}"
    # For commands from outside.
    node.program("story", 'printf "%s\\n" "$@" "$APPTAINER_TMPDIR"')
    done = subprocess.run(
        [f"{node.folder}/enter", "ray", "a b"], env=node.env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [*begin[3:], "ray", "a b", node.folder]


def test_an_image_that_cannot_be_started(tmp_path: Path) -> None:
    message = "\x1b[91mERROR  : no such thing\n\x1b[0m"
    node, runtime = make(tmp_path, f"printf '{message}' >&2; exit 255")
    runtime.ensure_images()
    assert node.findings == [
        (
            "image",
            "apptainer exec",
            "ERROR  : no such thing",
            f"{tmp_path}/submit/x.sif",
            "run it on node1 by hand",
        )
    ]


def test_no_apptainer(tmp_path: Path) -> None:
    node, _ = make(tmp_path)
    node.env["PATH"] = "/no"
    with pytest.raises(job_errors.Unfit):
        runtimes.choose(node)
    assert node.findings[0][2:4] == ("apptainer: not found", "apptainer")


BUILD = '[ "$1" != build ] || touch "$3"'


@pytest.mark.parametrize(
    ("container", "source"),
    [({}, SOURCE["source"]), ({"archive": "x.tar"}, "docker-archive:{}/submit/x.tar")],
)
def test_an_image_is_built_once(tmp_path: Path, container: dict[str, str], source: str) -> None:
    for _ in range(2):
        node, runtime = make(tmp_path, BUILD, **SOURCE, **container)
        runtime.ensure_images()
        assert node.findings == []
        (tmp_path / "temp/ray-9-0-abcdef/inside").rmdir()
        (tmp_path / "temp/ray-9-0-abcdef").rmdir()
    file = f"{tmp_path}/.apptainer/cache/slurmray/ray-1-abc.sif"
    assert [call for call in node.calls() if call.startswith("build")] == [
        f"build --force {file}.node1 {source.format(tmp_path)}"
    ]
    assert [path.name for path in Path(file).parent.iterdir()] == ["ray-1-abc.sif"]
    assert runtime.image == file


def test_a_build_on_a_full_disk(tmp_path: Path) -> None:
    """The cause is not in the last line."""
    (tmp_path / "output").write_text(f"INFO:    Creating SIF file...\n{SQUASHFS}\n{AFTER}")
    node, runtime = make(tmp_path, f'[ "$1" != build ] || {{ cat {tmp_path}/output; exit 255; }}', **SOURCE)
    runtime.ensure_images()
    ((kind, check, found, _, fix),) = node.findings
    assert (kind, check, found) == ("image", "apptainer build", SQUASHFS)
    assert fix.endswith("or set TMPDIR in setup")


def test_a_cache_of_the_user_s_choice(tmp_path: Path) -> None:
    node, runtime = make(tmp_path, BUILD, **SOURCE)
    node.env["APPTAINER_CACHEDIR"] = f"{tmp_path}/cache"
    runtime.ensure_images()
    assert runtime.image == f"{tmp_path}/cache/slurmray/ray-1-abc.sif"
    node.env["APPTAINER_CACHEDIR"] = "/proc/no"
    runtime = apptainer.Apptainer(node)
    with pytest.raises(
        job_errors.JobError, match=r"cannot write to /proc/no/slurmray: .* APPTAINER_CACHEDIR"
    ):
        runtime.ensure_images()


@pytest.mark.attack("a job's folder that another user has made on the node", inputs=2)
@needs_root
def test_an_image_of_another_user_is_not_used(tmp_path: Path) -> None:
    """Neither one in a folder to which the other has access, nor one below a folder of the other."""
    folder = tmp_path / ".apptainer/cache/slurmray"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    (folder / "ray-1-abc.sif").touch()
    os.chown(folder / "ray-1-abc.sif", BOB, BOB)
    node, runtime = make(tmp_path, BUILD, **SOURCE)
    runtime.ensure_images()
    assert builds(node) == 1
    assert (folder.stat().st_mode & 0o777, Path(runtime.image).stat().st_uid) == (0o700, os.geteuid())
    os.chown(folder, BOB, BOB)
    sticky = tmp_path / "sticky"
    (sticky / "alice/cache/slurmray").mkdir(parents=True)
    sticky.chmod(0o1777)
    os.chown(sticky / "alice", BOB, BOB)
    for cache, of_bob in ((folder.parent, folder), (sticky / "alice/cache", sticky / "alice")):
        node.env["APPTAINER_CACHEDIR"] = str(cache)
        with pytest.raises(
            job_errors.JobError, match=f"{of_bob} belongs to 65530, .* Set APPTAINER_CACHEDIR"
        ):
            apptainer.Apptainer(node).ensure_images()


def test_a_build_that_fails(tmp_path: Path) -> None:
    node, runtime = make(tmp_path, 'touch "$3"; echo "FATAL: manifest unknown" >&2; exit 255', **SOURCE)
    runtime.ensure_images()
    ((kind, check, found, _, fix),) = node.findings
    assert (kind, check, found) == ("image", "apptainer build", "FATAL: manifest unknown")
    assert fix == "check container.image, and whether node1 has to log in to the registry"
    assert not (tmp_path / ".apptainer/cache/slurmray/ray-1-abc.sif").exists()


def test_an_image_that_must_not_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes do not wait for another one, which finds the same."""
    node, runtime = make(tmp_path, BUILD, **SOURCE, pull="never")
    monkeypatch.setattr(node, "wait", lambda _: pytest.fail("waits"))
    runtime.ensure_images()
    ((kind, _, found, _, fix),) = node.findings
    assert (kind, found) == ("image", f"is not in {tmp_path}/.apptainer/cache/slurmray")
    assert fix == f"apptainer build {runtime.image} {SOURCE['source']}"
    assert node.calls() == []


def builds(node: FakeNode) -> int:
    return len([call for call in node.calls() if call.startswith("build")])


def test_singularity(tmp_path: Path) -> None:
    """The same words, other names."""
    node, runtime = make(tmp_path, BUILD, "singularity", **SOURCE)
    runtime.ensure_images()
    assert runtime.image == f"{tmp_path}/.singularity/cache/slurmray/ray-1-abc.sif"
    assert (builds(node), runtime.description) == (1, f"singularity exec {runtime.image}")
    assert runtime.argv()[:5] == [
        *["env", f"SINGULARITY_TMPDIR={node.folder}"],
        *["story", "run_with_apptainer", "singularity"],
    ]


def test_a_program_of_another_name(tmp_path: Path) -> None:
    node, runtime = make(tmp_path, BUILD, **SOURCE, command="site-apptainer")
    assert runtime.works()
    runtime.ensure_images()
    assert builds(node) == 1
    assert runtime.argv()[4] == "site-apptainer"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("A", "0,1", "A=0,1"),
        ("A", "/tmp/a=b,c", '"A=/tmp/a=b,c"'),
        ("A", 'x=",y', '"A=x="",y"'),
    ],
)
def test_quoting_of_env_values(name: str, value: str, expected: str) -> None:
    """With more than one `=` a value is read as CSV: pflag's StringToString."""
    assert apptainer._env_value(name, value) == expected
