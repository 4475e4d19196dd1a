"""Notices of `notify`: at moments of a job, one JSON object is posted to a webhook.

Imported only where the job spec has `notify`.
"""

import json
import os
import re
import socket
import time
import urllib.error
import urllib.request

from .. import background_io, job_log
from ..job_errors import JobError
from .host_list import host_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, MutableMapping, Optional

    from ..wire.settings import Notify

    Notice = Dict[str, Any]

ANSWER_WAIT = 10.0  # seconds for the webhook's answer
# Seconds until the second and last attempt. Slack takes a message a second, and answers others with 429:
# docs.slack.dev/apis/web-api/rate-limits
RETRY_WAIT = 1.0
GATHER_WAIT = 1.0  # seconds in which what is lost becomes one notice
# Seconds for the notices that are left when the job ends. After scancel, allocation.CLEAN_UP_TIME is all that
# remains of KillWait.
LAST_WAIT = 3.0
MAX_TEXT = 1000  # characters; Discord takes 2,000 (maxLength of SlackWebhook in its OpenAPI document)
URL = r"(?i)https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?([/?#][!-~]*)?"

# Event -> its moment in `notify.on`.
MOMENTS = {
    "trainer": "start",
    "node_loss": "loss",
    "replacement": "loss",
    "set_aside": "loss",
    "restart": "loss",
    "stall": "stall",
    "end": "end",
}


class Notices:
    """Makes notices from the events of a job. No I/O.

    moments: `notify.on`. job: its id. name: of the job.
    """

    def __init__(self, moments: "List[str]", job: str, name: str) -> None:
        self._moments = moments
        self._facts: "Notice" = {"job": job, "name": job_log.printable(name), "attempt": 0, "restart": 0}
        self._nodes: "List[str]" = []
        self._next_attempt = 0  # for which Slurm was asked

    def make(self, event: str, fields: "Dict[str, Any]") -> "Optional[Notice]":
        """The notice of an event; None without one. Called with all events, in their order."""
        if event in ("start", "restart"):
            self._nodes = list(fields["nodes"])
            counter = "attempt" if event == "start" else "restart"
            self._facts[counter] = fields[counter]
        elif event == "requeue":
            self._next_attempt = fields["attempt"]
        moment = MOMENTS.get(event)
        if event == "end" and fields["kind"] == "node_lost" and "end" not in self._moments:
            moment = "loss"
        if moment not in self._moments:
            return None
        more = {"exit_code": fields["exit_code"]} if event == "end" else {}
        return dict({"text": self._text(event, fields), "event": moment}, **self._facts, **more)

    def _text(self, event: str, fields: "Dict[str, Any]") -> str:
        """The log line of an event, or what takes its place."""
        text = job_log.LINES[event].format(**fields)
        if event == "trainer":  # without its command: an argument may be a password
            again = " again (restart %d)" % self._facts["restart"] if self._facts["restart"] else ""
            number = job_log.counted(len(self._nodes), "node")
            return "the trainer starts%s on %s, %s" % (again, number, host_list(self._nodes))
        if event == "end" and self._next_attempt:
            return "%s; attempt %d follows" % (text, self._next_attempt)
        if event == "end" and fields["source"] == "trainer" and fields["exit_code"]:
            return "%s; for the cause: slurmray why %s" % (text, self._facts["job"])
        return text


def encode(notice: "Notice") -> bytes:
    """A notice as JSON, for Slack, Mattermost and programs: `text` is for people.

    Slack and Mattermost ignore fields unknown to them: github.com/hastic-zzz/hastic-server/issues/708;
    Mattermost's server/public/model/incoming_webhook.go, which has a field `type` with another meaning.
    """
    attempt = ", attempt %(attempt)d" if notice["attempt"] else ""
    text = job_log.printable(("job %(job)s %(name)s" + attempt + ": %(text)s") % notice)
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 3] + "..."
    # Nobody is mentioned. Slack's <!here> and <@U1>: api.slack.com/reference/surfaces/formatting#escaping;
    # @channel of Mattermost (mention_parser_standard.go) and @everyone of Discord, whose /slack has no
    # allowed_mentions: with a zero-width space, as escape_mentions of discord.py does it.
    for character, harmless in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b")):
        text = text.replace(character, harmless)
    return json.dumps(dict(notice, text=text)).encode()


class Webhook:
    """Posts notices in a thread, with one attempt more if the first one fails.

    A notice that is not sent is a line of the log. Neither has the URL or a part of it, as who knows it can
    post there.
    """

    def __init__(self, url: str, notices: Notices, log: "job_log.JobLog") -> None:
        self._url = url
        self._notices = notices
        self._log = log
        self._calls = background_io.CallQueue("notices")
        self._unsent: "List[Notice]" = []  # the first one may be on its way
        self._is_over = False

    def on_event(self, event: str, fields: "Dict[str, Any]") -> None:
        """Post the notice of an event of the log, if it has one. Does not wait. For `end`: see `finish`."""
        if event != "end":
            self._queue(event, fields)

    def finish(self, end: "Dict[str, Any]") -> None:
        """Post the notice of the job's end, and wait for it and all before, but at most LAST_WAIT.

        end: fields of the event.
        """
        self._queue("end", end)
        self._calls.finish(LAST_WAIT)
        self._is_over = True
        for notice in list(self._unsent):
            self._log_failure(notice, "no answer within %d s" % LAST_WAIT)

    def _queue(self, event: str, fields: "Dict[str, Any]") -> None:
        notice = self._notices.make(event, fields)
        if notice:
            self._unsent.append(notice)
            self._calls.submit(self._send_next)

    def _send_next(self) -> None:
        if not self._unsent:  # it was sent with the one before
            return
        notice = self._unsent[0]
        if notice["event"] == "loss":
            time.sleep(GATHER_WAIT)
            while len(self._unsent) > 1 and self._unsent[1]["event"] == "loss":
                later = self._unsent.pop(1)
                notice = dict(later, text=notice["text"] + "\n" + later["text"])
        try:
            data = encode(notice)
            why = post_in_time(self._url, data)
            if why and not re.match("HTTP (?!429|5)", why):  # after the others it would fail again
                time.sleep(RETRY_WAIT)
                why = post_in_time(self._url, data)
        finally:
            self._unsent.pop(0)
        if why and not self._is_over:
            self._log_failure(notice, why)

    def _log_failure(self, notice: "Notice", why: str) -> None:
        self._log.write("notice of the %s not sent: %s" % (notice["event"], why))


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error: urllib would make a GET request of it, without the notice."""

    def redirect_request(self, *_arguments: "Any", **_more: "Any") -> None:
        """Return None, for no further request."""


def open_webhook(
    notify: "Notify", used: "List[str]", env: "MutableMapping[str, str]", log: "job_log.JobLog"
) -> Webhook:
    """Post notices of the log's events from now on. JobError where the variable of the URL is wrong.

    env: of the batch script. It loses the variable, so that no program of the job gets it, unless it is among
    those `used` by the job.
    """
    name = notify["variable"]
    if name not in env:
        message = "notify.url: %s is not set where the job was submitted: export it and run sbatch again"
        raise JobError("config", message % name)
    url = env[name]
    if not re.fullmatch(URL, url):
        message = "notify.url: the value of %s is no http or https URL: correct it and run sbatch again"
        raise JobError("config", message % name)
    if name not in used:
        del env[name]
    notices = Notices(notify["on"], env["SLURM_JOB_ID"], env.get("SLURM_JOB_NAME", ""))
    webhook = Webhook(url, notices, log)
    log.observer = webhook.on_event
    return webhook


def post_in_time(url: str, data: bytes) -> str:
    """Post data, as `post` does, and wait for at most ANSWER_WAIT, also for the address of the host."""
    results: "List[str]" = []
    background_io.call("a notice", lambda: results.append(post(url, data)), ANSWER_WAIT)
    return results[0] if results else "no answer within %d s" % ANSWER_WAIT


def post(url: str, data: bytes) -> str:
    """Post JSON to a URL; return why it failed, "" if it did not.

    Where variables name a proxy, e.g. https_proxy, urllib uses it.
    """
    # Discord refuses urllib's own User-Agent with 403: github.com/discord/discord-api-docs/issues/4908
    headers = {"Content-Type": "application/json", "User-Agent": "slurmray"}
    try:
        request = urllib.request.Request(url, data, headers)  # noqa: S310 - http or https: see URL
        with urllib.request.build_opener(NoRedirects).open(request, timeout=ANSWER_WAIT):
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        return "HTTP %d" % error.code
    except Exception as error:  # any, e.g. http.client.InvalidURL, may have the URL in its text
        return explain(error)


def explain(error: Exception) -> str:
    """What failed. Not the text of the error, which may have the URL or the name of its host."""
    reason = getattr(error, "reason", None)  # of a URLError: an error, or a text
    cause = reason if isinstance(reason, Exception) else error
    if isinstance(cause, socket.timeout):
        return "no answer within %d s" % ANSWER_WAIT
    if isinstance(cause, socket.gaierror):
        return "its host name has no address"
    # ssl.SSLError has numbers of its own.
    if isinstance(cause, OSError) and cause.errno and type(cause).__module__ == "builtins":
        return os.strerror(cause.errno)
    return type(cause).__name__
