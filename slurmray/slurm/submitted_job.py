"""A submitted job: its state, log and end; how to cancel it, and attach to it."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from slurmray.agent.combinations import combination, count
from slurmray.agent.container.head import dashboard_host
from slurmray.agent.job_record import FORMS, read_array_task
from slurmray.agent.paths import CANCEL_NOW, SAMPLES, USAGE
from slurmray.agent.script_parts import read_settings
from slurmray.errors import SlurmError, UsageError
from slurmray.slurm import slurm_commands
from slurmray.slurm.account import (
    Account,
    Period,
    list_allocations,
    list_periods,
    make_account,
    measure_idle,
)
from slurmray.slurm.attach_step import Place, attach_argv
from slurmray.slurm.host import get_host
from slurmray.slurm.job_status import Status, make_status
from slurmray.slurm.log_end import end_in_log
from slurmray.slurm.log_folder import LogFolder
from slurmray.slurm.run_directories import attempts, expand, last_attempt, read_events
from slurmray.slurm.starts import Restart, find_bad_nodes, find_restarts
from slurmray.slurm.states import (
    FINAL,
    End,
    Event,
    last_start,
    parse_components,
    parse_end,
    parse_job,
    parse_time,
    recorded_end,
    with_head_loss,
)
from slurmray.slurm.tasks import list_tasks
from slurmray.slurm.usage import (
    NodeHeat,
    NodeUse,
    count_columns,
    measure_heat,
    parse_samples,
    parse_usage,
)
from slurmray.sweeps import is_sweep

if TYPE_CHECKING:
    from slurmray.agent.wire.settings import Settings

# Seconds between two requests to slurmctld: the first pause, its growth, the longest one.
_FIRST_PAUSE, _GROWTH, _LONGEST_PAUSE = 1.0, 1.5, 30.0
_MAX_ATTEMPTS = 1000  # whose events are read
_END_OF_LOG = 1 << 16  # bytes
_MAX_USAGE = 16 << 20  # bytes
_MAX_SAMPLES = 4 << 20  # bytes of a node; the node agent writes less
_MAX_SAMPLE_FILES = 1024
_CLOCK_DIFFERENCE = 300.0  # seconds, between slurmctld and the head node: munge accepts no more
_SLURMCTLD_TIMEOUT = 600  # seconds; a restart of slurmctld takes less


# Writes into a file of the user that is empty. bash looks at the open file where a condition has the name
# /dev/fd/3: somebody may replace it by a link meanwhile.
_WRITE_NOW = """[[ -f $1 && ! -L $1 && -O $1 ]] && exec 3<>"$1" || exit
[[ -f /dev/fd/3 && -O /dev/fd/3 ]] && { [[ -s /dev/fd/3 ]] || echo now >&3; }"""


class Job:
    """A Slurm job whose script slurmray rendered.

    `submit` returns one. Job(ID) makes it from its id, in any process that can run Slurm's commands.
    """

    def __init__(
        self,
        id: int,
        *,
        task: int | None = None,
        folder: str | Path = ".",
        run_dir: str | None = None,
        cluster: str | None = None,
        host: str | None = None,
        sweep: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Make the job with an id. UsageError if it is no positive integer.

        task: SLURM_ARRAY_TASK_ID of a task of an array, whose id `id` is. run_dir, sweep: as in its job spec;
        None: as in its script, while Slurm has that. folder: where it was submitted, for a job that Slurm has
        forgotten. cluster: None is the default one. host: with Slurm's commands and the files, as for ssh;
        None is this one.
        """
        if isinstance(id, bool) or not isinstance(id, int) or id < 1:
            raise UsageError(f"Job: expected the number of a job, for example 1234, got {id!r}")
        if task is not None and (isinstance(task, bool) or not isinstance(task, int) or task < 0):
            raise UsageError(f"Job: expected the number of a task, for example 0, got {task!r}")
        self.id = id
        self.task = task
        self.cluster = cluster
        self._cluster_option = slurm_commands.cluster_option(cluster)
        self.host = get_host(host)
        self._folder = Path(folder) if host else Path(folder).absolute()
        self._run_dir = run_dir
        self._sweep = sweep
        self.sbatch_code = 0  # with slurm.wait, that of the job
        self._outputs: list[Path] = []
        self._shown = ""  # of scontrol, in the last request about the job
        self._state = ""  # by Slurm, in the last request about the job
        self._is_asked = False  # Slurm, for the folder
        self._is_own = False  # Slurm has said so

    def __repr__(self) -> str:
        return f"Job({self.id})" if self.task is None else f"Job({self.id}, task={self.task})"

    @property
    def name(self) -> str:
        """The job for Slurm's commands, and in names of files: its id, or ARRAY_TASK."""
        return str(self.id) if self.task is None else f"{self.id}_{self.task}"

    @cached_property
    def sweep(self) -> Mapping[str, Sequence[str]]:
        """The parameters of its sweep, with their values; {} without one, or if its script is forgotten."""
        if self._sweep is not None:
            return self._sweep
        try:
            parameters = self._settings().get("sweep")
        except SlurmError:
            return {}
        return parameters if is_sweep(parameters) else {}

    @property
    def parameters(self) -> Mapping[str, str]:
        """The values of the sweep's parameters in this task; {} if it is none, or they are not known."""
        return {} if self.task is None else combination(self.sweep, self.task)

    def is_array(self) -> bool:
        """Whether it is an array, of which each task is a job: see `tasks`. SlurmError as for `state`."""
        if self.task is not None:
            return False
        if self._sweep is not None:
            return bool(self._sweep)
        return self._is_array(self._request())

    def _is_array(self, record: Mapping[str, str]) -> bool:
        return self.task is None and record.get("ArrayJobId") == str(self.id)

    def tasks(self) -> list[Task]:
        """Return the tasks of a sweep or another array, by their numbers; [] for another job.

        A job that Slurm has forgotten counts as an array only if it was made with its `sweep`.
        """
        if not self.is_array():
            return []
        self._check_owner()
        tasks = []
        rows = list_tasks(self.id, self.cluster, self.host, self._runs, count(self._sweep or {}))
        places: dict[str, Any] = {"folder": self._folder, "run_dir": self._run_dir, "sweep": self.sweep}
        for number, state, reason, text in rows:
            job = Job(self.id, task=number, cluster=self.cluster, host=self.host.name, **places)
            tasks.append(Task(number, job, state, reason, text, job.parameters))
        return tasks

    def state(self) -> str:
        """Return Slurm's name of the state: PENDING, RUNNING, COMPLETED, FAILED and so on.

        SlurmError if Slurm does not answer, or neither Slurm nor the run directory knows the job.
        """
        return self._end(self._record()).state

    def wait(self, timeout: float | None = None) -> End:
        """Wait until the job has ended, and return how; TimeoutError after `timeout` seconds.

        Polls slurmctld, at first after a second, then less and less often, down to twice a minute. A requeued
        job has not ended. SlurmError as for `state`, but once slurmctld has answered, only after 10 minutes
        without an answer.
        """
        begun = time.monotonic()
        for now, pause in self.polls():
            if now.state in FINAL:
                return now
            left = pause if timeout is None else begun + timeout - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(pause, left))
        raise TimeoutError(f"job {self.name} has not ended within {timeout:g} s")

    def polls(self) -> Iterator[tuple[End, float]]:
        """Yield state and exit code each time it is resumed, and seconds to wait before the next time.

        Without end; errors as for `wait`.
        """
        answered, pause, now = float("-inf"), _FIRST_PAUSE, End("UNKNOWN", 0, 0)
        while True:
            try:
                now = self._end(self._record())
                answered = time.monotonic()
            except SlurmError:
                if time.monotonic() - answered > _SLURMCTLD_TIMEOUT:
                    raise
            yield now, pause
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    def status(self) -> Status:
        """Return where the job stands: phase, steps with their times, findings, and how it ended.

        SlurmError as for `state`. Without a readable run directory it has only what Slurm knows.
        """
        record = self._record()
        end = self._end(record)
        known = record or {"ExitCode": f"{end.exit_code}:{end.signal}"}
        events = self.events()
        usage = None  # unless the job has written it
        if events and end.state == "RUNNING":
            path = self._runs / f"{self.name}-{last_attempt(self._runs, self.name, self.host)}" / USAGE
            with suppress(OSError):
                usage = parse_usage(self.host.read(path, limit=_MAX_USAGE))
        return make_status(self.id, end.state, known, events, time.time(), usage, self.task)

    def utilization(self) -> Mapping[str, NodeUse]:
        """Return {node: what it uses} of a running job, by the nodes' latest samples: see `watch.interval`.

        Empty before the first samples and after the end. SlurmError as for `state`.
        """
        usage = self.status().usage
        return usage.nodes if usage else {}

    def events(self, attempt: int | None = None) -> list[Event]:
        """Return the events of an attempt, see docs/reference/events.md; [] before it has some.

        attempt: None is the last one, with the loss of its head node if only Slurm has noticed that.
        """
        number = last_attempt(self._runs, self.name, self.host) if attempt is None else attempt
        events = read_events(self._runs / f"{self.name}-{number}", self.host)
        if self._is_of_earlier_job(number, events):
            return []
        if self._state == "NODE_FAIL" and number >= last_attempt(self._runs, self.name, self.host):
            return with_head_loss(events, parse_time(parse_job(self._shown).get("EndTime", "")))
        return events

    def restarts(self, attempt: int | None = None) -> list[Restart]:
        """Return the starts of Ray and trainer in an attempt after its first one.

        attempt: None is the last one.
        """
        return find_restarts(self.events(attempt))

    def bad_nodes(self) -> dict[str, str]:
        """Return {node: why} of the nodes that the job lost or set aside, in all attempts.

        UsageError for a job of another user, or if its events cannot be read.
        """
        self._record()  # for owner and folder
        bad: dict[str, str] = {}
        for number in attempts(self._runs, self.name, self.host)[-_MAX_ATTEMPTS:]:
            bad |= find_bad_nodes(self.events(number))
        return bad

    def _is_of_earlier_job(self, attempt: int, events: Sequence[Event]) -> bool:
        """Whether a run directory is of an earlier job with the same id, by the last request about this one.

        Not by the submit time: a job of another cluster may be later. Each job sets such a directory aside
        when it starts. Slurm knows the start of the last attempt; for a job that was cancelled before, that
        is when it was cancelled.
        """
        record = parse_job(self._shown)
        if not events or "StartTime" not in record or attempt < int(record.get("Restarts", 0)):
            return False
        began = None if record["JobState"] == "PENDING" else parse_time(record["StartTime"])
        return began is None or bool(events[0]["time"] < began - _CLOCK_DIFFERENCE)

    def report(self) -> str:
        """Return a page about the job, as HTML that needs no other file.

        Errors as for `status`. It has the settings of the job's script, without values of variables, while
        Slurm knows the job.
        """
        from slurmray.slurm.report_page import render_report

        status = self.status()
        attempts = self._attempts(status)
        heat, account = self._measure(status, attempts)
        *earlier, events = attempts
        page = render_report(status, events, earlier, self._script(), time.time(), heat, account)
        return page.encode(errors="replace").decode()  # a script may have bytes that are not UTF-8

    def account(self) -> Account | None:
        """Return what the job's GPU hours were used for, in all its attempts; None before the first start.

        It reads the files of samples of all nodes. Errors as for `status`.
        """
        status = self.status()
        return self._measure(status, self._attempts(status))[1]

    def _attempts(self, status: Status) -> list[list[Event]]:
        """The events of each attempt up to the last one; [] where they are not recorded."""
        known = attempts(self._runs, self.name, self.host)
        numbers = range(min(status.attempt, _MAX_ATTEMPTS))
        return [*(self.events(number) if number in known else [] for number in numbers), self.events()]

    def _measure(
        self, status: Status, attempts: Sequence[Sequence[Event]]
    ) -> tuple[dict[str, NodeHeat], Account | None]:
        """How busy the GPUs of each node were in the last attempt, and the account.

        attempts: by _attempts.
        """
        now = time.time()
        allocations = list_allocations(status, attempts, now)
        periods: dict[tuple[int, str], list[Period]] = {}
        for period in list_periods(allocations):
            periods.setdefault((period.attempt, period.node), []).append(period)
        last = len(attempts) - 1
        files = self._sample_files(status, last, periods) if allocations else []
        columns = count_columns(sum(number == last for number, *_ in files))
        heat: dict[str, NodeHeat] = {}
        idle: dict[Period, float] = {}
        for number, node, path in files:
            with suppress(OSError):  # one at a time, as they are up to 1 MB each
                samples = [*parse_samples(self.host.read(path, limit=_MAX_SAMPLES))]
                idle |= measure_idle(samples, periods.get((number, node), []))
                if number == last and status.timeline:
                    began, step = status.timeline.began, status.steps[-1]
                    seconds = max(1.0, step.began + step.seconds - began)
                    if busy := measure_heat(samples, began, seconds, columns):
                        heat[node] = busy
        return heat, make_account(status, allocations, idle, now)

    def _sample_files(
        self, status: Status, last: int, wanted: Collection[tuple[int, str]]
    ) -> list[tuple[int, str, Path]]:
        """Attempt, node and path of files of samples: all of the last attempt, then those that are wanted."""
        files = []
        for number in sorted({last, *(number for number, _ in wanted)}, reverse=True):
            folder = self._logs(None)[0].path if number == last else self._runs / f"{self.name}-{number}/logs"
            names = [name.removesuffix(SAMPLES) for name in self.host.names(folder) if name.endswith(SAMPLES)]
            files += [
                (number, node, folder / f"{node}{SAMPLES}")
                for node in sorted(names, key=lambda name: (name not in status.nodes, name))
                if number == last or (number, node) in wanted
            ]
        return files[:_MAX_SAMPLE_FILES]

    def _script(self) -> str:
        """Return the job's script; "" if Slurm does not have it any more, or refuses to show it."""
        self._check_owner()
        argv = self._argv("scontrol", "write", "batch_script", self.name, "-")
        return slurm_commands.call(argv, host=self.host).stdout

    def logs(self, last: int | None = None) -> str:
        """Return the job's log so far: its stdout and, if `slurm.error` sets another file, its stderr.

        last: at most so many bytes of each, from the end; None: all.

        Empty before the job starts. UsageError if the log cannot be read here, or if Slurm has forgotten the
        job and the log is not in its folder.
        """
        known = bool(self._outputs or self._record())
        parts = []
        for path in self.outputs():
            try:
                parts.append(self.host.read(path, last=last).decode(errors="replace"))
            except FileNotFoundError:
                if not known:
                    raise UsageError(
                        f"{path}: no such file: slurm.output of job {self.name} may name another one, "
                        "or run this in the folder in which it was submitted"
                    ) from None
            except OSError as error:
                raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
        return "".join(parts)

    def node_log(self, node: str, attempt: int | None = None, last: int | None = None) -> str:
        """Return what was printed on a node. attempt: None is the last one. last: as for `logs`.

        UsageError if there is no log.
        """
        return self._log_folder(attempt).node_log(node, last)

    def services(self) -> list[str]:
        """Return the names of the services that have a log in the last attempt; [] before it has some."""
        folder, is_own = self._logs(None)
        return sorted(folder.service_logs()) if is_own else []

    def service_log(
        self, service: str, node: str | None = None, attempt: int | None = None, last: int | None = None
    ) -> str:
        """Return what a service printed, and its readiness check.

        node: None is all nodes; if there are several, the text of each follows a line `==> NODE <==`.
        attempt: None is the last one. last: of each node, as for `logs`. UsageError if there is no log.
        """
        return self._log_folder(attempt).service_log(service, node, last)

    def last_logs(self, nodes: Sequence[str], last: int) -> Iterator[tuple[str, str]]:
        """Yield name and text of the logs of nodes and services in the last attempt that can be read.

        Slurm is not asked again. last: at most so many bytes of a node or a service, from the end.
        """
        folder, is_own = self._logs(None)
        return folder.last_logs(nodes, last) if is_own else iter(())

    def ray_logs(self, node: str, attempt: int | None = None) -> dict[str, str]:
        """Return Ray's logs of a node by file name, of each the end: see `ray.keep_logs` in the job spec.

        attempt: None is the last one. UsageError if the node has none.
        """
        return self._log_folder(attempt).ray_logs(node)

    def _log_folder(self, attempt: int | None) -> LogFolder:
        self._record()  # for the folder
        folder, is_own = self._logs(attempt)
        if not is_own:
            raise UsageError(
                f"{folder.path}: is of an earlier job with the same id; this one has no logs yet"
            )
        return folder

    def _logs(self, attempt: int | None) -> tuple[LogFolder, bool]:
        """Return the folder of an attempt's logs, and whether it is this job's."""
        number = last_attempt(self._runs, self.name, self.host) if attempt is None else attempt
        run = self._runs / f"{self.name}-{number}"
        events: list[Event] = []
        with suppress(UsageError):  # logs can be read without them
            events = read_events(run, self.host)
        return LogFolder(self.host, run / "logs"), not self._is_of_earlier_job(number, events)

    def outputs(self) -> list[Path]:
        """Return the files of the job's log, as Slurm has named them in the last request about the job."""
        return self._outputs or [self._folder / f"slurm-{self.name}.out"]

    def files(self) -> list[Path]:
        """Return the job's log and its run directories, those that exist. Errors as for `state`."""
        self.state()  # for owner, folder and log
        logs = [path for path in self.outputs() if path.name in self.host.names(path.parent)]
        numbers = attempts(self._runs, self.name, self.host)
        return [*logs, *(self._runs / f"{self.name}-{number}" for number in numbers)]

    def cancel(self, *, now: bool = False) -> bool:
        """Cancel the job, or all tasks of an array, with `scancel`, which does nothing to an ended job.

        SlurmError if Slurm refuses.

        now: without the trainer's grace period; one that has begun ends. Return whether that was possible:
        not if its run directory cannot be written here. Then, and without `now`, the trainer has its grace
        period.
        """
        self._check_owner()
        slurm_commands.output(self._argv("scancel", self.name), host=self.host)
        if not now:
            return False
        known = (*FINAL, "PENDING")
        jobs = [task.job for task in self.tasks() if task.state not in known] if self.is_array() else [self]
        ended = [job._end_grace_period() for job in jobs]
        return all(ended)

    def _end_grace_period(self) -> bool:
        """Write into the file that the job reads while its trainer has its grace period; see `cancel`."""
        record = self._record()
        if record.get("JobState") in (*FINAL, None):
            return True
        path = self._runs / f"{self.name}-{record.get('Restarts', '0')}" / CANCEL_NOW
        argv = ["bash", "-c", _WRITE_NOW, "bash", str(path)]
        return slurm_commands.call(argv, host=self.host).returncode == 0

    def attach_argv(
        self, command: Sequence[str] = (), *, node: str | None = None, is_terminal: bool = False
    ) -> list[str]:
        """Return `srun --overlap ...`, which runs a command with the cluster's address and token.

        command: empty is a shell. node: in whose container; None is the head node's. is_terminal: whether
        srun is started on a terminal.

        UsageError for another node, or if the run directory cannot be read here. SlurmError while the cluster
        is not ready.
        """
        record = self._record()
        nodes, events = self._running(record)
        settings, place = self._settings(), self._place(record, node, nodes)
        try:
            argv = attach_argv(place, settings, _last(events, "attach"), command, is_terminal=is_terminal)
        except SlurmError as error:
            raise SlurmError(f"job {self.name}: {error}") from None
        return [*argv[:1], *self._cluster_option, *argv[1:]]

    def dashboard_address(self) -> tuple[str, int]:
        """Return address and port of Ray's dashboard on the head node. SlurmError while there is none."""
        record = self._record()
        (_, events), settings = self._running(record), self._settings()
        try:
            fixed = settings["ray"]["dashboard_port"]
            port = _last(events, "dashboard")["port"] if fixed == "auto" else int(fixed)
        except SlurmError as error:
            raise SlurmError(f"job {self.name}: {error}") from None
        return dashboard_host(settings), port

    def _running(self, record: Mapping[str, str]) -> tuple[Sequence[str], Sequence[Event]]:
        """Return `last_start` of the running attempt. SlurmError if the job does not run or has no events."""
        state = record.get("JobState", "not known to Slurm")
        if state != "RUNNING":
            raise SlurmError(f"job {self.name}: the job is {state}; attach while it is RUNNING")
        run = self._runs / f"{self.name}-{record.get('Restarts', '0')}"
        events = read_events(run, self.host)
        if not events:
            raise SlurmError(f"job {self.name}: no events in {run} yet")
        return last_start(events)

    def _settings(self) -> Settings:
        """Return the settings of the job's script, as Slurm keeps it. SlurmError if it is not slurmray's."""
        try:
            return read_settings(self._script())
        except ValueError:
            raise SlurmError(f"job {self.name}: its script was not rendered by slurmray") from None

    def _place(self, record: Mapping[str, str], node: str | None, recorded: Sequence[str]) -> Place:
        """Return a node of the job, by Slurm's record; None is the head node. UsageError for another node.

        recorded: nodes of its last start, of which the first one is the head node, if Slurm knows it.
        """
        nodes = {
            number: slurm_commands.hostnames(names, self.host)
            for number, names in parse_components(self._shown).items()
        }
        known = [name for names in nodes.values() for name in names]
        node = node or next((name for name in recorded if name in known), known[0])
        if node not in known:
            text = f"no node {node}; its nodes are {', '.join(known[:8])}"
            raise UsageError(f"job {self.name}: --node: {text}")
        component = next(number for number, names in nodes.items() if node in names)
        return Place(
            self.name, int(record.get("JobId", self.id)), int(record.get("Restarts", "0")), node, component
        )

    def _record(self) -> dict[str, str]:
        """Return the fields of `scontrol show job`, {} for an unknown job; store folder and log."""
        record = self._request()
        if self._is_array(record):
            raise UsageError(f"job {self.name} is an array: name one of its tasks, e.g. {self.name}_0")
        return record

    def _request(self) -> dict[str, str]:
        """The same, also for an array: the fields of one of its tasks."""
        self._is_asked = True
        self._check_owner()
        argv = self._argv("scontrol", "show", "job", self.name)
        # Seconds since 1970: the host may be in another time zone.
        variables = {"SLURM_TIME_FORMAT": "%s"}
        self._shown = slurm_commands.output(argv, host=self.host, variables=variables, may_be_unknown=True)
        record = parse_job(self._shown)
        if not record and self._shown.startswith("JobId="):
            reason = "`scontrol show job` has lines that are not Slurm's, e.g. of a name with line breaks"
            raise SlurmError(f"job {self.name}: {reason}: use Slurm's commands for it")
        if self.task is None and not self._is_array(record) and (name := read_array_task(record)):
            self.id, self.task = map(int, name.split("_"))  # by its own id
        if record:
            self._state = record["JobState"]
            self._folder = Path(record["WorkDir"])
            paths = (record.get("StdOut"), record.get("StdErr"))
            self._outputs = [Path(path) for path in dict.fromkeys(paths) if path]
        return record

    def _check_owner(self) -> None:
        """UsageError for a job of another user, whose files could have anything in them."""
        if self._is_own:
            return
        owner = slurm_commands.owner(self.name, self.host, self.cluster)
        if owner and owner[0] != self.host.uid:
            raise UsageError(f"job {self.name} is {owner[1]}'s, not yours")
        self._is_own = bool(owner)

    def _end(self, record: Mapping[str, str]) -> End:
        """Return state and exit code. record: {} if slurmctld has forgotten the job.

        They are then from the accounting, or the run directory.
        """
        if record:
            return parse_end(record["JobState"], record["ExitCode"])
        return self._accounted() or self._recorded()

    def _accounted(self) -> End | None:
        """Return the end in the accounting; None without accounting, or if the job has no end there."""
        selected = (*self._cluster_option, f"--jobs={self.name}")
        output = slurm_commands.sacct("UID,User,State,ExitCode", *selected, host=self.host)
        # A heterogeneous job has a line for each component.
        uid, user, state, code = (output.partition("\n")[0].split("|") + [""] * 4)[:4]
        if uid and uid != str(self.host.uid):
            raise UsageError(f"job {self.name} is {user}'s, not yours")
        end = parse_end(state, code) if re.fullmatch(FORMS["ExitCode"], code) else None
        self._state = end.state if end else ""
        return end if end and end.state in FINAL else None

    def cancelled_by(self) -> tuple[str, bool] | None:
        """Return who cancelled the job, and whether that is its owner; None if Slurm does not know.

        Only Slurm's accounting has it.
        """
        output = slurm_commands.sacct(
            "State,UID", *self._cluster_option, f"--jobs={self.name}", host=self.host
        )
        match = re.match(r"CANCELLED by (\d+)\|(\d+)", output)
        if not match:
            return None
        name = slurm_commands.call(["id", "-nu", match[1]], host=self.host).stdout.strip()
        return name or f"uid {match[1]}", match[1] == match[2]

    def _recorded(self) -> End:
        """Return the end that the last attempt has recorded in its run directory, or in the job's log."""
        runs = self._runs
        end = recorded_end(self.events())
        if end is None:
            with suppress(OSError):
                log = self.host.read(self.outputs()[0], last=_END_OF_LOG).decode(errors="replace")
                end = end_in_log(log)
        if end is None:
            fix = "check the number, or run this in the folder in which it was submitted"
            raise SlurmError(
                f"job {self.name}: unknown to Slurm, and {runs} does not show how it ended: {fix}"
            )
        return end

    @property
    def _runs(self) -> Path:
        """The folder of the run directories. Without an answer of Slurm, in the one that Job was given."""
        if not self._is_asked:
            with suppress(SlurmError):
                self._request()
        if self._run_dir is None:
            self._run_dir = "slurmray-runs"
            with suppress(SlurmError):
                self._run_dir = expand(self._settings()["run_dir"], self.id, self.host)
        return self._folder / self.host.expand(self._run_dir)

    def _argv(self, command: str, *arguments: str) -> list[str]:
        return [command, *self._cluster_option, *arguments]


class Task(NamedTuple):
    """A task of an array."""

    number: int  # SLURM_ARRAY_TASK_ID
    job: Job  # the task as a job
    state: str  # Slurm's name of it; UNKNOWN if nothing knows it
    reason: str  # why it waits or never started; else ""
    text: str  # the last line of its log; "" without one
    parameters: Mapping[str, str]  # those of the sweep, with their values; {} in another array

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**self._asdict(), "job": self.job.name}


def _last(events: Sequence[Event], name: str) -> Event:
    """Return the last event with a name. SlurmError without one."""
    matching = [event for event in events if event["event"] == name]
    if not matching:
        raise SlurmError("cluster not ready; see the job's log")
    return matching[-1]
