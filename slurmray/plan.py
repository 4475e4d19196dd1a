"""A job as it is rendered: its spec, and what the spec's preset adds. `slurmray.loading` makes it, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from slurmray.errors import Problem
from slurmray.spec.job_spec import JobSpec
from slurmray.yaml_source import Path

# Facts that are only known on a node. rank: 0 is the head node. head: address of the head node. ray_port:
# port of the GCS. interface: the network interface with the node's address.
Fact = Literal["rank", "nodes", "head", "ray_port", "interface"]


class Finding(NamedTuple):
    """A mistake. path: of a field in the job spec or, if in_config, in the trainer's own file."""

    path: Path
    text: str
    in_config: bool = False


@dataclass(frozen=True)
class Advice:
    """The result of a preset. Without a preset: `run` of the job spec as argv, and nothing else."""

    run: list[str] | None  # the trainer's argv
    # More variables for Ray and the trainer on every node, without those in the job spec's `env`.
    env: dict[str, str] = field(default_factory=dict)
    node_env: dict[str, Fact] = field(default_factory=dict)  # values that only the node knows
    resume: list[str] = field(default_factory=list)  # arguments for the trainer of a requeued job
    bf16: bool = False  # whether the trainer uses it
    problems: list[Finding] = field(default_factory=list)  # mistakes in the job spec
    config_problems: list[Problem] = field(default_factory=list)  # mistakes in the trainer's own file
    remarks: list[str] = field(default_factory=list)  # lines for the user


class Plan(NamedTuple):
    """A valid job spec, and the advice of its preset.

    fewer_nodes: plans of the same job with fewer nodes, by their number, for restart.min_nodes.
    """

    spec: JobSpec
    advice: Advice
    fewer_nodes: Mapping[int, Plan] = {}
