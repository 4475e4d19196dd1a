"""Notices: their texts, and a job that posts them to a server on the loopback."""

from __future__ import annotations

import html
import http.server
import json
import re
import signal
import socket
import ssl
import threading
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from slurmray.agent import background_io
from slurmray.agent.controller import notices
from slurmray.agent.controller.notices import Notices, Webhook, encode, explain, post
from slurmray.events import EVENTS
from tests.attacks import tried
from tests.unit.test_events import example

from ..simulation import RecordedLog
from .test_controller_process import Job

ALL = ["start", "stall", "loss", "end"]
SECRET = "T0-secret-B1"
SILENCE = 0  # in place of a status: no answer


class Receiver:
    """A webhook. answers: the status of each request in turn, then 200. received: (path, headers, JSON).

    log: what is in this file when a request comes is kept in `logs`.
    """

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.location = ""  # of redirects
        self.received: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.log: Path | None = None
        self.logs: list[str] = []
        self.is_over = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.logs += [receiver.log.read_text()] if receiver.log else []
                receiver.received.append((self.path, dict(self.headers), data))
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == SILENCE:
                    receiver.is_over.wait()
                    return
                self.send_response(status)
                if receiver.location:
                    self.send_header("Location", receiver.location)
                self.end_headers()

            def do_GET(self) -> None:
                receiver.received.append((self.path, {}, {}))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/{SECRET}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.is_over.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def notices(self) -> list[dict[str, Any]]:
        return [notice for _, _, notice in self.received]

    @property
    def moments(self) -> list[str]:
        return [notice["event"] for notice in self.notices]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def start_job(folder: Path, url: str, plays: str = "0", **more: Any) -> Job:
    """A job with a webhook."""
    variables = {"WEBHOOK": url, "SLURM_JOB_NAME": "verl", **more.pop("variables", {})}
    return Job(folder, plays, variables, **{"notify": {"url": "env:WEBHOOK"}, **more})


def unsent(job: Job) -> list[str]:
    """What the log has about notices that were not sent."""
    return [line.split("] ", 1)[1] for line in job.log().splitlines() if "notice of the" in line]


# -- texts -----------------------------------------------------------------------------------------------

START = ("start", {"attempt": 0, "nodes": ["gpu-1", "gpu-2", "gpu-4"]})
RESTART = (
    "restart",
    {"restart": 1, "nodes": ["gpu-1", "gpu-3"], "text": "restart 1 of 3: gpu-2: x; gpu-3 takes its place"},
)
TRAINER: tuple[str, dict[str, Any]] = ("trainer", {"command": "python3 train.py --key=secret"})
REQUEUE: tuple[str, dict[str, Any]] = ("requeue", {"attempt": 1})
LOST = (
    "end",
    {"exit_code": 71, "source": "slurmray", "kind": "node_lost", "text": "failed (71 node lost): gpu-2: x"},
)


def end(code: int, source: str = "trainer", text: str = "") -> tuple[str, dict[str, Any]]:
    text = text or f"done: trainer exited with {code}"
    return "end", {"exit_code": code, "source": source, "kind": "", "text": text}


def make(
    *events: tuple[str, dict[str, Any]], on: list[str] | None = None, name: str = "verl"
) -> list[dict[str, Any]]:
    """The notices of these events of job 7."""
    maker = Notices(on or ALL, "7", name)
    made = [maker.make(event, {**example(event), **fields}) for event, fields in events]
    return [json.loads(encode(notice)) for notice in made if notice]


@pytest.mark.parametrize(
    ("events", "moment", "text"),
    [
        ([START, TRAINER], "start", "job 7 verl: the trainer starts on 3 nodes, gpu-[1-2,4]"),
        (
            [START, RESTART, TRAINER],
            "start",
            "job 7 verl: the trainer starts again (restart 1) on 2 nodes, gpu-[1,3]",
        ),
        (
            [("start", {"attempt": 2, "nodes": ["a"]}), TRAINER],
            "start",
            "job 7 verl, attempt 2: the trainer starts on 1 node, a",
        ),
        ([START, RESTART], "loss", "job 7 verl: restart 1 of 3: gpu-2: x; gpu-3 takes its place"),
        (
            [("node_loss", {"node": "gpu-2", "text": "y"})],
            "loss",
            "job 7 verl: node loss: gpu-2: y; the job continues without it",
        ),
        (
            [("replacement", {"node": "gpu-3", "lost": "gpu-2"})],
            "loss",
            "job 7 verl: spare node gpu-3 joins Ray in place of gpu-2",
        ),
        ([("set_aside", {"node": "gpu-3", "text": "z"})], "loss", "job 7 verl: set aside: gpu-3: z"),
        (
            [("stall", {"number": 1, "text": "no output for 30 min", "folder": "/r/logs/stall-1"})],
            "stall",
            "job 7 verl: stalled: no output for 30 min; see /r/logs/stall-1",
        ),
        ([end(0)], "end", "job 7 verl: done: trainer exited with 0"),
        ([end(3)], "end", "job 7 verl: done: trainer exited with 3; for the cause: slurmray why 7"),
        ([end(143, "slurm", "stopped by Slurm")], "end", "job 7 verl: stopped by Slurm"),
        ([LOST], "end", "job 7 verl: failed (71 node lost): gpu-2: x"),
        ([REQUEUE, LOST], "end", "job 7 verl: failed (71 node lost): gpu-2: x; attempt 1 follows"),
    ],
)
def test_what_a_notice_has(events: list[tuple[str, dict[str, Any]]], moment: str, text: str) -> None:
    notice = make(*events)[-1]
    assert (notice["event"], notice["text"]) == (moment, text)
    assert (notice["job"], notice["name"]) == ("7", "verl")
    assert ("exit_code" in notice) == (moment == "end")


def test_fields_for_programs() -> None:
    first, loss, again, last = make(START, TRAINER, RESTART, TRAINER, REQUEUE, LOST)
    assert [(notice["attempt"], notice["restart"]) for notice in (first, loss, again, last)] == [
        *((0, 0), (0, 1), (0, 1), (0, 1)),
    ]
    assert last["exit_code"] == 71


@pytest.mark.parametrize(
    ("on", "moments"),
    [
        (["start"], ["start", "start"]),
        (["end"], ["end"]),
        # A node whose loss ends the job is a loss, too.
        (["loss"], ["loss", "loss"]),
        (["loss", "end"], ["loss", "end"]),
    ],
)
def test_only_what_was_asked_for(on: list[str], moments: list[str]) -> None:
    made = make(START, TRAINER, RESTART, TRAINER, LOST, on=on)
    assert [notice["event"] for notice in made] == moments
    assert [notice["event"] for notice in make(end(1), on=["loss"])] == []


def test_other_events_have_none() -> None:
    assert make(*((name, {}) for name in EVENTS if name not in notices.MOMENTS)) == []


def test_a_text_that_slack_would_expand() -> None:
    """Texts have what programs of the job print."""
    (notice,) = make(end(1, "slurmray", "<!channel> a & b\x1b[2J\udc80" + "x" * 5000))
    assert notice["text"].startswith("job 7 verl: &lt;!channel&gt; a &amp; b [2J ")
    assert notice["text"].endswith("x...")
    assert len(notice["text"]) < 1050


MENTIONS = [
    *("@channel", "@here", "@all", "@everyone", "a@here", "-@Channel.", "@@all", "@alice", "@team.lead_x:"),
    *(
        "<!here>",
        "<!channel|x>",
        "<!subteam^S1>",
        "<@U024BE7LH>",
        "<@123456789012345678>",
        "<@!123>",
        "<@&123>",
    ),
    *("&lt;!here&gt;", "<at>Alice</at>"),
]


def in_slack(text: str) -> list[str]:
    """What is between angle brackets: docs.slack.dev/messaging/formatting-message-text."""
    return re.findall(r"<[@!#][^>]*>", text)


def in_mattermost(text: str) -> list[str]:
    """Words of StandardMentionParser.ProcessText, in server/channels/app/mention_parser_standard.go.

    Before that, <!channel> and <@id> are replaced: ProcessSlackText in slack.go.
    """
    letters = [letter if letter.isalnum() or letter in ":.-_@" else " " for letter in text]
    words = [word.lstrip(":.-_") for word in "".join(letters).split()]
    return [word for word in words if re.search(r"@\w", word)] + in_slack(text)


def in_discord(text: str) -> list[str]:
    """discord.utils.escape_mentions, and docs.discord.com/developers/reference#message-formatting.

    Whether its /slack decodes entities is not documented.
    """
    return re.findall("@everyone|@here|<@[!&]?[0-9]+>", html.unescape(text))


def in_teams(text: str) -> list[str]:
    """In a card of the service between: learn.microsoft.com, cards-format, `<at>` in text."""
    return re.findall("<at>", text)


@pytest.mark.attack("mentions in a job's name")
@pytest.mark.parametrize("service", [in_slack, in_mattermost, in_discord, in_teams])
def test_nobody_is_mentioned(service: Callable[[str], list[str]]) -> None:
    """By the name, or by what programs of the job print. Programs get the name as it is."""
    assert any(map(service, MENTIONS))
    for mention in tried(MENTIONS):
        (notice,) = make(end(1, "slurmray", f"failed: {mention}"), name=mention)
        assert service(notice["text"]) == []
        assert notice["name"] == mention
        readable = html.unescape(notice["text"]).replace("\u200b", "")
        assert readable == f"job 7 {mention}: failed: {mention}"


# -- a webhook -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 3])
def test_a_job_posts_notices(tmp_path: Path, receiver: Receiver, code: int) -> None:
    job = start_job(tmp_path, receiver.url, str(code)).ends(code)
    assert receiver.moments == ["start", "end"]
    first, last = receiver.notices
    assert first["text"] == "job 7 verl: the trainer starts on 1 node, node1"
    assert last["exit_code"] == code
    path, headers, _ = receiver.received[0]
    assert path.endswith(SECRET)
    assert (headers["Content-Type"], headers["User-Agent"]) == ("application/json", "slurmray")
    assert unsent(job) == []


def test_only_the_controller_has_the_url(tmp_path: Path, receiver: Receiver) -> None:
    job = start_job(tmp_path, receiver.url).ends(0)
    assert receiver.received
    sent = job.job()
    assert "WEBHOOK" not in sent["srun_env"]
    assert sent["env"] == {}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert job.script in files
    assert [path for path in files if SECRET in path.read_text(errors="replace")] == []


def test_a_variable_that_the_trainer_gets_too(tmp_path: Path, receiver: Receiver) -> None:
    job = start_job(tmp_path, receiver.url, env={"WEBHOOK": None}).ends(0)
    assert job.job()["env"] == {"WEBHOOK": receiver.url}
    assert receiver.moments == ["start", "end"]


@pytest.mark.parametrize(
    ("answers", "posts", "lines"),
    [
        ([500], ["start", "start", "end"], []),
        ([429], ["start", "start", "end"], []),
        ([500, 503], ["start", "start", "end"], ["notice of the start not sent: HTTP 503"]),
        ([404], ["start", "end"], ["notice of the start not sent: HTTP 404"]),
        ([200, 410], ["start", "end"], ["notice of the end not sent: HTTP 410"]),
    ],
)
def test_what_the_webhook_answers(
    tmp_path: Path, receiver: Receiver, answers: list[int], posts: list[str], lines: list[str]
) -> None:
    """It is asked again where that may help, and once."""
    receiver.answers = answers
    job = start_job(tmp_path, receiver.url).ends(0)
    assert receiver.moments == posts
    assert unsent(job) == lines
    assert job.log().splitlines()[-1].endswith("done: trainer exited with 0")


@pytest.mark.attack("answers of a webhook")
@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "{url}/elsewhere"])
def test_redirects_are_not_followed(tmp_path: Path, receiver: Receiver, target: str) -> None:
    receiver.location = target.format(url=receiver.url)
    receiver.answers = [302, 302]
    job = start_job(tmp_path, receiver.url).ends(0)
    assert receiver.moments == ["start", "end"]
    assert unsent(job)[0] == "notice of the start not sent: HTTP 302"


def test_a_webhook_that_never_answers(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [SILENCE] * 4
    job = start_job(tmp_path, receiver.url, "3")
    log = job.ends(3).log()  # at most HANG
    assert unsent(job)[-1].startswith("notice of the end not sent: no answer within ")
    assert log.splitlines()[-1].endswith("done: trainer exited with 3")


def test_a_webhook_that_cannot_be_reached(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    job = start_job(tmp_path, f"http://127.0.0.1:{port}/{SECRET}")
    log = job.ends(0).log()
    assert unsent(job)[0] == "notice of the start not sent: Connection refused"
    assert SECRET not in log
    assert str(port) not in log


@pytest.mark.parametrize("answers", [[], [200, 404], [200, SILENCE]])
def test_a_job_that_slurm_ends(tmp_path: Path, receiver: Receiver, answers: list[int]) -> None:
    """It may be killed soon: its end is recorded before the notice is posted."""
    receiver.answers, receiver.log = answers, tmp_path / "log"
    job = start_job(tmp_path, receiver.url, "waits", srun={"sys.argv[-1]": repr("stop")})
    job.wait_for("waits")
    job.process.send_signal(signal.SIGTERM)
    log = job.ends(5).log()
    assert receiver.moments == ["start", "end"]
    assert [text.count("done: trainer exited with 5") for text in receiver.logs] == [0, 1]
    assert log.splitlines()[-1].endswith("done: trainer exited with 5")
    assert job.events()[-1]["event"] == "end"


def test_a_job_that_fails_before_its_step(tmp_path: Path, receiver: Receiver) -> None:
    start_job(tmp_path, receiver.url, variables={"SLURM_JOB_NUM_NODES": "2"}).ends(64)
    (notice,) = receiver.notices
    assert (notice["event"], notice["exit_code"]) == ("end", 64)
    assert notice["text"].startswith("job 7 verl: failed (64 config): the allocation has 2 nodes")


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", SECRET, f"ftp://host/{SECRET}", f"file:///{SECRET}", f"https://user:{SECRET}@host/x"),
        *(
            f"https:///{SECRET}",
            f"https://host:{SECRET}/x",
            f"https://host/a {SECRET}",
            f"https://host/\n{SECRET}",
        ),
    ],
)
def test_a_url_that_cannot_be_used(tmp_path: Path, value: str | None) -> None:
    """It is not shown: it may be a secret."""
    job = Job(tmp_path, "0", {} if value is None else {"WEBHOOK": value}, notify={"url": "env:WEBHOOK"}).ends(
        64
    )
    what = "WEBHOOK is not set" if value is None else "the value of WEBHOOK is no http or https URL"
    assert f"failed (64 config): notify.url: {what}" in job.log().splitlines()[-1]
    assert SECRET not in job.log()
    assert not (tmp_path / "job.json").exists()


@pytest.mark.parametrize(
    "url", ["https://hooks.slack.com/services/T0/B1/x", "HTTP://[fd00::1]:80", "http://a?b=c"]
)
def test_urls_that_can_be_used(url: str) -> None:
    env = {"WEBHOOK": url, "SLURM_JOB_ID": "7"}
    log = RecordedLog()
    notices.open_webhook({"variable": "WEBHOOK", "on": ALL}, [], env, log)
    assert log.observer
    assert "WEBHOOK" not in env


def test_what_is_lost_together_is_one_notice(receiver: Receiver) -> None:
    log = RecordedLog()
    webhook = Webhook(receiver.url, Notices(ALL, "7", "verl"), log)
    for name in ("gpu-1", "gpu-2"):
        webhook.on_event("node_loss", {"node": name, "text": "no heartbeat"})
    webhook.on_event("replacement", {"node": "gpu-3", "lost": "gpu-1"})
    webhook.finish({**example("end"), **end(0)[1]})
    loss, last = receiver.notices
    assert loss["text"].splitlines() == [
        "job 7 verl: node loss: gpu-1: no heartbeat; the job continues without it",
        "node loss: gpu-2: no heartbeat; the job continues without it",
        "spare node gpu-3 joins Ray in place of gpu-1",
    ]
    assert last["event"] == "end"
    assert log.lines == []


def test_a_notice_that_cannot_be_made(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is posted all the same."""
    monkeypatch.setattr(background_io.errors, "write", lambda _: None)
    encoded: list[str] = []

    def fail_once(notice: dict[str, Any]) -> bytes:
        encoded.append(notice["event"])
        return encode(notice) if len(encoded) > 1 else b"" + cast(bytes, notice)

    monkeypatch.setattr(notices, "encode", fail_once)
    webhook = Webhook(receiver.url, Notices(ALL, "7", "verl"), RecordedLog())
    for event in ("start", "trainer"):
        webhook.on_event(event, example(event))
    webhook.finish(example("end"))
    assert encoded == ["start", "end"]
    assert [data["event"] for _, _, data in receiver.received] == ["end"]


def test_a_proxy(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", receiver.url.partition("/services")[0])
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert post("http://webhook.invalid/x", b"{}") == ""
    assert receiver.received[0][0] == "http://webhook.invalid/x"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (urllib.error.URLError(ConnectionRefusedError(111, SECRET)), "Connection refused"),
        (urllib.error.URLError(socket.gaierror(-2, SECRET)), "its host name has no address"),
        (urllib.error.URLError(ssl.SSLCertVerificationError(1, SECRET)), "SSLCertVerificationError"),
        (urllib.error.URLError(f"unknown url type: {SECRET}"), "URLError"),
        (OSError(f"Tunnel connection failed: 403 {SECRET}"), "OSError"),
        (TimeoutError(SECRET), "no answer within 10 s"),
        (ValueError(SECRET), "ValueError"),
    ],
)
def test_no_error_shows_the_url(error: Exception, why: str) -> None:
    assert explain(error) == why
