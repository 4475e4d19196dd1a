"""Settings: the job spec for the agent, with every decision that does not need a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from slurmray._version import __version__
from slurmray.plan import Advice, Plan
from slurmray.rendering.container_args import add_registry, container_args, convert_image
from slurmray.slurm import syntax
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.prepare_and_services import Prepare, Service
from slurmray.spec.ray_section import DEBUG_ENV
from slurmray.spec.runtimes import candidates
from slurmray.spec.slurm_section import Component, GroupBase, Model

if TYPE_CHECKING:
    from slurmray.agent.wire import settings as shape


def make_settings(plan: Plan, render_again: str, *, only_checks: bool = False) -> shape.Settings:
    """Return the settings of a job's script.

    render_again: the command that renders it again. only_checks: the job ends after the node checks.
    """
    settings = _settings(plan, render_again, only_checks)
    if plan.fewer_nodes:
        settings["fewer_nodes"] = {
            str(nodes): dict(_differences(settings, _settings(smaller, render_again, only_checks)))
            for nodes, smaller in plan.fewer_nodes.items()
        }
    return settings


def _differences(value: object, other: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, other value) of what differs. Items of lists are compared if there are as many."""
    if isinstance(value, dict) and isinstance(other, dict) and value.keys() == other.keys():
        pairs = [(str(name), value[name], other[name]) for name in value]
    elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        pairs = [(str(number), item, other[number]) for number, item in enumerate(value)]
    else:
        pairs = []
        if value != other:
            yield path, other
    for name, one, two in pairs:
        yield from _differences(one, two, f"{path}.{name}" if path else name)


def _settings(plan: Plan, render_again: str, only_checks: bool) -> shape.Settings:
    spec, advice = plan.spec, plan.advice
    return {
        "version": __version__,
        "render_again": render_again,
        "groups": [_group(component, spec) for component in spec.slurm.components],
        "slurm_counts_gpus": spec.ray.gpus_per_node is None,
        "only_checks": only_checks,
        "run_dir": spec.run_dir,
        "temp_dir": spec.ray.temp_dir,
        "setup": spec.setup,
        "preflight": spec.preflight,
        "on_node_loss": spec.on_node_loss,
        "restart": _pick(spec.restart, "max", "window", "exit_codes", "grace"),
        "requeue": _pick(spec.requeue, "max", "exit_code"),
        "stop": {
            "lead": spec.stop.lead,
            "grace": spec.stop.grace,
            "signal": spec.stop.signal,
            # With requeue.exit_code, a trainer may request another attempt on stop.signal. scancel must not.
            "cancel_signal": "TERM" if spec.requeue.exit_code else spec.stop.signal,
        },
        "notify": None if only_checks else _notify(spec),
        "timeouts": {"ready": spec.ray.ready_timeout, "heartbeat": spec.heartbeat_timeout},
        "watch": _pick(spec.watch, "interval", "stall", "action", "progress"),
        "container": _container(spec),
        "checks": _checks(spec, advice),
        "ray": _ray(spec),
        "network": _pick(spec.network, "interface", "subnet", "family"),
        "env": _env(spec, advice),
        "env_from_submitter": spec.env_from_submitter,
        "sweep": spec.sweep,
        "env_file": spec.env_file or "",
        "node_env": spec.node_env,
        "preset_env": {name: str(fact) for name, fact in advice.node_env.items()},
        "prepare": [_stage(item) for item in spec.prepare],
        "services": [_service(item) for item in spec.services],
        "trainer": {
            "nnodes": spec.trainer_nodes,
            "launch": spec.launch,
            "command": advice.run or [],
            "resume": advice.resume,
            "runtime_env": spec.ray.runtime_env,
        },
    }


def _pick(section: Model, *names: str) -> Any:
    """These fields of a section, "" for those that are not set."""
    values = {name: getattr(section, name) for name in names}
    return {name: "" if value is None else value for name, value in values.items()}


def _group(component: Component, spec: JobSpec) -> shape.Group:
    return {
        "name": component.name if isinstance(component, GroupBase) else "",
        "nodes": component.nodes,
        "spares": spec.spares_of(component),
        "gpus_per_node": spec.ray.gpus_per_node or component.gpus,
        "cpus_per_node": component.cpus_per_task or 0,
    }


def _notify(spec: JobSpec) -> shape.Notify | None:
    notify = spec.notify
    return {"variable": notify.variable, "on": [*notify.on]} if notify else None


def _container(spec: JobSpec) -> shape.Container:
    container = spec.container
    image, source = convert_image(container)
    return {
        "runtimes": list(candidates(container.runtime)),
        "accelerators": _accelerators(spec),
        "command": container.command or "",
        "image": image,
        "image_with_registry": add_registry(image) if image else "",
        "source": source,
        "pull": container.pull,
        "stage": container.stage,
        "build": _pick(container.build, "file", "context") if container.build else None,
        "archive": container.archive or "",
        "user": container.user,
        "mounts": [
            {
                "source": mount.source,
                "destination": mount.destination or "",
                # rw is the default. z and Z have no effect, as containers run without SELinux labels.
                "options": [option for option in mount.options if option not in ("rw", "z", "Z")],
            }
            for mount in container.mounts
        ],
        "args": container_args(container),
        "step_args": container.step_args,
        "workdir": container.workdir or "",
        "python": container.python,
        "setup": container.setup,
        "setup_timeout": container.setup_timeout,
        "shm_size": container.shm_size or "",
    }


def _accelerators(spec: JobSpec) -> list[str]:
    if not spec.gpus or spec.container.accelerator == "none":
        return []
    return ["nvidia", "amd"] if spec.container.accelerator == "auto" else [spec.container.accelerator]


def _checks(spec: JobSpec, advice: Advice) -> shape.Checks:
    if spec.preflight == "none":
        return {"paths": [], "same_commit": "", "bf16": False, "burn_in": 0}
    return {
        "paths": spec.checks.paths,
        "same_commit": spec.checks.same_commit or "",
        "bf16": advice.bf16,
        "burn_in": spec.checks.burn_in,
    }


def _ray(spec: JobSpec) -> shape.RayOptions:
    ray = spec.ray
    return {
        "nodes": spec.ray_nodes,
        "gpus": spec.ray_gpus,
        "head": {
            "gpus": spec.head_gpus,
            "cpus": ray.head.cpus,
            "memory": syntax.parse_size(ray.head.memory) if ray.head.memory else None,
        },
        "port": str(ray.port),
        "dashboard_port": str(ray.dashboard_port),
        "auth": ray.auth,
        "metrics": ray.metrics,
        "keep_logs": ray.keep_logs,
        "debug": ray.debug,
        "start": ray.start,
        "args": [*ray.args, *(["--ray-debugger-external"] if ray.debug == "legacy" else [])],
        "head_args": ray.head_args,
        "worker_args": ray.worker_args,
    }


def _env(spec: JobSpec, advice: Advice) -> dict[str, str]:
    env = {**advice.env, **spec.env, **DEBUG_ENV[spec.ray.debug]}
    return {name: value for name, value in env.items() if value is not None}


def _argv(command: list[str] | str) -> list[str]:
    return ["bash", "-c", command] if isinstance(command, str) else command


def _stage(item: Prepare | Service) -> dict[str, Any]:
    """A prepare step or service as in the job spec, but with commands as argv."""
    fields = item.model_dump(exclude_none=True)
    for part in (fields, fields.get("ready", {})):
        if "run" in part:
            part["run"] = _argv(part["run"])
    return fields


def _service(service: Service) -> dict[str, Any]:
    fields = _stage(service)
    if service.image:
        fields["image_with_registry"] = add_registry(service.image)
    return fields
