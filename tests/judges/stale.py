"""Options in the guides that the trainers now refuse: the table of docs/reference/stale-flags.md."""

from __future__ import annotations

from typing import NamedTuple


class Stale(NamedTuple):
    """An option that a trainer refuses.

    since: the first release that refuses it, found by trying older ones. instead: "" if nothing is needed any
    more. value: to test both with; "" for a switch.
    """

    refused: str
    since: str
    instead: str
    value: str


VERL = [
    Stale("critic.model.fsdp_config.param_offload", "0.8.0", "critic.fsdp.param_offload", "True"),
    Stale("critic.model.fsdp_config.optimizer_offload", "0.8.0", "critic.fsdp.optimizer_offload", "True"),
    Stale("critic.ppo_micro_batch_size", "0.5.0", "critic.ppo_micro_batch_size_per_gpu", "4"),
    Stale("critic.model.fsdp_config.grad_offload", "0.3.0", "", "False"),
    Stale("actor_rollout_ref.actor.fsdp_config.grad_offload", "0.3.0", "", "False"),
    Stale("+trainer.val_only", "0.4.1", "trainer.val_only", "True"),
    Stale("+trainer.val_before_train", "0.4.0", "trainer.val_before_train", "False"),
]

OPENRLHF = [
    Stale("--ref_num_nodes", "0.10.2", "--ref.num_nodes", "2"),
    Stale("--ref_num_gpus_per_node", "0.10.2", "--ref.num_gpus_per_node", "4"),
    Stale("--actor_num_nodes", "0.10.2", "--actor.num_nodes", "2"),
    Stale("--actor_num_gpus_per_node", "0.10.2", "--actor.num_gpus_per_node", "4"),
    Stale("--critic_num_nodes", "0.10.2", "--critic.num_nodes", "2"),
    Stale("--critic_num_gpus_per_node", "0.10.2", "--critic.num_gpus_per_node", "4"),
    Stale("--reward_num_nodes", "0.10.2", "--reward.num_nodes", "2"),
    Stale("--reward_num_gpus_per_node", "0.10.2", "--reward.num_gpus_per_node", "4"),
    Stale("--vllm_num_engines", "0.10.2", "--vllm.num_engines", "2"),
    Stale("--vllm_tensor_parallel_size", "0.10.2", "--vllm.tensor_parallel_size", "4"),
    Stale("--colocate_actor_ref", "0.10.2", "--train.colocate_actor_ref", ""),
    Stale("--colocate_critic_reward", "0.10.2", "--train.colocate_critic_reward", ""),
    Stale("--colocate_all_models", "0.10.2", "--train.colocate_all", ""),
    Stale("--advantage_estimator", "0.10.2", "--algo.advantage.estimator", "rloo"),
    Stale("--n_samples_per_prompt", "0.10.2", "--rollout.n_samples_per_prompt", "8"),
    Stale("--init_kl_coef", "0.10.2", "--algo.kl.init_coef", "0.02"),
    Stale("--pretrain", "0.10.2", "--actor.model_name_or_path", "a/model"),
    Stale("--reward_pretrain", "0.10.2", "--reward.model_name_or_path", "a/reward"),
    Stale("--critic_pretrain", "0.10.2", "--critic.model_name_or_path", "a/critic"),
    Stale("--remote_rm_url", "0.10.2", "--reward.remote_url", "http://127.0.0.1:5000/score"),
    Stale("--ckpt_path", "0.10.2", "--ckpt.path", "checkpoints"),
    Stale("--load_checkpoint", "0.10.2", "--ckpt.load_enable", ""),
]

# Names with dots, which came later than those above.
OPENRLHF_0_11_2 = [
    Stale("--algo.advantage.is_correction_enable", "0.11.2", "--algo.advantage.is_correction_level", "token"),
    Stale("--algo.advantage.is_correction_type", "0.11.2", "--algo.advantage.is_correction_mode", "mask"),
]

RLINF = [
    Stale("actor,rollout: all", "0.2 or earlier", "actor,rollout,reward: all", ""),
    Stale(
        "rollout: 0-19, inference: 20-23, actor: 24-31",
        "0.2 or earlier",
        "rollout: 0-19, inference: 20-23, actor,reward: 24-31",
        "",
    ),
]
