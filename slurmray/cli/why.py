"""`slurmray why`: what ended a job."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from slurmray.cli.terminal import complete_job
from slurmray.errors import ExitCode

if TYPE_CHECKING:
    from slurmray import history
    from slurmray.signatures import Match
    from slurmray.slurm.job import Job
    from slurmray.slurm.log_end import LogEnd
    from slurmray.slurm.status import Status

_LAST = 4 << 20  # bytes of each log: what ended the job is near the end
_WIDEST = 300  # characters of a line of a log
# Kinds of errors whose last line in the log has the cause and the fix.
_SELF_EXPLAINED = (ExitCode.CONFIG, ExitCode.PREFLIGHT, ExitCode.IMAGE, ExitCode.TIME_LIMIT)
_CERTAIN = ("0:53", "0:125", "79 internal")  # titles of explanations that leave no choice


class _Answer(NamedTuple):
    """What ended a job. text: slurmray's last line, or what stands for it. node: that is to blame, or "".

    log: its end. matches: known messages. canceller: who cancelled it, and when; "" if nobody did.
    """

    status: Status
    text: str
    node: str
    log: LogEnd
    matches: list[Match]
    canceller: str


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@click.option("--json", "is_json", is_flag=True, help="Print a JSON object.")
def why(*, job: str | None, is_json: bool) -> None:
    """Say what ended a job, and what to do about it.

    It shows who cancelled it, or the last lines of what failed: the trainer, a service, a prepare step,
    container.setup, a container or Ray. It knows slurmray's exit codes, findings, Slurm's states, and
    messages of trainers, PyTorch, NCCL and Ray, which it looks for in the logs of the job, its nodes and
    services. JOB is an id or a name. Without JOB it is the newest one.

    \b
    Examples:
      slurmray why
      slurmray why verl --json
    """
    from slurmray.cli.terminal import job_argument, print_json

    found, run = job_argument(job)
    answer = _answer(found)
    if is_json:
        print_json(_as_dict(answer))
    else:
        _show(answer, run)


def _answer(job: Job) -> _Answer:
    from slurmray import signatures
    from slurmray.errors import SlurmrayError
    from slurmray.slurm.log_end import log_end

    status = job.status()
    log = ""
    with contextlib.suppress(SlurmrayError):
        log = job.logs(last=_LAST)
    end = log_end(log)
    text, node = (status.end["text"], status.end["node"]) if status.end else (end.text, "")
    losses = [event for event in job.events() if event["event"] == "node_loss"] if not text else []
    if losses:  # of the head node: a worker has written it
        text, node = losses[-1]["text"], losses[-1]["node"]
    matches = []
    if status.state != "COMPLETED":
        # What else is in the logs of a job that Slurm ended comes from that.
        is_whole = not end.is_stopped and status.state != "CANCELLED"
        others = _other_logs(job, status) if is_whole else iter(())
        matches = signatures.find([("log", end.before), *others])
    canceller = _canceller(job, log, losses) if status.state == "CANCELLED" else ""
    return _Answer(status, text, node, end, matches, canceller)


def _other_logs(job: Job, status: Status) -> Iterator[tuple[str, str]]:
    """The logs of nodes and services of the last attempt, as far as they can be read."""
    from slurmray.errors import SlurmrayError

    for node in status.nodes:
        with contextlib.suppress(SlurmrayError):
            yield f"log of {node}", job.node_log(node, last=_LAST)
    for service in job.services():
        with contextlib.suppress(SlurmrayError):
            yield f"log of {service}", job.service_log(service, last=_LAST // max(1, len(status.nodes)))


def _canceller(job: Job, log: str, losses: list[Any]) -> str:
    """Who cancelled a job, and when, as far as that is known."""
    from slurmray import history
    from slurmray.slurm.log_end import stopped_at

    if when := history.cancelled_at(job.id, job.cluster, job.host.name):
        return f"by you, with slurmray, at {time.strftime('%Y-%m-%d %H:%M', time.localtime(when))}"
    when_stopped, reason = stopped_at(log)
    at = f" at {when_stopped.replace('T', ' ')[:16]}" if when_stopped else ""
    if reason:  # Slurm has forgotten the job's state
        return f"by Slurm{at}: {reason.lower()}"
    if losses:
        return f"by slurmray on another node{at}, after the loss of the head node"
    if known := job.cancelled_by():
        name, is_owner = known
        if is_owner:
            return f"by you{at}, with scancel"
        return f"by the user {name}{at}" + (": an administrator, or Slurm itself" if name == "root" else "")
    return f"{at} with scancel, by you or an administrator, or by Slurm: it does not record which".strip()


def _show(answer: _Answer, run: history.Run) -> None:
    from slurmray.cli.terminal import escaped, paragraph
    from slurmray.slurm.states import FINAL

    def show(text: str) -> None:
        paragraph(escaped(text))

    status, text, log = answer.status, answer.text, answer.log
    job = f"job {status.id}" + (f", {status.name}" if status.name else "")
    is_over = status.state in FINAL
    if not is_over:
        show(f"{job} has not ended: {status.state}, {status.reason or status.phase}")
    elif answer.canceller:
        show(f"{job}: CANCELLED {answer.canceller}. {text or _without_text(status)}")
    else:
        show(f"{job}: {status.state}. {text or _without_text(status)}")
    for finding in status.findings:
        found = f"{finding['node']}: {finding['check']}: {finding['found']}, wanted {finding['wanted']}"
        show(f"finding: {found}: {finding['fix']}")
    if is_over and status.state not in ("CANCELLED", "COMPLETED") and _has_lines(answer):
        show(f"last lines of {log.source}:" if log.lines else f"{log.source}: nothing was printed")
        for line in log.lines:
            click.echo(f"  {escaped(line)[:_WIDEST]}".rstrip())
    # What Slurm ended has no cause of its own.
    is_failure = is_over and status.state != "CANCELLED" and not log.is_stopped
    last = {line.strip()[:_WIDEST] for line in log.lines if is_failure}
    for match in answer.matches:
        is_last = match.line in last
        show(f"{match.source}: {match.line}" if is_last else f"earlier, in {match.source}: {match.line}")
        show(f"{'cause' if is_last else 'meaning'}: {match.signature.cause}")
        show(f"fix: {match.signature.fix}")
    if is_over and not any(match.line in last for match in answer.matches):
        for line in _explanation(answer, is_remembered=run.nodes > 0):
            show(line)


def _without_text(status: Status) -> str:
    """What stands for slurmray's last line where there is none."""
    if not status.log:
        return "Slurm has forgotten it"
    if not status.nodes and status.state == "CANCELLED":
        return "It had not started"
    return f"Slurm's exit code is {status.code}; the job wrote no last line"


def _code(text: str) -> ExitCode | None:
    """Slurmray's exit code in its last line; None if the code is the trainer's, or there is none."""
    found = re.match(r"failed \((\d+) ", text)
    return next((code for code in ExitCode if found and code == int(found[1])), None)


def _has_lines(answer: _Answer) -> bool:
    """Whether lines of a log tell more than slurmray's last line and the findings."""
    if answer.log.source != "the job's log":
        return True
    if any(finding["kind"] != "warn" for finding in answer.status.findings):
        return False
    is_trainer = answer.text.startswith("done: ")
    return is_trainer or (bool(answer.log.lines) and _code(answer.text) not in _SELF_EXPLAINED)


def _explanation(answer: _Answer, *, is_remembered: bool) -> Iterator[str]:
    """Lines about a job none of whose last lines is a known message."""
    from slurmray.cli.explain import about, look_up, look_up_trainer

    status, text = answer.status, answer.text
    ours, trainers = _code(text), re.match(r"done: trainer exited with (\d+)", text)
    if status.state in ("COMPLETED", "CANCELLED") or ours in _SELF_EXPLAINED:
        return
    is_certain = True
    if status.state != "FAILED":
        title, known = look_up(status.state)
    elif ours is not None or trainers:
        title, known = look_up_trainer(int(trainers[1])) if trainers else look_up(str(int(ours or 0)))
        is_certain = title in _CERTAIN
    elif re.fullmatch("0:[1-9][0-9]*", status.code):
        title, known = look_up(status.code)
        is_certain = title in _CERTAIN
    else:
        yield "The cause is not known to slurmray."
        return
    if not is_certain:
        yield "The cause is not known to slurmray. What it knows in general:"
    yield f"{title}: {known.meaning}"
    for label, each in (("cause" if is_certain else "possible cause", known.cause), ("fix", known.fix)):
        if each:
            yield f"{label}: {about(each, status, answer.node, is_remembered=is_remembered)}"
    if title == "0:53" and status.log:
        yield f"its output file: {status.log}"


def _as_dict(answer: _Answer) -> dict[str, Any]:
    status = answer.status
    return {
        "id": status.id,
        "name": status.name,
        "state": status.state,
        "code": status.code,
        "cancelled": answer.canceller,
        "text": answer.text,
        "end": status.end,
        "findings": list(status.findings),
        "last_lines": {"source": answer.log.source, "lines": answer.log.lines},
        "causes": [
            {
                "source": match.source,
                "line": match.line,
                "cause": match.signature.cause,
                "fix": match.signature.fix,
            }
            for match in answer.matches
        ],
    }
