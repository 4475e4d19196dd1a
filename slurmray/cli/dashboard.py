"""`slurmray dashboard`: Ray's dashboard of a running job, on this host."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time

import click

from slurmray.cli.jobs import complete_job, job_argument
from slurmray.errors import SlurmError, UsageError
from slurmray.slurm import slurm_commands
from slurmray.slurm.dashboard_relay import VARIABLES, Forwarder, relay
from slurmray.slurm.states import last_start
from slurmray.slurm.submitted_job import Job

_PRINT_TOKEN = '[ -z "$RAY_AUTH_TOKEN_PATH" ] || cat "$RAY_AUTH_TOKEN_PATH"'  # noqa: S105 - old Rays have none
_EVENT_WAIT = 60.0  # seconds: Ray starts the dashboard after the nodes
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - values of --dashboard-host


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8265,
    show_default=True,
    help="Port on this host; 0: any.",
)
def dashboard(*, job: str | None, port: int) -> None:
    """Forward Ray's dashboard of a running job to this host, and print its address, which signs you in.

    It needs no ssh to the nodes. To see it on your own machine, run slurmray there, with `host` in a profile:
    a browser opens. Or forward the port of this host with the ssh command that it prints. JOB is an id or a
    name. Without JOB it is the newest one. Ctrl-C ends it.

    \b
    Examples:
      slurmray dashboard
      slurmray dashboard verl --port 9000
    """
    chosen_job, _ = job_argument(job)
    token = slurm_commands.output(
        chosen_job.attach_argv(["sh", "-c", _PRINT_TOKEN]), host=chosen_job.host
    ).strip()
    _wait_for_dashboard(chosen_job)
    address, dashboard_port = chosen_job.dashboard_address()
    argv = chosen_job.attach_argv(relay("127.0.0.1" if address in _ANY_ADDRESS else address, dashboard_port))
    try:
        server = Forwarder(lambda: chosen_job.host.start(argv, VARIABLES), token, port)
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}; use another one, or 0 for any") from None
    with server:
        if not chosen_job.host.name:
            ssh = f"ssh -L {server.port}:127.0.0.1:{server.port} {getpass.getuser()}@{socket.gethostname()}"
            click.echo(f"on your own machine: {ssh}", err=True)
        click.echo(server.url)
        sys.stdout.flush()
        has_display = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
        # Not on a login node, even one that has a display.
        if chosen_job.host.name and has_display and sys.stdout.isatty():
            click.launch(server.url)
        server.serve_forever()


def _wait_for_dashboard(job: Job) -> None:
    """Wait until a process of the job listens on the dashboard's port. SlurmError if none does."""
    deadline = time.monotonic() + _EVENT_WAIT
    while True:
        _, events = last_start(job.events())
        if any(event["event"] == "dashboard" for event in events):
            return
        for event in events:
            if event["event"] == "finding" and event["wanted"] == "Ray's dashboard":
                raise SlurmError(f"job {job.name}: {event['check']} of {event['node']}: {event['found']}")
        if time.monotonic() > deadline:
            raise SlurmError(f"job {job.name}: Ray's dashboard does not listen; see its dashboard.log")
        time.sleep(0.5)
