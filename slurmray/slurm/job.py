"""A submitted job: its state, log and end; cancel, attach."""

from __future__ import annotations

import time
from pathlib import Path

from slurmray.errors import SlurmError, UsageError
from slurmray.slurm import commands
from slurmray.slurm.states import (
    FINAL,
    End,
    Event,
    attach_command_of,
    end_of,
    parse_end,
    parse_events,
    parse_job,
)

# Seconds between two requests to slurmctld: the first pause, its growth, the longest one.
_FIRST_PAUSE, _GROWTH, _LONGEST_PAUSE = 1.0, 1.5, 30.0
_SLURMCTLD_TIMEOUT = 600  # seconds; a restart of slurmctld takes less


class Job:
    """A Slurm job whose script slurmray rendered.

    `submit` returns one. The job id is enough to make it again, in any process that can run Slurm's commands.
    """

    def __init__(
        self, id: int, *, folder: str | Path = ".", run_dir: str = "slurmray-runs", cluster: str | None = None
    ) -> None:
        """The job with that id.

        run_dir: as in its job spec. folder: where it was submitted; needed once Slurm has forgotten the job.
        cluster: the Slurm cluster, unless it is the default one.
        """
        if isinstance(id, bool) or not isinstance(id, int) or id < 1:
            raise UsageError(f"Job: expected the number of a job, for example 1234, got {id!r}")
        self.id = id
        self.cluster = cluster
        self._folder = Path(folder).absolute()
        self._run_dir = run_dir
        self._outputs: list[Path] = []

    def __repr__(self) -> str:
        return f"Job({self.id})"

    def state(self) -> str:
        """Return Slurm's name of the state: PENDING, RUNNING, COMPLETED, FAILED and so on.

        SlurmError where Slurm does not answer, or where neither it nor the run directory knows the job.
        """
        return (self._current() or self._past()).state

    def wait(self, timeout: float | None = None) -> End:
        """Wait until the job has ended, and return how; TimeoutError after `timeout` seconds.

        Polls slurmctld, first after a second, then less and less often, down to twice a minute. A job that
        `requeue` starts again has not ended. SlurmError as for `state`; once slurmctld has answered,
        10 minutes without an answer are tolerated.
        """
        begun, answered = time.monotonic(), float("-inf")
        pause = _FIRST_PAUSE
        while True:
            try:
                now = self._current()
                answered = time.monotonic()
            except SlurmError:
                if time.monotonic() - answered > _SLURMCTLD_TIMEOUT:
                    raise
            else:
                now = now or self._past()
                if now.state in FINAL:
                    return now
            left = pause if timeout is None else begun + timeout - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {self.id} has not ended within {timeout:g} s")
            time.sleep(min(pause, left))
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    def logs(self) -> str:
        """Return the job's log so far: its output, then its errors where `slurm.error` separates them.

        It is empty before the job has started. UsageError if the file cannot be read here, or is not in the
        folder of a job that Slurm has forgotten.
        """
        known = bool(self._outputs or self._record())
        parts = []
        for path in self._outputs or [self._folder / f"slurm-{self.id}.out"]:
            try:
                parts.append(path.read_text(encoding="utf-8", errors="replace"))
            except FileNotFoundError:
                if not known:
                    raise UsageError(
                        f"{path}: no such file: slurm.output of job {self.id} may name another one, "
                        "or give Job the folder in which it was submitted"
                    ) from None
            except OSError as error:
                raise UsageError(f"{path}: can't be read: {error.strerror}") from None
        return "".join(parts)

    def cancel(self) -> None:
        """End the job by `scancel`, to which an ended job is no error. SlurmError if Slurm refuses."""
        argv = self._argv("scancel", str(self.id))
        done = commands.call(argv)
        if done.returncode != 0:
            raise commands.refusal(argv, done.stderr)

    def attach_command(self) -> str:
        """Return the shell command, `srun --overlap ...`, that runs `ray` in the head node's container.

        docs/guides/debugging.md has other uses of it. SlurmError while the job has no cluster that is ready.
        Read from the run directory; UsageError if that cannot be read here.
        """
        record = self._record()
        state = record.get("JobState", "not known to Slurm")
        if state != "RUNNING":
            raise SlurmError(f"job {self.id}: no cluster to attach to, the job is {state}")
        run = self._runs / f"{self.id}-{record.get('Restarts', '0')}"
        events = _events_in(run)
        if not events:
            text = f"no events in {run} yet; if this stays so, give Job the run_dir of its job spec"
            raise SlurmError(f"job {self.id}: {text}")
        command = attach_command_of(events)
        if command is None:
            raise SlurmError(f"job {self.id}: cluster not ready; see the job's log")
        return command

    def _current(self) -> End | None:
        """State and exit code from slurmctld; None: it does not know the job, or no longer."""
        record = self._record()
        return parse_end(record["JobState"], record["ExitCode"]) if record else None

    def _record(self) -> dict[str, str]:
        """The fields of `scontrol show job`, none if slurmctld does not know it. Notes folder and log."""
        argv = self._argv("scontrol", "show", "job", str(self.id))
        done = commands.call(argv)
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            raise commands.refusal(argv, done.stderr)
        record = parse_job(done.stdout)
        if record:
            self._folder = Path(record["WorkDir"])
            paths = (record.get("StdOut"), record.get("StdErr"))
            self._outputs = [Path(path) for path in dict.fromkeys(paths) if path]
        return record

    def _past(self) -> End:
        """How a job ended that slurmctld has forgotten: from the accounting, or from the run directory."""
        return self._accounted() or self._recorded()

    def _accounted(self) -> End | None:
        """The end in the accounting; None: there is no accounting, or it has no end of the job."""
        output = commands.sacct("State,ExitCode", *self._clusters(), f"--jobs={self.id}")
        state, _, code = output.strip().partition("|")
        end = parse_end(state, code) if code else None
        return end if end and end.state in FINAL else None

    def _recorded(self) -> End:
        """The end that the last attempt has recorded in its run directory."""
        runs = self._runs
        numbers = [path.name.partition("-")[2] for path in runs.glob(f"{self.id}-[0-9]*")]
        last = max((int(number) for number in numbers if number.isdecimal()), default=0)
        end = end_of(_events_in(runs / f"{self.id}-{last}"))
        if end is None:
            fix = "give Job the folder in which it was submitted, and run_dir of its job spec"
            raise SlurmError(f"job {self.id}: Slurm does not know it, and {runs} has no end of it: {fix}")
        return end

    @property
    def _runs(self) -> Path:
        """The folder of the run directories."""
        return self._folder / Path(self._run_dir).expanduser()

    def _argv(self, command: str, *arguments: str) -> list[str]:
        return [command, *self._clusters(), *arguments]

    def _clusters(self) -> list[str]:
        return [f"--clusters={self.cluster}"] if self.cluster else []


def _events_in(run: Path) -> list[Event]:
    """The events of a run directory; none where it has none."""
    path = run / "events.jsonl"
    try:
        return parse_events(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None
