"""One job under examination by a preset: what it asks for, and what comes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from slurmray.presets.command_line import Said, Words, whole
from slurmray.presets.ranks import spans
from slurmray.spec.job import JobSpec
from slurmray.spec.preset import Preset
from slurmray.spec.types import shown
from slurmray.yaml_source import Path, Source

# What is known on a node only. rank: 0 is the head. head: its address. ray_port: of the GCS. interface: the
# one that has the node's address.
Fact = Literal["rank", "nodes", "head", "ray_port", "interface"]


MOST = 1_000_000  # GPUs of a job whose placement is checked, one by one


class Finding(NamedTuple):
    """A mistake. path: into the job spec or, if in_config, into the trainer's own file."""

    path: Path
    text: str
    in_config: bool = False


@dataclass
class Case:
    """What a trainer's module reads, and what it fills in: everything from `added` on.

    words: the entrypoint's. config: the trainer's own file, if the spec names one.
    """

    spec: JobSpec
    preset: Preset
    words: Words
    config: Source | None
    added: list[str] = field(default_factory=list)
    """For the end of the entrypoint."""
    to_pass: list[str] = field(default_factory=list)
    """The same, for a person to add in a shell."""
    env: dict[str, str] = field(default_factory=dict)
    node_env: dict[str, Fact] = field(default_factory=dict)
    resume: list[str] = field(default_factory=list)
    problems: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> int:
        """Nodes of the job."""
        return self.spec.slurm.nodes

    @property
    def gpus(self) -> int:
        """GPUs on each of them, without those of services."""
        return self.spec.ray_gpus

    @property
    def total(self) -> int:
        """GPUs of the job."""
        return self.nodes * self.gpus

    @property
    def allocation(self) -> str:
        """`the job has 2 nodes x 8 = 16`, and what services leave out of it."""
        return f"the job has {counted(self.nodes, 'node')} x {self.gpus} = {self.total}{self.taken}"

    @property
    def taken(self) -> str:
        """What services have: ` (of the 8 on a node services take retriever 2)`; empty if nothing."""
        services = self.spec.gpus_of_services
        return f" (of the {self.spec.gpus} on a node services take {services})" if services else ""

    def gpus_remedy(self, gpus: int) -> str:
        """Return how to get so many GPUs on each node."""
        beside = self.spec.gpus - self.gpus
        more = f", {gpus} and those of services" if beside else ""
        return f"set slurm.gpus_per_node: {gpus + beside}{more}"

    def nodes_for(self, gpus: int) -> int:
        """Return how many nodes have so many GPUs."""
        return -(-gpus // self.gpus)

    def lookup(self, path: Path) -> Any:
        """Return what stands at a path of the trainer's own file; None: nothing."""
        here = self.config.data if self.config else None
        for name in path:
            here = here.get(name) if isinstance(here, dict) else None
        return here

    def number(self, at: Said | Path, name: str, text: object) -> int | None:
        """Return the whole number that a value is; None for one that is refused, or not there yet."""
        number = whole(text)
        if number is None and isinstance(text, str) and text != "null" and "$" not in text:
            many = re.fullmatch("[0-9]{10,}", text)
            why = "no job has so many, write" if many else "expected"
            self.refuse_at(at, f"{name} {shown(text)}: {why} a number of GPUs or nodes")
        return number

    def add(self, name: str, value: int, variable: str, separator: str = "=") -> None:
        """Tell the trainer a number of the cluster. variable: what has it in the job's environment."""
        self.added += [f"{name}={value}"] if separator == "=" else [name, str(value)]
        self.to_pass.append(f"{name}{separator}${variable}")

    def too_far(self, parts: list[str], asked: int, highest: int) -> str:
        """Return that placements go beyond the job's GPUs. asked: how many GPUs they have, added up."""
        if asked == highest + 1:  # side by side, without a gap
            added = f"{' + '.join(parts)} = {asked} GPUs"
        else:
            added = f"{', '.join(parts)} reach GPU {highest}"
        remedy = (
            f"ask for slurm.nodes: {self.nodes_for(highest + 1)}, or place them on GPUs 0 to {self.total - 1}"
        )
        return f"{added}, {self.allocation}: {remedy}"

    def note_idle(self, parts: list[str], used: set[int]) -> None:
        """Say which GPUs of the job nobody uses."""
        if idle := set(range(self.total)) - used:
            text = f"{counted(len(idle), 'GPU')} idle, {spans(idle)}"
            self.notes.append(f"{', '.join(parts)}, {self.allocation}: {text}")

    def note_unplaced(self, key: str) -> None:
        """Say that the trainer's own file places nothing; it may take that from another one."""
        remedy = "write into it what it takes from others by `defaults`"
        self.notes.append(f"the placement is not checked: {self.preset.config} has no {key}: {remedy}")

    def refuse(self, said: Said | None, text: str) -> None:
        """Note a mistake in the entrypoint. said: where; None: in what it leaves out."""
        self.problems.append(Finding(("run", said.at) if said and self.words.listed else ("run",), text))

    def refuse_at(self, at: Said | Path, text: str) -> None:
        """Note a mistake, in the entrypoint or in the trainer's own file."""
        if isinstance(at, Said):
            self.refuse(at, text)
        else:
            self.refuse_config(at, text)

    def refuse_config(self, path: Path, text: str) -> None:
        """Note a mistake in the trainer's own file."""
        self.problems.append(Finding(path, text, in_config=True))


def counted(number: int, what: str) -> str:
    """Return `1 node` or `2 nodes`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
