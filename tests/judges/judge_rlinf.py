"""RLinf's own placement code reads component placements: cases from stdin, verdicts to stdout, as JSON.

Its Cluster, its node probe and its placement classes are the real ones; Ray answers with as many nodes and
GPUs as the case says.

A case has `nodes` and `gpus_per_node`, what is there; `config`, the trainer's configuration, as far as
placement reads it (`cluster`, `actor`, `rollout`, `algorithm`); and `hybrid`, true for the embodied trainers,
which place with HybridComponentPlacement, where others have ModelParallelComponentPlacement. Its verdict has
`placed`, from each component to the [node, GPUs on it] of each of its processes, and `error`, null where
there is none.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest import mock

from tests.judges import stand_ins

stand_ins.install("ray", "torch", "numpy")

import ray  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from omegaconf.errors import OmegaConfBaseException  # noqa: E402
from rlinf.scheduler.cluster import Cluster, ClusterConfig, NodeInfo  # noqa: E402
from rlinf.scheduler.cluster.node import NodeProbe  # noqa: E402
from rlinf.scheduler.hardware import Accelerator, HardwareInfo, HardwareResource  # noqa: E402
from rlinf.utils.placement import HybridComponentPlacement, ModelParallelComponentPlacement  # noqa: E402

# What the configurations in RLinf's examples/ always have.
USUAL = {"actor": {"model": {}}, "rollout": {}, "algorithm": {"recompute_logprobs": True}}


def node(rank: int, gpus: int) -> Any:
    gpu = HardwareInfo(type=Accelerator.HW_TYPE, model="NV_GPU:H100")
    return NodeInfo(
        node_labels=[],
        node_rank=rank,
        ray_id=ray.get_runtime_context().get_node_id(),
        node_ip=f"192.0.2.{rank}",
        num_cpus=8,
        python_interpreter_path=sys.executable,
        default_env_vars={},
        env_vars={},
        hardware_resources=[HardwareResource(type=Accelerator.HW_TYPE, infos=[gpu] * gpus)] if gpus else [],
    )


def cluster(config: Any, nodes: list[Any]) -> Any:
    made = object.__new__(Cluster)  # one for each case, not one for the process
    with mock.patch.object(ray, "get", lambda _: list(nodes)):
        probe = NodeProbe(config.num_nodes, ClusterConfig.from_dict_cfg(config))
    made._num_nodes, made._nodes, made._node_groups = len(probe.nodes), probe.nodes, probe.node_groups
    return made


def judge(case: dict[str, Any]) -> dict[str, Any]:
    config = OmegaConf.merge(USUAL, case["config"])
    kind = HybridComponentPlacement if case.get("hybrid") else ModelParallelComponentPlacement
    try:
        there = cluster(config.cluster, [node(rank, case["gpus_per_node"]) for rank in range(case["nodes"])])
        placement = kind(config, there)
        placed = {
            name: [
                [process.cluster_node_rank, process.local_hardware_ranks]
                for process in placement.get_strategy(name).get_placement(there)
            ]
            for name in placement.components
        }
    except (AssertionError, ValueError, OmegaConfBaseException) as problem:
        return {"placed": None, "error": f"{type(problem).__name__}: {problem}"}
    return {"placed": placed, "error": None}


json.dump([judge(case) for case in json.load(sys.stdin)], sys.stdout)
