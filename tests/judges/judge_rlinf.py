"""Runs RLinf's placement code: reads cases from stdin and writes verdicts to stdout, as JSON.

Cluster, node probe and placement classes are RLinf's; a stand-in for Ray has the nodes and GPUs of the case.

A case has `nodes` and `gpus_per_node`; `config`, the parts of the trainer's configuration that placement
reads (`cluster`, `actor`, `rollout`, `algorithm`); and `hybrid`, true for the embodied trainers, which use
HybridComponentPlacement instead of ModelParallelComponentPlacement. Its verdict has `placed`, {component:
[[node, GPUs], ...], one per process}, and `error`, or null.
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

# All configurations in RLinf's examples/ have these.
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
    new = object.__new__(Cluster)  # not its singleton: one for each case
    with mock.patch.object(ray, "get", lambda _: list(nodes)):
        probe = NodeProbe(config.num_nodes, ClusterConfig.from_dict_cfg(config))
    new._num_nodes, new._nodes, new._node_groups = len(probe.nodes), probe.nodes, probe.node_groups
    return new


def judge(case: dict[str, Any]) -> dict[str, Any]:
    config = OmegaConf.merge(USUAL, case["config"])
    kind = HybridComponentPlacement if case.get("hybrid") else ModelParallelComponentPlacement
    try:
        nodes = cluster(config.cluster, [node(rank, case["gpus_per_node"]) for rank in range(case["nodes"])])
        placement = kind(config, nodes)
        placed = {
            name: [
                [process.cluster_node_rank, process.local_hardware_ranks]
                for process in placement.get_strategy(name).get_placement(nodes)
            ]
            for name in placement.components
        }
    except (AssertionError, ValueError, OmegaConfBaseException) as problem:
        return {"placed": None, "error": f"{type(problem).__name__}: {problem}"}
    return {"placed": placed, "error": None}


json.dump([judge(case) for case in json.load(sys.stdin)], sys.stdout)
