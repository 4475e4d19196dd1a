"""`slurmray mcp`, called by the client of MCP's own SDK over standard input and output."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from mcp import Client
from mcp.types import CallToolResult

from slurmray import history
from slurmray.cli import mcp_results
from slurmray.cli.mcp_results import last_lines
from tests.mcp_client import RawClient, fields, with_client

from ..test_events import event_line
from .command_line import ROOT, echo_record, main, run
from .test_hostile_files import ESCAPE

READ_ONLY = {"check", "status", "logs", "why"}
JOB = "name: small\nslurm: {nodes: 2, gpus_per_node: 8}\nrun: [python3, train.py]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The server's working directory, with stand-ins of Slurm's commands: job 41 has failed, 42 is bob's."""
    (tmp_path / "bin").mkdir()
    record = echo_record(
        "JobState=FAILED", "Requeue=1 ExitCode=1:0", f"WorkDir={tmp_path}", f"StdOut={tmp_path}/log"
    )
    hello = 'printf "\\033[2Jhello" >&2'
    texts = {
        "sbatch": f'printf "%s " "$PWD" "$@" >>{tmp_path}/submitted; cat >/dev/null; echo 43; {hello}',
        "scontrol": f'[ "$1 $2" = "show job" ] || exit 1\n{record}',
        "squeue": 'case "$*" in *=42*) echo "12345 bob";; *) echo "$(id -u) me";; esac',
        "scancel": f"touch {tmp_path}/cancelled",
    }
    for name, text in texts.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failure(result: CallToolResult) -> str:
    """The message of a call that has failed."""
    assert result.is_error, result
    assert result.structured_content is not None, result.content
    assert result.structured_content["exit_code"] in (2, 64)
    return str(result.structured_content["message"])


@pytest.mark.usefixtures("folder")
def test_tools_have_schemas_and_hints() -> None:
    async def body(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        names = {"check", "render", "rehearse", "submit", "status", "logs", "why", "report", "cancel"}
        assert set(tools) == names
        for tool in tools.values():
            assert tool.description
            assert tool.output_schema is not None
            assert tool.output_schema["properties"]
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint == (tool.name in READ_ONLY)
        destructive = {
            name for name, tool in tools.items() if tool.annotations and tool.annotations.destructive_hint
        }
        assert destructive == {"submit", "cancel", "rehearse"}
        assert tools["cancel"].input_schema["required"] == ["id"]

    with_client(body)


def test_check_and_render(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "job.yaml").write_text(JOB)

    async def body(client: Client) -> None:
        for spec in ({"path": "job.yaml"}, {"text": "include: job.yaml\nslurm: {nodes: 4}\n"}):
            checked = fields(await client.call_tool("check", {**spec, "folder": "other"}))
            assert (checked["is_valid"], checked["name"], checked["mistakes"]) == (True, "small", [])
            assert checked["summary"].startswith("2 nodes" if "path" in spec else "4 nodes")
        wrong = "nam: x\nservices:\n  - {name: a, run: b, ready: {timeout: soon}}\n"
        checked = fields(await client.call_tool("check", {"text": wrong}))
        assert not checked["is_valid"]
        places = [(each["file"], each["line"], each["path"]) for each in checked["mistakes"]]
        assert ("stdin", 1, ["nam"]) in places
        assert ("stdin", 3, ["services", 0, "ready", "timeout"]) in places
        assert "did you mean name?" in checked["mistakes"][0]["message"]
        written = fields(await client.call_tool("render", {"path": "job.yaml", "folder": str(other)}))
        assert written["path"] == str(other / "generated.sh")
        # Edited, it is not overwritten.
        script = (other / "generated.sh").read_text()
        (other / "generated.sh").write_text(f"{script}# edited\n")
        result = await client.call_tool("render", {"path": "job.yaml", "folder": "other"})
        assert "edited" in failure(result)
        (other / "generated.sh").write_text(script)

    with_client(body)
    script = (other / "generated.sh").read_text()
    os.chdir(other)
    assert main(["render", "job.yaml", "-o", "-"], capsys)[1] == script


@pytest.mark.usefixtures("folder")
def test_a_call_that_fails() -> None:
    Path("job.yaml").write_text(JOB)

    async def body(client: Client) -> None:
        for name, arguments, text in (
            ("check", {}, "either as text, or as path"),
            ("check", {"text": JOB, "path": "job.yaml"}, "either as text, or as path"),
            ("check", {"path": "-"}, "either as text, or as path"),
            ("check", {"path": "job.yaml", "folder": "none"}, "folder none: No such file or directory"),
            ("check", {"text": "env: {NOT_SET: null}"}, "env.NOT_SET is not set in your environment"),
            ("render", {"text": JOB, "output": "-"}, "output: name a file"),
            ("render", {"text": "nam: x"}, "stdin:1:1: nam: unknown field"),
            ("rehearse", {"path": "none.yaml"}, "none.yaml: no such file"),
            ("submit", {"text": "slurm: {array: 1-2}"}, "slurm.array makes several jobs"),
            ("submit", {"text": "slurm: {wait: true}"}, "slurm.wait: "),
            ("submit", {"text": "env: {NOT_SET: null}"}, "env.NOT_SET is not set in your environment"),
            ("status", {}, "no job was submitted"),
            ("cancel", {"id": 42}, "job 42 is bob's, not yours"),
            ("logs", {"id": 42}, "job 42 is bob's, not yours"),
        ):
            assert text in failure(await client.call_tool(name, arguments)), (name, arguments)
        assert not Path("submitted").exists()
        assert not Path("cancelled").exists()
        assert (await client.call_tool("cancel", {})).is_error, "there is no newest job for it"
        assert (await client.call_tool("check", {"path": "a\0"})).is_error

    with_client(body)


def test_a_job_s_texts_are_clean(folder: Path) -> None:
    """What a job has written gets out without terminal sequences."""
    (folder / "other").mkdir()
    start = event_line("start", job="41", nodes=["node1", "node2"], attempt=0)
    finding = {"kind": "warn", "check": "c", "found": ESCAPE, "wanted": "w" * 3000, "fix": "f"}
    end = event_line("end", exit_code=1, source="trainer", kind="", node="", text=f"done{ESCAPE}")
    events = folder / "slurmray-runs/41-0/events.jsonl"
    (events.parent / "logs").mkdir(parents=True)
    many = "".join(event_line("finding", node=f"node{n}", **finding) for n in range(60))
    events.write_text(start + many + end)
    (folder / "log").write_text(f"{ESCAPE}\nOSError: [Errno 28] No space left on device\n")
    (events.parent / "logs/node1.log").write_text("of node1\n")
    history.remember(history.Run(41, "a", None, str(folder), "slurmray-runs", time.time(), 2, 0))

    async def body(client: Client) -> None:
        seen = []
        for name, arguments in (("status", {}), ("why", {"id": 41}), ("logs", {"id": 41})):
            seen.append(fields(await client.call_tool(name, arguments)))
            assert seen[-1]["id"] == 41
        status, why, logs = seen
        texts = json.dumps(seen, ensure_ascii=False).replace("\\n", "")
        assert all(letter.isprintable() for letter in texts)
        assert "\\\\x1b]0;title" in texts
        assert (status["state"], status["nodes"]) == ("FAILED", "node[1-2]")
        assert status["end"]["source"] == "trainer"
        assert len(status["findings"]) == 50
        assert len(status["findings"][0]["wanted"]) == 2000
        assert [cause["role"] for cause in why["causes"]] == ["cause"]
        assert logs["text"].endswith("No space left on device")
        assert fields(await client.call_tool("logs", {"node": "node1"}))["text"] == "of node1"
        report = fields(await client.call_tool("report", {"folder": "other"}))
        assert report == {"id": 41, "path": str(folder / "other/slurmray-41.html")}
        assert fields(await client.call_tool("cancel", {"id": 41})) == {
            "id": 41,
            "is_cancelled": False,
            "state": "FAILED",
        }
        submitted = fields(await client.call_tool("submit", {"text": JOB, "folder": "other"}))
        assert (submitted["id"], submitted["name"], submitted["cluster"]) == (43, "small", None)
        assert submitted["remarks"][-1] == r"job 43: \x1b[2Jhello"

    with_client(body)
    assert (folder / "other/slurmray-41.html").stat().st_size > 1000
    assert not (folder / "cancelled").exists()
    assert (folder / "submitted").read_text() == f"{folder}/other --parsable "
    assert (history.runs()[0].id, history.runs()[0].folder) == (43, str(folder / "other"))


@pytest.mark.usefixtures("folder")
def test_a_rehearsal_that_cannot_run() -> None:
    """Its messages come as progress and in the result."""
    reported: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        reported.append(message or "")

    async def body(client: Client) -> None:
        spec = "container: {runtime: apptainer}\n"
        result = await client.call_tool("rehearse", {"text": spec}, progress_callback=on_progress)
        done = fields(result)
        assert (done["exit_code"], done["log"]) == (73, "")
        assert "have no apptainer" in done["messages"][-1]
        assert reported == done["messages"]

    with_client(body)


def test_stdout_has_only_the_protocol(folder: Path) -> None:
    (folder / "job.yaml").write_text("run: torchrun train.py\nslurm: {nodes: 2}\n")
    server = RawClient()
    server.call(1, "check", path="job.yaml")
    assert "torchrun" in server.answer(1)["structuredContent"]["remarks"][0]
    server.call(2, "why", id=42)
    assert server.answer(2)["isError"]
    assert server.close() == ""
    assert server.process.returncode == 0


@pytest.mark.parametrize("version", ["none", "1"])
def test_without_the_package(tmp_path: Path, version: str) -> None:
    for name in ("mcp", "anyio") if version == "none" else ("mcp",):  # nothing else brings anyio
        package = tmp_path / name
        package.mkdir()
        missing = f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')"
        (package / "__init__.py").write_text(missing if version == "none" else "")
    done = run("mcp", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (done.returncode, done.stdout) == (2, "")
    fix = "pip install 'mcp>=2.3' in slurmray's own environment"
    assert done.stderr == f"slurmray mcp needs the Python package mcp: {fix}\n"


def test_the_end_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    assert last_lines("a\nb\n", 2) == ("a\nb", True)
    assert last_lines("a\nb\nc\n", 2) == ("b\nc", False)
    assert last_lines("\x1b[31mred\x1b[0m \x1b[2J\x9b\u202e\0\n", 9) == (r"red \x1b[2J\x9b\u202e\x00", True)
    assert last_lines("10 %\r20 %\r\nend", 9) == ("20 %\nend", True), "a progress bar"
    assert last_lines(b"\xff\n", 9) == ("\ufffd", True)
    monkeypatch.setattr(mcp_results, "MAX_LOG", 8)
    assert last_lines("x" * 9 + "\u00e9" * 3 + "y\n", 9) == ("x\u00e9\u00e9\u00e9y", False)
    assert last_lines("\0\0\0", 9) == (r"\x00\x00", False), "escapes count"
