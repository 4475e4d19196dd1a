"""`slurmray why`: what ended a job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from slurmray.cli.terminal import complete_job

if TYPE_CHECKING:
    from slurmray.signatures import Match
    from slurmray.slurm.job import Job
    from slurmray.slurm.status import Status

_LAST = 4 << 20  # bytes of each log: what ended the job is near the end


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@click.option("--json", "is_json", is_flag=True, help="Print a JSON object.")
def why(*, job: str | None, is_json: bool) -> None:
    """Say what ended a job, and what to do about it.

    It knows slurmray's exit codes, findings, and messages of trainers, PyTorch, NCCL and Ray, which it looks
    for in the job's log and in those of its nodes and services. JOB is an id or a name; without it, the
    newest one.

    \b
    Examples:
      slurmray why
      slurmray why verl --json
    """
    from slurmray import signatures
    from slurmray.cli.terminal import job_argument, paragraph, print_json
    from slurmray.slurm.states import FINAL

    found, _ = job_argument(job)
    status = found.status()
    matches = signatures.find(_texts(found, status)) if status.state != "COMPLETED" else []
    if is_json:
        print_json(_as_dict(status, matches))
        return
    name = f", {status.name}" if status.name else ""
    if status.state not in FINAL:
        paragraph(f"job {status.id}{name} has not ended: {status.state}, {status.reason or status.phase}")
    elif status.end:
        paragraph(f"job {status.id}{name}: {status.state}. {status.end['text']}")
    else:
        paragraph(f"job {status.id}{name}: {status.state}. It could not write how it ended into its log.")
    for finding in status.findings:
        text = f"{finding['node']}: {finding['check']}: {finding['found']}, wanted {finding['wanted']}"
        paragraph(f"finding: {text}: {finding['fix']}")
    for match in matches:
        paragraph(f"{match.source}: {match.line}")
        paragraph(f"cause: {match.signature.cause}")
        paragraph(f"fix: {match.signature.fix}")
    if status.state in FINAL and not (matches or status.findings):
        _explain(status)


def _texts(job: Job, status: Status) -> Iterator[tuple[str, str]]:
    """The job's log, and those of nodes and services of the last attempt, as far as they can be read."""
    from slurmray.errors import SlurmrayError

    with contextlib.suppress(SlurmrayError):
        yield "log", job.logs(last=_LAST)
    for node in status.nodes:
        with contextlib.suppress(SlurmrayError):
            yield f"log of {node}", job.node_log(node, last=_LAST)
    for service in job.services():
        with contextlib.suppress(SlurmrayError):
            yield f"log of {service}", job.service_log(service, last=_LAST // max(1, len(status.nodes)))


def _explain(status: Status) -> None:
    """Explain the exit code; without one, the state."""
    from slurmray.cli.explain import look_up
    from slurmray.cli.terminal import paragraph

    if status.state == "COMPLETED":
        return
    code = str(status.end["exit_code"]) if status.end and status.end["source"] != "slurm" else status.state
    title, explanation = look_up(code)
    for label, text in ((title, explanation.meaning), ("cause", explanation.cause), ("fix", explanation.fix)):
        if text:
            paragraph(f"{label}: {text}")


def _as_dict(status: Status, matches: list[Match]) -> dict[str, Any]:
    return {
        "id": status.id,
        "name": status.name,
        "state": status.state,
        "end": status.end,
        "findings": list(status.findings),
        "causes": [
            {
                "source": match.source,
                "line": match.line,
                "cause": match.signature.cause,
                "fix": match.signature.fix,
            }
            for match in matches
        ],
    }
