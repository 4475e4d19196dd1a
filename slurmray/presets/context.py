"""The job as a preset sees it, and what the preset fills in and finds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slurmray.agent.job_log import counted
from slurmray.plan import Fact, Finding
from slurmray.presets.command_line import CommandLine, ParsedOption, parse_integer
from slurmray.presets.packer import Bundle, Group, Strategy
from slurmray.presets.ranks import spans
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.preset import Preset
from slurmray.spec.types import shown
from slurmray.yaml_source import Path, Source

MAX_GPUS = 1_000_000  # of a job whose placement is checked, GPU by GPU


class Demand(NamedTuple):
    """What the trainer asks of Ray, and waits for until it is placed."""

    group: Group
    at: ParsedOption | Path | None  # where its size is set; None: nowhere


@dataclass
class PresetContext:
    """The input of a trainer's module and, from `arguments` on, its output.

    command: the trainer's. config: the trainer's own file, if the job spec names one.
    """

    spec: JobSpec
    preset: Preset
    command: CommandLine
    config: Source | None
    arguments: list[str] = field(default_factory=list)
    """To append to the trainer's command."""
    shell_arguments: list[str] = field(default_factory=list)
    """The same with shell variables as values, for users who pass them in a script."""
    env: dict[str, str] = field(default_factory=dict)
    node_env: dict[str, Fact] = field(default_factory=dict)
    resume: list[str] = field(default_factory=list)
    problems: list[Finding] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)

    @property
    def nodes(self) -> int:
        """Number of nodes that the trainer counts: see JobSpec.trainer_nodes."""
        return self.spec.trainer_nodes

    @property
    def gpus(self) -> int:
        """GPUs on each node, without those of services."""
        return self.spec.ray_gpus

    @property
    def total(self) -> int:
        """GPUs of these nodes, without those of services."""
        return self.nodes * self.gpus

    @property
    def allocation(self) -> str:
        """For example `the job has 2 nodes x 8 = 16`, with the GPUs that services use."""
        spec, without = self.spec, []
        if self.nodes == spec.ray_nodes - 1:
            without.append("the head node")
        elif self.nodes < spec.ray_nodes:
            without.append(f"{spec.ray_nodes - self.nodes} nodes with fewer GPUs")
        if spec.ray_nodes < spec.slurm.node_count:
            without.append(f"{counted(spec.slurm.node_count - spec.ray_nodes, 'node')} of services")
        nodes, other = counted(self.nodes, "node"), without and f" without {' and '.join(without)}"
        return f"the job has {nodes} x {self.gpus} = {self.total}{other or ''}{self.services_text}"

    @property
    def services_text(self) -> str:
        """For example ` (services use 2 of 8 on each node: retriever 2)`; empty if they use none."""
        services, used = self.spec.gpus_of_services, self.spec.gpus - self.gpus
        return f" (services use {used} of {self.spec.gpus} on each node: {services})" if services else ""

    def gpus_fix(self, gpus: int) -> str:
        """Return how to request that many GPUs on each node."""
        of_services = self.spec.gpus - self.gpus
        more = f", {gpus} and those of services" if of_services else ""
        return f"set {self.spec.gpus_field}: {gpus + of_services}{more}"

    def nodes_fix(self, nodes: int) -> str:
        """Return how to request nodes of which the trainer counts that many."""
        slurm, more = self.spec.slurm, nodes - self.nodes
        for group in slurm.groups:
            if group.gpus:
                return f"set nodes: {group.nodes + more} in the group {group.name}"
        return f"set slurm.nodes: {slurm.node_count + more}"

    def nodes_fix_for(self, gpus: int) -> str:
        """Return how to request nodes on which the trainer has that many GPUs."""
        return self.nodes_fix(-(-gpus // self.gpus))

    def lookup(self, path: Path) -> Any:
        """Return the value at a path of the trainer's own file; None if there is none."""
        here = self.config.data if self.config else None
        for name in path:
            here = here.get(name) if isinstance(here, dict) else None
        return here

    def parse_count(self, at: ParsedOption | Path, name: str, value: object) -> int | None:
        """Return a number of GPUs or nodes; None, after adding a problem if it is a wrong value.

        A value that is not known yet, e.g. a shell variable, is no problem.
        """
        number = parse_integer(value)
        if number is None and isinstance(value, str) and value != "null" and "$" not in value:
            is_too_large = re.fullmatch("[0-9]{10,}", value)
            expected = "too large, expected" if is_too_large else "expected"
            self.add_problem(at, f"{name} {shown(value)}: {expected} a number of GPUs or nodes")
        return number

    def override_count(self, key: str, default: int | None = None) -> int | None:
        """Return the number of GPUs or nodes that an override sets, as `parse_count` does."""
        return self.option_count(self.command.override(key), key, default)

    def option_count(self, option: ParsedOption | None, name: str, default: int | None = None) -> int | None:
        """Return the number of GPUs or nodes of an option, as `parse_count` does."""
        return self.parse_count(option, name, option.value) if option else default

    def check_total(self, parts: str, used: int, option: ParsedOption | None, fix: str) -> None:
        """Check that the job has the GPUs that are used; others get a remark. parts: what uses them.

        option, fix: for the problem.
        """
        text = f"{parts} = {used} GPUs, {self.allocation}"
        if used > self.total:
            self.add_problem(option, f"{text}: {fix}, or {self.nodes_fix_for(used)}")
        elif used < self.total:
            self.remarks.append(f"{text}: {self.total - used} idle")

    def add_argument(self, name: str, value: int, variable: str, separator: str = "=") -> None:
        """Append an argument to the trainer's command. variable: the job's variable with the same value."""
        self.arguments += [f"{name}={value}"] if separator == "=" else [name, str(value)]
        self.shell_arguments.append(f"{name}{separator}${variable}")

    def check_range(self, placed: Sequence[tuple[str, int, int, ParsedOption | Path]]) -> bool:
        """Check that no placement goes beyond the job's GPUs, and return whether that is so.

        placed: a text for each, its number of GPUs, its highest GPU, and where it is set.
        """
        beyond = [(last, at) for _, _, last, at in placed if last >= self.total]
        if not beyond:
            return True
        parts, count = [text for text, _, _, _ in placed], sum(size for _, size, _, _ in placed)
        highest = max(last for last, _ in beyond)
        if count == highest + 1:  # side by side, without a gap
            cause = f"{' + '.join(parts)} = {count} GPUs"
        else:
            cause = f"{', '.join(parts)} reach GPU {highest}"
        fix = f"{self.nodes_fix_for(highest + 1)}, or place them on GPUs 0 to {self.total - 1}"
        self.add_problem(beyond[0][1], f"{cause}, {self.allocation}: {fix}")
        return False

    def note_idle(self, parts: list[str], used: set[int]) -> None:
        """Add a remark about GPUs of the job that nothing uses."""
        if idle := set(range(self.total)) - used:
            text = f"{counted(len(idle), 'GPU')} idle, {spans(idle)}"
            self.remarks.append(f"{', '.join(parts)}, {self.allocation}: {text}")

    def note_unplaced(self, key: str) -> None:
        """Add a remark that the trainer's own file has no placement; another file may have it."""
        fix = "copy it there from the file that `defaults` names"
        self.remarks.append(f"the placement is not checked: {self.preset.config} has no {key}: {fix}")

    def ask(
        self,
        name: str,
        bundles: Sequence[tuple[float, float]],
        strategy: Strategy = "PACK",
        at: ParsedOption | Path | None = None,
        *,
        stays: bool = True,
        unless: str = "",
    ) -> None:
        """Note what the trainer asks of Ray next: CPUs and GPUs of each bundle, or of an actor. See Group."""
        group = Group(name, [Bundle(*bundle) for bundle in bundles], strategy, stays, unless)
        self.demands.append(Demand(group, at))

    def add_problem(self, at: ParsedOption | Path | None, text: str) -> None:
        """Add a problem. at: the wrong option; None: a missing one; or a path in the trainer's own file."""
        if isinstance(at, tuple):
            finding = Finding(at, text, in_config=True)
        else:
            finding = Finding(("run", at.index) if at and self.command.is_list else ("run",), text)
        if finding not in self.problems:  # a value may be read several times
            self.problems.append(finding)
