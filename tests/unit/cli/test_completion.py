"""Completion of commands, options and values in shells."""

from pathlib import Path
from typing import get_args

import pytest
from click.shell_completion import ShellComplete

from slurmray import cli, history
from slurmray.diagnosis.exit_codes import EXIT_CODES
from slurmray.errors import ExitCode
from slurmray.spec.container import Container

from ..test_events import event_line
from .command_line import imported_by, main, run


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("re", {"render", "rehearse", "report"}),
        ("render --no", {"--nodes"}),
        ("render --runtime p", {"podman", "pyxis"}),
        ("init ve", {"verl"}),
        ("explain node", {"node_lost"}),
    ],
)
def test_completion_imports_nothing_heavy(typed: str, expected: set[str]) -> None:
    heavy, out = imported_by(
        "from slurmray.cli import main; main([])",
        _SLURMRAY_COMPLETE="bash_complete",
        COMP_WORDS=f"slurmray {typed}",
        COMP_CWORD=str(len(typed.split())),
    )
    assert {line.split(",")[1] for line in out.split()} == expected
    assert not heavy


def completions(*args: str, incomplete: str = "") -> dict[str, str | None]:
    """{completion: its help} after these arguments."""
    complete = ShellComplete(cli.slurmray, {}, "slurmray", "_SLURMRAY_COMPLETE")
    return {item.value: item.help for item in complete.get_completions(list(args), incomplete)}


@pytest.mark.parametrize("subcommand", ["init", "render"])
def test_runtimes_are_completed(subcommand: str) -> None:
    known = get_args(Container.model_fields["runtime"].annotation)
    assert set(completions(subcommand, "--runtime")) == set(known)
    assert set(completions(subcommand, "--runtime", incomplete="po")) == {"podman"}


def test_choices_are_completed() -> None:
    assert set(completions("render", "--target")) == {"slurm", "dstack"}


def test_examples_are_completed(capsys: pytest.CaptureFixture[str]) -> None:
    listed = dict(line.split(maxsplit=1) for line in main(["init"], capsys)[1].splitlines())
    assert completions("init") == listed
    assert set(completions("init", incomplete="ro")) == {"roll"}


def test_exit_codes_are_completed() -> None:
    codes = completions("explain")
    assert set(codes) == {text for code in ExitCode for text in (str(code.value), code.name.lower())}
    assert completions("explain", incomplete="71") == {"71": EXIT_CODES[71].meaning}
    assert completions("explain", incomplete="pre") == {
        "preflight": EXIT_CODES[65].meaning,
        "prepare": EXIT_CODES[69].meaning,
    }


def test_nodes_of_the_job_are_completed(tmp_path: Path) -> None:
    history.remember(history.Run(12, "verl", None, str(tmp_path), "runs", 1.0, 1, 0))
    assert completions("attach", "--node") == {}, "the job has not started"
    (tmp_path / "runs/12-1").mkdir(parents=True)
    start = event_line("start", nodes=["gpu-1", "cpu-1"], spares=["gpu-2"])
    (tmp_path / "runs/12-1/events.jsonl").write_text(start)
    assert set(completions("attach", "verl", "--node")) == {"gpu-1", "gpu-2", "cpu-1"}
    assert set(completions("logs", "--node", incomplete="gpu")) == {"gpu-1", "gpu-2"}
    assert completions("attach", "other", "--node") == {}


def test_services_of_the_job_are_completed(tmp_path: Path) -> None:
    history.remember(history.Run(12, "verl", None, str(tmp_path), "runs", 1.0, 1, 0))
    assert completions("logs", "--service") == {}
    (tmp_path / "runs/12-0/logs").mkdir(parents=True)
    for name in ("service-judge@gpu-1", "service-judge@gpu-2", "service-web@gpu-1", "gpu-1"):
        (tmp_path / f"runs/12-0/logs/{name}.log").touch()
    assert set(completions("logs", "verl", "--service")) == {"judge", "web"}
    assert set(completions("logs", "--service", incomplete="j")) == {"judge"}
    assert completions("logs", "other", "--service") == {}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_completion_script(shell: str) -> None:
    done = run(_SLURMRAY_COMPLETE=f"{shell}_source")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_SLURMRAY_COMPLETE={shell}_complete" in done.stdout
