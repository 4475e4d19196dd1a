"""Files that somebody else has written: damaged, endless, no files, or with sequences for a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurmray import files, history
from slurmray.api import render
from slurmray.cli.terminal import LogPrinter, printable
from slurmray.slurm.host import HERE, Host, SshHost
from slurmray.slurm.states import parse_events
from slurmray.spec.job_spec import JobSpec
from tests.attacks import tried

from .. import ssh
from ..programs import OWN, install
from ..test_events import event_line
from .command_line import echo_record, main, run

COMMANDS = ["status", "status --json", "why", "list --all", "report -o -", "clean --dry-run"]
ESCAPE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r\0"


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The events.jsonl of job 7, which has ended; the current folder is that of the job."""
    lines = ("JobState=FAILED", "Requeue=1 Restarts=1 ExitCode=1:0", f"WorkDir={tmp_path}")
    scontrol = f'[ "$1 $2" = "show job" ] || exit 1\n{echo_record(*lines, f"StdOut={tmp_path}/log")}'
    squeue = f'case "$*" in *--jobs*) {OWN};; *) echo 7 FAILED;; esac'
    programs = install(tmp_path / "bin", scontrol=scontrol, squeue=squeue)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    events = tmp_path / "slurmray-runs/7-1/events.jsonl"
    (events.parent / "logs").mkdir(parents=True)
    history.remember(history.Run(7, "a", None, str(tmp_path), "slurmray-runs", 1.0, 1, 0))
    return events


START: dict[str, Any] = {"nodes": ["gpu-1", "gpu-2"], "ray_nodes": 2, "head": "gpu-1", "attempt": 1}


def changed(name: str, **fields: Any) -> str:
    """A line of an event with other values than the schema allows."""
    return json.dumps({**json.loads(event_line(name)), **fields})


DAMAGE = {
    "empty": "",
    "nul": "\0" * 1000,
    "no JSON": "{'a': 1}",
    "cut off": changed("start", **START)[:40],
    "a number": "5",
    "a list": "[[]]",
    "nested lists": "[" * 100_000,
    "nested objects": '{"event":' * 100_000,
    "nested in an event": '{"event":"start","time":1,"nodes":' + "[" * 100_000 + "]" * 100_000 + "}",
    "huge number": '{"event": "end", "time": ' + "9" * 5000 + "}",
    "infinite time": changed("phase").replace('"time": ', '"time": 1e999, "x": '),
    "NaN": changed("phase", time=float("nan")),
    "time as text": changed("phase", time="now"),
    "time as boolean": changed("phase", time=True),
    "negative time": changed("phase", time=-1e300),
    "far future": changed("phase", time=1e15),
    "no fields": '{"event": "start", "time": 1}',
    "event as a list": changed("phase", event=["phase"]),
    "nodes as text": changed("start", **{**START, "nodes": "gpu-1"}),
    "nodes as numbers": changed("start", **{**START, "nodes": [1, 2]}),
    "nodes as null": changed("start", **{**START, "nodes": None}),
    "no nodes": changed("start", **{**START, "nodes": []}),
    "names as paths": changed("start", **{**START, "nodes": ["../../../etc/passwd", "/etc/passwd"]}),
    "nodes twice": changed("start", **{**START, "nodes": ["gpu-1"] * 3}),
    "more in Ray than nodes": changed("start", **{**START, "ray_nodes": 2**31 - 1}),
    "fewer in Ray than none": changed("start", **{**START, "ray_nodes": -5}),
    "attempt in billions": changed("start", **{**START, "attempt": 2**31 - 1}),
    "attempt as text": changed("start", **{**START, "attempt": "one"}),
    "start twice": changed("start", **START) + "\n" + changed("start", **{**START, "nodes": ["other"]}),
    "exit code as text": changed("end", exit_code="x"),
    "exit code in billions": changed("end", exit_code=10**9),
    "end without a text": changed("end", text=None),
    "end before the start": changed("end", time=1) + "\n" + changed("start", **START),
    "phase as an object": changed("phase", phase={"a": 1}),
    "finding as numbers": changed("finding", node="gpu-1", check=1, found=2, wanted=3, fix=4),
    "half a character": changed("phase", text="\ud800"),
    "megabytes in a text": changed("phase", text="x" * 3_000_000),
    "unknown step": changed("start", **START) + "\n" + changed("nodes", step="x" * 100, nodes=["gpu-9"]),
    "loss of an unknown node": changed("start", **START) + "\n" + changed("node_loss", node="gpu-9"),
    "GPUs below zero": changed("start", **START)
    + "\n"
    + changed("nodes", step="ray", nodes=["gpu-1"], gpus=-3),
    "no UTF-8": "\udcff\udcfe" * 100,
    "other ends of lines": changed("start", **START) + "\u2028\x85\x0c" + changed("end"),
}


@pytest.mark.attack("a damaged events.jsonl", inputs=1)
@pytest.mark.parametrize("kind", DAMAGE)
def test_no_damage_ends_a_command_with_a_traceback(
    kind: str, events: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good = event_line("phase", phase="ray", text="all is well")
    events.write_bytes(f"{DAMAGE[kind]}\n{good}".encode(errors="surrogateescape").replace(b"\0\0", b"\0"))
    for command in COMMANDS:
        code, out, err = main(command.split(), capfd)
        assert code == 0, (command, err)
        assert err == "" or command.startswith("clean"), (command, err)
        assert not [char for char in out if not char.isprintable() and char not in "\n\t"]
    assert "all is well" in main(["status"], capfd)[1]


def test_events_of_later_versions_stay() -> None:
    start = {**json.loads(event_line("start")), "new": 1}
    text = "\n".join(map(json.dumps, (start, {"event": "new", "time": 2, "x": [1]})))
    assert [event["event"] for event in parse_events(text)] == ["start", "new"]
    assert parse_events(json.dumps({"event": "new", "time": 2, "x": "x" * (4 << 20)})) == []


def link(target: str) -> Any:
    return lambda path: path.symlink_to(target)


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(files.MAX_LOG + 1)


KINDS: dict[str, tuple[Any, str]] = {
    "fifo": (os.mkfifo, "is no regular file"),
    "zero": (link("/dev/zero"), "is a symbolic link"),
    "link": (link("/etc/passwd"), "is a symbolic link"),
    "folder": (Path.mkdir, "Is a directory"),
    "large": (large, "is larger than"),
}


SHOWN = {("large", "logs -f"): 1 << 20}  # the end of a log that is too large to be read as a whole


@pytest.mark.attack("a FIFO, a device, a link or an endless file in place of a file of the job")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_one_line(kind: str, events: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make, why = KINDS[kind]
    make(events)
    for command in COMMANDS:
        code, _, err = main(command.split(), capfd)
        if command.startswith(("list", "clean")):
            assert code == 0
        else:
            assert (code, err.count("\n")) == (2, 1), err
            assert err.startswith(f"{events}: cannot be read: {why}")
    make(events.parents[2] / "log")
    for command in ("logs", "logs -f"):
        code, out, err = main(command.split(), capfd)
        assert (len(out), "Traceback" in err) == (SHOWN.get((kind, command), 0), False)
    assert f"log: cannot be read: {why}" in main(["logs"], capfd)[2]


@pytest.mark.attack("a FIFO or an endless file in place of a file of the user", inputs=1)
@pytest.mark.parametrize("make", [os.mkfifo, link("/dev/zero")], ids=["fifo", "zero"])
@pytest.mark.parametrize("place", ["config", "template", "history", "job spec", "preset", "output"])
def test_the_user_s_own_files_are_read_to_a_limit(make: Any, place: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    make(file)
    (tmp_path / "state/slurmray").mkdir(parents=True)
    (tmp_path / "state/slurmray/runs.jsonl").symlink_to(file if place == "history" else tmp_path / "none")
    env: Any = {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "SLURMRAY_CONFIG": str(file) if place == "config" else "",
    }
    argv = {
        "config": ["config"],
        "template": ["render", "--nodes=1", f"--set=template={file}", "-o", "-"],
        "history": ["list"],
        "preset": ["render", "--set=preset.name=roll", f"--set=preset.config={file}", "-o", "-", "--", "x"],
        "output": ["render", "--nodes=1", "-o", str(file)],
        "job spec": ["check", str(file if "zero" in file.resolve().name else tmp_path)],
    }[place]
    done = run(*argv, **env)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.attack("a FIFO or an endless file in place of a file of the user", inputs=1)
@pytest.mark.parametrize("argv", [["verify"], ["rehearse"], ["render", "-o"]], ids=" ".join)
def test_a_script_that_is_larger_than_the_memory(
    argv: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "a.sh"
    script.write_text("#!")
    os.truncate(script, 1 << 43)  # without blocks
    code, out, err = main([*argv, str(script)], capfd)
    assert (code, out, err.count("\n"), "larger than" in err) == (2, "", 1, True), err


@pytest.mark.attack("sequences for a terminal in texts of a job", inputs=5)
def test_nothing_acts_on_the_terminal(events: Path, capfd: pytest.CaptureFixture[str]) -> None:
    row = dict.fromkeys(("check", "found", "wanted", "fix"), ESCAPE)
    lines = [
        event_line("start", **{**START, "run_dir": f"/r{ESCAPE}"}),
        event_line("phase", phase=f"p{ESCAPE}", text=ESCAPE),
        event_line("finding", node="gpu-1", kind="preflight", **row),
        event_line("end", exit_code=71, source="slurmray", kind="", node=ESCAPE, text=f"end{ESCAPE}"),
    ]
    events.write_text("".join(lines))
    (events.parents[2] / "log").write_text(f"OSError: [Errno 28] No space left on device: '/{ESCAPE}'\n")
    history.remember(history.Run(7, ESCAPE, None, str(events.parents[2]), "slurmray-runs", 1.0, 1, 0))
    for command in COMMANDS:
        code, out, err = main(command.split(), capfd)
        assert code == 0, err
        assert not [char for char in out + err if not char.isprintable() and char not in "\n\t"], command
    assert r"end\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r\x00" in main(["status"], capfd)[1]
    assert "\x1b]0;title" in main(["logs"], capfd)[1], "in a pipe as it is"


@pytest.mark.attack("sequences for a terminal in texts of a job", inputs=5)
def test_names_do_not_act_on_the_terminal(
    events: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a job, its log, and files in its folders."""
    bell = "a\x07\u202e"
    events.write_text(event_line("phase"))
    (events.parent / f"logs/{bell}.log").touch()
    for state in ("FAILED", f"PENDING Reason={bell}"):
        fields = [f"JobId=7 JobName={bell}", f"JobState={state}", "Requeue=1 Restarts=1 ExitCode=1:0"]
        record = "\n   ".join([*fields, f"WorkDir={tmp_path}", f"StdOut=/{bell}", ""])
        (tmp_path / "record").write_text(record)
        install(tmp_path / "bin", scontrol=f"exec cat {tmp_path}/record")
        for command in (["status"], ["why"], ["logs", "--node=gpu-1"]):
            _, out, err = main(command, capfd)
            assert r"a\x07\u202e" in out + err, command
            assert not [char for char in out + err if not char.isprintable() and char != "\n"], command
    old = tmp_path / bell / "runs/8-0/events.jsonl"
    (old.parent / "checkpoint").mkdir(parents=True)
    old.write_text(changed("phase", time=1))
    history.remember(history.Run(8, bell, None, f"{tmp_path}/{bell}", "runs", 1.0, 1, 0))
    table = main(["list", "--all"], capfd)[1]
    assert (r"a\x07\u202e" in table, "\x07" in table) == (True, False)
    for command in (["clean", "--dry-run"], ["clean", "--yes"]):
        _, out, err = main(command, capfd)
        assert r"a\x07\u202e/runs/8-0" in out
        assert not [char for char in out + err if not char.isprintable() and char != "\n"], command
    assert "these stay" in err


VERBS = [*COMMANDS, "logs", "logs --node=gpu-1", "attach -- id", "dashboard"]


@pytest.mark.attack("texts of the user in Slurm's records", inputs=4)
@pytest.mark.parametrize(
    "name",
    [
        "x ArrayTaskId=3 ArrayJobId=99",
        "x ArrayTaskId=0",
        "x JobState=PENDING Restarts=x StartTime=x ExitCode= WorkDir=/",
        "x HetJobOffset=1 JobName=y JobId=99",
    ],
)
def test_a_name_that_looks_like_fields(
    name: str, events: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every command is about the job that it was given."""
    scontrol = tmp_path / "bin/scontrol"
    scontrol.write_text(
        scontrol.read_text().replace("JobName=a", f"JobName={name}").replace("FAILED", "RUNNING")
    )
    install(tmp_path / "bin", scancel=f'echo "$*" >>{tmp_path}/cancelled')
    events.write_text(event_line("start", **START) + event_line("end", exit_code=1))
    (tmp_path / "log").touch()
    for verb in VERBS:
        code, _, err = main(verb.split(), capfd)
        assert code != 79, (verb, err)
    assert main(["cancel", "7"], capfd)[2].startswith("cancelled job 7")
    assert (tmp_path / "cancelled").read_text() == "7\n"
    assert main(["status"], capfd)[1].startswith(f"job 7 {name}: RUNNING")


@pytest.mark.attack("texts of the user in Slurm's records", inputs=8)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("Restarts=1", "Restarts=x"), ("ExitCode=1:0", "ExitCode="), ("ExitCode=1:0", "ExitCode=x:y")),
        (
            "JobState=FAILED",
            "JobState=RUNNING\n   StartTime=99999999999999999999 EndTime=nan\n   SubmitTime=x",
        ),
        (
            "JobState=FAILED",
            "JobState=PENDING\n   StartTime=99999999999999999999\n   SubmitTime=9999999999999",
        ),
        ("JobState=FAILED", "JobState=PENDING\n   StartTime=9999-12-31T23:59:59 EndTime=0\n   SubmitTime=-1"),
        ("JobName=a", "JobName=a\n   JobState=COMPLETED"),
        ("JobId=7 ", "JobId=7 ArrayJobId=7 ArrayTaskId=99999999999 "),
    ],
)
def test_a_record_with_values_of_a_wrong_type(
    field: str, value: str, events: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What cannot be read is not known; it is no traceback."""
    scontrol = tmp_path / "bin/scontrol"
    assert field in scontrol.read_text()
    scontrol.write_text(scontrol.read_text().replace(field, value))
    events.write_text(event_line("start", **START) + event_line("end", exit_code=1))
    (tmp_path / "log").touch()
    for verb in (*VERBS, "cancel 7"):
        code, _, err = main(verb.split(), capfd)
        assert code != 79, (verb, err)


@pytest.mark.attack("a damaged list of jobs", inputs=7)
@pytest.mark.parametrize("field", ["name", "folder", "run_dir", "cluster", "host", "sweep", "value"])
def test_half_a_character_in_the_list_of_jobs(
    field: str, events: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No path and no argument can have it, and a terminal cannot show it."""
    run = history.Run(7, "a", None, str(tmp_path), "slurmray-runs", 1.0, 1, 0)._asdict()
    half = {"sweep": {"lr\ud800": ["1"]}, "value": {"lr": ["1\udfff"]}}.get(field, f"{tmp_path}/x\ud800")
    run["sweep" if field == "value" else field] = half
    history.path().write_text(json.dumps(run) + "\n")
    (tmp_path / "bin/ssh").symlink_to("/bin/false")
    events.write_text(event_line("start", **START))
    (tmp_path / "log").touch()
    for verb in (*VERBS, "list", "list --all --json"):
        code, _, err = main(verb.split(), capfd)
        assert code != 79, (verb, err)
    (line,) = history.runs()
    assert history.path().read_text().isascii()
    if field in ("name", "folder", "run_dir"):
        assert json.loads(main(["list", "--all", "--json"], capfd)[1])[0][field] == line._asdict()[field]
        assert line._asdict()[field] == f"{tmp_path}/x\\ud800"


def test_a_folder_that_is_not_utf_8_stays() -> None:
    folder = os.fsdecode(b"/home/\xe9")
    history.remember(history.Run(7, "a", None, folder, "runs", 1.0, 1, 0))
    assert history.runs()[0].folder == folder


def test_logs_on_a_terminal_do_not_act_on_it(
    events: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for file in (events.parents[2] / "log", events.parent / "logs/gpu-1.log"):
        file.write_text("\x1b]0;title\x07\n")
    for command in (["logs"], ["logs", "-f"], ["logs", "--node=gpu-1"]):
        assert main(command, capfd)[1] == r"\x1b]0;title\x07" + "\n"


@pytest.mark.attack("sequences for a terminal in texts of a job", inputs=1)
def test_the_name_in_an_earlier_script_does_not_act_on_the_terminal(
    current_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for job in (current_folder / "a\x07\r.yaml", current_folder / "b.yaml"):
        job.touch()
        code, _, err = main(["render", job.name], capfd)
    assert (code, r"generated.sh was the script of a\x07\r.yaml before" in err) == (0, True), err


@pytest.mark.attack("sequences for a terminal in texts of a job", inputs=2)
def test_verify_prints_one_line_for_a_file_of_any_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Somebody else's file could hide or fake the verdict on another one."""
    script = tmp_path / "a\x1b[2K\r\ntrue.sh: as rendered\x07"
    script.write_text(render(JobSpec(run=["true"])))
    name = rf"{tmp_path}/a\x1b[2K\r\ntrue.sh: as rendered\x07"
    assert main(["verify", str(script)], capfd)[1].startswith(f"{name}: as rendered: ")
    script.write_text("true\n")
    assert main(["verify", str(script)], capfd)[2] == f"{name}: not rendered by slurmray\n"


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_a_log_on_a_terminal_keeps_colours_and_progress_bars(
    size: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    text = "\x1b[1;31mred\x1b[0m 10%\r20%\x1b[K é 漢\n" + "\x1b]52;c;eA==\x07\x1b[2J\x1b[6n\x9b1m\x1bP\x08"
    text += f"\x1b[{'1;' * 40}m"
    data = text.encode() + b"\xff\x1b"
    printer = LogPrinter()
    for start in range(0, len(data), size):
        printer.write(data[start : start + size])
    kept, _, rest = text.partition("\n")
    shown = f"{kept}\n{printable(rest)}" + r"\xff"
    assert capfd.readouterr().out == shown


@pytest.mark.parametrize("read", [files.read, files.read_given, files.read_own])
def test_a_reader_takes_no_more_than_its_limit(read: Any, tmp_path: Path) -> None:
    file = tmp_path / "more than the memory"
    with file.open("wb") as opened:
        opened.truncate(1 << 43)  # without blocks
    with pytest.raises(OSError, match="is larger than 16 MiB"):
        read(file, limit=files.MAX_INPUT)
    file.write_bytes(b"12345")
    assert read(file, limit=5) == b"12345"
    with pytest.raises(OSError, match="is larger than 0 MiB"):
        read(file, limit=4)
    assert files.read_own(file, last=6) == b"12345"


def test_a_path_with_a_nul_is_no_file() -> None:
    with pytest.raises(OSError, match=r"null (byte|character)"):
        files.read(Path("a\0b"))


def test_a_terminal_does_not_become_that_of_the_process() -> None:
    """Its Ctrl-C would end it. A session without a terminal takes the first one that it opens."""
    master, slave = os.openpty()
    program = (
        "import sys; from pathlib import Path; from slurmray import files\n"
        "try: files.read(Path(sys.argv[1]))\n"
        "except OSError as error: print(error.strerror)\n"
        "try: open('/dev/tty')\n"
        "except OSError: print('has no terminal')"
    )
    argv = [sys.executable, "-c", program, os.ttyname(slave)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, start_new_session=True)
    for descriptor in (master, slave):
        os.close(descriptor)
    assert done.stdout.splitlines() == [files.NOT_REGULAR, "has no terminal"]


@pytest.fixture(params=["here", "ssh"])
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    if request.param == "here":
        return HERE
    ssh.install(tmp_path, monkeypatch)
    return SshHost("login")


@pytest.mark.attack("a FIFO, a device, a link or another user's file in place of a file of the job")
def test_a_host_reads_only_regular_files_of_the_user(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    own = folder / "own"
    own.write_bytes(b"text\n" * 100)
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to(own)
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "dangling").symlink_to("none")
    (folder / "foreign").write_text("x")
    os.chown(folder / "foreign", 65534, -1)
    (folder / "folder").mkdir()
    with (folder / "large").open("wb") as file:
        file.truncate(files.MAX_INPUT + 1)
    wrong = ("fifo", "link", "zero", "dangling", "foreign", "folder", "large")
    for name in tried(wrong):
        with pytest.raises(OSError, match=r"is |Is "):
            host.read(folder / name, limit=files.MAX_INPUT)
    paths = [folder / name for name in ("none", *wrong, "own")]
    assert host.read_all([*paths, own]) == {own: own.read_bytes()}
    assert host.read(own, last=5) == b"text\n"
    with pytest.raises(OSError, match="is larger than 0 MiB"):
        host.read(own, limit=499)
    assert host.read(own, start=1, limit=499) == own.read_bytes()[1:]
    (folder / "two\nlines").touch()
    assert sorted(host.names(folder)) == sorted(path.name for path in folder.iterdir())


LARGE_SWEEP = {name: [str(number) for number in range(100)] for name in "abc"}


@pytest.mark.attack("values of other types in the user's list of jobs")
def test_damaged_lines_of_the_history() -> None:
    good = history.Run(7, "a", None, "/", "runs", 1.0, 1, 0)
    history.remember(good)
    wrong: list[dict[str, Any]] = [
        *({"id": "7"}, {"host": "-oProxyCommand=id"}, {"folder": 5}, {"nodes": -1}, {"submitted": "x"}),
        *({"gpus": 1 << 32}, {"submitted": -1}, {"submitted": 1e300}, {"run_dir": "a\0"}),
    ]
    sweeps: list[Any] = ["lr", ["lr"], {"lr": "1"}, {"lr": [1]}, {"lr": []}, LARGE_SWEEP]
    wrong += [{"sweep": each} for each in sweeps]
    lines = [json.dumps(good._asdict() | fields) for fields in wrong] + ["[" * 100_000]
    with history.path().open("a") as file:
        file.write("\n".join(tried(lines)) + "\n")
    assert history.runs() == [good]


@pytest.mark.attack("values of other types in the user's list of jobs")
def test_damaged_lines_about_a_cancelled_job() -> None:
    history.remember_cancel(7, None, None, None, 5.0)
    times = [json.dumps(time) for time in ("x", None, [1], -1, 1e300, float("inf"), float("nan"))]
    lines = [f'{{"cancelled": 7, "cluster": null, "host": null, "time": {time}}}' for time in times]
    with history.path().open("a") as file:
        file.write("\n".join(tried([*lines, "[" * 100_000, "5", "[]", "{}", '{"id":'])) + "\n")
    assert history.cancelled_at(7, None, None, None) == 5.0


@pytest.mark.attack("a damaged events.jsonl", inputs=3)
def test_folders_that_no_attempt_has_and_too_many_events(
    events: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    events.write_text(event_line("phase", phase="ray", text="all is well"))
    for name in ("(-0", "7-9999999"):
        (events.parents[1] / name).mkdir()
    assert main(["list", "--all"], capfd)[0] == 0
    assert "all is well" in main(["status"], capfd)[1]
    os.truncate(events, files.MAX_INPUT + 1)
    assert main(["status"], capfd)[0] == 2
