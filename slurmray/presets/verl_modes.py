"""What each of verl's programs asks of Ray, in its order, and the numbers that it asserts.

Sources: verl 0.9.1: single_controller/ray/base.py (a pool has a placement group for each node), trainer and
trainer/ppo/v1, workers/rollout/replica.py (engines with a pool of their own), experimental/fully_async_policy
and one_step_off_policy; TransferQueue 0.1.11, which only the trainer V1 uses. Older releases: verl's tags
v0.6.1 to v0.9.0.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from slurmray.presets.command_line import ParsedOption
from slurmray.presets.context import PresetContext

ROLLOUT = "actor_rollout_ref.rollout"
ENGINE = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
_DISAGGREGATION = f"{ROLLOUT}.disaggregation"
_UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
_STORAGE = "transfer_queue.backend.storage_backend"


class Mode(NamedTuple):
    """One of verl's programs, or a mode of it."""

    name: str  # "": another program, e.g. a recipe, of which only the pools are known
    bundle: int = 3  # CPUs beside each GPU of the trainer's pool
    first: tuple[int, ...] = ()  # CPUs of each actor that holds some, before the trainer's pool
    second: tuple[int, ...] = ()  # likewise after it
    last: tuple[int, ...] = ()  # likewise after the rollout's pool
    rollout: str = ""  # section with nnodes and n_gpus_per_node of the rollout's own pool; "": it has none
    rollout_nodes: int = 0  # verl's default
    gpus: int = 8  # verl's default for GPUs on each node
    has_queue: bool = False  # TransferQueue
    is_whole: bool = False  # all GPUs are of engines


_PROGRAMS = (
    (
        "fully_async_policy.fully_async_main",
        Mode("fully_async", first=(1, 10), second=(10,), last=(2,), rollout="rollout", rollout_nodes=1),
    ),
    ("one_step_off_policy.main_ppo", Mode("one_step_off", first=(10,), rollout="rollout", rollout_nodes=1)),
    ("verl.trainer.sft_trainer_ray", Mode("sft_trainer_ray", bundle=10, gpus=1)),
    ("verl.trainer.main_generation_server", Mode("main_generation_server", bundle=2, is_whole=True)),
)


def find_mode(context: PresetContext) -> Mode:
    """Return the mode of the trainer's command."""
    command, since = context.command, context.preset.since
    program = next((mode for name, mode in _PROGRAMS if any(name in each for each in command.argv)), None)
    if program:
        return program
    if not any(re.search(r"verl[./]trainer[./]main_ppo", each) for each in command.argv):
        sections = (name for name in (ROLLOUT, "rollout") if command.override(f"{name}.nnodes"))
        return Mode("", rollout=next(sections, ""))
    v1 = command.override("trainer.use_v1")
    if since(0, 9) is False or (v1 and (v1.value or "").lower() == "false"):
        runner = (1,) if since(0, 9) is False else ()
        return Mode("v0", bundle=1 if since(0, 7) is False else 3, first=runner)
    trainer_mode = command.override("trainer.v1.trainer_mode")
    if trainer_mode and trainer_mode.value == "separate_async":
        return Mode("separate_async", rollout=ROLLOUT, has_queue=True)
    return Mode("v1", has_queue=True)


def ask(
    context: PresetContext, mode: Mode, trainer: tuple[int, int], pools: list[tuple[str, int, int]]
) -> None:
    """Note what the mode asks of Ray. trainer: its nodes and GPUs. pools: name, nodes and GPUs of others."""
    if not mode.name:
        return
    own = [pool for pool in pools if pool[0] == mode.rollout]
    for cpus in mode.first:
        context.ask(f"an actor of {mode.name}", [(cpus, 0)], "ACTOR")
    if mode.has_queue:
        _ask_queue(context)
    nodes, gpus = trainer
    if mode.is_whole:
        _ask_engines(context, "engines", nodes, gpus)
    else:
        _ask_pool(context, "trainer", nodes, gpus, mode.bundle)
    for cpus in mode.second:
        context.ask(f"an actor of {mode.name}", [(cpus, 0)], "ACTOR")
    for name, nodes, gpus in pools:
        if name != mode.rollout:
            _ask_pool(context, name, nodes, gpus, mode.bundle)
    for _, nodes, gpus in own:
        _ask_engines(context, mode.rollout, nodes, gpus)
    for cpus in mode.last:
        context.ask(f"an actor of {mode.name}", [(cpus, 0)], "ACTOR")


def _ask_pool(context: PresetContext, name: str, nodes: int, gpus: int, cpus: int) -> None:
    option = context.command.override(f"{name}.n_gpus_per_node")
    for _ in range(nodes):
        context.ask(name, [(cpus, 1)] * gpus, "STRICT_PACK", option)


def _ask_engines(context: PresetContext, name: str, nodes: int, gpus: int) -> None:
    """Note the engines of a pool of their own: each is to be on one node, or on whole ones."""
    size = engine_size(context)
    if not size or not gpus:
        return
    width = min(size, gpus)
    option = context.command.override(f"{name}.n_gpus_per_node")
    for _ in range(nodes * gpus // size * (size // width)):
        context.ask("rollout", [(2, 1)] * width, "STRICT_PACK", option)


def _ask_queue(context: PresetContext) -> None:
    """Note TransferQueue's controller and its storage units, which go round all nodes in Ray."""
    storage = context.command.override(_STORAGE)
    is_sure = context.preset.since(0, 9) or context.command.override("trainer.v1.trainer_mode")
    unless = "" if is_sure else "older versions need less: preset.version says which"
    units = 0 if storage and storage.value != "SimpleStorage" else context.override_count(_UNITS, 8) or 0
    nodes = context.spec.ray_nodes
    for _ in range(units // nodes):
        context.ask("TransferQueue", [(1, 0)] * nodes, "STRICT_SPREAD", unless=unless)
    # The last round starts on any node, e.g. on that of the controller.
    rest = [(1, 0)] * (units % nodes)
    context.ask("TransferQueue", [(1 + len(rest[:1]), 0), *rest[1:]], "STRICT_SPREAD", unless=unless)


def engine_size(context: PresetContext) -> int | None:
    """GPUs of an inference engine; None where that is not known."""
    numbers = [context.override_count(f"{ROLLOUT}.{name}", 2 if name == ENGINE[0] else 1) for name in ENGINE]
    if None in numbers:
        return None
    size = math.prod(number or 0 for number in numbers)
    if not is_on(context, f"{_DISAGGREGATION}.enabled"):
        return size
    width = numbers[0] or 0
    prefill = context.override_count(f"{_DISAGGREGATION}.prefill_replicas", 1)
    decode = context.override_count(f"{_DISAGGREGATION}.decode_replicas", 1)
    decode_width = context.override_count(f"{_DISAGGREGATION}.decode_tensor_model_parallel_size", width)
    if prefill is None or decode is None or decode_width is None:
        return None
    return width * prefill + decode_width * decode


def is_on(context: PresetContext, key: str) -> bool:
    """Whether an override sets a key to true."""
    option = context.command.override(key)
    return bool(option and (option.value or "").lower() == "true")


def check_numbers(context: PresetContext, mode: Mode) -> None:
    """Check what the mode asserts before it asks for anything."""
    if mode.name == "separate_async":
        _check_separate(context)
    elif mode.name == "fully_async":
        _expect(context, "actor_rollout_ref.hybrid_engine", "True", ("false",), "False")
        _expect(context, "data.train_batch_size", "1024", ("0",), "0")
    elif mode.name == "one_step_off":
        _expect(context, "actor_rollout_ref.hybrid_engine", "True", ("false",), "False")
    size, gpus = engine_size(context), context.override_count(f"{ROLLOUT}.n_gpus_per_node", context.gpus)
    if is_on(context, f"{_DISAGGREGATION}.enabled") and size and gpus and size > gpus:
        option = context.command.override(f"{_DISAGGREGATION}.decode_replicas")
        text = f"prefill and decode replicas of one engine have {size} GPUs, and verl puts them on one node"
        context.add_problem(option, f"{text} of {gpus}: make them smaller, or use fewer")


def _check_separate(context: PresetContext) -> None:
    """Check the mode separate_async, whose asserts come one after the other."""
    sizes = [
        context.override_count(key, default)
        for key, default in (
            ("data.train_batch_size", 1024),
            ("trainer.v1.separate_async.parameter_sync_step", 4),
            ("actor_rollout_ref.actor.ppo_mini_batch_size", 256),
        )
    ]
    if None not in sizes and sizes[0] != (sizes[1] or 0) * (sizes[2] or 0):
        wanted = (sizes[1] or 0) * (sizes[2] or 0)
        option = context.command.override("data.train_batch_size")
        text = (
            f"data.train_batch_size is {sizes[0]}, and separate_async wants parameter_sync_step {sizes[1]} x"
        )
        context.add_problem(option, f"{text} ppo_mini_batch_size {sizes[2]}: write {wanted}")
    if context.override_count(f"{ROLLOUT}.nnodes", 0) == 0:
        text = "separate_async has a pool of its own for rollouts: set it, and lower trainer.nnodes"
        context.add_problem(context.command.override("trainer.v1.trainer_mode"), f"{ROLLOUT}.nnodes: {text}")
    _expect(context, f"{ROLLOUT}.checkpoint_engine.backend", "naive", ("nccl", "nixl", "mooncake"), "nccl")


def _expect(
    context: PresetContext, key: str, default: str, allowed: tuple[str, ...], fix: str
) -> ParsedOption | None:
    """Check that a key has one of these values. default: verl's."""
    option = context.command.override(key)
    value = default if option is None else option.value
    if value is not None and value.lower() not in allowed:
        context.add_problem(
            option, f"{key} is {value}: this mode of verl needs {' or '.join(allowed)}: set {key}={fix}"
        )
    return option
