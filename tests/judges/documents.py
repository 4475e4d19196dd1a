"""Commands and files from the trainers' own multi-node guides, with values in place of shell variables.

verl's: docs/start/multinode (June 2025); Search-R1's: docs/multinode; RLinf's and xDAN-RL's: their guides to
two and more nodes.
"""

VERL_DSTACK = [
    "data.train_files=/root/data/gsm8k/train.parquet",
    "data.val_files=/root/data/gsm8k/test.parquet",
    "data.train_batch_size=256",
    "data.max_prompt_length=512",
    "data.max_response_length=256",
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct",
    "actor_rollout_ref.actor.optim.lr=1e-6",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
    "critic.optim.lr=1e-5",
    "critic.model.path=Qwen/Qwen2.5-7B-Instruct",
    "critic.ppo_micro_batch_size_per_gpu=4",
    "algorithm.kl_ctrl.kl_coef=0.001",
    "trainer.project_name=ppo_training",
    "trainer.experiment_name=qwen-2.5-7B",
    "trainer.val_before_train=False",
    "trainer.default_hdfs_dir=null",
    "trainer.n_gpus_per_node=8",
    "trainer.nnodes=2",
    "trainer.default_local_dir=/checkpoints",
    "trainer.save_freq=10",
    "trainer.test_freq=10",
    "trainer.total_epochs=15",
    "trainer.resume_mode=disable",
]

VERL_AMD = [
    "data.train_files=../data/gsm8k/train.parquet",
    "data.val_files=../data/gsm8k/test.parquet",
    "data.train_batch_size=1024",
    "data.max_prompt_length=1024",
    "data.max_response_length=1024",
    "actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "actor_rollout_ref.actor.optim.lr=1e-6",
    "actor_rollout_ref.model.use_remove_padding=True",
    "actor_rollout_ref.actor.ppo_mini_batch_size=256",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.model.enable_gradient_checkpointing=True",
    "actor_rollout_ref.actor.fsdp_config.param_offload=False",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload=False",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.9",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16",
    "actor_rollout_ref.ref.fsdp_config.param_offload=True",
    "critic.optim.lr=1e-5",
    "critic.model.use_remove_padding=True",
    "critic.model.path=Qwen/Qwen2-7B-Instruct",
    "critic.model.enable_gradient_checkpointing=False",
    "critic.ppo_micro_batch_size_per_gpu=8",
    "critic.model.fsdp_config.param_offload=False",
    "critic.model.fsdp_config.optimizer_offload=False",
    "algorithm.kl_ctrl.kl_coef=0.0001",
    "trainer.critic_warmup=0",
    "trainer.logger=['console','wandb']",
    "trainer.project_name='verl_example'",
    "trainer.experiment_name='Qwen2.5-32B-Instruct_function_rm'",
    "trainer.n_gpus_per_node=8",
    "trainer.val_before_train=False",
    "trainer.nnodes=2",
    "trainer.save_freq=-1",
    "trainer.test_freq=10",
    "trainer.total_epochs=15",
]

SEARCH_R1 = [
    "data.train_files=data/nq_search/train.parquet",
    "data.val_files=data/nq_search/test.parquet",
    "data.train_data_num=null",
    "data.val_data_num=null",
    "data.train_batch_size=512",
    "data.val_batch_size=256",
    "data.max_prompt_length=4096",
    "data.max_response_length=500",
    "data.max_start_length=2048",
    "data.max_obs_length=500",
    "data.shuffle_train_dataloader=True",
    "algorithm.adv_estimator=gae",
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B",
    "actor_rollout_ref.actor.optim.lr=1e-6",
    "actor_rollout_ref.model.enable_gradient_checkpointing=true",
    "actor_rollout_ref.model.use_remove_padding=True",
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.285",
    "actor_rollout_ref.actor.ppo_mini_batch_size=256",
    "actor_rollout_ref.actor.ppo_micro_batch_size=64",
    "actor_rollout_ref.actor.fsdp_config.param_offload=False",
    "actor_rollout_ref.actor.fsdp_config.grad_offload=False",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload=False",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size=128",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.6",
    "actor_rollout_ref.ref.log_prob_micro_batch_size=128",
    "actor_rollout_ref.ref.fsdp_config.param_offload=False",
    "actor_rollout_ref.rollout.n_agent=1",
    "actor_rollout_ref.rollout.temperature=1",
    "actor_rollout_ref.rollout.top_p=1.0",
    "actor_rollout_ref.actor.state_masking=true",
    "critic.optim.lr=1e-5",
    "critic.model.use_remove_padding=True",
    "critic.optim.lr_warmup_steps_ratio=0.015",
    "critic.model.path=Qwen/Qwen2.5-7B",
    "critic.model.enable_gradient_checkpointing=true",
    "critic.ppo_micro_batch_size=16",
    "critic.model.fsdp_config.param_offload=False",
    "critic.model.fsdp_config.grad_offload=False",
    "critic.model.fsdp_config.optimizer_offload=False",
    "algorithm.kl_ctrl.kl_coef=0.001",
    "algorithm.no_think_rl=false",
    "trainer.critic_warmup=0",
    "trainer.logger=['wandb']",
    "+trainer.val_only=false",
    "+trainer.val_before_train=false",
    "trainer.default_hdfs_dir=null",
    "trainer.n_gpus_per_node=8",
    "trainer.nnodes=2",
    "trainer.save_freq=100",
    "trainer.test_freq=100",
    "trainer.project_name=Search-R1-release",
    "trainer.experiment_name=search-r1-ppo-qwen2.5-7b-em-multinode-2",
    "trainer.total_epochs=15",
    "trainer.total_training_steps=1005",
    "trainer.default_hdfs_dir=null",
    "trainer.default_local_dir=verl_checkpoints/search-r1-ppo-qwen2.5-7b-em-multinode-2",
    "max_turns=4",
    "retriever.url=http://127.0.0.1:8000/retrieve",
    "retriever.topk=3",
]

# Unknown to every release of verl, but known to the copy of verl in Search-R1.
SEARCH_R1_OWN = {
    *("data.train_data_num", "data.val_data_num", "data.max_start_length", "data.max_obs_length"),
    *("data.shuffle_train_dataloader", "actor_rollout_ref.rollout.n_agent"),
    *("actor_rollout_ref.actor.state_masking", "algorithm.no_think_rl"),
    *("max_turns", "retriever.url", "retriever.topk"),
}

RLINF_COLLOCATED = {"actor,rollout": "all"}
RLINF_DISAGGREGATED = {"rollout": "0-19", "inference": "20-23", "actor": "24-31"}

XDAN_RL = {
    "--ref_num_nodes": "2",
    "--ref_num_gpus_per_node": "4",
    "--actor_num_nodes": "2",
    "--actor_num_gpus_per_node": "4",
    "--vllm_num_engines": "2",
    "--vllm_tensor_parallel_size": "4",
}

DSTACK_TASK = """
type: task
name: ray-verl-cluster

nodes: 2

env:
  - WANDB_API_KEY
  - PYTHONUNBUFFERED=1
  - CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7

image: whatcanyousee/verl:ngc-cu124-vllm0.8.5-sglang0.4.6-mcore0.12.0-te2.2
commands:
  - git clone https://github.com/volcengine/verl
  - cd verl
  - pip install --no-deps -e .
  - pip install hf_transfer hf_xet
  - |
    if [ $DSTACK_NODE_RANK = 0 ]; then
      python3 examples/data_preprocess/gsm8k.py --local_dir ~/data/gsm8k
      python3 -c "import transformers; transformers.pipeline('text-generation', model='Qwen/Qwen2-7B')"
      ray start --head --port=6379;
    else
      ray start --address=$DSTACK_MASTER_NODE_IP:6379
    fi

ports:
  - 8265

resources:
  gpu: 80GB:8
  shm_size: 128GB

volumes:
  - /checkpoints:/checkpoints
"""
