"""What Slurm gave this attempt of the job. JobError where it does not fit the script."""

import os

from .. import command_runner, job_errors, job_log, job_record, paths
from . import step_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from ..wire.settings import Group, Job, Settings

SLURMD_PORT = 6818  # Slurm's default
CLEAN_UP_TIME = 7  # seconds of KillWait that remain for clean-up after the grace period


class Component:
    """A component of a heterogeneous job, or all of another job: a group of nodes that are alike.

    env: of the batch script, with the variables that a job of this component would have. record: see
    job_record; {}: not known.
    """

    def __init__(self, group: "Group", env: "Dict[str, str]") -> None:
        self.group = group
        self.env = env
        self.nodes: "List[str]" = []  # that of the batch script first
        self.in_order: "List[str]" = []  # of the tasks of a step
        self.cpus = _cpus(group, env)  # of each node
        self.record: "job_record.Record" = {}


def find_components(settings: "Settings", nodes: "List[str]") -> "List[Component]":
    """The components of this job. nodes: of the first one, which the story has found."""
    groups, env = settings["groups"], os.environ
    components = [
        Component(group, step_environment.select_component(env, number) if len(groups) > 1 else dict(env))
        for number, group in enumerate(groups)
    ]
    for component in components:
        argv = ["scontrol", "show", "hostnames", component.env["SLURM_JOB_NODELIST"]]
        component.in_order = _read_output(argv, 20).split()
        component.nodes = nodes if component is components[0] else component.in_order
        _check(component, settings["render_again"])
    count = sum(len(component.nodes) for component in components)
    wanted = sum(group["nodes"] + group["spares"] for group in groups)
    if count != wanted:
        message = "scontrol show hostnames found %d nodes, the script is for %d. See its messages above"
        raise job_errors.JobError("config", message % (count, wanted))
    read_records(components)
    return components


def read_records(components: "List[Component]") -> None:
    """Ask Slurm for the records of all components. Where it does not answer, they stay as they are."""
    shown = _read_output(["scontrol", "show", "job", os.environ["SLURM_JOB_ID"]], 20)
    for component in components:
        record = job_record.find_record(shown, component.env["SLURM_JOB_ID"])
        component.record = record or component.record


def end_time(components: "List[Component]") -> int:
    """When Slurm ends the first of them, in seconds since 1970; 0: without a time limit, or unknown."""
    times = [job_record.read_end_time(component.record) for component in components]
    return min(filter(None, times), default=0)


def make_job(
    settings: "Settings", components: "List[Component]", started: float, log: "job_log.JobLog"
) -> "Job":
    """The description of this attempt. started: time.time() when the batch script began."""
    env, record = os.environ, components[0].record
    missing = [name for name in settings["env_from_submitter"] if name not in env]
    if missing:
        message = "env.%s is not set where the job was submitted: export it and run sbatch again"
        raise job_errors.JobError("config", message % missing[0])
    number = env["SLURM_JOB_ID"]
    config = _slurm_config()
    attempt = job_record.read_restarts(record)
    if attempt is None:
        attempt = int(env.get("SLURM_RESTART_COUNT", "0"))
    run_dir = paths.expand_in_batch("run_dir", settings["run_dir"])
    name_for_commands = _name_for_commands(number, record)
    variables = {name: env[name] for name in settings["env_from_submitter"]}
    if settings["sweep"]:
        from .. import combinations

        values = combinations.choose(settings["sweep"], name_for_commands)
        log.write("task %s: %s" % (name_for_commands, combinations.describe(values)))
        variables.update(values)
    nodes = [node for component in components for node in component.nodes[: component.group["nodes"]]]
    return {
        "id": number,
        "name": env.get("SLURM_JOB_NAME", ""),
        "name_for_commands": name_for_commands,
        "attempt": attempt,
        "chances": 0,
        "restart": 0,
        "restarts_before": 0,
        "batch_host": nodes[0],
        "nodes": nodes,
        "spares": [node for component in components for node in component.nodes[component.group["nodes"] :]],
        "spares_of_groups": [component.group["spares"] for component in components],
        "cpus": [component.cpus for component in components],
        "memory": [_memory(component) for component in components],
        "grace": _grace(settings["stop"]["grace"], config, log),
        "slurmd_port": int(config.get("SlurmdPort", "").partition("-")[0] or SLURMD_PORT),
        "run_dir": os.path.join(paths.host_path(run_dir), "%s-%d" % (name_for_commands, attempt)),
        "log_file": os.readlink("/proc/self/fd/2"),
        "mark": os.urandom(16).hex(),
        "token": os.urandom(32).hex(),
        "started": started,
        "end_time": end_time(components),
        "env": variables,
        "done_before": [],
        "stalls": 0,
        "commit": "",
    }


def _check(component: Component, render_again: str) -> None:
    """Check that the allocation has the nodes and CPUs of a group."""
    group = component.group
    place = " in group " + group["name"] if group["name"] else ""
    for name, given, wanted, option in (
        ("node", int(component.env["SLURM_JOB_NUM_NODES"]) - group["spares"], group["nodes"], "--nodes"),
        ("CPU", component.cpus, group["cpus_per_node"] or component.cpus, "--cpus-per-task"),
    ):
        if given == wanted:
            continue
        fix = "%s %s %d" % (render_again, option, given)
        if place:
            fix = "give sbatch no options for it"
        message = "the allocation has %s%s, the script is for %d: %s"
        raise job_errors.JobError("config", message % (job_log.counted(given, name), place, wanted, fix))


def _cpus(group: "Group", env: "Dict[str, str]") -> int:
    """CPUs of each node of a component: --cpus-per-task, or the fewest that one has. env: its variables."""
    given = env.get("SLURM_CPUS_PER_TASK")
    if given and group["cpus_per_node"]:  # else it is not this job's
        return int(given)
    counts = env["SLURM_JOB_CPUS_PER_NODE"].split(",")  # e.g. 72(x2),36
    return min(int(count.partition("(")[0]) for count in counts)


def _memory(component: Component) -> int:
    """MiB of each node of a component, on average; 0: unknown."""
    memory = int(job_record.read_charged_memory(component.record) / len(component.nodes))
    return memory if memory > 1 else 0  # 1: slurm.conf does not say it (RealMemory)


def _name_for_commands(number: str, record: "job_record.Record") -> str:
    """The job for scancel and scontrol: ARRAY_TASK for a task of an array; its id may mean all tasks."""
    if "SLURM_ARRAY_TASK_ID" in os.environ and not record:
        reason = "scontrol does not show the job %s, a task of an array. Check slurmctld, and submit it again"
        raise job_errors.JobError("config", reason % number)
    return job_record.read_array_task(record) or number


def _slurm_config() -> "Dict[str, str]":
    """slurm.conf, as slurmctld shows it."""
    lines = _read_output(["scontrol", "show", "config"], 10).splitlines()
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _grace(wanted: int, config: "Dict[str, str]", log: "job_log.JobLog") -> int:
    """The grace period in seconds, shortened so that clean-up ends before KillWait does."""
    kill_wait = int(config.get("KillWait", "30").split()[0])
    grace = max(0, min(wanted, kill_wait - CLEAN_UP_TIME))
    if grace != wanted:
        log.event("grace", seconds=grace, kill_wait=kill_wait)
    return grace


def _read_output(argv: "List[str]", seconds: float) -> str:
    """Standard output of a command of Slurm; "" where it fails to run."""
    done = command_runner.run_slurm(argv, seconds)
    return "" if done.code == command_runner.TIMEOUT else done.out
