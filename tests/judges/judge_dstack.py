"""Parses task files with dstack's models: reads cases from stdin and writes verdicts to stdout, as JSON.

A case is the text of a .dstack.yml. Its verdict has `task`, the configuration as dstack parsed it, and
`error`, or null. `$$` and `${{ }}` are replaced as in dstack: in commands by `dstack apply` and then by the
server, in `env` by the server.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import yaml

warnings.simplefilter("ignore")  # requests warns about a missing package that is not needed here

from dstack._internal.core.errors import DstackError  # noqa: E402
from dstack._internal.core.models.configurations import parse_run_configuration  # noqa: E402
from dstack._internal.core.services import validate_dstack_resource_name  # noqa: E402
from dstack._internal.utils.interpolator import InterpolatorError, VariablesInterpolator  # noqa: E402
from dstack._internal.utils.nodes_interpolator import (  # noqa: E402
    contains_groups_ref,
    interpolate_groups_ip_address,
    is_valid_groups_ip_ref,
)

# As in RunWithCommandsConfiguratorMixin of dstack's command line.
WITHOUT_ARGUMENTS = VariablesInterpolator(
    {"run": {"args": ""}},
    skip={"secrets": VariablesInterpolator.validate_name, "groups": is_valid_groups_ip_ref},
)
# As in interpolate_job_spec_secrets of dstack's server, for a user without secrets.
WITHOUT_SECRETS = VariablesInterpolator({"secrets": {}})


def judge(text: str) -> dict[str, Any]:
    try:
        task = parse_run_configuration(yaml.safe_load(text))
        if task.name is not None:
            validate_dstack_resource_name(task.name)
        nodes = [[f"10.0.0.{number}" for number in range(1, (task.nodes or 1) + 1)]]
        task.commands = [
            interpolate_groups_ip_address(WITHOUT_ARGUMENTS.interpolate_or_error(command), nodes)
            for command in task.commands
        ]
        for name, value in task.env.items():
            if isinstance(value, str):
                if contains_groups_ref(value):
                    raise InterpolatorError(f"groups in env: {name}")
                task.env[name] = WITHOUT_SECRETS.interpolate_or_error(value)
    except (yaml.YAMLError, DstackError, InterpolatorError) as problem:
        return {"task": None, "error": str(problem)}
    return {"task": task.model_dump(mode="json"), "error": None}


json.dump([judge(text) for text in json.load(sys.stdin)], sys.stdout)
