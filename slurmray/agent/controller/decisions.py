"""The controller's decisions: what happens next, and how the job ends.

`Controller` gets messages and the time and acts through `Actions`, so tests can simulate everything
around it. controller_process.py has the real process.
"""

from .. import heartbeat, signals
from ..nodes import may_be_lost
from . import findings, message_check, srun_errors, state
from .bring_up import BringUp
from .host_list import and_names, host_list, names
from .node_usage import Usage
from .stage_progress import BURN_IN, StageProgress
from .stall import StallWatch
from .state import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

    from ..job_log import JobLog
    from ..wire import codec, messages
    from ..wire.settings import Job, Settings
    from .burn_in_figures import BurnInFigures

FINDINGS_WAIT = 10.0  # seconds after the first finding, in which other nodes may send theirs
HEALTH_CHECK_WAIT = 5.0  # seconds for the nodes to answer whether Ray runs, after the trainer has failed
READY_MARGIN = 15  # seconds added to the probe's timeout: its error is the more detailed one
REACHABILITY_WAIT = 0.5  # seconds during which workers' addresses are collected into one message
STEP_SIGNAL_DELAY = 3.0  # seconds by which Slurm may signal steps before the batch script
SIGNAL_DELAY = 2.0  # seconds in which a signal may reach several processes: tasks, and the batch script
ASK_INTERVAL = 1.0  # seconds between two questions to hosts without heartbeats
LIMIT_MARGIN = 15  # seconds of stop.lead that remain for clean-up before the time limit
GPUS_WAIT = 12.0  # seconds for the nodes to answer whether they still have their GPUs
STOP_MARGIN = 5  # seconds after the grace period in which the trainer's exit code may arrive
NODE_LOSSES = ("ray", "node_lost")  # kinds of failures
UNFIT = ("preflight", "image")  # those of a node before it is in Ray
UNPREPARED = ("prepare", "service")  # those of a node in its stages
SLURMCTLD = "slurmctld"  # among the hosts that answer


class Actions:
    """Side effects of the controller. The process implements them; tests simulate them."""

    def send(self, message: "messages.ToNodes") -> None:
        """Send a message to all nodes."""

    def find_ended_jobs(self, node: str, jobs: "List[str]") -> None:
        """Send a node those of these jobs that have ended. For nodes without Slurm's commands."""

    def find_answers(self, addresses: "Dict[str, List[str]]") -> None:
        """Find out which hosts answer to a new connection, or SLURMCTLD: see Controller.on_answer.

        addresses: of each node; none where they are not known.
        """

    def start_services(self, folder: str) -> None:
        """Start services that are steps of their own: with pyxis, those with an image of their own.

        folder: the job's folder on the nodes.
        """

    def read_trainer_output(self, folder: str) -> None:
        """Copy the trainer's output to the job's log. The trainer starts once its output is read.

        folder: the job's folder on the head node.
        """

    def write_heartbeat_file(self) -> None:
        """Write a heartbeat into the run directory, for nodes that get no messages any more."""

    def write_usage(self, nodes: "Dict[str, Dict[str, Any]]") -> None:
        """Write what the nodes use into the run directory."""

    def mark_done(self, name: str) -> None:
        """Note in the run directory that a prepare step is done and need not be repeated after a requeue."""


class Controller:
    """Decides from the nodes' messages and the clock what happens next and how the job ends."""

    def __init__(
        self, settings: "Settings", job: "Job", log: "JobLog", actions: Actions, requests: state.Requests
    ) -> None:
        self.settings = settings
        self.job = job
        self.log = log
        self.actions = actions
        self.head = job["nodes"][0]
        self.requests = requests
        self.state = state.JobState([*job["nodes"], *job["spares"]], requests)
        self.nodes = self.state.nodes
        self._ignored: "Set[str]" = set()  # log lines about messages that were ignored
        self.monitor = heartbeat.Monitor(settings["timeouts"]["heartbeat"])
        self.findings = findings.Findings(log)
        self.bring_up = BringUp(log, len(self.nodes))
        self.stages = StageProgress(log, settings, job["nodes"])
        self.usage = Usage(settings["watch"]["interval"])
        self.stall = StallWatch(settings["watch"], job, log, actions.send)
        self.is_step_over = False
        self.not_ready: "List[Tuple[str, str]]" = []  # (node, why)
        self._heartbeat = heartbeat.Timer()
        self._ask = 0.0  # when to ask hosts without heartbeats again
        self._answered = float("-inf")  # when another host, or slurmctld, last did
        self._unfit_until = 0.0
        self._is_unfit_late = False  # a finding came after `checked`: it is about image or container
        self._unmatched: "Set[str]" = set()  # workers without a connection with the head node, or unlike it
        self._without_task: "Dict[str, float]" = {}  # nodes on which the step is over, and since when
        self._killed: "Dict[str, float]" = {}  # nodes whose task was killed, and since when; -1: a moment ago
        self._service_steps_over: "Dict[str, Tuple[List[str], int, float]]" = {}  # nodes, exit code, when
        self._output_step_over: "Optional[Tuple[int, float]]" = None  # likewise
        self._health_check_until: "Optional[float]" = None
        self._stop_until: "Optional[float]" = None
        self._is_trainer_stopping = False  # for another start
        self._later_logged = 0  # of state.later
        self._sent: "Set[str]" = set()  # requests that the nodes know
        self._is_waiting_logged = False
        self._signals: "Dict[str, float]" = {}  # names of signals for the trainer, and when they came
        self._peers: "Set[str]" = set()
        self._folder = ""  # the job's folder on the head node
        self._gcs = ""  # `host:port`
        self._is_proxy_set = False
        self._phases: "Set[Tuple[str, str]]" = set()
        self._thread_errors: "Set[str]" = set()  # their texts
        self._targets: "List[Tuple[str, str, List[int]]]" = []  # for the head node to connect to
        self._targets_due: "Optional[float]" = None
        self._figures: "Optional[BurnInFigures]" = None
        self._joining: "Dict[str, Set[str]]" = {}  # nodes that were spare -> stages that they have to do
        self._handlers: "Dict[str, Callable[[str, Any, float], None]]" = {
            "started": self._on_started,
            "heartbeat": self._on_heartbeat,
            "phase": self._on_phase,
            "versions": self._on_versions,
            "join": self._on_join,
            "joined": self._on_joined,
            "ready": self._on_ready,
            "burn_in": self._on_burn_in,
            "reachable_at": self._on_reachable_at,
            "finding": self._on_finding,
            "leftover_jobs": self._on_leftover_jobs,
            "unfit": self._on_unfit,
            "checked": self._on_checked,
            "stage_done": self._on_stage_done,
            "prepared": self._on_prepared,
            "trainer": self._on_trainer,
            "attach": self._on_attach,
            "dashboard": self._on_dashboard,
            "not_ready": self._on_not_ready,
            "exit": self._on_exit,
            "failed": self._on_failed,
            "healthy": self._on_healthy,
            "gpus": self._on_gpus,
            "stacks": self._on_stacks,
            "stop_requested": self._on_stop_requested,
            "signal": self._on_signal,
            "signalled": self._on_signalled,
            "tether_lost": self._on_tether_lost,
            "thread_error": self._on_thread_error,
            "gone": self._on_gone,
        }
        self._ready_timeout = settings["timeouts"]["ready"] + READY_MARGIN
        self._ready_deadline = float(self._ready_timeout)

    # -- inputs ------------------------------------------------------------------------------------------

    def on_message(self, message: "codec.Message", now: float) -> None:
        """Handle a message of a node. The first wrong one of each kind and node is logged."""
        problem = message_check.problem(message, self.nodes)
        node = message.get("node")
        if problem:
            self._log_ignored(node if node in list(self.nodes) else "a node", "a wrong message: " + problem)
            return
        node, kind = message["node"], message["type"]
        if not self.nodes[node].is_over and kind != "gone":
            self.monitor.record(node, now)
        refusal = self.state.refusal(node, kind)
        if self.state.is_ending and (refusal or kind not in state.WHILE_ENDING):
            return
        if kind == "heartbeat" and self.nodes[node].end == state.GONE:
            return  # the agent sends them until its input is closed
        if refusal:
            self._log_ignored(node, "the message " + refusal)
            return
        self.state.advance(message["nodes"] if kind == "joined" else [node], kind)
        self.state.progress = state.NEXT_OF_JOB.get(kind, self.state.progress)
        self._handlers[kind](node, message, now)
        if kind in ("phase", "started", "stage_done") or (kind == "heartbeat" and message.get("doing")):
            self._ready_deadline = now + self._ready_timeout

    def _log_ignored(self, node: str, what: str) -> None:
        line = "%s: ignored %s" % (node, what)
        if line not in self._ignored:
            self._ignored.add(line)
            self.log.write(line)

    def on_output(self, line: str) -> None:
        """Handle a line of the step's output that is not a message."""
        self.log.write(line)

    def on_srun_error(self, line: str, nodes: "List[str]") -> None:
        """Look for a lost node in what srun prints. nodes: of its step."""
        lost = srun_errors.lost_node(line, nodes)
        if lost:
            self._on_lost_by_srun(*lost)
        for name in srun_errors.nodes_of_killed_tasks(line, nodes):
            self._killed.setdefault(name, -1.0)

    def _on_lost_by_srun(self, name: str, text: str, is_step_over: bool) -> None:
        self.nodes[name].is_lost = True
        if not is_step_over:
            # Without --no-kill it is why Slurm ends the job, whose SIGTERM may come first.
            is_reason = self.requests.is_stopping and not may_be_lost(self.settings)
            if is_reason and not self.state.failure and self.state.trainer_code != 0:
                self.state.failure = Failure([name], "node_lost", text)
            else:
                self._fail(name, "node_lost", text)
            return
        self.monitor.forget(name)
        self.state.advance([name], "lost")
        # Also with on_node_loss: continue, and of a spare node, as the step ends.
        if not (self.state.is_ending or self.state.trainer_code == 0):
            self._record_failure(Failure([name], "node_lost", text))

    def on_answer(self, host: str, now: float) -> None:
        """Note that a host, or SLURMCTLD, has answered: see Actions.find_answers."""
        if host != self.job["batch_host"]:
            self._answered = now
        if host != SLURMCTLD:
            self.monitor.host_answers(host, now)

    def on_signal(self, name: str, now: float) -> None:
        """Pass a signal on to the trainer, once where it has reached several processes of the job."""
        before = self._signals.get(name)
        if name not in signals.PASSED_ON or (before is not None and now - before < SIGNAL_DELAY):
            return
        self._signals[name] = now
        if self.state.progress == state.TRAINING:
            self.log.write("signal %s: passed on to the trainer" % name)
            self.actions.send({"type": "signal", "name": name})
        else:
            self.log.write("signal %s: ignored, as no trainer runs" % name)

    def on_step_over(self, nodes: "List[str]", now: float) -> None:
        """Note that an srun has closed its output: no task runs any more on its nodes."""
        self._without_task.update(dict.fromkeys(nodes, now))
        self.is_step_over = len(self._without_task) == len(self.nodes)

    def on_service_step_over(self, name: str, nodes: "List[str]", code: int, now: float) -> None:
        """Note that the step of a service has ended; srun exited with `code`. May be called again."""
        self._service_steps_over.setdefault(name, (nodes, code, now))

    def on_output_step_over(self, code: int, now: float) -> None:
        """Note that the srun that copies the trainer's output has failed. May be called again."""
        self._output_step_over = self._output_step_over or (code, now)

    def tick(self, now: float) -> None:
        """Act on the time. Called at least once a second, and after messages."""
        if self._heartbeat.is_due(now):
            self.actions.send({"type": "heartbeat"})
            self.actions.write_heartbeat_file()
        if self.usage.is_due(now):
            self.actions.write_usage(self.usage.as_dict(now))
        self._detect_lost_nodes(now)
        self._start_ray_if_checked(now)
        self._send_targets(now)
        self.stages.log(now)
        self.bring_up.record_if_due(now)
        if self.state.is_ending:
            return
        if not self.state.has_trained and now > self._ready_deadline and not self.state.failure:
            text = "cluster not ready, and no progress on any node for %d s" % self._ready_timeout
            self.not_ready = [(node, self._why_unchecked(node)) for node in self._unchecked()]
            running = [node for node in self.nodes.values() if node.field]
            if running:
                fields, where = max(node.field for node in running), names([node.name for node in running])
                text += "; %s still runs on %s" % (fields, where)
            self.state.failure = Failure([self.head], "probe", text)
        elif now > FINDINGS_WAIT and not self._is_waiting_logged and self._unchecked():
            self._is_waiting_logged = True
            self.log.event("phase", phase="preflight", text="waiting for " + names(self._unchecked()))
        self._check_steps(now)
        self._pass_requests_on(now)
        self._watch_stall(now)
        self._stop_before_restart(now)
        self._log_later_failures(now)

    def _watch_stall(self, now: float) -> None:
        if self.state.progress != state.TRAINING or self.state.failure or self.requests.is_end_requested:
            return
        nodes = [self.nodes[name] for name in self.job["nodes"]]
        text = self.stall.tick(sum(node.end == state.UP and not node.is_left_out for node in nodes), now)
        if text and self.settings["watch"]["action"] != "report":
            self.state.failure = Failure([], "stalled", text)

    def _pass_requests_on(self, now: float) -> None:
        """Send the nodes what was asked of the job, each request once."""
        requests, grace = self.requests, self.job["grace"]
        if requests.is_stopping and "stop" not in self._sent:
            self._sent.add("stop")
            self.log.event("stop")
            self._stop(grace, now)
        elif "stop" in self._sent and requests.is_grace_over and "stop_now" not in self._sent:
            self._sent.add("stop_now")
            self.log.event("stop_now")
            self._stop(0, now)
        elif requests.is_time_up and "time_limit" not in self._sent:
            self._sent.add("time_limit")
            stop = self.settings["stop"]
            seconds = max(stop["lead"] - LIMIT_MARGIN, grace)
            self.log.event("time_limit", signal=stop["signal"], seconds=seconds)
            self.actions.send({"type": "stop_at_limit", "seconds": seconds})

    def _stop(self, grace: int, now: float) -> None:
        self.actions.send({"type": "stop", "seconds": grace})
        until = now + grace + STOP_MARGIN
        self._stop_until = until if self._stop_until is None else min(until, self._stop_until)

    def _stop_before_restart(self, now: float) -> None:
        """Give the trainer time for its end where another node was lost and it is to start again."""
        failure = self.state.failure
        if not failure or not self._does_trainer_run() or self.requests.is_end_requested:
            return
        is_loss = failure.kind in NODE_LOSSES and self.settings["on_node_loss"] == "restart"
        if (is_loss or failure.kind == "stalled") and self._stop_until is None:
            self._is_trainer_stopping = True
            grace = self.settings["restart"]["grace"]
            if is_loss:
                self.log.event("failure", nodes=failure.nodes, text=str(failure), seconds=grace)
            self.actions.send({"type": "stop_before_restart", "seconds": grace})
            self._stop_until = now + grace + STOP_MARGIN

    def _does_trainer_run(self) -> bool:
        """Whether the trainer runs, and no failure is of its node."""
        has_head = not self.nodes[self.head].is_over and self.head not in self.state.blamed
        return has_head and self.state.progress == state.TRAINING and self.state.trainer_code is None

    def is_over(self, now: float) -> bool:
        """Whether the step can be ended."""
        if self.is_step_over or self.nodes[self.head].end == state.GONE:
            return True
        if self._stop_until is not None and now > self._stop_until:
            return True
        # Slurm's signal may have ended other tasks before they became agents: these send nothing.
        if self.requests.is_stopping and self.state.count(state.STARTED) and self._have_started_ones_gone():
            return True
        is_trainer_stopping = self._is_trainer_stopping or self.requests.is_end_requested
        has_failed = self.state.failure and not (is_trainer_stopping and self._does_trainer_run())
        if has_failed and (now >= self._unfit_until or self._have_all_reported()):
            return True
        if self.settings["only_checks"] and self.state.have_all(state.CHECKED):
            return True
        return self.state.trainer_code is not None and not self._may_be_node_loss(now)

    def _have_started_ones_gone(self) -> bool:
        return all(node.end == state.GONE or node.progress == state.WAITING for node in self.nodes.values())

    def _have_all_reported(self) -> bool:
        """Whether no node has further findings to send."""
        return all(
            node.end != state.UP or (node.has_been_checked and not self._is_unfit_late)
            for node in self.nodes.values()
        )

    def begin_end(self) -> None:
        """Note that the step is being ended: messages have no consequences from now on."""
        self._blame_unmatched()
        self.state.is_ending = True
        self.bring_up.record()

    def _blame_unmatched(self) -> None:
        """Let no later start use workers that do not match the head node, or where most do not, that one."""
        unfit, failure = [node for node in self.nodes if node in self._unmatched], self.state.failure
        are_most = 2 * len(unfit) > self.settings["ray"]["nodes"] - 1
        if are_most and len(unfit) > 1:
            if failure and set(failure.nodes) <= self._unmatched:
                check, _, found = failure.text.partition(": ")
                text = "%s of %s: %s" % (check, host_list(unfit), found)
                self.state.failure = Failure([self.head], failure.kind, text)
            unfit = [self.head]
        for node in unfit:
            self.nodes[node].has_finding = True

    def have_all_nodes_ended(self) -> bool:
        """Whether some nodes are lost and all others have cleaned up: srun would wait for the lost ones."""
        return bool(self.state.count(state.LOST)) and all(node.is_over for node in self.nodes.values())

    # -- messages ----------------------------------------------------------------------------------------

    def _on_started(self, node: str, _message: "messages.Started", _now: float) -> None:
        self.bring_up.done("agent", [node])

    def _on_heartbeat(self, node: str, message: "messages.NodeHeartbeat", now: float) -> None:
        self.nodes[node].field = message.get("field") or ""
        if message.get("use") and node in self.job["nodes"]:  # spare ones only wait
            self.usage.record(node, message["use"], now)
            self.stall.on_sample(node, message["use"], now)

    def _on_stacks(self, node: str, message: "messages.Stacks", _now: float) -> None:
        self.stall.on_stacks(node, message)

    def _on_phase(self, node: str, message: "messages.Phase", _now: float) -> None:
        phase = (message["phase"], message["text"])
        # Earlier ones are about limits and mounts.
        if phase[0] == "container" and self.bring_up.is_done("checks", node):
            self.bring_up.done("image", [node])
        if phase not in self._phases:  # many nodes send the same
            self._phases.add(phase)
            self.log.event("phase", phase=phase[0], text=phase[1])

    def _on_versions(self, node: str, message: "messages.Versions", _now: float) -> None:
        self.bring_up.done("container", [node])
        self.actions.send({"type": "head_versions", "text": message["text"]})

    def _on_join(self, _node: str, message: "messages.HeadJoined", _now: float) -> None:
        self._gcs = message["address"]
        self.actions.send({"type": "join", "address": message["address"]})

    def _on_joined(self, _node: str, message: "messages.Joined", _now: float) -> None:
        self.bring_up.done("ray", message["nodes"], message["gpus"])

    def _on_ready(self, _node: str, message: "messages.ClusterReady", now: float) -> None:
        self.bring_up.record()
        ready: "messages.Ready" = {"type": "ready"}
        if message.get("burn_in_port"):
            ready["burn_in_port"] = message["burn_in_port"]
        self.actions.send(ready)
        self.stages.begin(now)

    def _on_reachable_at(self, node: str, message: "messages.ReachableAt", now: float) -> None:
        self.bring_up.done("container", [node])
        self._targets.append((node, message["address"], message["ports"]))
        self._targets_due = self._targets_due or now + REACHABILITY_WAIT
        if len(self._targets) == self.settings["ray"]["nodes"] - 1:
            self._targets_due = now

    def _on_finding(self, node: str, message: "messages.Finding", now: float) -> None:
        kind, fix = message["kind"], message["fix"]
        if kind == "config" and fix.startswith("--"):
            fix = self.settings["render_again"] + " " + fix
        row = [message["check"], message["found"], message["wanted"], fix]
        self.findings.add(node, kind, row)
        if kind == "warn":
            if self.state.has_trained:
                self.findings.show()
            return
        unfit = message.get("worker", node)
        found = row[1] if unfit == node else node + " " + row[1]
        text = "%s: %s; %s" % (row[0], found, fix)
        if unfit in self.job["spares"] or self.state.has_trained:  # it takes the place of a lost one
            self.nodes[unfit].has_finding = True
            self._fail(unfit, kind, text)
            return
        if not self.state.failure:
            self.state.failure = Failure([unfit], kind, text)
        if "worker" in message:
            self._unmatched.add(unfit)
            self._wait_for_findings(unfit, now)
            if self.state.is_ending:  # it comes late
                self._blame_unmatched()
        else:
            self._note_unfit(unfit, now)

    def _note_unfit(self, node: str, now: float) -> None:
        self.nodes[node].has_finding = True
        self._wait_for_findings(node, now)

    def _wait_for_findings(self, node: str, now: float) -> None:
        """Wait for what other nodes find, too. node: the one with the last finding."""
        self._is_unfit_late = self._is_unfit_late or self.nodes[node].has_been_checked
        self._unfit_until = now + FINDINGS_WAIT

    def _on_leftover_jobs(self, node: str, message: "messages.LeftoverJobs", _now: float) -> None:
        self.actions.find_ended_jobs(node, message["jobs"])

    def _on_unfit(self, _node: str, _message: "messages.Unfit", _now: float) -> None:
        """Note nothing more: see state.py."""

    def _on_checked(self, node: str, message: "messages.Checked", now: float) -> None:
        self.bring_up.done("checks", [node])
        self._peers.update(message["addresses"])
        self.nodes[node].addresses = message["addresses"]
        self.nodes[node].has_unknown_gpus = bool(message.get("gpus"))
        if node == self.head:
            self._folder = message["folder"]
        self._is_proxy_set = self._is_proxy_set or message["proxy"]
        self._start_ray_if_checked(now)

    def _start_ray_if_checked(self, now: float) -> None:
        if self.state.have_all(state.CHECKED) and self.state.progress == state.CHECKING:
            self.findings.show()
            if not self.state.failure and not self.settings["only_checks"]:
                self.actions.start_services(self._folder)
                # Only a proxy's exceptions (no_proxy) need the addresses of all nodes.
                peers = sorted(self._peers) if self._is_proxy_set else []
                self.state.progress = state.NEXT_OF_JOB["start_ray"]
                self.actions.send({"type": "start_ray", "peers": peers})
                self.stages.begin(now)

    def _on_stage_done(self, node: str, message: "messages.NodeStageDone", now: float) -> None:
        stage = message["stage"]
        if self.state.has_trained:
            self._joining.get(node, set()).discard(stage)
            return
        are_all_done = self.stages.done(stage, node, now)
        if are_all_done and not (stage == BURN_IN and self._find_slow_nodes()):
            self.actions.send({"type": "stage_done", "stage": stage})
            self.stages.begin(now)

    def _on_burn_in(self, node: str, message: "messages.BurnIn", now: float) -> None:
        from .burn_in_figures import BurnInFigures

        self._figures = self._figures or BurnInFigures()
        self._figures.record(node, message)
        self.log.event(
            "burn_in",
            node=node,
            kind=message["kind"],
            products=message["products"],
            copies=message["copies"],
            within=message["within"],
            pairs=message["pairs"],
            all=message["all"],
        )
        self._on_stage_done(node, {"type": "stage_done", "stage": BURN_IN}, now)

    def _find_slow_nodes(self) -> bool:
        """Log the figures of all nodes; return whether a finding about them ends this start."""
        if not self._figures:
            return False
        self.log.write("burn-in, the slowest nodes first:")
        self.log.write_table(self._figures.table())
        speed = self._figures.over_all()
        if speed:
            self.log.write("burn-in: all-reduce of all nodes: %.1f GB/s" % speed)
        is_strict = self.settings["preflight"] == "fail"
        found = self._figures.findings()
        for node, row in found:
            self.findings.add(node, "preflight" if is_strict else "warn", row)
            self.nodes[node].has_finding = is_strict
        self.findings.show()
        if not (found and is_strict):
            return False
        nodes = list(dict.fromkeys(node for node, _ in found))
        text = "burn-in: %s: %s; %s" % (found[0][1][0], found[0][1][1], found[0][1][3])
        self.state.failure = self.state.failure or Failure(nodes, "preflight", text)
        return True

    def _on_prepared(self, _node: str, message: "messages.Prepared", _now: float) -> None:
        self.actions.mark_done(message["name"])

    def _on_trainer(self, _node: str, message: "messages.TrainerWaits", now: float) -> None:
        self.findings.show()
        self.log.event("trainer", command=message["command"])
        self.stall.begin(now)
        self.actions.read_trainer_output(self._folder)

    def _on_attach(self, _node: str, message: "messages.Attach", _now: float) -> None:
        import shlex

        from .. import paths
        from . import attach_command

        job, container = self.job, self.settings["container"].copy()
        if message["runtime"] == "pyxis":
            container["image"] = paths.expand_in_batch("container.image", container["image"])
        component = "0" if len(self.settings["groups"]) > 1 else None
        name = paths.container_name(job["id"], job["attempt"], self.head)
        node = (job["name_for_commands"], component, self.head, name)
        argv = attach_command.attach_argv(*node, container, message, message["command"])
        command = " ".join(map(shlex.quote, argv))
        facts = {"runtime": message["runtime"], "folder": message["folder"], "unset": message["unset"]}
        self.log.event("attach", command=command, **facts)

    def _on_dashboard(self, node: str, message: "messages.Dashboard", _now: float) -> None:
        self.log.event("dashboard", node=node, port=message["port"], address=message["address"])

    def _on_not_ready(self, _node: str, message: "messages.NotReady", _now: float) -> None:
        self.not_ready.append((message["missing"], message["why"]))

    def _on_exit(self, _node: str, message: "messages.Exit", _now: float) -> None:
        self.state.trainer_code = message["code"]

    def _on_failed(self, node: str, message: "messages.Failed", now: float) -> None:
        if message["kind"] in UNFIT and not self.state.has_trained:
            self._note_unfit(node, now)
            self.state.advance([node], "unfit")
        self._fail(node, message["kind"], message["message"], message.get("log", ""))

    def _on_healthy(self, node: str, _message: "messages.Healthy", _now: float) -> None:
        self.nodes[node].is_healthy = True

    def _on_gpus(self, node: str, message: "messages.Gpus", _now: float) -> None:
        self.nodes[node].has_unknown_gpus = False
        if not message["lost"]:
            return
        self.nodes[node].has_finding = True  # no later start uses it
        if node in self.job["spares"]:
            self._leave_out([node], "set_aside", message["lost"])
        elif self._has_requested_start() or self.nodes[node].is_left_out:
            self.log.write("%s: %s" % (node, message["lost"]))
        else:
            self._record_failure(Failure([node], "node_lost", message["lost"]))

    def _has_requested_start(self) -> bool:
        """Whether the trainer exited with a code for which it is to be started again."""
        codes = [*self.settings["restart"]["exit_codes"], self.settings["requeue"]["exit_code"]]
        return bool(self.state.trainer_code) and self.state.trainer_code in codes

    def _on_stop_requested(self, _node: str, _message: "messages.StopRequested", _now: float) -> None:
        self.requests.is_stopping = True  # a preemption with GraceTime signals only the steps

    def _on_signal(self, _node: str, message: "messages.NodeSignal", now: float) -> None:
        self.on_signal(message["name"], now)

    def _on_signalled(self, node: str, _message: "messages.Signalled", _now: float) -> None:
        self.nodes[node].is_signalled = True

    def _on_tether_lost(self, node: str, _message: "messages.TetherLost", _now: float) -> None:
        self._fail(node, "ray", "the node's task was killed")

    def _on_thread_error(self, node: str, message: "messages.ThreadError", _now: float) -> None:
        if message["text"] not in self._thread_errors:  # many nodes send the same
            self._thread_errors.add(message["text"])
            self.log.write("%s: %s" % (node, message["text"]))

    def _on_gone(self, node: str, _message: "messages.Gone", _now: float) -> None:
        self.monitor.forget(node)
        is_expected = self.requests.is_end_requested or self.state.is_ending or self._is_trainer_stopping
        if node != self.head and not is_expected:
            self._fail(node, "ray", "container exited unexpectedly (not stopped by Slurm)")

    def _check_steps(self, now: float) -> None:
        """Fail where the step of a group of nodes or of a service has ended, unless Slurm has ended it."""
        if self.requests.is_end_requested:
            return
        late = [
            name
            for name, then in self._without_task.items()
            if now - then > STEP_SIGNAL_DELAY and not self.nodes[name].is_over
        ]
        if late:
            self._fail_all(late, "ray", "the step ended unexpectedly. The job's log has the messages of srun")
        self._killed = {name: now if then < 0 else then for name, then in self._killed.items()}
        killed = [
            name
            for name, then in self._killed.items()
            if now - then > STEP_SIGNAL_DELAY
            and self.nodes[name].progress == state.WAITING  # later it is noticed by its heartbeats
            and not self.nodes[name].is_over
        ]
        if killed:
            self.state.advance(killed, "lost")
            self._fail_all(killed, "node_lost", "killed before the node agent could begin")
        # The loss of a node may be noticed later than the end of a step on it.
        until_lost = self.settings["timeouts"]["heartbeat"] + heartbeat.ANSWER_WAIT + ASK_INTERVAL
        may_go_on = self.settings["on_node_loss"] == "continue"
        wait = STEP_SIGNAL_DELAY + (until_lost if may_go_on else 0)
        for name, (nodes, code, then) in self._service_steps_over.items():
            if now - then > wait and not all(self.nodes[node].is_left_out for node in nodes):
                text = "the step of service %s ended, srun exited with %d. Its log has the reason"
                self._fail("", "service", text % (name, code))
        if self._output_step_over and self.state.trainer_code is None:
            code, then = self._output_step_over
            if now - then > STEP_SIGNAL_DELAY + until_lost:
                text = "the step that copies the trainer's output ended, srun exited with %d"
                self._fail(self.head, "ray", text % code)

    # -- lost nodes --------------------------------------------------------------------------------------

    def _detect_lost_nodes(self, now: float) -> None:
        overdue = self.monitor.overdue(now)
        if not overdue:
            return
        if now >= self._ask:
            self._ask = now + ASK_INTERVAL
            self.actions.find_answers({node: self.nodes[node].addresses for node in overdue})
        lost = self.monitor.lost(now)
        if not lost:
            return
        host = self.job["batch_host"]
        others = [node for node in self.nodes.values() if node.name != host]
        is_cut_off = now - self._answered > heartbeat.ANSWER_WAIT + ASK_INTERVAL
        if is_cut_off and host not in lost and all(node.is_over or node.name in lost for node in others):
            text = "no heartbeat from any other node, and slurmctld does not answer. Has it lost its network?"
            if not self.state.failure:
                self._record_failure(Failure([host], "node_lost", text))
        for node in lost:
            self.nodes[node].is_lost = True
            self.monitor.forget(node)
        self.state.advance(lost, "lost")
        lost = [node for node in self.nodes if node in lost]
        question = "Has it lost power or its" if len(lost) == 1 else "Have they lost power or their"
        text = "no heartbeat for %d s. %s network?" % (self.settings["timeouts"]["heartbeat"], question)
        self._fail_all(lost, "node_lost", text)

    def _fail(self, node: str, kind: str, text: str, log: str = "") -> None:
        """Record a failure of a node, as _fail_all does. node: "" where no node is the cause."""
        self._fail_all([node] if node else [], kind, text, log)

    def _fail_all(self, nodes: "List[str]", kind: str, text: str, log: str = "") -> None:
        """Record a failure, unless the job is over or may continue without these nodes.

        log: as in Failure.
        """
        if self.state.is_ending or self.state.trainer_code == 0:
            self.log.write("%s: %s" % (and_names(nodes), text))
            return
        spares = [node for node in nodes if node in self.job["spares"]]
        self._leave_out(spares, "set_aside", text)
        if spares and len(spares) == len(nodes):
            return
        nodes = [node for node in nodes if node not in spares]
        # A replacement that cannot be prepared, or finds no ports, is replaced itself.
        is_unprepared = kind in UNPREPARED and any(self._joining.get(node) for node in nodes)
        is_unprepared = is_unprepared or (kind == "bring_up" and any(node in self._joining for node in nodes))
        is_loss = kind in (*NODE_LOSSES, *UNFIT) or is_unprepared
        has_head = self.head not in nodes
        may_continue = self.settings["on_node_loss"] == "continue" and self.state.has_trained and has_head
        has_ended = may_continue and self.state.trainer_code is not None
        if is_loss and (has_ended or self._has_requested_start()):
            self.log.write("%s: %s" % (and_names(nodes), text))
        elif is_loss and may_continue:
            self._leave_out(nodes, "node_loss", text)
            self._replace(nodes)
        else:
            self._record_failure(Failure(nodes, kind, text, log))

    def _record_failure(self, failure: Failure) -> None:
        """Record the failure that ends this start, and nodes that are lost while it ends."""
        kind, text, later = failure.kind, failure.text, self.state.later
        more = [node for node in failure.nodes if node not in self.state.blamed]
        if not self.state.failure:
            self.state.failure = failure
            if self.requests.is_end_requested:  # the outcome will be that
                failure.ends_job = False
                self.log.write(str(failure))
        elif more and (kind == "node_lost" or (kind == "ray" and self.state.has_trained)):
            if len(later) > self._later_logged and (later[-1].kind, later[-1].text) == (kind, text):
                more = later.pop().nodes + more  # one line for all
            later.append(Failure(more, kind, text))

    def _log_later_failures(self, now: float) -> None:
        """Log the losses after the first one, with the rest of the trainer's grace period."""
        for failure in self.state.later[self._later_logged :]:
            if self._is_trainer_stopping and self._does_trainer_run() and not self.requests.is_end_requested:
                left = max(0, round((self._stop_until or now) - STOP_MARGIN - now))
                self.log.event("failure", nodes=failure.nodes, text=str(failure), seconds=left)
            else:
                self.log.write(str(failure))
        self._later_logged = len(self.state.later)

    def _replace(self, lost: "List[str]") -> None:
        """Let spare nodes join Ray in place of lost ones, while the trainer runs."""
        nodes, spares = self.job["nodes"], self.job["spares"]
        for node in [name for name in nodes[: self.settings["ray"]["nodes"]] if name in lost]:
            spare = next((name for name in spares if not self.nodes[name].is_left_out), "")
            if spare:
                nodes[nodes.index(node)] = spare
                spares.remove(spare)
                self._joining[spare] = set(self.stages.names) - {BURN_IN}
                self.log.event("replacement", node=spare, lost=node)
                self.actions.send({"type": "replace", "node": spare, "lost": node, "address": self._gcs})

    def _leave_out(self, nodes: "List[str]", event: str, text: str) -> None:
        """Continue without nodes, and record each of them once."""
        for node in nodes:
            if self.state.leave_out(node):
                self.usage.forget(node)
                self.stall.forget(node)
                self.log.event(event, node=node, text=text)

    def _may_be_node_loss(self, now: float) -> bool:
        """Whether the trainer may have failed because of a lost node. Asks the nodes if Ray runs."""
        if (
            not self.state.trainer_code
            or self.requests.is_end_requested
            or self.nodes[self.head].is_signalled
        ):
            return False
        if self._health_check_until is None:
            self._health_check_until = now + HEALTH_CHECK_WAIT
            self.actions.send({"type": "check_health"})
        for node in self.monitor.nodes():
            if self.nodes[node].is_signalled:
                return True  # it exits after its grace period
            waited = now - (self._health_check_until - HEALTH_CHECK_WAIT)
            if self.nodes[node].has_unknown_gpus and waited < GPUS_WAIT:
                return True
            # A node that has sent another message instead of the answer is not lost: its Ray may have ended.
            is_connected = waited > HEALTH_CHECK_WAIT and self.monitor.seconds_since(node, now) < waited
            if not self.nodes[node].is_healthy and not is_connected:
                return True
        return False

    def _why_unchecked(self, node: str) -> str:
        field = self.nodes[node].field
        if field:
            return "has not been checked: its %s still runs" % field
        # Without a Python, a node runs `setup` before it can send messages.
        is_silent = self.settings["setup"] and self.nodes[node].progress == state.WAITING
        return "has not been checked" + (": its setup may still run" if is_silent else "")

    def _unchecked(self) -> "List[str]":
        if self.state.have_all(state.CHECKED):  # called in each turn
            return []
        return [n.name for n in self.nodes.values() if not (n.has_been_checked or n.is_left_out)]

    def _send_targets(self, now: float) -> None:
        if self._targets_due is not None and now >= self._targets_due:
            self.actions.send({"type": "check_reachable", "targets": self._targets})
            self._targets, self._targets_due = [], None

    # -- the end -----------------------------------------------------------------------------------------

    def not_ready_texts(self) -> "List[str]":
        """A text for each reason why nodes are not ready: `node[3-64] has not joined`."""
        nodes: "Dict[str, List[str]]" = {}
        for node, why in self.not_ready:
            nodes.setdefault(why, []).append(node)
        return ["%s %s" % (host_list(nodes[why]), why) for why in nodes]

    def logs_to_show(self) -> "List[str]":
        """Names of logs in the run directory whose last lines are to be shown in the job's log."""
        failure = self.state.failure
        if failure and not failure.nodes and failure.kind == "service":
            return ["service-" + name for name in self._service_steps_over]
        nodes = [node for node, _ in self.not_ready]
        if not failure or (failure.kind == "probe" and nodes):
            return nodes
        # Other checks have their result in the table of findings, and a wrong job spec has run nothing.
        if failure.kind not in ("config", "preflight") or failure.text.startswith("container.setup: "):
            nodes += failure.logs
        return nodes
