"""vLLM and SGLang, as the rollout of a trainer."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "vllm-free-memory-too-low",
        "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory "
        "utilization (0.95, 45.01 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
        "processes.",
        "vLLM 0.33: vllm/v1/worker/utils.py; since 0.9: vllm/v1/worker/gpu_worker.py; "
        "github.com/vllm-project/vllm/issues/20305",
        r"on startup is less than (?:desired GPU memory utilization|the engine's budget)",
        "vLLM wants a share of the whole GPU, and something else holds part of it: mostly the trainer's own "
        "model on the same GPU, else a process that an earlier run left there.",
        "Lower the share (verl: rollout.gpu_memory_utilization; vLLM: --gpu-memory-utilization), or offload the "
        "trainer's model first. `nvidia-smi` on the node shows who holds memory.",
    ),
    Message(
        "vllm-no-memory-for-cache",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine.",
        "vLLM 0.33: vllm/v1/core/kv_cache_planning.py, before kv_cache_utils.py; "
        "github.com/vllm-project/vllm/issues/10439",
        r"ValueError: No available memory for the cache blocks",
        "After the weights and a trial run, vLLM's share of the GPU has nothing left for the KV cache.",
        "Raise the share (verl: rollout.gpu_memory_utilization), or the tensor parallel size, so that each GPU "
        "holds less of the model. A lower max_num_batched_tokens or max_num_seqs leaves more, too.",
    ),
    Message(
        "vllm-cache-below-max-len",
        "ValueError: To serve at least one request with the models's max seq len (1048576), (24.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (9.97 GiB).",
        "vLLM 0.33: vllm/v1/core/kv_cache_planning.py, before kv_cache_utils.py; "
        "github.com/vllm-project/vllm/issues/16118; before: "
        "github.com/vllm-project/vllm/issues/2418",
        r"To serve at least one request with the model|max seq len \(\d+\) is larger than the maximum number of tokens",
        "The KV cache that fits on the GPU cannot hold one sequence of the longest length that is allowed.",
        "Set max_model_len to prompt plus response (verl: rollout.max_model_len), or raise the share of the GPU "
        "(rollout.gpu_memory_utilization) or the tensor parallel size.",
    ),
    Message(
        "vllm-out-of-memory-in-warm-up",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try "
        "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
        "vLLM: vllm/v1/worker/gpu_model_runner.py",
        r"Error: CUDA out of memory occurred when warming up",
        "vLLM has filled its share of the GPU, and the first sampling of a full batch found no memory.",
        "Lower max_num_seqs (verl: rollout.max_num_seqs) or the share (rollout.gpu_memory_utilization).",
    ),
    Message(
        "vllm-memory-changed-in-profiling",
        "AssertionError: Error in memory profiling. Initial free memory 41.19354248046875 GiB, current free memory "
        "41.640380859375 GiB. This happens when other processes sharing the same container release GPU memory "
        "while vLLM is profiling during initialization.",
        "vLLM: vllm/v1/worker/gpu_worker.py; github.com/vllm-project/vllm/issues/9232",
        r"Error in memory profiling\. Initial free memory",
        "Another process freed memory of the same GPU while vLLM measured it: the trainer's model moving to the "
        "CPU, or an earlier run that was still ending.",
        "Start the engine when nothing else changes on that GPU, e.g. after the trainer has offloaded its model.",
    ),
    Message(
        "vllm-expandable-segments",
        "AssertionError: Expandable segments are not compatible with memory pool. Please track "
        "https://github.com/pytorch/pytorch/issues/147851 for the latest updates.",
        "vLLM before 0.33: vllm/device_allocator/cumem.py",
        r"Error: Expandable segments are not compatible with memory pool",
        "vLLM's sleep mode (verl: rollout.free_cache_engine) has its own memory pool, which fails with "
        "expandable_segments:True.",
        "Remove expandable_segments:True from env.PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF.",
    ),
    Message(
        "tensor-parallel-heads",
        "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).",
        "vLLM: vllm/config/model.py; github.com/vllm-project/vllm/issues/2652",
        r"Total number of attention heads \(\d+\) must be divisible by",
        "Tensor parallelism splits the attention heads evenly, and the model's number of heads does not allow it.",
        "Set the tensor parallel size (verl: rollout.tensor_model_parallel_size) to a divisor of the first number.",
    ),
    Message(
        "tensor-parallel-gpus",
        "  Value error, World size (2) is larger than the number of available GPUs (1) in this node. If this is "
        "intentional and you are using:",
        "vLLM: vllm/config/parallel.py; github.com/vllm-project/vllm/issues/30061",
        r"(World|Tensor parallel) size \(\d+\) (is|cannot be) larger than the number of available GPUs",
        "The tensor parallel size, times the pipeline parallel size, is larger than the number of GPUs that vLLM "
        "sees on its node.",
        "Lower it to the GPUs of a node, raise slurm.gpus_per_node, or set vLLM's --distributed-executor-backend "
        "ray to use several nodes.",
    ),
    Message(
        "vllm-placement-group-too-small",
        "ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group.",
        "vLLM before 0.33: vllm/v1/executor/ray_utils.py; github.com/vllm-project/vllm/issues/26028",
        r"ValueError: The number of required GPUs exceeds the total number of",
        "vLLM runs in a Ray placement group that has fewer GPUs than its tensor and pipeline parallel sizes need.",
        "Lower the tensor parallel size, or reserve as many GPUs for each engine.",
    ),
    Message(
        "vllm-placement-group-timeout",
        "ValueError: Cannot provide a placement group of placement_group_specs=[{'GPU': 1.0}, {'GPU': 1.0}] within "
        "1800 seconds. See `ray status` and `ray list nodes` to make sure the cluster has enough resources.",
        "vLLM: vllm/v1/executor/ray_utils.py",
        r"Cannot provide a placement group (?:of placement_group_specs|requiring [\d.]+ GPUs)",
        "Ray had not as many free GPUs as vLLM asked for: others hold them, or the job has too few.",
        "Compare the line with `ray status`; lower the tensor parallel size, or raise slurm.nodes.",
    ),
    Message(
        "vllm-no-bfloat16",
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU "
        "has compute capability 7.5.",
        "vLLM: vllm/platforms/cuda.py",
        r"Bfloat16 is only supported on GPUs with compute capability",
        "The GPUs are too old for bfloat16, in which the model is stored.",
        "Set dtype to float16 (verl: rollout.dtype=float16), or request newer GPUs with slurm.gpus_per_node or "
        "slurm.constraint.",
    ),
    Message(
        "vllm-quantization-gpu",
        "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 90. "
        "Current capability: 86",
        "vLLM: vllm/config/vllm.py, layers/quantization; github.com/vllm-project/vllm/issues/4327",
        r"The quantization method \S+ is not supported for the current GPU"
        r"|Quantization scheme is not supported for the current GPU",
        "The GPUs are too old for the quantization of this model.",
        "Use another checkpoint of the model, or request newer GPUs with slurm.gpus_per_node or slurm.constraint.",
    ),
    Message(
        "vllm-max-model-len-too-long",
        "ValueError: User-specified max_model_len (131072) is greater than the derived max_model_len "
        "(max_position_embeddings=32768 or model_max_length=None in model's config.json). This may lead to "
        "incorrect model outputs or CUDA errors. To allow overriding this maximum, set the env var "
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
        "vLLM: vllm/config/model.py",
        r"is greater than the derived max_model_len .*To allow overriding this maximum",
        "Prompt plus response are longer than the model was made for.",
        "Lower the prompt or response length (verl: data.max_prompt_length, data.max_response_length), or "
        "configure the model's rope scaling.",
    ),
    Message(
        "vllm-batched-tokens",
        "ValueError: max_num_batched_tokens (4096) is smaller than max_model_len (4608). This effectively limits the "
        "maximum sequence length to max_num_batched_tokens and makes vLLM reject longer sequences.",
        "vLLM: vllm/config/scheduler.py; verl: verl/workers/rollout/vllm_rollout",
        r"max_num_batched_tokens \(\d+\) is smaller than max_model_len",
        "Without chunked prefill a whole prompt must fit into one batch.",
        "Raise max_num_batched_tokens (verl: rollout.max_num_batched_tokens) to prompt plus response, or set "
        "rollout.enable_chunked_prefill=True.",
    ),
    Message(
        "vllm-prompt-too-long",
        "ValueError: The decoder prompt (length 8357) is longer than the maximum model length of 8192. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens.",
        "vLLM: vllm/v1/engine/input_processor.py, before processor.py; verl since 0.7: verl/workers/rollout",
        r"Error: .*is longer than the maximum model length"
        r"|Error: Prompt length \(\d+\) exceeds the model's maximum context length",
        "A prompt, often after several turns or tool calls, is longer than the engine accepts.",
        "Raise max_model_len (verl: rollout.max_model_len), or filter long prompts (data.filter_overlong_prompts="
        "True).",
    ),
    Message(
        "engine-unknown-architecture",
        "ValueError: Model architectures ['Qwen3NextForCausalLM'] are not supported for now. Supported architectures: "
        "dict_keys(['AquilaModel'])",
        "vLLM: vllm/model_executor/models/registry.py; SGLang: srt/models/registry.py; "
        "github.com/vllm-project/vllm/issues/14115, 16183",
        r"Model architectures \[.*\] are not supported for now"
        r"|Transformers implementation (?:of \S+ )?is not compatible with vLLM",
        "The version of vLLM or SGLang in the image does not know this model.",
        "Use an image with a newer version, or another model.",
    ),
    Message(
        "engine-no-weights",
        "RuntimeError: Cannot find any model weights with `/models/Qwen2.5-7B-Instruct`",
        "vLLM: vllm/model_executor/model_loader/default_loader.py; SGLang: srt/model_loader/loader.py",
        r"Error: Cannot find any model weights with",
        "The model's folder has a configuration but no weights: an unfinished download, or the wrong folder.",
        "List the folder on the node; download the model again, and mount the whole folder with container.mounts.",
    ),
    Message(
        "vllm-extension-missing",
        "AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'",
        "PyTorch: torch/_ops.py; vLLM: vllm/_custom_ops.py; github.com/verl-project/verl/issues/1084",
        r"'_OpNamespace' '_\w{0,64}C\w{0,64}' object has no attribute",
        "The compiled part of vLLM could not be loaded: it is for another version of PyTorch or CUDA, or was not built.",
        "Install the PyTorch that this vLLM requires, in the image or container.setup. "
        "`python3 -c 'import vllm._C_stable_libtorch'` (older: vllm._C) prints why.",
    ),
    Message(
        "vllm-attention-backend",
        "ValueError: Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. Reason: "
        "['kv_cache_dtype not supported']",
        "vLLM 0.11 and later: vllm/platforms/cuda.py",
        r"No valid attention backend found for|Selected backend \S+ is not valid for this configuration",
        "No attention kernel of vLLM fits the GPU, the head size and the type of the KV cache; the line has the "
        "reasons.",
        "Leave out --attention-backend, VLLM_ATTENTION_BACKEND and --kv-cache-dtype, or use a newer vLLM.",
    ),
    Message(
        "vllm-lora-rank",
        "ValueError: LoRA rank 32 is greater than max_lora_rank 16.",
        "vLLM: vllm/lora/peft_helper.py",
        r"LoRA rank \d+ is greater than max_lora_rank",
        "The adapter's rank is larger than vLLM has room for.",
        "Set --max-lora-rank to the adapter's rank or more.",
    ),
    Message(
        "vllm-worker-timeout",
        "TimeoutError: RPC call to execute_model timed out.",
        "vLLM: vllm/v1/executor/multiproc_executor.py; github.com/vllm-project/vllm/issues/17965",
        r"TimeoutError: RPC call to \w+ timed out",
        "A process of vLLM did not answer for five minutes: its GPU or a collective operation hung, or a kernel "
        "was compiled.",
        "Look for errors of NCCL or the GPU before it. If it was only slow, set "
        "env.VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS to more.",
    ),
    Message(
        "sglang-memory-fraction",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "SGLang 0.5.23: srt/model_executor/pool_configurator.py, before model_runner.py; "
        "github.com/sgl-project/sglang/issues/4330",
        r"Error: Not enough memory\. Please try to increase --mem-fraction-static",
        "After the weights, SGLang's share of the GPU has nothing left for the KV cache.",
        "Raise --mem-fraction-static (verl: rollout.gpu_memory_utilization) or the tensor parallel size.",
    ),
    Message(
        "sglang-cuda-graph",
        "Exception: Capture cuda graph failed: CUDA error: out of memory",
        "SGLang 0.5.23: srt/model_executor/runner/decode_cuda_graph_runner.py, before cuda_graph_runner.py",
        r"(Exception|Error): Capture cuda graph failed",
        "SGLang could not record its CUDA graphs: mostly no memory left on the GPU, else a kernel that does not "
        "compile there.",
        "Lower --mem-fraction-static (verl: rollout.gpu_memory_utilization) or --cuda-graph-max-bs-decode (older: "
        "--cuda-graph-max-bs), or set --disable-cuda-graph (verl: rollout.enforce_eager=True).",
    ),
    Message(
        "sglang-memory-unbalanced",
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "min_per_gpu_memory=16.28, local_gpu_memory=46.81, local_gpu_memory * 0.9=42.13",
        "SGLang 0.5.23: srt/distributed/bootstrap.py, before srt/model_executor/model_runner.py",
        r"Error: The memory capacity is unbalanced",
        "One GPU of a tensor parallel group has less free memory than the others: a process that is left there, or "
        "a part of the trainer's model.",
        "`nvidia-smi` on each node shows who holds memory. If that is intended, set "
        "env.SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK: 0 (older: SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK: 1).",
    ),
    Message(
        "sglang-token-pool-full",
        "RuntimeError: Prefill out of memory. Try to lower your batch size.",
        "SGLang 0.5.23: srt/mem_cache/allocation.py, before common.py and srt/managers/schedule_batch.py",
        r"ut of memory\. Try to lower your batch size",
        "SGLang's KV cache had no room for the next tokens.",
        "Lower --max-running-requests or --chunked-prefill-size, or raise --mem-fraction-static.",
    ),
    Message(
        "sglang-request-slots",
        "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`.",
        "SGLang 0.5.23: srt/mem_cache/allocation.py, before common.py; github.com/sgl-project/sglang/issues/10408",
        r"Error: alloc_req_slots runs out of memory",
        "SGLang accepted more requests at a time than it has slots for.",
        "Lower --max-running-requests.",
    ),
    Message(
        "sglang-watchdog",
        "[2026-03-02 10:14:12 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "SGLang: srt/utils/watchdog.py, before srt/managers/scheduler.py",
        r"atchdog timeout \(self\.watchdog_timeout=[\d.]+(, self\.soft=False)?\)",
        "A batch of SGLang took longer than its watchdog allows: a GPU or a collective operation hung, or a kernel "
        "was compiled.",
        "Look for errors of NCCL or the GPU before it. If it was only slow, raise --watchdog-timeout.",
    ),
    Message(
        "sglang-scheduler-killed",
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a "
        "common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.",
        "SGLang 0.5.10 and later: srt/entrypoints/engine.py",
        r"scheduler died during initialization \(exit code: -9\)",
        "A process of SGLang was killed while it loaded the model, mostly as the job's memory was used up.",
        "Raise slurm.mem.",
    ),
    # What follows from other failures.
    Message(
        "vllm-worker-died",
        "ERROR 11-08 11:01:29 [multiproc_executor.py:135] Worker proc VllmWorker-3 died unexpectedly, shutting down "
        "executor.",
        "vLLM: vllm/v1/executor/multiproc_executor.py, ray_executor_v2.py; before 0.33: vllm/v1/engine/core_client.py; "
        "github.com/intel/llm-scaler/issues/154",
        r"died unexpectedly(?: \(exit code: \S+\))?, shutting down (?:executor|client)",
        "A process of vLLM died, and vLLM ended with it. The lines before it say why, unless the kernel killed it.",
        "If there is none, the job's memory may have been used up: raise slurm.mem.",
        is_follow_up=True,
    ),
    Message(
        "vllm-worker-not-started",
        "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for "
        "root cause.",
        "vLLM: vllm/v1/executor/multiproc_executor.py",
        r"Exception: WorkerProc initialization failed due to",
        "A process of vLLM failed at its start.",
        "The first traceback of a worker, above that line, has the cause.",
        is_follow_up=True,
    ),
    Message(
        "vllm-engine-not-started",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "vLLM: vllm/v1/engine/utils.py; github.com/vllm-project/vllm/issues/31940; before 0.9: "
        "vllm/entrypoints/openai/api_server.py",
        r"Engine core initialization failed\. See root cause|EngineCore failed to start"
        r"|Engine process failed to start\. See stack trace",
        "vLLM's engine failed at its start.",
        "The first traceback of EngineCore or of a worker, above that line, has the cause.",
        is_follow_up=True,
    ),
    Message(
        "vllm-engine-dead",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the "
        "root cause.",
        "vLLM: vllm/v1/engine/exceptions.py, core.py; V0: vllm/engine/async_llm_engine.py; "
        "github.com/gpustack/gpustack/issues/2738",
        r"EngineDeadError: EngineCore encountered|AsyncEngineDeadError: Background loop"
        r"|EngineCore encountered a fatal error",
        "vLLM's engine died, and all requests to it failed.",
        "The first traceback of EngineCore or of a worker, above that line, has the cause.",
        is_follow_up=True,
    ),
    Message(
        "sglang-scheduler-failed",
        "[2025-03-29 18:18:34 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        "SGLang: srt/managers/scheduler.py; github.com/sgl-project/sglang/issues/4895",
        r"Scheduler hit an exception: Traceback",
        "A process of SGLang failed.",
        "The end of the traceback that begins there has the cause.",
        is_follow_up=True,
    ),
    Message(
        "sglang-scheduler-dead",
        "Rank 0 scheduler is dead. Please check if there are relevant logs.",
        "SGLang: srt/entrypoints/engine.py",
        r"scheduler is dead\. Please check if there are|scheduler died during initialization \(exit code: (?!-9\))",
        "A process of SGLang ended at its start.",
        "The first traceback of a scheduler, above that line, has the cause.",
        is_follow_up=True,
    ),
    Message(
        "sglang-child-failed",
        "Received sigquit from a child process. It usually means the child failed.",
        "SGLang: srt/entrypoints/engine.py, before srt/managers/tokenizer_manager.py",
        r"Received sigquit from a child proc",
        "A process of SGLang failed, and the server ended.",
        "The first traceback of a scheduler, above that line, has the cause.",
        is_follow_up=True,
    ),
)
