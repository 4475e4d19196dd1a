"""Prepare steps and services on one node, with real processes."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.container import node_context, stages, variables
from slurmray.agent.container.stage import Stage
from slurmray.agent.heartbeat import Timer
from slurmray.agent.job_errors import Finished, JobError
from slurmray.agent.node.service_logs import ServiceLogs
from tests.unit.agent.containers import LogAgent, group, job, prepare, service, settings, write_agent
from tests.unit.agent.users import umask_is
from tests.unit.agent.waiting import wait_until
from tests.unit.agent.wire_types import TO_CONTROLLER, checked


class Node(node_context.NodeContext):
    """The node context of stages, with real child processes. sent: messages to the controller."""

    def __init__(self, folder: Path, name: str, spec: dict[str, Any], attempt_job: dict[str, Any]) -> None:
        super().__init__(str(folder), name, self.child_ended)
        self.settings = settings(  # type: ignore[assignment]
            prepare=[prepare(**item) for item in spec.get("prepare", [])],
            services=[service(**item) for item in spec.get("services", [])],
            groups=[group(2, spec.get("gpus", 0))],
            ray={"nodes": spec.get("ray_nodes", 2)},
            checks={"burn_in": spec.get("burn_in", 0)},
        )
        self.is_replacement = spec.get("is_replacement", False)
        nodes = ["gpu-1", "gpu-2"]
        self.job = job(id="7", attempt=1, nodes=nodes, **attempt_job)  # type: ignore[assignment]
        self.rank = nodes.index(name)
        self.sent: list[dict[str, Any]] = []
        write_agent(folder)
        self.gcs = "10.0.0.1:6379"
        self.stages = stages.Stages(self, lambda: None)
        self.agent = LogAgent(name, folder, folder, self.settings, self.job)
        self.logs = ServiceLogs(self.agent)

    def send(self, message: Any) -> None:
        self.sent.append(checked(TO_CONTROLLER, message))

    def service_log(self, name: str) -> str:
        return Path(self.agent.service_log_path(name)).read_text()

    def texts(self) -> list[str]:
        return [message["text"] for message in self.sent if message["type"] == "phase"]

    def until_done(self, stage: str) -> None:
        self.until(lambda: {"type": "stage_done", "stage": stage} in self.sent)

    def begin(self, stage: str) -> None:
        """Begin its stages, and wait until this one is done here."""
        self.stages.begin()
        self.until_done(stage)

    def failure(self) -> JobError:
        """Begin its stages; return the error to which that comes."""
        with pytest.raises(JobError) as caught:
            self.stages.begin()
            self.until(lambda: False)
        return caught.value

    def child_ended(self, role: str, code: int) -> None:
        self.stages.child_ended(role, code)

    def until(self, holds: Callable[[], object]) -> None:
        def look() -> object:
            self.children.reap()
            return holds()

        wait_until(look, lambda: self.sent)


Make = Callable[..., Node]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Make]:
    made: list[Node] = []

    def make(name: str = "gpu-1", done_before: list[str] | None = None, **spec: Any) -> Node:
        folder = tmp_path / f"node-{len(made)}"
        folder.mkdir()
        made.append(Node(folder, name, spec, {"done_before": done_before or []}))
        return made[-1]

    yield make
    for new_node in made:
        new_node.children.on_end = lambda *_: None
        for pid in new_node.children.roles:
            os.killpg(pid, 9)
        for pid in list(new_node.children.roles):
            os.waitpid(pid, 0)
        new_node.logs.finish(5)


def append(path: Path, text: str) -> str:
    """Return a shell command that appends a line."""
    return f"echo {text} >>{path}"


def test_order_of_stages(node: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    one = node(
        prepare=[
            {"name": "one", "run": append(log, "one")},
            {"name": "late", "run": append(log, "late $RAY_ADDRESS"), "needs_ray": True},
            {
                "name": "two",
                "run": append(log, "two $NODE_RANK $NNODES $SLURMRAY_ATTEMPT $PYTHONUNBUFFERED-$RAY_ADDRESS"),
            },
        ],
        services=[{"name": "reward", "run": append(log, "reward") + "; sleep 60"}],
    )
    one.stages.begin()
    assert one.stages.doing == "prepare"
    one.until_done("prepare")
    assert log.read_text() == "one\ntwo 0 2 1 1-\n"
    assert one.stages.doing == ""
    one.stages.begin()
    assert "reward" not in log.read_text(), "another node still prepares"
    one.stages.on_stage_done("prepare")
    one.until(lambda: "reward" in log.read_text())
    one.until_done("services")
    assert "late" not in log.read_text()
    one.is_ready = True
    one.begin("prepare-with-ray")
    assert "late 10.0.0.1:6379\n" in log.read_text()
    for stage in ("services", "prepare-with-ray"):
        assert not one.stages.may_train()
        one.stages.on_stage_done(stage)
    assert one.stages.may_train()
    sent = [message["stage"] for message in one.sent if message["type"] == "stage_done"]
    assert sent == ["prepare", "services", "prepare-with-ray"]


class Idle(Stage):
    """A stage whose beginning and end a test decides."""

    has_begun = has_ended = False

    def begin(self) -> None:
        assert not self.has_begun, "it begins once"
        self.has_begun = True

    def end(self) -> None:
        self.has_ended = True


def idle(one: Node, *names: str) -> dict[str, Idle]:
    """Give a node these stages, which do nothing."""
    made = {name: Idle(one, name) for name in names}
    one.stages.work = dict(made)
    return made


ALL = ("burn-in", "prepare", "services", "prepare-with-ray", "services-with-ray")


@pytest.mark.parametrize(
    ("names", "is_ready", "steps"),
    [
        # stages on the nodes, whether Ray runs, and: a stage that all nodes are done with -> what begins then
        (
            ALL,
            True,
            ["-> burn-in", "burn-in -> prepare", "prepare -> services prepare-with-ray", "services ->"],
        ),
        (ALL, False, ["->"]),
        (ALL[1:], True, ["-> prepare", "prepare -> services prepare-with-ray", "services ->"]),
        (ALL[1:], False, ["-> prepare", "prepare -> services", "services ->"]),
        (ALL[2:], True, ["-> services prepare-with-ray", "prepare-with-ray -> services-with-ray"]),
        (ALL[3:], False, ["->"]),
        (ALL[:1] + ALL[2:3], True, ["-> burn-in", "burn-in -> services"]),
        (ALL[:1] + ALL[4:], True, ["-> burn-in", "burn-in -> services-with-ray"]),
        (ALL[:1] + ALL[3:], True, ["-> burn-in", "burn-in -> prepare-with-ray"]),
        (ALL[1:2] + ALL[4:], True, ["-> prepare", "prepare -> services-with-ray"]),
    ],
)
def test_which_stages_begin(node: Make, names: tuple[str, ...], is_ready: bool, steps: list[str]) -> None:
    one = node()
    one.is_ready = is_ready
    made = idle(one, *names)
    before: set[str] = set()
    for step in steps:
        done, _, expected = step.partition("->")
        if done:
            one.stages.on_stage_done(done.strip())
        one.stages.begin()
        begun = {name for name, stage in made.items() if stage.has_begun}
        assert begun - before == {*expected.split()}, step
        before = begun
        assert not done or made[done.strip()].has_ended


def test_a_stage_that_only_other_nodes_have(node: Make) -> None:
    one = node()
    made = idle(one, "services")
    one.stages.on_stage_done("prepare-with-ray")
    assert made["services"].has_begun
    assert not made["services"].has_ended


@pytest.mark.parametrize("name", ALL)
def test_the_trainer_waits_for_each_stage(node: Make, name: str) -> None:
    """Ray on a node that joins waits only for those that do not need it."""
    one = node()
    one.is_ready = True
    idle(one, name)
    one.stages.begin()
    assert not one.stages.may_train()
    assert one.stages.may_join_ray() == (name not in ("prepare", "services"))
    assert one.stages.is_preparing() == name.startswith("prepare")
    assert one.stages.doing == name
    one.stages.work[name].is_done_here = True
    assert one.stages.doing == ""
    assert not one.stages.may_train(), "other nodes may not be"
    one.stages.on_stage_done(name)
    assert one.stages.may_train()
    assert one.stages.may_join_ray()
    assert not one.stages.is_preparing()
    one.deadline = time.monotonic()
    assert not one.stages.may_train(), "the job is being ended"


def test_stages_of_a_job_that_is_being_ended(node: Make) -> None:
    """Prepare steps have their grace period, and nothing else begins."""
    one = node()
    made = idle(one, "prepare", "services")
    one.stages.begin()
    assert made["prepare"].has_begun
    one.deadline = time.monotonic() + 60
    one.stages.on_stage_done("burn-in")
    with pytest.raises(Finished):
        one.stages.on_stage_done("prepare")
    one.stages.begin()
    assert not made["services"].has_begun


def test_a_node_that_joins_does_not_wait_for_others(node: Make) -> None:
    """And no longer measures: the nodes that it would measure with train."""
    one = node(burn_in=10, is_replacement=True, prepare=[{"name": "data", "run": "true", "where": "all"}])
    assert [*one.stages.work] == ["prepare"]
    made = idle(one, *ALL[1:])
    one.stages.begin()
    order = []
    for name in ALL[1:]:
        order.append([stage for stage in made if made[stage].has_begun])
        assert not made[name].is_done_here
        one.stages.count_own_as_all()
        assert [stage for stage in made if made[stage].has_begun] == order[-1], "it is not done itself"
        made[name].is_done_here = True
        one.is_ready = name != "prepare"
        one.stages.count_own_as_all()
    assert order == [["prepare"], ["prepare", "services"], [*ALL[1:4]], [*ALL[1:]]]
    assert one.stages.may_train()


def test_a_node_of_the_first_start_measures(node: Make) -> None:
    one = node("gpu-2", burn_in=10)
    assert [*one.stages.work] == ["burn-in"]
    assert [*node("gpu-2", burn_in=0).stages.work] == []


SHOWN = 'for pid in $$ $PPID; do tr "\\0" " " </proc/$pid/cmdline; done >OUT; true hunter2'
"""Writes what `ps` shows of it and of its parent to OUT."""


@pytest.mark.attack("processes and files of another user's job", inputs=3)
def test_ps_does_not_show_commands(node: Make, tmp_path: Path) -> None:
    def shown(name: str) -> str:
        return SHOWN.replace("OUT", str(tmp_path / name))

    ready = {"run": ["bash", "-c", shown("ready")]}
    one = node(
        prepare=[{"name": "data", "run": shown("prepare")}],
        services=[{"name": "web", "run": shown("service") + "; sleep 60", "ready": ready}],
    )
    with umask_is(0):
        one.begin("prepare")
        one.stages.on_stage_done("prepare")
        one.until_done("services")
    for name in ("prepare", "service", "ready"):
        assert "bash " in (text := (tmp_path / name).read_text())
        assert "hunter2" not in text
    files = [
        path for path in Path(one.folder).rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()
    ]
    assert len(files) == 4
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_ps_does_not_show_a_service_outside_the_container(node: Make, tmp_path: Path) -> None:
    with outside_service(
        node, tmp_path, ["bash", "-c", SHOWN.replace("OUT", "out")], os.environ["PATH"]
    ) as service:
        assert service.wait(20) == 0
    assert "hunter2" not in (tmp_path / "out").read_text()


def test_heartbeats_while_a_node_works_on_a_stage(node: Make) -> None:
    one = node(prepare=[{"name": "data", "run": "sleep 60"}])
    heartbeat = {"type": "heartbeat", "doing": "prepare"}
    one.stages.begin()
    for _ in range(3):
        one.stages.tick()
    assert one.sent.count(heartbeat) == 1
    one.stages._heartbeat = Timer()
    one.stages.tick()
    assert one.sent.count(heartbeat) == 2
    worker = node("gpu-2", prepare=[{"name": "data", "run": "sleep 60"}])
    worker.stages.begin()
    worker.stages.tick()
    assert worker.sent == [{"type": "stage_done", "stage": "prepare"}]


@pytest.mark.parametrize("run", ["exit 3", ["/no/such/program"]])
def test_a_prepare_step_that_fails(node: Make, run: object) -> None:
    one = node(prepare=[{"name": "data", "run": run}])
    error = one.failure()
    assert error.kind == "prepare"
    texts = ("prepare step data exited with 3", "data: /no/such/program: No such file or directory")
    assert error.message.startswith(texts)


def test_steps_with_once_are_not_repeated(node: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    items = [
        {"name": "data", "run": append(log, "data"), "once": True},
        {"name": "model", "run": append(log, "model"), "once": True, "where": "all"},
        {"name": "each", "run": append(log, "each")},
    ]
    first = node(prepare=items)
    first.begin("prepare")
    marks = [message["name"] for message in first.sent if message["type"] == "prepared"]
    assert marks == ["data", "model@gpu-1"]
    for name, expected in (("gpu-1", "each\n"), ("gpu-2", "model\n")):
        log.write_text("")
        again = node(name, marks, prepare=items)
        again.begin("prepare")
        assert log.read_text() == expected


def test_grace_period_of_a_prepare_step(node: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    save = f"trap 'echo saved >>{log}; exit 3' USR1; echo up >>{log}; while :; do sleep 0.05; done"
    items = [{"name": "data", "run": save, "once": True}, {"name": "next", "run": append(log, "next")}]
    one = node(prepare=items, services=[{"name": "reward", "run": append(log, "reward")}])
    one.stages.begin()
    one.until(lambda: log.exists() and log.read_text() == "up\n")
    one.deadline = time.monotonic() + 60
    assert one.stages.send_signal("USR1")
    one.until_done("prepare")
    assert one.stages.send_signal("USR1"), "another node's step still runs"
    with pytest.raises(Finished):
        one.stages.on_stage_done("prepare")
    assert not one.stages.may_train()
    assert not one.children.roles
    assert log.read_text() == "up\nsaved\n"
    assert "prepared" not in [message["type"] for message in one.sent]


def test_a_service_is_restarted_at_most_that_often(node: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    one = node(services=[{"name": "reward", "run": append(log, "begins") + "; exit 5", "restarts": 2}])
    error = one.failure()
    assert (error.kind, error.message[:28]) == ("service", "service reward exited with 5")
    assert log.read_text() == "begins\n" * 3
    again = [text for text in one.texts() if "restart" in text]
    assert again == [f"service reward exited with 5 on gpu-1: restart {count} of 2" for count in (1, 2)]


def test_a_service_whose_end_is_only_logged(node: Make) -> None:
    one = node(services=[{"name": "reward", "run": "exit 5", "on_end": "ignore"}])
    one.stages.begin()
    one.until(lambda: "service reward exited with 5 on gpu-1; the job continues" in one.texts())


def test_a_service_that_ends_before_it_is_ready(node: Make) -> None:
    reward = {"name": "reward", "run": "exit 5", "on_end": "ignore", "ready": {"run": "exit 1"}}
    one = node(services=[reward])
    error = one.failure()
    assert (error.kind, error.message[:28]) == ("service", "service reward exited with 5")


@pytest.mark.parametrize(
    ("name", "lines", "of_ray"),
    [
        ("gpu-1", {"a: 5,6", "b: ", "c: 7"}, "0,1,2,3,4"),
        ("gpu-2", {"a: 2,3", "b: ", "d: 4,5,6,7"}, "0,1"),
    ],
)
def test_the_gpus_of_services(node: Make, tmp_path: Path, name: str, lines: set[str], of_ray: str) -> None:
    """Of the head node, and of a worker."""
    log = tmp_path / "log"
    show = f'echo "$NAME: $CUDA_VISIBLE_DEVICES" >>{log}; sleep 60'
    places = (("a", 2, "all"), ("b", 0, "all"), ("c", 1, "head"), ("d", 4, "workers"))
    services = [
        {"name": each, "run": show, "env": {"NAME": each}, "gpus": gpus, "where": where}
        for each, gpus, where in places
    ]
    one = node(name, gpus=8, services=services)
    one.stages.begin()
    one.until(lambda: log.exists() and log.read_text().count("\n") == 3)
    assert set(log.read_text().splitlines()) == lines
    assert variables.gpus_of_ray(one) == {"CUDA_VISIBLE_DEVICES": of_ray}
    assert variables.gpus_of_ray(node(name)) == {}
    assert variables.gpus_of_ray(node("gpu-2", gpus=8, services=services[2:3])) == {}, "the head node's alone"


def test_a_service_that_needs_ray(node: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    show = (
        f'echo "$NAME: $RAY_ADDRESS $PYTHONUNBUFFERED ${{CUDA_VISIBLE_DEVICES-unset}}" >>{log}; exec sleep 60'
    )
    services = [
        {"name": "late", "run": show, "env": {"NAME": "late"}, "needs_ray": True},
        {"name": "with-gpus", "run": show, "env": {"NAME": "with-gpus"}, "needs_ray": True, "gpus": 1},
        {"name": "early", "run": show, "env": {"NAME": "early"}, "gpus": 2},
    ]
    steps = [{"name": "warm-up", "run": "true", "needs_ray": True, "where": "all"}]
    one = node(gpus=8, services=services, prepare=steps)
    one.begin("services")
    one.is_ready = True
    one.stages.on_stage_done("services")
    one.until_done("prepare-with-ray")
    assert "late" not in " ".join(one.texts())
    one.stages.on_stage_done("prepare-with-ray")
    one.until_done("services-with-ray")
    one.until(lambda: log.read_text().count("\n") == 3)
    assert not one.stages.may_train()
    one.stages.on_stage_done("services-with-ray")
    assert one.stages.may_train()
    early, *late = log.read_text().splitlines()
    assert early == "early:  1 6,7"
    assert sorted(late) == ["late: 10.0.0.1:6379 1 0,1,2,3,4", "with-gpus: 10.0.0.1:6379 1 5"]
    assert variables.gpus_of_ray(one) == {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"}
    pid = one.children.find_pid("service-with-ray late")
    assert pid
    with pytest.raises(JobError, match="service late exited with 137"):
        os.killpg(pid, signal.SIGKILL)
        one.until(lambda: False)
    one.stages.end()
    assert not [role for role in one.children.roles.values() if role.startswith("service")]


def test_services_end_in_reverse_order(node: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run = "trap 'echo $NAME >>LOG; exit' TERM; echo up >>LOG; while :; do sleep 0.05; done".replace(
        "LOG", str(log)
    )
    deaf = {"name": "deaf", "run": "trap '' TERM; echo up >>LOG; sleep 60".replace("LOG", str(log))}
    one = node(services=[{"name": n, "run": run, "env": {"NAME": n}} for n in ("first", "last")] + [deaf])
    one.stages.begin()
    one.until(lambda: log.exists() and log.read_text() == "up\n" * 3)
    one.stages.end()
    assert log.read_text() == "up\n" * 3 + "last\nfirst\n"


@contextmanager
def outside_service(
    node: Make, tmp_path: Path, run: list[str], path: str = "/nowhere"
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a service outside the container, like the node agent."""
    env = {"PATH": path, "MINE": 'it\'s "$HOME"\n`id`'}
    one = node(services=[{"name": "reward", "run": run, "image": "some/image", "env": env}])
    one.stages.begin()
    assert one.sent[-1] == {"type": "stage_done", "stage": "services"}
    script = Path(one.folder, "begin-reward")
    command = ["/bin/sh", str(script), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as service:
        try:
            yield service
        finally:
            if service.poll() is None:
                os.killpg(service.pid, signal.SIGKILL)


def test_a_service_outside_the_container(node: Make, tmp_path: Path) -> None:
    show = 'printf "%s" "$MINE $NODE_RANK ${RAY_USAGE_STATS_ENABLED-nothing of Ray}" >out; exit 5'
    with outside_service(node, tmp_path, ["/bin/sh", "-c", show]) as service:
        assert service.wait(20) == 5
    assert (tmp_path / "out").read_text() == 'it\'s "$HOME"\n`id` 0 nothing of Ray'


@pytest.mark.parametrize("trap", [":", "''"])
def test_a_service_outside_ends_with_its_tether(node: Make, tmp_path: Path, trap: str) -> None:
    run = f"trap {trap} TERM; echo >up; while :; do /bin/sleep 0.1; done"
    with outside_service(node, tmp_path, ["/bin/sh", "-c", run]) as service:
        wait_until(lambda: (tmp_path / "up").exists() or service.poll() is not None)
        assert service.poll() is None
        assert service.stdin
        service.stdin.close()
        assert service.wait(20) != 0


def test_a_service_that_ends_while_the_job_is_being_ended(node: Make) -> None:
    """Slurm's signal reaches services on the host; the trainer still has its grace period."""
    one = node(services=[{"name": "reward", "run": "exit 5"}])
    one.deadline = time.monotonic() + 60
    one.stages.services.on_service_ended("reward", 143)
    assert one.texts() == ["service reward exited with 143 on gpu-1 while the job is being ended"]


def test_a_service_that_is_never_ready(node: Make) -> None:
    one = node(services=[{"name": "reward", "run": "sleep 60", "ready": {"run": ["false"], "timeout": 0}}])
    error = one.failure()
    assert (error.kind, error.log) == ("service", "service-reward@gpu-1")
    assert error.message.startswith("service reward is not ready after 0 s")
    one.until(lambda: "not ready: " in one.service_log("reward"))


def test_a_service_has_its_own_log(node: Make) -> None:
    """Each of its runs, one after another."""
    run = "echo out; echo err >&2; exit 5"
    other = {"name": "other", "run": "echo other; exec sleep 60", "where": "all"}
    one = node(services=[{"name": "reward", "run": run, "restarts": 1}, other, {**other, "name": "third"}])
    error = one.failure()
    assert error.message.startswith("service reward exited with 5. Its log has the output")
    assert error.log == "service-reward@gpu-1"
    content = f"service reward: bash {one.folder}/run-service-reward\nout\nerr\n"
    one.until(lambda: one.service_log("reward") == 2 * content)
    one.until(
        lambda: one.service_log("other") == f"service other: bash {one.folder}/run-service-other\nother\n"
    )
