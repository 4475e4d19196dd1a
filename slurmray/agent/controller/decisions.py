"""The controller's decisions: what happens next, and how the job ends.

`Controller` gets messages and the time and acts through `Actions`, so tests can simulate everything
around it. controller_process.py has the real process. bring_up_gate.py, losses.py and endings.py decide about
one thing each; state.py has what all of them know.
"""

from .. import heartbeat, parts
from ..nodes import may_be_lost
from . import protocol, state
from .bring_up import BringUp
from .bring_up_gate import BringUpGate
from .endings import NODE_LOSSES, Endings
from .failure import Failure
from .findings import Findings
from .losses import Losses
from .node_usage import Usage
from .part import Decider

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Set, Tuple

    from ..job_log import JobLog
    from ..wire import codec, messages
    from ..wire.settings import Job, Settings
    from .actions import Actions
    from .part import Handler, Part

UNFIT = ("preflight", "image")  # kinds of failures of a node before it is in Ray
UNPREPARED = ("prepare", "service")  # those of a node in its stages
# What the trainer does when a failure comes.
RUNS, HAS_ENDED, STARTS_AGAIN = "runs", "has ended", "starts again"
# What becomes of a failure: (is it the loss of nodes, may the job continue without these, what the trainer
# does). All others end the start.
LOG, LEAVE_OUT = "log", "leave out"
FATES = {
    (True, True, RUNS): LEAVE_OUT,
    (True, True, HAS_ENDED): LOG,
    (True, True, STARTS_AGAIN): LOG,
    (True, False, STARTS_AGAIN): LOG,
}


class Controller(Decider):
    """Decides from the nodes' messages and the clock what happens next and how the job ends."""

    def __init__(
        self, settings: "Settings", job: "Job", log: "JobLog", actions: "Actions", requests: state.Requests
    ) -> None:
        self.settings = settings
        self.job = job
        self.log = log
        self.actions = actions
        self.head = job["nodes"][0]
        self.requests = requests
        self.state = state.JobState([*job["nodes"], *job["spares"]], requests)
        self.nodes = self.state.nodes
        self.gate = BringUpGate(self)
        self.losses = Losses(self)
        self.endings = Endings(self)
        self.findings = Findings(log)
        self.bring_up = BringUp(log, len(self.nodes))
        self.parts = list(self._make_parts())
        self._heartbeat = heartbeat.Timer(heartbeat.interval(settings["timeouts"]["heartbeat"]))
        self._logged: "Set[str]" = set()  # see _log_once
        self._phases: "Set[Tuple[str, str]]" = set()
        self._joining: "List[str]" = []  # nodes that were spare
        self._handlers: "Dict[str, Handler]" = {
            "started": self._on_started,
            "heartbeat": self._on_heartbeat,
            "phase": self._on_phase,
            "versions": self._on_versions,
            "join": self.gate.on_join,
            "joined": self._on_joined,
            "ready": self._on_ready,
            "reachable_at": self._on_reachable_at,
            "finding": self._on_finding,
            "leftover_jobs": self._on_leftover_jobs,
            "checked": self._on_checked,
            "prepared": self._on_prepared,
            "trainer": self._on_trainer,
            "attach": self._on_attach,
            "dashboard": self._on_dashboard,
            "unplaceable": self._on_unplaceable,
            "not_ready": self.gate.on_not_ready,
            "failed": self._on_failed,
            "gpus": self._on_gpus,
            "signal": self._on_signal,
            "tether_lost": self._on_tether_lost,
            "thread_error": self._on_thread_error,
            "gone": self._on_gone,
        }
        for part in self.parts:
            self._handlers.update(part.handlers())

    def _make_parts(self) -> "Iterator[Part]":
        """Yield what only some jobs need."""
        settings = self.settings
        if settings["watch"]["interval"]:
            yield Usage(self)
        if parts.is_needed("watch", settings):
            from .stall import StallWatch

            yield StallWatch(self)
        if parts.is_needed("stages", settings):
            from .stage_progress import StageProgress

            stages = StageProgress(self)
            yield stages
            if parts.is_needed("burn_in", settings):
                from .burn_in_figures import BurnIn

                yield BurnIn(self, stages, self.findings)

    # -- inputs ------------------------------------------------------------------------------------------

    def on_message(self, message: "codec.Message", now: float) -> None:
        """Handle a message of a node. The first wrong one of each kind and node is logged."""
        problem = protocol.problem(message, self.nodes)
        node = message.get("node")
        if problem:
            sender = node if node in list(self.nodes) else "a node"
            self._log_once("%s: ignored a wrong message: %s" % (sender, problem))
            return
        node, kind = message["node"], message["type"]
        if kind != "gone":
            self.losses.on_message(node, now)
        refusal = self.state.refusal(node, kind)
        if self.state.is_ending and (refusal or not protocol.KINDS[kind].is_late):
            return
        if kind == "heartbeat" and self.nodes[node].end == protocol.GONE:
            return  # the agent sends them until its input is closed
        if refusal:
            self._log_once("%s: ignored the message %s" % (node, refusal))
            return
        before = self.state.progress
        self.state.receive(message)
        if self.state.progress != before:
            self._on_progress(now)
        handle = self._handlers.get(kind)
        if handle:
            handle(node, message, now)
        if kind in ("phase", "started", "stage_done") or (kind == "heartbeat" and message.get("doing")):
            self.gate.extend(now)

    def _on_progress(self, now: float) -> None:
        for part in self.parts:
            part.on_progress(self.state.progress, now)

    def on_log_size(self, size: int, now: float) -> None:
        """Handle the size of the job's log, as just seen."""
        for part in self.parts:
            part.on_log_size(size, now)

    def on_progress_file(self, changed: float, now: float) -> None:
        """Handle the time of the last change of the progress file: see Part."""
        for part in self.parts:
            part.on_progress_file(changed, now)

    def _log_once(self, line: str, what: str = "") -> None:
        """Write a line, unless the same has been written. what: what many nodes have in common in it."""
        if (what or line) not in self._logged:
            self._logged.add(what or line)
            self.log.write(line)

    def on_srun_error(self, line: str, nodes: "List[str]") -> None:
        """Look for a lost node in what srun prints. nodes: of its step."""
        failure = self.losses.on_srun_error(line, nodes)
        if not failure or (failure.must_end and (self.state.is_ending or self.state.has_succeeded)):
            return
        # Without --no-kill it is why Slurm ends the job, whose SIGTERM may come first.
        is_reason = self.requests.is_stopping and not may_be_lost(self.settings)
        if is_reason and not (failure.must_end or self.state.failure or self.state.has_succeeded):
            self.state.fail(failure)
        else:
            self._fail(failure)

    def tick(self, now: float) -> None:
        """Act on the time. Called at least once a second, and after messages."""
        if self._heartbeat.is_due(now):
            self.actions.send({"type": "heartbeat"})
            self.actions.write_heartbeat_file()
        for failure in self.losses.find_lost_nodes(now):
            self._fail(failure)
        self._start_ray_if_checked(now)
        self.gate.send_targets(now)
        self.bring_up.record_if_due(now)
        if self.state.is_ending:
            return
        late = self.gate.tick(now)
        if late:
            self.state.fail(late)
        if not self.requests.is_end_requested:
            for failure in self.losses.find_ended_steps(now):
                self._fail(failure)
        for part in self.parts:
            found = part.tick(now)
            if found:
                self.state.fail(found)
        self.endings.tick(now)

    def may_end(self, now: float) -> bool:
        """Whether the step can be ended."""
        has_all_findings = self.gate.has_all_findings(now)
        return self.losses.is_step_over or self.endings.may_end(self.losses.monitor, has_all_findings, now)

    def begin_end(self) -> None:
        """Note that the step is being ended: messages have no consequences from now on."""
        self.gate.blame_unmatched()
        self.state.begin_end()
        self.bring_up.record()

    def have_all_nodes_ended(self) -> bool:
        """Whether some nodes are lost and all others have cleaned up: srun would wait for the lost ones."""
        are_some_lost = bool(self.state.count(protocol.LOST))
        return are_some_lost and all(node.has_ended for node in self.nodes.values())

    def logs_to_show(self) -> "List[str]":
        """Names of logs in the run directory whose last lines are to be shown in the job's log."""
        failure = self.state.failure
        if failure and not failure.nodes and failure.kind == "service":
            return ["service-" + name for name in self.losses.ended_services]
        nodes = [node for node, _ in self.gate.not_ready]
        if not failure or (failure.kind == "probe" and nodes):
            return nodes
        # Other checks have their result in the table of findings, and a wrong job spec has run nothing.
        if failure.kind not in ("config", "preflight") or failure.text.startswith("container.setup: "):
            nodes += failure.logs
        return nodes

    # -- messages ----------------------------------------------------------------------------------------

    def _on_started(self, node: str, _message: "messages.Started", _now: float) -> None:
        self.bring_up.done("agent", [node])

    def _on_heartbeat(self, node: str, message: "messages.NodeHeartbeat", now: float) -> None:
        if message.get("use") and node in self.job["nodes"]:  # spare ones only wait
            for part in self.parts:
                part.on_sample(node, message["use"], now)

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

    def _on_joined(self, _node: str, message: "messages.Joined", _now: float) -> None:
        self.bring_up.done("ray", message["nodes"], message["gpus"])

    def _on_ready(self, _node: str, message: "messages.ClusterReady", _now: float) -> None:
        self.bring_up.record()
        ready: "messages.Ready" = {"type": "ready"}
        if message.get("burn_in_port"):
            ready["burn_in_port"] = message["burn_in_port"]
        self.actions.send(ready)

    def _on_reachable_at(self, node: str, message: "messages.ReachableAt", now: float) -> None:
        self.bring_up.done("container", [node])
        self.gate.on_reachable_at(node, message, now)

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
            self.state.note_finding(unfit)
            self._fail(Failure([unfit], kind, text))
            return
        self.state.fail(Failure([unfit], kind, text))
        if "worker" in message:
            self.gate.note_unmatched(unfit, now)
        else:
            self.gate.note_unfit(unfit, now)

    def _on_leftover_jobs(self, node: str, message: "messages.LeftoverJobs", _now: float) -> None:
        self.actions.find_ended_jobs(node, message["jobs"])

    def _on_checked(self, node: str, message: "messages.Checked", now: float) -> None:
        self.bring_up.done("checks", [node])
        self.gate.on_checked(node, message)
        self._start_ray_if_checked(now)

    def _start_ray_if_checked(self, now: float) -> None:
        if self.gate.is_open():
            self.findings.show()
            if not self.state.failure and not self.settings["only_checks"]:
                self.gate.start_ray()
                self.actions.find_connections()
                self._on_progress(now)

    def _on_prepared(self, _node: str, message: "messages.Prepared", _now: float) -> None:
        self.actions.mark_done(message["name"])

    def _on_trainer(self, _node: str, message: "messages.TrainerWaits", _now: float) -> None:
        self.findings.show()
        self.log.event("trainer", command=message["command"])
        self.actions.read_trainer_output(self.gate.folder)

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

    def _on_unplaceable(self, _node: str, message: "messages.Unplaceable", _now: float) -> None:
        name = "unplaceable_end" if message["ended"] else "unplaceable"
        self.log.event(name, text=message["text"], fix=message["fix"])

    def _on_failed(self, node: str, message: "messages.Failed", now: float) -> None:
        if message["kind"] in UNFIT and not self.state.has_trained:
            self.gate.note_unfit(node, now)
            self.state.note_unfit(node)
        self._fail(Failure([node], message["kind"], message["message"], message.get("log", "")))

    def _on_gpus(self, node: str, message: "messages.Gpus", _now: float) -> None:
        if not message["lost"]:
            return
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

    def _on_signal(self, _node: str, message: "messages.NodeSignal", now: float) -> None:
        self.endings.on_signal(message["name"], now)

    def _on_tether_lost(self, node: str, _message: "messages.TetherLost", _now: float) -> None:
        if not self.losses.is_aborted:
            self._fail(Failure([node], "ray", "the node's task was killed"))

    def _on_thread_error(self, node: str, message: "messages.ThreadError", _now: float) -> None:
        self._log_once("%s: %s" % (node, message["text"]), message["text"])

    def _on_gone(self, node: str, _message: "messages.Gone", _now: float) -> None:
        self.losses.monitor.forget(node)
        if node != self.head and not self.endings.is_expected:
            self._fail(Failure([node], "ray", "container exited unexpectedly (not stopped by Slurm)"))

    # -- failures ----------------------------------------------------------------------------------------

    def _fail(self, failure: Failure) -> None:
        """Handle a failure: the job may be over, or continue without its nodes."""
        if self.state.is_ending or self.state.has_succeeded:
            self.log.write(str(failure))
            return
        if failure.must_end:
            self._record_failure(failure)
            return
        spares = [node for node in failure.nodes if node in self.job["spares"]]
        self._leave_out(spares, "set_aside", failure.text)
        if spares and len(spares) == len(failure.nodes):
            return
        failure.nodes = [node for node in failure.nodes if node not in spares]
        fate = FATES.get(self._conditions(failure))
        if fate == LOG:
            self.log.write(str(failure))
        elif fate == LEAVE_OUT:
            self._leave_out(failure.nodes, "node_loss", failure.text)
            self._replace(failure.nodes)
        else:
            self._record_failure(failure)

    def _conditions(self, failure: Failure) -> "Tuple[bool, bool, str]":
        """The key in FATES."""
        kind, joining = failure.kind, [node for node in failure.nodes if node in self._joining]
        # A replacement that cannot be prepared, or finds no ports, is replaced itself.
        are_preparing = any(part.is_preparing(node) for part in self.parts for node in joining)
        is_unprepared = kind in UNPREPARED and are_preparing
        is_loss = kind in (*NODE_LOSSES, *UNFIT) or is_unprepared or (kind == "bring_up" and bool(joining))
        has_head = self.head not in failure.nodes
        may_continue = self.settings["on_node_loss"] == "continue" and self.state.has_trained and has_head
        trainer = RUNS if self.state.trainer_code is None else HAS_ENDED
        return is_loss, may_continue, STARTS_AGAIN if self._has_requested_start() else trainer

    def _record_failure(self, failure: Failure) -> None:
        """Record the failure that ends this start, and nodes that are lost while it ends."""
        if self.state.fail(failure) and self.requests.is_end_requested:  # the outcome will be that
            failure.ends_job = False
            self.log.write(str(failure))

    def _replace(self, lost: "List[str]") -> None:
        """Let spare nodes join Ray in place of lost ones, while the trainer runs."""
        nodes, spares = self.job["nodes"], self.job["spares"]
        for node in [name for name in nodes[: self.settings["ray"]["nodes"]] if name in lost]:
            spare = next((name for name in spares if not self.nodes[name].is_left_out), "")
            if spare:
                nodes[nodes.index(node)] = spare
                spares.remove(spare)
                self._joining.append(spare)
                for part in self.parts:
                    part.on_replacement(spare)
                self.log.event("replacement", node=spare, lost=node)
                self.actions.send({"type": "replace", "node": spare, "lost": node, "address": self.gate.gcs})

    def _leave_out(self, nodes: "List[str]", event: str, text: str) -> None:
        """Continue without nodes, and record each of them once."""
        for node in nodes:
            if self.state.leave_out(node):
                for part in self.parts:
                    part.on_node_left_out(node)
                self.log.event(event, node=node, text=text)
