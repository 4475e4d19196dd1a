"""A job that was submitted: asked after, waited for, ended."""

from __future__ import annotations

import re
import time
from pathlib import Path

from slurmray import slurm_commands
from slurmray.errors import SlurmError, UsageError
from slurmray.job_states import FINAL, End, parse_end, parse_events, parse_job

_FIRST, _MORE, _LONGEST = 1.0, 1.5, 30.0  # seconds from one question to the next; each pause is longer
_SILENCE = 600  # seconds; slurmctld is back from a restart long before


class Job:
    """A job of Slurm's whose script slurmray rendered.

    `submit` returns one; a number makes the same one again, in any process that Slurm's commands answer.
    """

    def __init__(
        self, id: int, *, folder: str | Path = ".", run_dir: str = "slurmray-runs", cluster: str | None = None
    ) -> None:
        """The job with that number.

        folder, run_dir: where it was submitted, and run_dir of its job spec; they count once Slurm has
        forgotten the job. cluster: where it is not the one that Slurm's commands ask by default.
        """
        if isinstance(id, bool) or not isinstance(id, int) or id < 1:
            raise UsageError(f"Job: expected the number of a job, as 1234, got {id!r}")
        self.id = id
        self.cluster = cluster
        self._folder = Path(folder).absolute()
        self._run_dir = run_dir
        self._outputs: list[Path] = []

    def __repr__(self) -> str:
        return f"Job({self.id})"

    def state(self) -> str:
        """Return Slurm's word for the state: PENDING, RUNNING, COMPLETED, FAILED and so on.

        SlurmError where Slurm does not answer, or where neither it nor the run directory knows the job.
        """
        return (self._asked() or self._remembered()).state

    def wait(self, timeout: float | None = None) -> End:
        """Wait until the job has ended, and return how; TimeoutError after `timeout` seconds.

        Asks Slurm after a second, then ever more rarely, down to twice a minute. A job that starts anew by
        `requeue` has not ended. SlurmError as for `state`; once Slurm has answered, ten minutes without an
        answer are borne.
        """
        begun, heard = time.monotonic(), float("-inf")
        pause = _FIRST
        while True:
            try:
                now = self._asked()
                heard = time.monotonic()
            except SlurmError:
                if time.monotonic() - heard > _SILENCE:
                    raise
            else:
                now = now or self._remembered()
                if now.state in FINAL:
                    return now
            left = pause if timeout is None else begun + timeout - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {self.id} has not ended within {timeout:g} s")
            time.sleep(min(pause, left))
            pause = min(pause * _MORE, _LONGEST)

    def logs(self) -> str:
        """Return the job's log until now: its output, then its errors where `slurm.error` parts them.

        It is empty before the job has started. UsageError if the file cannot be read here.
        """
        if not self._outputs:
            self._record()
        parts = []
        for path in self._outputs or [self._folder / f"slurm-{self.id}.out"]:
            try:
                parts.append(path.read_text(encoding="utf-8", errors="replace"))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise UsageError(f"{path}: can't be read: {error.strerror}") from None
        return "".join(parts)

    def cancel(self) -> None:
        """End the job by `scancel`, to which an ended job is no error. SlurmError if Slurm refuses."""
        words = self._words("scancel", str(self.id))
        done = slurm_commands.call(words)
        if done.returncode != 0:
            raise slurm_commands.refusal(words, done.stderr)

    def attach_command(self) -> str:
        """Return the line of bash, `srun --overlap ...`, that asks Ray in the head's container.

        It is the one of the job's log; docs/launch.md says what else it can ask. SlurmError while the job has
        no whole cluster.
        """
        record = self._record()
        path = f"/ray-{self.id}-{record.get('Restarts', '0')}/ray "
        lines = re.findall(r"^\[slurmray .+ s\] to look in: (srun .+)$", self.logs(), re.MULTILINE)
        lines = [line for line in lines if path in line]
        state = record.get("JobState", "not known to Slurm")
        if state != "RUNNING" or not lines:
            raise SlurmError(f"job {self.id}: its cluster is not up, the job is {state}: see its log")
        return str(lines[-1])

    def _asked(self) -> End | None:
        """What slurmctld says of the job; None: it does not know it, or not any more."""
        record = self._record()
        return parse_end(record["JobState"], record["ExitCode"]) if record else None

    def _record(self) -> dict[str, str]:
        """The fields of `scontrol show job`, none if slurmctld does not know it; keeps where its log is."""
        words = self._words("scontrol", "show", "job", str(self.id))
        done = slurm_commands.call(words)
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            raise slurm_commands.refusal(words, done.stderr)
        record = parse_job(done.stdout)
        if record:
            self._folder = Path(record["WorkDir"])
            paths = (record.get("StdOut"), record.get("StdErr"))
            self._outputs = [Path(path) for path in dict.fromkeys(paths) if path]
        return record

    def _remembered(self) -> End:
        """How a job ended that slurmctld has forgotten: by the accounting, or by the run directory."""
        return self._accounted() or self._noted()

    def _accounted(self) -> End | None:
        """What the accounting says; None: there is none, or it knows no end of the job."""
        words = self._words("sacct", "--allocations", "--noheader", "--parsable2", "--format=State,ExitCode")
        done = slurm_commands.call([*words, f"--jobs={self.id}"])
        state, _, code = done.stdout.strip().partition("|")
        end = parse_end(state, code) if done.returncode == 0 and code else None
        return end if end and end.state in FINAL else None

    def _noted(self) -> End:
        """What the last attempt has noted in its run directory."""
        runs = self._folder / Path(self._run_dir).expanduser()
        attempts = {int(path.name.partition("-")[2]): path for path in runs.glob(f"{self.id}-[0-9]*")}
        end = None
        if attempts:
            events = attempts[max(attempts)] / "events.jsonl"
            end = parse_events(events.read_text(errors="replace")) if events.exists() else None
        if end is None:
            remedy = "give Job the folder in which it was submitted, and run_dir of its job spec"
            raise SlurmError(f"job {self.id}: Slurm does not know it, and {runs} has no end of it: {remedy}")
        return end

    def _words(self, command: str, *words: str) -> list[str]:
        return [command, *([f"--clusters={self.cluster}"] if self.cluster else []), *words]
