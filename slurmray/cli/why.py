"""`slurmray why`: what ended a job."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from slurmray import files, history
from slurmray.cli.flags import flag
from slurmray.cli.jobs import complete_job, job_argument, show_tasks
from slurmray.cli.terminal import escaped, paragraph, print_json
from slurmray.diagnosis.causes import LOG, Cause, diagnose, says_cause
from slurmray.diagnosis.tracebacks import last_traceback
from slurmray.errors import SlurmrayError, UsageError
from slurmray.slurm.job_status import Status, for_job, make_status
from slurmray.slurm.log_end import LogEnd, end_in_log, log_end, stopped_at
from slurmray.slurm.states import FINAL, End, Event, head_loss, is_last_attempt_over, last_start, recorded_end
from slurmray.slurm.submitted_job import Job
from slurmray.slurm.timeline import clock

_NODE_IP = re.compile(r"^[ \t]*Local node IP: ([0-9a-fA-F.:]{3,45})[ \t]*$", re.MULTILINE)
_LAST = 4 << 20  # bytes of each log: what ended the job is near the end
_LONGEST, _WIDEST = 1 << 12, 300  # characters of a line that are read and shown


class Answer(NamedTuple):
    """What ended a job."""

    title: str  # the job, or the log that was given
    status: Status  # its state is "" if that log does not have it
    text: str  # slurmray's last line, or what stands for it
    node: str  # that is to blame, or ""
    log: LogEnd
    causes: list[Cause]
    canceller: str  # who cancelled it, and when; "" if nobody did


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@click.option("--log", "path", metavar="FILE", help="Read this log instead of a job's; - is standard input.")
@flag("--json", "is_json", help="Print a JSON object.")
def why(*, job: str | None, path: str | None, is_json: bool) -> None:
    """Say what ended a job, and what to do about it.

    It shows who cancelled it, or the last lines of what failed: the trainer, a service, a prepare step,
    container.setup, a container or Ray. It knows slurmray's exit codes, findings, Slurm's states, and
    messages of trainers, PyTorch, NCCL and Ray, which it looks for in the logs of the job, its nodes and
    services. It names the first failure with its node and rank, then what followed. JOB is an id or a name.
    Without JOB it is the newest one. Of a sweep, or another array, it lists the tasks that failed; 1234_0
    is one of them.

    --log reads any log, e.g. from another cluster, and needs no job and no Slurm.

    \b
    Examples:
      slurmray why
      slurmray why verl --json
      slurmray why --log train.log
      kubectl logs trainer-0 | slurmray why --log -
    """
    if path is not None and job is not None:
        raise UsageError("slurmray why: give a job or --log, not both")
    if path is not None:
        answer, is_remembered = _answer_of_log(path), False
    else:
        submitted, run = job_argument(job)
        if submitted.is_array():
            show_tasks(submitted, run.name, submitted.tasks(), is_json=is_json, only_failed=True)
            return
        answer, is_remembered = find_answer(submitted), run.nodes > 0
    if is_json:
        print_json(as_dict(answer))
    else:
        _show(answer, is_remembered=is_remembered)


def _answer_of_log(path: str) -> Answer:
    try:
        log = files.read_end(path, _LAST).decode(errors="replace")
    except OSError as error:
        raise UsageError(f"slurmray why: --log {path}: {error.strerror}") from None
    end = end_in_log(log)
    state, code = (end.state, end.exit_code) if end else ("FAILED", 1)
    status = make_status(0, state, {"ExitCode": f"{code}:0"}, [], 0.0)
    title = "standard input" if path == "-" else path
    answer = _diagnosed(title, status, log)
    return answer if end else answer._replace(status=status._replace(state="", code=""))


def find_answer(job: Job) -> Answer:
    """Return what ended a job."""
    status = job.status()
    log = ""
    with contextlib.suppress(SlurmrayError):
        log = job.logs(last=_LAST)
    title = f"job {status.job}" + (f", {status.name}" if status.name else "")
    if status.state == "COMPLETING" and (end := _own_end(job, log)):  # Slurm waits for a lost node
        status = status._replace(state=end.state, code=f"{end.exit_code}:{end.signal}")
    return _diagnosed(title, status, log, job)


def _own_end(job: Job, log: str) -> End | None:
    """How the job has ended by its own record; None if it has not, or is to start again."""
    events = job.events()
    if events:
        return recorded_end(events) if is_last_attempt_over(events) else None
    return end_in_log(log)


def _diagnosed(title: str, status: Status, log: str, job: Job | None = None) -> Answer:
    end = log_end(log)
    events = job.events() if job else []
    text, node = (status.end["text"], status.end["node"]) if status.end else (end.text, "")
    loss = None if text else head_loss(events)
    if loss:
        text, node = loss["text"], loss["node"]
    # What else is in the logs of a job that Slurm ended comes from that.
    is_cancelled = status.state == "CANCELLED"
    is_whole = not (is_cancelled or end.is_stopped)
    hosts = _head_address(events)
    others = _other_logs(job, status, hosts) if job and is_whole else ()
    logs = itertools.chain([(LOG, end.before)], others)
    causes = diagnose(
        status, text, end.lines if is_whole else (), logs, hosts, {event["event"] for event in events}
    )
    if status.state != "COMPLETED":
        causes[:0] = map(_unplaceable, status.unplaceable)
    if not any(cause.role == "cause" for cause in causes) and (lines := last_traceback(end.printed)):
        end = end._replace(source=f"{end.source}, the last traceback", lines=lines)
    canceller = _canceller(job, status, log, is_head_lost=bool(loss)) if job and is_cancelled else ""
    return Answer(title, status, text, node, end, causes, canceller)


def _unplaceable(event: Event) -> Cause:
    """What a demand of Ray that no node can hold says: the trainer may wait for it."""
    meaning = "No node could hold this even if no task ran there, so what needs it waits."
    fix = event["fix"] + "."
    return Cause("earlier", "Ray", event["text"], meaning, fix, is_certain=False, name="unplaceable")


def _head_address(events: Sequence[Any]) -> dict[str, str]:
    """{address: name} of the head node of the last start, as far as the events have it."""
    heads, events = last_start(events)
    texts = [event["text"] for event in events if event["event"] == "phase" and event["phase"] == "ray"]
    matches = [re.match(r"head at \[?([0-9a-fA-F.:]+)\]?:\d+", text) for text in texts]
    return {match[1]: heads[0] for match in matches if match and heads}


def _other_logs(job: Job, status: Status, hosts: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The logs of nodes and services of the last attempt, as far as they can be read.

    hosts gets the addresses of nodes that `ray start` has printed.
    """
    for name, log in job.last_logs(status.nodes, _LAST):
        if name in status.nodes and (match := _NODE_IP.search(log)):
            hosts.setdefault(match[1], name)
        yield f"log of {name}", log


def _canceller(job: Job, status: Status, log: str, *, is_head_lost: bool) -> str:
    """Who cancelled a job, and when, as far as that is known."""
    if when := history.cancelled_at(job.id, job.task, job.cluster, job.host.name):
        return f"by you, with slurmray, at {clock(when)}"
    when_stopped, reason = stopped_at(log)
    at = f" at {when_stopped.replace('T', ' ')[:16]}" if when_stopped else ""
    if reason or status.reason:  # Slurm has forgotten the job's state, or it has never started
        return f"by Slurm{at}: {reason.lower() or status.reason}"
    if is_head_lost:
        return f"by slurmray on another node{at}, after the loss of the head node"
    if known := job.cancelled_by():
        name, is_owner = known
        if is_owner:
            return f"by you{at}, with scancel"
        return f"by the user {name}{at}" + (": an administrator, or Slurm itself" if name == "root" else "")
    return f"{at} with scancel, by you or an administrator, or by Slurm: it does not record which".strip()


def _show(answer: Answer, *, is_remembered: bool) -> None:
    def show(text: str) -> None:
        paragraph(escaped(text))

    status, text, log, job = answer.status, answer.text, answer.log, answer.title
    is_over = status.state in FINAL or not status.state
    if not status.state:
        show(f"{job}: it has no last line of slurmray")
    elif not is_over:
        show(f"{job} has not ended: {status.state}, {status.reason or status.phase}")
    else:
        how = f"CANCELLED {answer.canceller}" if answer.canceller else status.state
        show(f"{job}: {how}. {text or _without_text(status)}")
    set_aside = [{**row, "text": f"set aside: {row['node']}: {row['text']}"} for row in _set_aside(status)]
    for row in sorted(set_aside + _restarts(status), key=lambda row: row["time"]):
        show(f"{clock(row['time'])}: {row['text']}")
    for finding in status.findings:
        place = f"{finding['node']}: {finding['check']}"
        show(f"finding: {place}: {finding['found']}, wanted {finding['wanted']}: {finding['fix']}")
    if is_over and status.state not in ("CANCELLED", "COMPLETED") and _has_lines(answer):
        show(f"last lines of {log.source}:" if log.lines else f"{log.source}: nothing was printed")
        for line in log.lines:
            click.echo(f"  {escaped(line[:_LONGEST])[:_WIDEST]}".rstrip())
    for cause in answer.causes:
        for line in _lines(cause, answer, is_remembered=is_remembered):
            show(line)


def _restarts(status: Status) -> list[dict[str, Any]]:
    """When and why the trainer was started again in the last attempt, and the nodes that failed."""
    return [{"time": start.ended, "node": start.failed, "text": start.reason} for start in status.starts[:-1]]


def _set_aside(status: Status) -> list[dict[str, Any]]:
    """The spare nodes that failed, likewise."""
    return [{name: event[name] for name in ("time", "node", "text")} for event in status.set_aside]


def _lines(cause: Cause, answer: Answer, *, is_remembered: bool) -> Iterator[str]:
    known_node = cause.node if cause.node in answer.status.nodes else answer.node
    label = "cause" if cause.is_certain else "meaning" if cause.source else "possible cause"
    if cause.source:
        before = {"then": "then, in ", "earlier": "earlier, in "}.get(cause.role, "")
        where = f", on {cause.node}" if cause.node and cause.source != f"log of {cause.node}" else ""
        rank = f", rank {cause.rank}" if cause.rank is not None else ""
        yield f"{before}{cause.source}{where}{rank}: {cause.evidence}"
    else:
        if not cause.is_certain:
            yield "The cause is not known to slurmray." + " What it knows in general:" * bool(cause.evidence)
        if cause.evidence:
            yield cause.evidence
    if cause.role != "then":
        for name, text in ((label, cause.cause), ("fix", cause.fix)):
            if text:
                yield f"{name}: {for_job(text, answer.status, known_node, is_remembered=is_remembered)}"
    if cause.file:
        yield f"its output file: {cause.file}"


def _without_text(status: Status) -> str:
    """What stands for slurmray's last line of a job where there is none."""
    if not status.log:
        return "Slurm has forgotten it"
    if not status.nodes and status.state == "CANCELLED":
        return "It had not started"
    return f"Slurm's exit code is {status.code}; the job wrote no last line"


def _has_lines(answer: Answer) -> bool:
    """Whether lines of a log tell more than slurmray's last line and the findings."""
    if answer.log.source != "the job's log":
        return True
    # Others were of a node that was replaced, or of a spare one: the job went on.
    findings = [finding for finding in answer.status.findings if finding["node"] in answer.status.nodes]
    if any(finding["kind"] != "warn" for finding in findings):
        return False
    is_trainer = answer.text.startswith("done: ")
    return is_trainer or (bool(answer.log.lines) and not says_cause(answer.text))


def as_dict(answer: Answer) -> dict[str, Any]:
    """Return it for JSON."""
    status = answer.status
    return {
        **{name: getattr(status, name) for name in ("id", "task", "name", "state", "code")},
        "cancelled": answer.canceller,
        "text": answer.text,
        "end": status.end,
        "restarts": _restarts(status),
        "set_aside": _set_aside(status),
        "findings": list(status.findings),
        "last_lines": {"source": answer.log.source, "lines": answer.log.lines},
        "causes": [
            {name: value for name, value in vars(cause).items() if name not in ("is_certain", "file")}
            for cause in answer.causes
            if cause.source
        ],
    }
