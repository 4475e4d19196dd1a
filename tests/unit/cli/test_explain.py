"""`slurmray explain`."""

import io
from types import SimpleNamespace

import pytest

from slurmray.agent import job_errors
from slurmray.diagnosis.exit_codes import EXIT_CODES
from slurmray.errors import ExitCode

from .command_line import main


def unwrapped(text: str) -> list[str]:
    return text.replace("\n  ", " ").splitlines()


@pytest.mark.parametrize("code", ExitCode)
def test_slurmrays_codes_are_explained(code: ExitCode, capsys: pytest.CaptureFixture[str]) -> None:
    done, out, _ = main(["explain", str(code.value)], capsys)
    assert done == 0
    title, cause, fix, whose = unwrapped(out)
    known = EXIT_CODES[code]
    assert title == f"{code.value} {code.name.lower()}: {known.meaning}"
    assert (cause, fix) == (f"cause: {known.cause}", f"fix: {known.fix}")
    assert "the job's log shows whose code it is" in whose
    assert job_errors.EXIT_CODES.get(code.name.lower(), code) == code, "the agent's number"
    for other in (f"{code.value}:0", code.name.lower(), code.name):
        assert main(["explain", other], capsys) == (0, out, "")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("0", "0: the trainer succeeded"),
        ("0:0", "0: the trainer succeeded"),
        ("7", "7: an exit code of the trainer"),
        ("75", "75: an exit code of the trainer"),
        ("126", "126: the trainer's command was found, but could not be run"),
        ("127:0", "127: the trainer's command was not found"),
        ("128", "128: an exit code of the trainer"),
        ("135", "135: means SIGBUS (128 + 7)\ncause: Often /dev/shm is full."),
        ("137", "137: means SIGKILL (128 + 9)\ncause: Often the kernel, because memory ran out."),
        ("139", "139: means SIGSEGV (128 + 11)\ncause: A crash in compiled code"),
        ("143:0", "143: means SIGTERM (128 + 15)\ncause: scancel,"),
        ("160", "160: means signal 32 (128 + 32)"),
        ("255", "255: an exit code of the trainer"),
        ("0:2", "0:2: SIGINT ended the batch script"),
        ("0:9", "0:9: SIGKILL ended the batch script"),
        ("0:15", "0:15: SIGTERM ended the batch script"),
        ("0:53", "0:53: Slurm could not start the batch script"),
        ("0:125", "0:125: the job used more memory than it has"),
    ],
)
def test_other_codes_are_explained(code: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    done, out, err = main(["explain", code], capsys)
    assert (done, err) == (0, "")
    assert "\n".join(unwrapped(out)).startswith(expected)


def test_the_table_of_codes(capsys: pytest.CaptureFixture[str]) -> None:
    done, out, _ = main(["explain"], capsys)
    assert done == 0
    rows = [line.split(maxsplit=2) for line in out.partition("\n\n")[0].splitlines()]
    assert rows == [[str(code.value), code.name.lower(), EXIT_CODES[code].meaning] for code in ExitCode]


@pytest.mark.parametrize("state", ["TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "timeout"])
def test_states_are_explained(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    done, out, err = main(["explain", state], capsys)
    assert (done, err) == (0, "")
    title, cause, fix = unwrapped(out)
    assert title.startswith(f"{state.upper()}: ")
    assert (cause[:7], fix[:5]) == ("cause: ", "fix: ")


LINE = "OSError: [Errno 28] No space left on device: '/ckpt'"


@pytest.mark.parametrize("args", [[LINE], LINE.split(" "), [f"(A pid=1) \x1b[31m{LINE}"], ["disk-full"]])
def test_a_line_is_explained(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    done, out, err = main(["explain", *args], capsys)
    assert (done, err) == (0, "")
    title, cause, fix = unwrapped(out)
    assert title.startswith("disk-full: ")
    assert "No space left on device" in title
    assert (cause[:7], fix[:5]) == ("cause: ", "fix: ")
    assert "\x1b" not in out


@pytest.mark.parametrize("line", ["CUDA out of memory", "torch.cuda.OutOfMemoryError: CUDA out of memory."])
def test_the_beginning_of_a_line_is_explained(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", line], capsys)[1].startswith("cuda-out-of-memory: ")


def test_an_error_of_sbatch_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    line = "sbatch: error: Batch job submission failed: Invalid qos specification"
    done, out, err = main(["explain", line], capsys)
    assert (done, err) == (0, "")
    title, fix = unwrapped(out)
    assert title == line
    assert fix.startswith("fix: `sacctmgr show associations")


def test_standard_input_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first failure in front."""
    died = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
    text = f"step 1\n{died}\n{LINE}\n".encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    done, out, _ = main(["explain", "-"], capsys)
    assert done == 0
    assert out.startswith(f"disk-full: {LINE}\n")
    assert "\nray-actor-died: " in out


@pytest.mark.parametrize(
    ("text", "hint"), [("all is well", "messages.md lists them"), ("node_lots", "did you mean node_lost?")]
)
def test_an_unknown_text_is_an_error(text: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    done, out, err = main(["explain", text], capsys)
    assert (done, out) == (2, "")
    assert hint in err
    assert len(err.splitlines()) == 1
