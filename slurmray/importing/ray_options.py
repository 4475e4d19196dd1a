"""Options of `ray start` and `ray job submit`, as fields of a job spec."""

from __future__ import annotations

import json

from slurmray.agent.paths import TEMP_DIR_MAX
from slurmray.importing.draft import Draft
from slurmray.importing.options import Option, split_options
from slurmray.importing.words import Word

START_FLAGS = {
    *(
        "--head",
        "--block",
        "--disable-usage-stats",
        "--no-monitor",
        "--ray-debugger-external",
        "-v",
        "--verbose",
    ),
    *("--no-redirect-output", "--no-redirect-worker-output", "--enable-object-reconstruction"),
}
SUBMIT_FLAGS = {"--no-wait", "--no-verify", "-v", "--verbose", "--follow"}
_ADDRESS = "slurmray finds the head node, and gives Ray its address"
_SKIPPED = {
    **dict.fromkeys(("--head", "--block", "--address", "--node-ip-address", "--node-name"), _ADDRESS),
    **dict.fromkeys(("--dashboard-host", "--include-dashboard"), "see slurmray dashboard"),
    **dict.fromkeys(
        ("-v", "--verbose", "--no-redirect-output", "--log-style"), "the job's log has Ray's output"
    ),
    "--disable-usage-stats": "usage statistics are off",
    "--num-cpus": "Ray gets slurm.cpus_per_task",
    "--redis-password": "the job has a token instead",
}
_PORTS = {"--port": ("ray.port", "6379"), "--dashboard-port": ("ray.dashboard_port", "8265")}
_FREE = "the default port: slurmray takes a free one"


class RayOptions:
    """Sets the fields of `ray`."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def read_start(self, words: list[Word], gpus: str | None) -> None:
        """Set the fields of the options of a `ray start`. gpus: of each node, as Slurm counts them."""
        options, rest = split_options(words, START_FLAGS)
        names = [option.name for option in options]
        place = "ray.head_args" if "--head" in names else "ray.worker_args"
        for option in options:
            self._read(option, place, gpus)
        for word in rest:
            self.draft.look([word.line], "an argument of ray start")

    def _read(self, option: Option, place: str, gpus: str | None) -> None:
        name, lines = option.name, option.lines
        text = option.value.constant if option.value is not None else None
        if name == "--num-gpus":
            self._read_gpus(option, gpus)
        elif name in _PORTS and text is not None:
            field, default = _PORTS[name]
            if text == default:
                self.draft.skip(lines, _FREE)
            else:
                self.draft.set(field, text, lines)
        elif name in _SKIPPED:
            self.draft.skip(lines, _SKIPPED[name])
        elif name == "--ray-debugger-external":
            self.draft.set("ray.debug", "legacy", lines)
        elif name == "--temp-dir" and option.value is not None:
            path = option.value.absolute_path
            if path and ("$" in path or len(path) <= TEMP_DIR_MAX):
                self.draft.set("ray.temp_dir", path, lines)
            else:
                reason = f"set ray.temp_dir, a folder on local disks, at most {TEMP_DIR_MAX} characters"
                self.draft.look(lines, reason)
        elif name == "--metrics-export-port":
            self.draft.set("ray.metrics", "true", lines)
        elif option.value is not None and text is None:
            self.draft.look(lines, f"{name} has a value that is only known when the script runs")
        else:
            self.draft.add(place, name if text is None else f"{name}={text}", lines)

    def _read_gpus(self, option: Option, gpus: str | None) -> None:
        text = option.value.constant if option.value is not None else None
        if text is None or text == gpus or not text.isdecimal():
            self.draft.skip(option.lines, "Ray gets slurm.gpus_per_node")
        elif gpus is None:
            self.draft.set("ray.gpus_per_node", text, option.lines)
            self.draft.look(
                option.lines, "the directives ask for no GPUs: set slurm.gpus_per_node if Slurm has them"
            )
        else:
            self.draft.look(
                option.lines, f"Ray had {text} GPUs of {gpus}: see ray.head.gpus and services[].gpus"
            )

    def merge_arguments(self) -> None:
        """Move the arguments that head node and workers have in common to ray.args."""
        head, workers = self.draft.get("ray.head_args") or [], self.draft.get("ray.worker_args") or []
        for argument in [argument for argument in head if argument in workers]:
            lines = [
                self.draft.lines[("ray", place, str(items.index(argument)))]
                for place, items in (("head_args", head), ("worker_args", workers))
            ]
            self.draft.add("ray.args", argument, sorted(set().union(*lines)))
        for place, items in (("head_args", head), ("worker_args", workers)):
            common = self.draft.get("ray.args") or []
            if left := [argument for argument in items if argument not in common]:
                self.draft.fields[("ray", place)] = left
            else:
                self.draft.fields.pop(("ray", place), None)

    def read_submit(self, options: list[Option]) -> None:
        """Set the fields of the options of a `ray job submit`."""
        for option in options:
            name, value, lines = option.name, option.value, option.lines
            if name in ("--address", "--headers", *SUBMIT_FLAGS):
                self.draft.skip(lines, "the trainer starts on the head node, and the job waits for it")
            elif name == "--runtime-env" and value is not None and value.path:
                self._set_environment(value.path, lines)
            elif name == "--runtime-env-json" and value is not None and value.constant:
                try:
                    self._set_environment(json.loads(value.constant), lines)
                except (ValueError, RecursionError):
                    self.draft.look(lines, "--runtime-env-json is no JSON: set ray.runtime_env")
            elif name == "--working-dir" and value is not None and value.path:
                self._set_environment({"working_dir": value.path}, lines)
            else:
                self.draft.look(lines, f"{name}: see launch: ray-job and ray.runtime_env")

    def _set_environment(self, value: object, lines: list[int]) -> None:
        if isinstance(value, dict) and isinstance(variables := value.get("env_vars"), dict):
            for name in [
                name for name, text in variables.items() if self.draft.is_secret(str(name), str(text))
            ]:
                del variables[name]
                self.draft.set_variable(str(name), None, lines)
        if value and self.draft.set("ray.runtime_env", value, lines):
            self.draft.set("launch", "ray-job", lines)
