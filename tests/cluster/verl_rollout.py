"""A rollout for verl 0.9.1 without an inference engine: transformers on CPUs, one request after the other.

verl imports it for VERL_USE_EXTERNAL_MODULES=cpu_platform,verl_rollout, and takes it for rollout.name=cpu. It
prints the placement groups and the nodes of the actors, once both servers run. `python3 verl_rollout.py FILE`
writes prompts for it; their reward is the share of digits in the answer.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import ray
import torch
from ray.util.placement_group import placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from transformers import AutoModelForCausalLM
from verl.workers.rollout import base, replica

if TYPE_CHECKING:
    from collections.abc import Iterable

SERVER = "cpu_server_%d"


@ray.remote
class Server:
    """A model that answers."""

    def __init__(self, path: str, length: int) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(path)
        self.length = length
        self.step: int | None = None

    def update(self, weights: dict[str, torch.Tensor], step: int | None) -> None:
        self.model.load_state_dict(weights)
        self.step = step

    def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> replica.TokenOutput:
        is_random = sampling_params["temperature"] > 0
        tokens = self.model.generate(
            torch.tensor([list(prompt_ids)]), do_sample=is_random, max_new_tokens=self.length
        )
        answer = tokens[0, len(prompt_ids) :].tolist()
        fields = {"global_steps": self.step}
        return replica.TokenOutput(token_ids=answer, stop_reason="completed", extra_fields=fields)

    def sleep(self) -> None:
        pass

    def wake_up(self) -> None:
        pass


class Replica(replica.RolloutReplica):
    """A server beside its worker, as vLLM's."""

    async def launch_servers(self) -> None:
        node = await self.workers[0].__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        server = Server.options(
            name=SERVER % self.replica_rank,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(self.model_config.path, self.config.response_length)
        self.servers, self._server_handle, self._server_address = (
            [server],
            server,
            f"{node}:{self.replica_rank}",
        )
        if self.replica_rank == 0:
            print("placed", json.dumps(placed()), flush=True)


class Rollout(base.BaseRollout):
    """In the worker: gives its server the weights."""

    async def resume(self, tags: list[str]) -> None:
        pass

    async def release(self) -> None:
        pass

    async def update_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None, **_: Any
    ) -> None:
        server = ray.get_actor(SERVER % torch.distributed.get_rank())
        await server.update.remote({name: weight.cpu() for name, weight in weights}, global_steps)


def placed() -> list[dict[str, Any]]:
    """The placement groups: strategy, bundles, and the node of each bundle."""
    names = {row["NodeID"]: row["NodeName"] for row in ray.nodes()}
    return [
        {
            "strategy": row["strategy"],
            "bundles": list(row["bundles"].values()),
            "nodes": [names.get(node) for node in row["bundles_to_node_id"].values()],
            "state": row["state"],
        }
        for row in placement_group_table().values()
    ]


def compute_score(solution_str: str, **_: Any) -> float:
    """The reward."""
    return sum(map(str.isdigit, solution_str)) / max(len(solution_str), 1)


def write_prompts(file: str) -> None:
    import pandas

    rows = [
        {
            "prompt": [{"role": "user", "content": f"{n} + {n + 1}?"}],
            "data_source": "sums",
            "reward_model": {"style": "rule", "ground_truth": str(2 * n + 1)},
            "extra_info": {"index": n},
        }
        for n in range(64)
    ]
    pandas.DataFrame(rows).to_parquet(file)


if __name__ == "__main__":
    write_prompts(sys.argv[1])
else:
    base._ROLLOUT_REGISTRY["cpu", "async"] = f"{__name__}.Rollout"
    replica.RolloutReplicaRegistry.register("cpu", lambda: Replica)
