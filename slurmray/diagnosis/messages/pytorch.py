"""PyTorch and the trainers: data loaders, process groups, checkpoints, compilation."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    # Trainers: sizes that do not fit each other.
    Message(
        "gpus-fewer-than-wanted",
        "ValueError: Total available GPUs 8.0 is less than total desired GPUs 16",
        "verl: verl/single_controller/ray/base.py, before verl/trainer/ppo/ray_trainer.py",
        r"Total available GPUs \S+ is less than total desired GPUs \S+",
        "The trainer wants more GPUs than Ray has.",
        "Make trainer.nnodes x trainer.n_gpus_per_node fit the job, or leave both to preset: verl.",
    ),
    Message(
        "verl-batch-not-divisible",
        "AssertionError: real_train_batch_size (20) must be divisible by minimal possible batch size (16)",
        "verl: verl/utils/config.py, before verl/trainer/ppo/ray_trainer.py",
        r"real_train_batch_size \(\d+\) must be divisible by minimal possible batch size",
        "data.train_batch_size times rollout.n cannot be split evenly over the GPUs of the job.",
        "Set data.train_batch_size so that this product is a multiple of the last number.",
    ),
    Message(
        "verl-mini-batch-too-large",
        "ValueError: train_batch_size (8) must be >= actor.ppo_mini_batch_size (256)",
        "verl: verl/workers/config/actor.py",
        r"train_batch_size \(\d+\) must be >= \S*ppo_mini_batch_size",
        "The mini batch is larger than the batch that it is a part of.",
        "Lower actor_rollout_ref.actor.ppo_mini_batch_size (verl's default is 256), or raise data.train_batch_size.",
    ),
    Message(
        "verl-micro-batch-not-set",
        "ValueError: [actor_rollout_ref.rollout] Please set at least one of "
        "'actor_rollout_ref.rollout.log_prob_micro_batch_size' or "
        "'actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu'.",
        "verl: verl/utils/config.py",
        r"Please set at least one of '\S*micro_batch_size",
        "verl has no default for a micro batch size.",
        "Set the option that the line names, the one that ends in _per_gpu, or set actor.use_dynamic_bsz=True.",
    ),
    Message(
        "verl-unequal-chunks",
        "AssertionError: only support equal chunk. Got size of DataProto 512 and chunk 6.",
        "verl: verl/protocol.py; github.com/hiyouga/EasyR1/issues/44, github.com/verl-project/verl/issues/473",
        r"only support equal (chunk|split)\. Got size of \S+ \d",
        "verl splits a batch over its workers, and the size of the batch is no multiple of their number.",
        "Make data.train_batch_size x rollout.n, and the size of the validation set's batches, a multiple of the "
        "last number in that line: the GPUs of all nodes, or rollout.agent.num_workers.",
    ),
    Message(
        "verl-rollout-gpus-not-divisible",
        "AssertionError: rollout world_size: 1 is not divisible by infer_tp: 2",
        "verl: verl/workers/engine_workers.py, before verl/workers/fsdp_workers.py",
        r"world_size: \d+ is not divisible by infer_(?:tp|world_size)",
        "The rollout's tensor parallel size does not divide the number of GPUs of the job.",
        "Set rollout.tensor_model_parallel_size to a divisor of that number.",
    ),
    Message(
        "verl-no-reward-function",
        "NotImplementedError: Reward function is not implemented for data_source='lighteval/MATH'",
        "verl: verl/utils/reward_score/__init__.py; github.com/verl-project/verl/issues/5558",
        r"Reward function is not implemented for data_source=",
        "verl has no reward function for this data_source, which a column of the data names.",
        "Give verl a custom_reward_function (path and name), or write a data_source into the data that it knows.",
    ),
    Message(
        "verl-prompt-too-long",
        "RuntimeError: Prompt length 2210 is longer than 1024.",
        "verl before 0.7: verl/utils/dataset/rl_dataset.py; EasyR1: verl/utils/dataset.py",
        r"Prompt length \d+ is longer than \d+\.",
        "A prompt of the data set has more tokens than data.max_prompt_length.",
        "Raise data.max_prompt_length, or set data.filter_overlong_prompts=True or data.truncation=left.",
    ),
    Message(
        "verl-no-batches",
        "AssertionError: Train dataloader is empty!",
        "verl: verl/trainer/ppo/ray_trainer.py",
        r"Error: (Train|Validation) dataloader is empty!",
        "The data set has fewer rows than one batch, mostly after long prompts were filtered out.",
        "Lower data.train_batch_size, raise data.max_prompt_length, or check data.train_files.",
    ),
    Message(
        "trl-generations-not-divisible",
        "ValueError: The global train batch size (1 x 8) must be evenly divisible by the number of generations per "
        "prompt (16). Given the current train batch size, the valid values for the number of generations are: [2, 4, 8].",
        "TRL before 0.20: trl/trainer/grpo_trainer.py; later: trl/trainer/grpo_config.py",
        r"must be evenly divisible by the number of generations per"
        r"|generation_batch_size \(\d+\) must be divisible by num_generations",
        "The batch of all GPUs cannot be split into groups of num_generations.",
        "Set num_generations to a divisor of it, or change per_device_train_batch_size or the number of GPUs.",
    ),
    Message(
        "deepspeed-batch-size",
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
        "gradient_acc_step * world_size 1152 != 8 * 16 * 6",
        "DeepSpeed: deepspeed/runtime/config.py",
        r"train_batch_size is not equal to micro_batch_per_gpu .*\d+ != \d+",
        "DeepSpeed's three batch sizes do not fit the number of GPUs of the job.",
        "Change one of them so that the product in that line is right, or leave one of them out or on auto.",
    ),
    Message(
        "megatron-gpus-not-divisible",
        "AssertionError: world size (8) is not divisible by total_model_size (total_model_size=16)",
        "Megatron-LM: megatron/training/arguments.py, megatron/core/parallel_state.py; Megatron-Bridge, Accelerate",
        r"\) is not divisible by total_model_size|Error: world_size \(\d+\) is not divisible by ",
        "Tensor x pipeline x context parallel size does not divide the number of GPUs of the job.",
        "Lower one of them, or give the job a multiple of their product with slurm.nodes and slurm.gpus_per_node.",
    ),
    # Data loaders, shared memory.
    Message(
        "dataloader-bus-error",
        "RuntimeError: DataLoader worker (pid 4301) is killed by signal: Bus error.",
        "PyTorch: torch/csrc/DataLoader.cpp",
        r"DataLoader worker \(pid .*\) is killed by signal: Bus error",
        "The shared memory (/dev/shm) was full: PyTorch's data loaders keep batches there.",
        "Raise container.shm_size, or use fewer or no workers in the data loader.",
    ),
    Message(
        "dataloader-worker-died",
        "RuntimeError: DataLoader worker (pid(s) 12345) exited unexpectedly",
        "PyTorch: torch/utils/data/dataloader.py, torch/csrc/DataLoader.cpp; github.com/pytorch/pytorch/issues/8976",
        r"DataLoader worker \(pid(\(s\))? [^)]*\) exited unexpectedly",
        "A process of the data loader died: mostly killed as the job's memory was used up, else by an error in the "
        "data set's code.",
        "A line before it may have the signal. Raise slurm.mem, or use fewer workers in the data loader; with none, "
        "an error in the code shows its traceback.",
    ),
    Message(
        "shared-tensor-file",
        "RuntimeError: unable to open shared memory object </torch_52868_1950128645> in read-write mode",
        "PyTorch: aten/src/ATen/MapAllocator.cpp; github.com/pytorch/pytorch/issues/13246",
        r"unable to open shared memory object </torch_|unable to allocate shared memory\(shm\) for file </torch_",
        "PyTorch could not share a tensor between processes: the limit of open files is reached, or /dev/shm is full "
        "or cannot be written; the line's end may say which.",
        "With Podman and Docker: container.ulimits: [nofile=1048576:1048576]; raise container.shm_size, or use fewer "
        "workers in the data loader.",
    ),
    Message(
        "shared-tensor-descriptors",
        "RuntimeError: received 0 items of ancdata",
        "Python: multiprocessing/reduction.py; github.com/pytorch/pytorch/issues/973",
        r"received 0 items of ancdata",
        "A process reached its limit of open files while it received tensors from the data loader.",
        "With Podman and Docker: container.ulimits: [nofile=1048576:1048576]; or let the trainer call "
        "torch.multiprocessing.set_sharing_strategy('file_system').",
    ),
    Message(
        "cuda-in-forked-process",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
        "the 'spawn' start method",
        "PyTorch: torch/cuda/__init__.py",
        r"Error: Cannot re-initialize CUDA in forked subprocess",
        "A process that used the GPU has forked, and its child used the GPU, too.",
        "Let the trainer start processes with spawn (vLLM: env.VLLM_WORKER_MULTIPROC_METHOD: spawn), or keep "
        "tensors of the data set on the CPU.",
    ),
    Message(
        "cuda-ipc-not-permitted",
        "RuntimeError: pidfd_getfd: Operation not permitted",
        "PyTorch: c10/cuda/CUDACachingAllocator.cpp; github.com/verl-project/verl/issues/3377",
        r"pidfd_getfd: Operation not permitted",
        "Two processes share memory of a GPU with expandable_segments:True, and the container does not allow one to "
        "read the other's file descriptors.",
        "Remove expandable_segments:True from env.PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF, or with Podman and "
        "Docker set "
        "container.args: [--cap-add=SYS_PTRACE].",
    ),
    # Processes of a trainer.
    Message(
        "process-group-missing",
        "ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
        "PyTorch: torch/distributed/distributed_c10d.py",
        r"Error: Default process group has not been initialized",
        "The trainer uses torch.distributed in a process that has not joined the others: it was started without "
        "torchrun or Ray, or calls init_process_group too late.",
        "Start it with torchrun, as in the guide my-trainer, or call init_process_group first.",
    ),
    Message(
        "process-group-twice",
        "ValueError: trying to initialize the default process group twice!",
        "PyTorch: torch/distributed/distributed_c10d.py",
        r"Error: trying to initialize the default process group twice",
        "Two parts of the trainer, e.g. the trainer and the inference engine, call init_process_group in one process.",
        "Call it once, and only if torch.distributed.is_initialized() is false.",
    ),
    Message(
        "fsdp-two-types",
        "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
        "PyTorch: torch/distributed/fsdp/_flat_param.py; github.com/hiyouga/LlamaFactory/issues/3853, 7993, "
        "github.com/huggingface/peft/issues/484",
        r"Must flatten tensors with uniform dtype but got|`FlatParameter` requires uniform dtype but got",
        "FSDP puts the parameters of a block into one tensor, and they have two types, e.g. LoRA or a vision part in "
        "float32 beside bfloat16.",
        "Load the whole model in one type, or let FSDP wrap the other parts on their own.",
    ),
    Message(
        "dtensor-mixed",
        "RuntimeError: aten.mul.Tensor: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor "
        "before calling distributed operators!",
        "PyTorch: torch/distributed/tensor/_dispatch.py; github.com/pytorch/pytorch/issues/153354, "
        "github.com/NVIDIA-NeMo/RL/issues/1051",
        r"got mixed torch\.Tensor and DTensor",
        "A tensor that is split over GPUs (FSDP2, tensor parallelism) meets one that is not: a part of the model, or a "
        "kernel, does not know such tensors.",
        "Switch tensor parallelism or that kernel (the line names it) off for this model, or use a newer trainer.",
    ),
    Message(
        "ddp-unused-parameters",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This "
        "error indicates that your module has parameters that were not used in producing loss.",
        "PyTorch: torch/csrc/distributed/c10d/reducer.cpp",
        r"Expected to have finished reduction in the prior iteration",
        "Some parameters of the model got no gradient in a step, and DistributedDataParallel waits for them.",
        "Set find_unused_parameters=True (Transformers: ddp_find_unused_parameters), or freeze these parameters.",
    ),
    Message(
        "torchrun-rendezvous",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
        "failed. See inner exception for details.",
        "PyTorch: torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py, api.py",
        r"RendezvousConnectionError: The connection to the C10d store|rendezvous\.api\.RendezvousTimeoutError",
        "torchrun did not reach the node that it was told to meet at, or some node did not come in time.",
        "Give all nodes the same --rdzv-endpoint: an address of the head node that the others reach, and a free port.",
        "network",
    ),
    Message(
        "torchrun-process-killed",
        "  traceback : Signal 9 (SIGKILL) received by PID 14750",
        "PyTorch: torch/distributed/elastic/multiprocessing/errors/__init__.py, api.py; "
        "github.com/lzhxmu/CPPO/issues/6",
        r"traceback : Signal 9 \(SIGKILL\) received by PID|failed \(exitcode: -9\) local_rank",
        "A process of the trainer was killed: mostly as the job's memory was used up.",
        "Raise slurm.mem, use fewer workers in the data loader, or load the model on one rank only.",
    ),
    # Checkpoints.
    Message(
        "state-dict-mismatch",
        "RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM:",
        "PyTorch: torch/nn/modules/module.py",
        r"Error: Error\(s\) in loading state_dict for",
        "The checkpoint is of another model, or of another size or vocabulary of it.",
        "The lines below it name the parameters. Point the trainer to the checkpoint of this model, or to a new "
        "folder.",
    ),
    Message(
        "sharded-checkpoint-key",
        "RuntimeError: Missing key in checkpoint state_dict: optimizer.param_groups.embed_tokens.weight.fused.",
        "PyTorch: torch/distributed/checkpoint/default_planner.py",
        r"Error: Missing key in checkpoint state_dict",
        "The checkpoint has no entry that the trainer wants: it was saved without optimizer or data loader, by "
        "another version, or for another model.",
        "Resume with the version and options that saved it, or load only the model.",
    ),
    Message(
        "checkpoint-unreadable",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "PyTorch: caffe2/serialize/inline_container.cc",
        r"Error: PytorchStreamReader failed",
        "A checkpoint is cut off or damaged: the job that wrote it ended meanwhile, or its disk was full.",
        "Remove that checkpoint and resume from the one before; verl's latest_checkpointed_iteration.txt names it.",
    ),
    Message(
        "checkpoint-not-written",
        "RuntimeError: [enforce fail at inline_container.cc:815] . PytorchStreamWriter failed writing file data/0: "
        "file write failed",
        "PyTorch: caffe2/serialize/inline_container.cc",
        r"PytorchStreamWriter failed writing file|enforce fail at inline_container\.cc:\d+\] \. unexpected pos",
        "PyTorch could not write all of a checkpoint: the disk is full, or your quota is used up.",
        "Free space in the folder of checkpoints, keep fewer of them (verl: trainer.max_actor_ckpt_to_keep), or write "
        "to another file system.",
        "disk",
    ),
    Message(
        "checkpoint-weights-only",
        "_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the default value of the "
        "`weights_only` argument in `torch.load` from `False` to `True`.",
        "PyTorch 2.6 and later: torch/serialization.py",
        r"UnpicklingError: Weights only load failed",
        "torch.load reads only tensors since PyTorch 2.6, and the file has other objects.",
        "If you trust the file, let the trainer call torch.load with weights_only=False, or set "
        "env.TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD: 1.",
    ),
    # Compilers.
    Message(
        "no-c-compiler",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set "
        "triton.knobs.build.impl.",
        "Triton: triton/runtime/build.py",
        r"Error: Failed to find C compiler\. Please specify",
        "Triton compiles a small C program when it starts, and the image has no C compiler.",
        "Install gcc in the image or in container.setup, or set env.CC to a compiler.",
    ),
    Message(
        "no-python-headers",
        "main.c:5:10: fatal error: Python.h: No such file or directory",
        "GCC, run by Triton: triton/runtime/build.py",
        r"fatal error: Python\.h: No such file",
        "Triton or a package compiles C code for Python, and Python's headers are not in the image.",
        "Install them in the image or in container.setup, e.g. apt-get install -y python3-dev.",
    ),
    Message(
        "no-cuda-toolkit",
        "op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)",
        "DeepSpeed: op_builder/builder.py; PyTorch: torch/utils/cpp_extension.py; of a header: "
        "github.com/flashinfer-ai/flashinfer/issues/4410",
        r"(MissingCUDAException|AssertionError): CUDA_HOME does not exist"
        r"|OSError: CUDA_HOME environment variable is not set|fatal error: cu\w+\.h: No such file or directory",
        "A package compiles for the GPU when it is first used, and the image has no CUDA toolkit (nvcc), or a part of it.",
        "Use an image with it (of nvidia/cuda, one with devel in its tag), or install what was compiled before.",
    ),
    Message(
        "triton-shared-memory",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 196608, Hardware limit: "
        "163840. Reducing block sizes or `num_stages` may help.",
        "Triton: triton/runtime/errors.py; github.com/pytorch/pytorch/issues/133254",
        r"OutOfResources: out of resource: ",
        "A Triton kernel is tuned for a GPU that has more on-chip memory than this one.",
        "Use a newer version of the package that has the kernel, another attention backend, or the GPUs that it was "
        "tuned for.",
    ),
    # Tensors.
    Message(
        "tensors-on-two-devices",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "PyTorch: aten/src/ATen/TensorIterator.cpp, c10/core",
        r"Expected all tensors to be on the same device",
        "The trainer combines a tensor of the CPU, or of another GPU, with one of this GPU; with offloading, a part of "
        "the model was not moved back.",
        "Move both to one device in the code that the traceback shows, or switch offloading off.",
    ),
    Message(
        "no-gradient",
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        "PyTorch: torch/csrc/autograd",
        r"element \d+ of tensors does not require grad",
        "The loss does not depend on any parameter that is trained: all are frozen, or gradient checkpointing cuts "
        "them off.",
        "With LoRA and gradient checkpointing call model.enable_input_require_grads(), or set use_reentrant=False.",
    ),
    Message(
        "changed-in-place",
        "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: "
        "[torch.cuda.FloatTensor [10, 1, 1024, 1024]] is at version 7; expected version 5 instead.",
        "PyTorch: torch/csrc/autograd/saved_variable.cpp",
        r"needed for gradient computation has been modified by an inplace operation",
        "The trainer's code overwrites a tensor that the backward pass still needs.",
        "Run it with torch.autograd.set_detect_anomaly(True): a second traceback shows which one.",
    ),
    Message(
        "tensor-types-differ",
        "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
        "PyTorch: aten/src/ATen/native/cuda/Blas.cpp",
        r"m(?:at)?1 and m(?:at)?2 (must|to) have the same dtype|self and mat2 must have the same dtype"
        r"|Error: expected scalar type \w+ but found \w+",
        "Two tensors of a layer have different types, e.g. as a part of the model was loaded in float32.",
        "Load the whole model in one type (e.g. dtype bfloat16), and run the forward pass under torch.autocast.",
    ),
    Message(
        "tensor-shapes-differ",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)",
        "PyTorch: aten/src/ATen/native/LinearAlgebra.cpp",
        r"mat1 and mat2 shapes cannot be multiplied",
        "A layer gets an input of another size: the model's code and its configuration or weights do not fit.",
        "The traceback has the layer; compare the two numbers with the model's config.json.",
    ),
    Message(
        "flash-attention-float32",
        "RuntimeError: FlashAttention only support fp16 and bf16 data type",
        "FlashAttention: csrc/flash_attn/flash_api.cpp",
        r"FlashAttention only supports? fp16",
        "The model runs in float32, which FlashAttention cannot do.",
        "Load it in bfloat16, run it under torch.autocast, or set attn_implementation=sdpa.",
    ),
    Message(
        "probabilities-not-finite",
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        "PyTorch: aten/src/ATen/native/Distributions.cpp; github.com/vllm-project/vllm/issues/1623",
        r"probability tensor contains either",
        "The model's output is not a number: the weights have diverged, or float16 overflows.",
        "Use bfloat16; else resume from an earlier checkpoint with a lower learning rate or gradient clipping.",
    ),
    Message(
        "megatron-layers",
        "AssertionError: Number of layers should be divisible by the pipeline-model-parallel size",
        "Megatron-LM: megatron/training/arguments.py, megatron/core/transformer/transformer_block.py; "
        "github.com/modelscope/ms-swift/issues/5737, github.com/NVIDIA-BioNeMo/bionemo-recipes/issues/784",
        r"Number of layers should be divisible by the pipeline-model-parallel size"
        r"|num_layers(?:=\d+)? should be divisible by (?:config\.)?pipeline_model_parallel_size",
        "Pipeline parallelism splits the layers of the model evenly, and their number does not allow it.",
        "Set the pipeline parallel size (verl: actor.megatron.pipeline_model_parallel_size) to a divisor of that number, "
        "or give the first and last stage a number of their own.",
    ),
    Message(
        "megatron-sequence-length",
        "AssertionError: First dimension of the tensor should be divisible by tensor parallel size",
        "Megatron-LM: megatron/core/tensor_parallel/mappings.py; github.com/verl-project/verl/issues/3296, "
        "github.com/alibaba/Pai-Megatron-Patch/issues/332",
        r"First dimension of the tensor should be divisible by tensor parallel size",
        "Sequence parallelism splits a batch along its tokens, whose number is no multiple of the tensor parallel size.",
        "Let the trainer pad to that size, choose lengths that are multiples of it, or switch sequence_parallel off.",
    ),
    Message(
        "megatron-gradient-nan",
        "AssertionError: Rank 13: found NaN in local grad norm in backward pass before data-parallel communication "
        "collective. Device: 5, node: node2",
        "Megatron-LM: megatron/core/distributed/param_and_grad_buffer.py",
        r"Error: .*found NaN in local grad norm",
        "A gradient is not a number: the training diverged or a batch has no valid token; if it is always the same "
        "node, a GPU may compute wrongly.",
        "Resume from an earlier checkpoint with a lower learning rate, and check that batch.",
    ),
    Message(
        "deepspeed-loss-scale",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "DeepSpeed: deepspeed/runtime/fp16/loss_scaler.py",
        r"Exception: Current loss scale already at minimum",
        "All steps overflowed in float16, whatever the loss scale: the training diverged, or the model needs bfloat16.",
        "Train in bfloat16, or with a lower learning rate.",
    ),
    # What follows from other failures.
    Message(
        "kernel-not-built",
        "ninja: build stopped: subcommand failed.",
        "ninja; PyTorch: torch/utils/cpp_extension.py; github.com/flashinfer-ai/flashinfer/issues/4410, "
        "github.com/kserve/kserve/issues/4565",
        r"ninja: build stopped: subcommand failed|Error building extension '",
        "A package compiled a kernel when it was first used, and the compiler failed; the lines above say why.",
        "Use an image in which that package is compiled, or one whose CUDA toolkit has the version of PyTorch's.",
        is_follow_up=True,
    ),
    Message(
        "compilation-failed",
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        "PyTorch: torch/_dynamo/exc.py, torch/_inductor/exc.py",
        r"BackendCompilerFailed: backend=|torch\._inductor\.exc\.InductorError:",
        "torch.compile failed; what comes after `raised:` or the colon says why.",
        "If nothing helps, run without it: env.TORCH_COMPILE_DISABLE: 1 (vLLM: --enforce-eager).",
        is_follow_up=True,
    ),
    Message(
        "sharded-checkpoint-failed",
        "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])",
        "PyTorch: torch/distributed/checkpoint/api.py",
        r"CheckpointException ranks: ?dict_keys",
        "These ranks could not read or write their parts of a checkpoint.",
        "The tracebacks below that line say why, e.g. a missing file or a full disk.",
        is_follow_up=True,
    ),
    Message(
        "torchrun-child-failed",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "PyTorch: torch/distributed/elastic/multiprocessing/errors/__init__.py",
        r"multiprocessing\.errors\.ChildFailedError",
        "A process that torchrun started has failed, and torchrun ended the others of its node.",
        "The part `Root Cause` below that line has its host, rank and exit code; its own traceback is above.",
        is_follow_up=True,
    ),
)
