"""Search-R1: an early verl with a search engine in its rollouts.

Sources, in github.com/PeterGriffinJin/Search-R1 at a14dc3a: verl/trainer/config/ppo_trainer.yaml (keys,
address of the retriever), verl/trainer/main_ppo.py (one resource pool), verl/workers/fsdp_workers.py
(engines), and verl/trainer/runtime_env.yaml, the variables for `ray job submit`. It cannot resume.
"""

from __future__ import annotations

import re

from slurmray.presets import verl
from slurmray.presets.context import PresetContext

_ADDRESS = "http://127.0.0.1:8000/retrieve"
_LOOPBACK = re.compile(r"//(127\.|localhost|\[::1\])")


def advise(context: PresetContext) -> None:
    """Fill in the number of nodes and GPUs, and check them and the retriever's address."""
    verl.fill_single_pool(context)
    verl.check_engine(context)
    nodes, gpus = (
        context.override_count(key, most)
        for key, most in ((verl.NODES, context.nodes), (verl.GPUS, context.gpus))
    )
    for _ in range(nodes or 0):
        context.ask("trainer", [(1, 1)] * (gpus or 0), "STRICT_PACK", context.command.override(verl.GPUS))
    context.env |= {"TORCH_NCCL_AVOID_RECORD_STREAMS": "1", "VLLM_ATTENTION_BACKEND": "XFORMERS"}
    option = context.command.override("retriever.url")
    address = option.value if option else _ADDRESS
    spec = context.spec
    places = ("all", "workers") if spec.ray.head.cpus == 0 else ("all",)  # where Ray can run tasks
    is_everywhere = any(service.where in places or spec.ray_nodes == 1 for service in spec.services)
    if context.command.argv and not is_everywhere and address and _LOOPBACK.search(address):
        # Ray chooses the node on which the loop with the searches runs.
        context.remarks.append(
            f"retriever.url is {address}: a retrieval server must run on each node, as one of `services`"
        )
