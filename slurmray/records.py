"""What the script says to the first process in the containers about the job spec."""

from __future__ import annotations

import json

from slurmray.presets import advise
from slurmray.ray_options import DEBUG_ENV
from slurmray.spec import JobSpec
from slurmray.stages import Prepare, Service


def records(spec: JobSpec) -> list[str]:
    """Return `key=value` texts; docs/architecture.md says what each is for."""
    ray, advice = spec.ray, advise(spec)
    env = {**advice.env, **spec.env, **DEBUG_ENV[ray.debug]}
    listed = {
        "ray_arg": [*ray.args, *(["--ray-debugger-external"] if ray.debug == "legacy" else [])],
        "head_arg": ray.head_args,
        "worker_arg": ray.worker_args,
        "env": [f"{name}={value}" for name, value in env.items() if value is not None],
        "node_env": [f"{name}={fact}" for name, fact in advice.node_env.items()],
        "run": _words(advice.run) if advice.run else [],
        "resume": advice.resume,
        "preparation": [_item(item) for item in spec.prepare],
        "service": [_item(item) for item in spec.services],
    }
    return [
        f"gpus={spec.ray_gpus}",
        f"interface={spec.network.interface or ''}",
        f"family={spec.network.family}",
        f"port={ray.port}",
        f"dashboard_port={ray.dashboard_port}",
        f"auth={ray.auth}",
        f"metrics={'true' if ray.metrics else 'false'}",
        f"preflight={spec.preflight}",
        f"stop_signal={spec.stop.signal}",
        *(["cancel_signal=TERM"] if spec.requeue.exit_code else []),
        *_launch_records(spec),
        *(f"{key}={word}" for key, words in listed.items() for word in words),
    ]


def _words(command: list[str] | str) -> list[str]:
    return ["bash", "-c", command] if isinstance(command, str) else command


def _item(item: Prepare | Service) -> str:
    """One line of JSON, with commands as words."""
    fields = item.model_dump(exclude_none=True)
    for part in (fields, fields.get("ready", {})):
        if "run" in part:
            part["run"] = _words(part["run"])
    return json.dumps(fields, ensure_ascii=False)


def _launch_records(spec: JobSpec) -> list[str]:
    """What the first process must know only where the spec asks for it."""
    records = [] if spec.ray.debug == "none" else [f"debug={spec.ray.debug}"]
    if spec.launch == "ray-job":
        records.append(f"launch={spec.launch}")
    if isinstance(spec.ray.runtime_env, str):
        records.append(f"runtime_env_file={spec.ray.runtime_env}")
    elif spec.ray.runtime_env is not None:
        records.append(f"runtime_env={json.dumps(spec.ray.runtime_env, ensure_ascii=False)}")
    return records
