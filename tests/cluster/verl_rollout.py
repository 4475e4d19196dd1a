"""A rollout for verl 0.9.1 without an inference engine: transformers on CPUs, one request after the other.

verl imports it for VERL_USE_EXTERNAL_MODULES=cpu_platform,verl_rollout, and takes it for rollout.name=cpu. It
prints what is placed in Ray, and what is free there. `python3 verl_rollout.py FILE` writes prompts. The
reward is the share of digits in an answer.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import ray
import torch
from ray._private.state import available_resources_per_node
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
        output = self.model.generate(
            torch.tensor([list(prompt_ids)]),
            do_sample=sampling_params["temperature"] > 0,
            top_k=0,
            max_new_tokens=self.length,
            return_dict_in_generate=True,
            output_logits=True,
        )
        tokens = output.sequences[0, len(prompt_ids) :]
        rows = torch.log_softmax(torch.cat(output.logits), -1)
        return replica.TokenOutput(
            token_ids=tokens.tolist(),
            log_probs=rows[range(len(tokens)), tokens].tolist(),
            stop_reason="completed",
            extra_fields={"global_steps": self.step},
        )

    def sleep(self) -> None:
        pass

    def wake_up(self) -> None:
        pass


class Replica(replica.RolloutReplica):  # type: ignore[misc, unused-ignore]
    """A server beside its worker, as vLLM's."""

    async def launch_servers(self) -> None:
        node = await self.workers[0].__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        server = Server.options(  # type: ignore[attr-defined, unused-ignore]
            name=SERVER % self.replica_rank,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(self.model_config.path, self.config.response_length)
        self.servers, self._server_handle = [server], server
        self._server_address = f"{node}:{self.replica_rank}"
        if self.replica_rank == 0:
            print("placed", json.dumps(placed()), flush=True)


class Rollout(base.BaseRollout):  # type: ignore[misc, unused-ignore]
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


def placed() -> dict[str, Any]:
    """The placement groups (strategy, bundles, nodes), and the CPUs and GPUs that are free on each node."""
    names = {row["NodeID"]: row["NodeName"] for row in ray.nodes()}
    groups = [
        (
            row["strategy"],
            [*row["bundles"].values()],
            [names[node] for node in row["bundles_to_node_id"].values()],
        )
        for row in placement_group_table().values()
    ]
    free = {
        names[node]: [amounts.get("CPU", 0), amounts.get("GPU", 0)]
        for node, amounts in available_resources_per_node().items()
    }
    return {"groups": groups, "free": free}


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
