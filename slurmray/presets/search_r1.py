"""Search-R1: an early verl with a search engine in its rollouts.

Facts from github.com/PeterGriffinJin/Search-R1 at a14dc3a: verl/trainer/config/ppo_trainer.yaml (keys, the
retriever's address), verl/trainer/main_ppo.py (one pool), verl/workers/fsdp_workers.py (engines), and
verl/trainer/runtime_env.yaml, which `ray job submit` would take the variables from. It cannot resume.
"""

from __future__ import annotations

import re

from slurmray.presets import verl
from slurmray.presets.context import Case

_ADDRESS = "http://127.0.0.1:8000/retrieve"
_LOOPBACK = re.compile(r"//(127\.|localhost|\[::1\])")


def advise(case: Case) -> None:
    """Fill in the number of nodes and GPUs, and check them."""
    verl.whole_cluster(case)
    verl.engine(case)
    case.env |= {"TORCH_NCCL_AVOID_RECORD_STREAMS": "1", "VLLM_ATTENTION_BACKEND": "XFORMERS"}
    said = case.words.override("retriever.url")
    address = said.text if said else _ADDRESS
    everywhere = any(service.where == "all" or case.nodes == 1 for service in case.spec.services)
    if case.words.words and not everywhere and address and _LOOPBACK.search(address):
        # Ray decides which node the loop with the searches runs on.
        case.notes.append(
            f"retriever.url is {address}: a retrieval server must run on each node, as one of `services`"
        )
