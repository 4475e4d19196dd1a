"""Job specs whose scripts are tested: the examples, hostile ones, and one with a value in every field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from slurmray.loading.load import load_plan
from slurmray.rendering.script import render_script
from slurmray.rendering.verification import STORIES
from slurmray.slurm import syntax
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of
from tests.unit.examples import EXAMPLES, ROOT

GOLDENS = ROOT / "tests/goldens"
RUNTIMES = tuple(STORIES)

# Each with its own runtime; the example for Apptainer also with pyxis, whose image names are different.
CASES: dict[str, tuple[Path, str | None]] = {
    **{path.stem: (path, None) for path in [*EXAMPLES.values(), *sorted(GOLDENS.glob("hostile*.yaml"))]},
    "apptainer.pyxis": (ROOT / "examples/apptainer.yaml", "pyxis"),
}
every_case = pytest.mark.parametrize(("path", "runtime"), CASES.values(), ids=CASES)


def runtime_flags(runtime: str | None) -> list[tuple[str, str]]:
    """Flags that set the runtime of a case; None: the job spec's."""
    return [("--runtime", runtime)] if runtime else []


def load_case(path: Path, runtime: str | None) -> JobSpec:
    """The job spec of a case."""
    return load_plan(path.relative_to(ROOT), runtime_flags(runtime), []).spec


def hello(runtime: str = "auto", **fields: Any) -> str:
    """The script of the built-in check, or of a job spec with more fields."""
    return render_script(plan_of(JobSpec.model_validate({"container": {"runtime": runtime}, **fields})))


def before_agent(text: str) -> str:
    """A script without its agent: the part that bash reads."""
    return text[: text.index("\n\n# ---- 3. agent") + 1]


# Kind of an option -> its value in MARKED; None: the option's own.
VALUES: dict[syntax.Kind, str | bool | None] = {
    "value": None,
    "flag": True,
    "optional": None,
    "time": "8642015",
    "size": "8642016G",
    "array": "%8642018",
}
# A value for every field. None occurs in the templates.
MARKED: dict[str, Any] = {
    "name": "Zmark-name",
    "preset": {"name": "verl", "version": "8642012"},
    "slurm": {
        **{
            name.replace("-", "_"): VALUES[option.kind] or f"Zmark-{name}"
            for name, option in syntax.OPTIONS.items()
            if name not in ("mem-per-cpu", "mem-per-gpu", "cpus-per-gpu")  # others exclude them
        },
        "output": "Zmark-output-%A_%a",
        "error": "Zmark-error-%A_%a",
        "exclusive": "topo",
        "nodes": 18642,
        "cpus_per_task": 8642002,
        "gpus_per_node": "Zmark:8642017",
        "gres": "Zmark:8642004",
        "extra": ["--Zmark-extra=Zmark-extra"],
    },
    "setup": "Zmark-setup",
    "run_dir": "Zmark-run-dir",
    "container": {
        "runtime": "podman",
        "command": "Zmark-program",
        "image": "Zmark.image/zmark:8642005",
        "pull": "always",
        "stage": "shared",
        "user": "8642006:8642007",
        "accelerator": "amd",
        "mounts": ["Zmark-source:/Zmark-destination:ro,rslave"],
        "workdir": "/Zmark-workdir",
        "python": "/Zmark-python",
        "setup": "Zmark-setup-inside",
        "setup_timeout": 8642019,
        "shm_size": "8642008k",
        "ulimits": ["nofile=8642009"],
        "args": ["Zmark-arg"],
    },
    "env": {"Zmark_name": "Zmark-env", "Zmark_secret": None},
    "env_file": "Zmark-env-file",
    "node_env": "Zmark-node-env",
    "network": {"interface": "Zmark-interface", "subnet": "8642::/16", "family": "ipv6"},
    "ray": {
        "port": 58642,
        "dashboard_port": 58643,
        "ready_timeout": 8642010,
        "temp_dir": "/Zmark-temp-dir",
        "head": {"gpus": 8642014, "cpus": 8642015, "memory": "8642016K"},
        "start": "standard",
        "auth": "none",
        "metrics": True,
        "keep_logs": "never",
        "debug": "legacy",
        "runtime_env": {"env_vars": {"Zmark-variable": "Zmark-value"}, "pip": ["Zmark-pip"]},
        "args": ["Zmark-ray-arg"],
        "head_args": ["Zmark-head-arg"],
        "worker_args": ["Zmark-worker-arg"],
    },
    "prepare": [
        {"name": "zmark", "run": ["Zmark-prepare"], "where": "all", "needs_ray": True, "once": True},
    ],
    "services": [
        {
            "name": "zmark",
            "run": "Zmark-service",
            "where": "head",
            "env": {"Zmark_name": "Zmark-env"},
            "gpus": 1,
            "ready": {"http": "http://Zmark", "post": "Zmark-post", "timeout": 8642012},
            "restarts": 8642013,
            "on_end": "ignore",
        },
        {"name": "zmark-b", "run": "Zmark-service", "image": "Zmark.io/zmark"},
    ],
    "run": ["Zmark-run"],
    "sweep": {"Zmark_parameter": ["Zmark-value-a", "8642020"]},
    "launch": "ray-job",
    "checks": {"paths": ["Zmark-path"], "same_commit": "Zmark-commit", "burn_in": 8642},
    "preflight": "warn",
    "stop": {"lead": 58644, "signal": "QUIT", "grace": 17},
    "spares": 8642015,
    "on_node_loss": "restart",
    "restart": {"max": 8642016, "window": 8642017, "exit_codes": [248], "grace": 8642018, "min_nodes": 18642},
    "heartbeat_timeout": 8642014,
    "requeue": {"max": 8642011, "exit_code": 249},
    "watch": {"interval": 8642031, "stall": 8642032, "action": "restart", "progress": "zmark_progress"},
    "notify": {"url": "env:Zmark_webhook", "on": ["end"]},
}
MARKS = ("Zmark", "zmark", "8642", "58644", "QUIT")


def left_at_default(spec: BaseModel, path: str = "") -> Iterator[str]:
    """Yield the dotted paths of fields with their default value."""
    for name, field in type(spec).model_fields.items():
        value = getattr(spec, name)
        if isinstance(value, BaseModel):
            yield from left_at_default(value, f"{path}{name}.")
        elif value == field.get_default(call_default_factory=True):
            yield path + name
