"""The tables of messages; each line is as the program writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import click
import pytest

from slurmray.cli import slurmray
from slurmray.cli.schema import schema_text
from slurmray.diagnosis.entries import Message
from slurmray.diagnosis.exit_codes import look_up, look_up_trainer
from slurmray.diagnosis.failures import failures
from slurmray.diagnosis.final_states import STATES
from slurmray.diagnosis.messages import MESSAGES
from slurmray.diagnosis.pending import PENDING, explain
from slurmray.diagnosis.slurm_errors import SLURM_ERRORS

# What is not indented is a part of the cause; below it are lines, each with its continuation further right.
TEXT = r"""
more GPUs than Ray
    ValueError: Total available GPUs 8.0 is less than total desired GPUs 16
no node offers
    (autoscaler +25s) Error: No available node types can fulfill resource request {'GPU': 9.0}. Add suitable node types
        to this cluster to resolve this issue.
    (autoscaler +5s) No available node types can fulfill resource requests {'CPU': 64.0}*1.
shared memory (/dev/shm) was full
    RuntimeError: DataLoader worker (pid 4301) is killed by signal: Bus error. It is possible that dataloader's workers
        are out of shared memory. Please try to raise your shared memory limit.
GPU had no memory
    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of
        which 1.05 GiB is free.
more memory than slurm.mem
    slurmstepd: error: Detected 1 oom_kill event in StepId=4833316.0. Some of the step tasks have been OOM Killed.
    slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0. Some of your processes may have been killed by the
        cgroup out-of-memory handler.
subordinate ids
    Error: potentially insufficient UIDs or GIDs available in user namespace (requested 0:42 for /etc/shadow): Check
        /etc/subuid and /etc/subgid if configured locally
more memory than slurm.mem
    srun: error: ideafix03: task 0: Out Of Memory
Ray killed a task
    (raylet) 1 worker(s) were killed due to the node running low on memory. Refer to the documentation
object store is full
    The local object store is full of objects that are still in scope and cannot be evicted. Tip: Use the `ray memory`
        command to list active objects in the cluster.
A disk was full
    OSError: [Errno 28] No space left on device: '/ckpt/global_step_100'
older than the driver
    crun: cannot stat /usr/local/nvidia/lib64/libcuda.so.575.159.04: No such file or directory: OCI runtime attempted to
        invoke a command that was not found
    crun: error stat'ing file /lib/x86_64-linux-gnu/libEGL_nvidia.so.535.161.07: No such file or directory
    Error: setting up CDI devices: failed to inject devices: failed to stat CDI host device "/dev/dri/renderD129": no
        such file or directory
quota
    OSError: [Errno 122] Disk quota exceeded: '/home/alice/x'
model's name is wrong
    OSError: Qwen/Qwen2.5-0.5B-Instrukt is not a local folder and is not a valid model identifier listed on
        'https://huggingface.co/models'
could not reach the model hub
    OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached
        files.
accepted license
    Cannot access gated repo for url https://huggingface.co/meta-llama/x/resolve/main/a.
has no key
    wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])
Python module
    ModuleNotFoundError: No module named 'flash_attn'
no network interface
    node1:223645:223645 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found
does not reach
    RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error
open files
    OSError: [Errno 24] Too many open files: '/proc/1/stat'
A port
    OSError: [Errno 98] Address already in use
# Wordings of later versions: vLLM 0.33, verl 0.10, NCCL 2.30, Ray 2.60.
something else holds part of it
    ValueError: Free memory on device cuda:0 (31.44/47.38 GiB) on startup is less than the engine's budget after
as many free GPUs
    ValueError: Cannot provide a placement group requiring 4 GPUs (placement_group_specs=[]) within
A process of vLLM died
    Worker proc VllmWorker-3 died unexpectedly (exit code: -9), shutting down executor.
as many free GPUs
    ValueError: Cannot provide a placement group requiring 2.0 GPUs (placement_group_specs=[{'GPU': 1.0}, {'GPU': 1.0}])
        within 1800 seconds.
too old for the quantization
    RuntimeError: Quantization scheme is not supported for the current GPU. Min capability: 80. Current capability: 75.
longer than the engine accepts
    vllm.exceptions.VLLMValidationError: The decoder prompt (length 8192) plus the number of requested output tokens (at
        least 1) is longer than the maximum model length of 8192.
    ValueError: Prompt length (8193) exceeds the model's maximum context length (8192).
does not know this model
    ValueError: The Transformers implementation of 'OvisForConditionalGeneration' is not compatible with vLLM.
    ValueError: Ovis has no vLLM implementation and the Transformers implementation is not compatible with vLLM.
A process of vLLM died
    Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.
tensor parallel size
    AssertionError: rollout world_size: 1 is not divisible by infer_world_size: 2
could not connect
    NCCL WARN ncclOsSocketTryConnect: connect to 10.0.0.2<54263> failed : No route to host
cannot be loaded here
    Failed to deserialize exception. Refer to https://docs.ray.io/en/latest/ray-core/
raylet has ended
    core_worker.cc:201: Failed to register worker to Raylet: IOError: Broken pipe
no network interface
    NCCL WARN NET/Socket : No usable listening interface found
called different operations
    NCCL WARN Message truncated : received 8,8 bytes instead of 4,4
placement group of a task or actor was removed
    Could not create the actor because its associated placement group was removed.
takes another address
    RuntimeError: This node has an IP address of 10.17.4.16, and Ray expects this IP address to be either the GCS
        address or one of the Raylet addresses. Connected to GCS at 10.17.1.30, and found no Raylet with this IP
        address.
A process saw no GPU
    RuntimeError: Found no NVIDIA driver on your system. Please check that you have an
# PyTorch 2.13, TRL 1.9, Megatron-LM of 2026.
could not share a tensor
    RuntimeError: unable to allocate shared memory(shm) for file </torch_4301_12_0>: Success (0)
have different types
    RuntimeError: expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16
    RuntimeError: self and mat2 must have the same dtype, but got Float and BFloat16
groups of num_generations
    ValueError: generation_batch_size (8) must be divisible by num_generations (16).
splits the layers
    AssertionError: num_layers=28 should be divisible by config.pipeline_model_parallel_size=3
# huggingface_hub 1.28, which uses httpx, hf_xet 1.5, datasets 2.16 and 5, Transformers 4.57 and 5.24.
asked the model hub more often
    httpx.HTTPStatusError: Client error '429 Too Many Requests' for url 'https://huggingface.co/api/models/a/b'
    429 Too Many Requests for url: https://huggingface.co/api/datasets/glue/tree/main.
had a failure of its own
    huggingface_hub.errors.HfHubHTTPError: Server error '503 Service Unavailable' for url
        'https://huggingface.co/Qwen/Qwen3-0.6B/resolve/main/config.json'
the path is taken for a name
    OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name':
    huggingface_hub.errors.HFValidationError: Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot
        start or end with '-' or '.' and the maximum length is 96: './ckpt'.
data set's name is wrong
    datasets.exceptions.DatasetNotFoundError: Dataset 'a/b' doesn't exist on the Hub
could not reach the model hub
    An error happened while trying to locate the files on the Hub, and we cannot find the appropriate snapshot folder
        for the specified revision on the local disk.
    ConnectionError: Couldn't reach 'openai/gsm8k' on the Hub (ConnectTimeout)
resolve a host name
    socket.gaierror: [Errno -5] No address associated with hostname
Xet storage failed
    ConnectionError: Network error: Request middleware error: Request failed after 5 retries
    RuntimeError: Data processing error: File Reconstruction Error: CAS Client Error: ReqwestMiddleware Error
lacks a file
    OSError: Error no file named model.safetensors, or pytorch_model.bin, found in directory /ckpt/actor.
code of its own
    ValueError: The repository a/b references custom code contained in c/d which must be executed to correctly load the
        model.
    ValueError: Loading a/b requires you to execute the configuration file in that repo on your local machine.
    ValueError: Loading this model requires you to execute custom code contained in the model repository on your local
        machine.
accelerate or bitsandbytes
    ImportError: Loading an AWQ quantized model requires accelerate (`pip install accelerate`)
    ValueError: Using a `device_map`, `tp_plan`, `torch.device` context manager or setting
        `torch.set_default_device(device)` requires `accelerate`. You can install it with `pip install accelerate`
flash attention
    ImportError: FlashAttention3 has been toggled on, but it cannot be used due to the following error: the package for
        FlashAttention3 doesn't seem to be installed.
# Click before 8 and of 2026, Hydra's next version, OmegaConf, NumPy 2, Python 3.13, Transformers.
no such option
    Error: no such option: --tp
    Error: No such option '--tp'.
does not accept the value
    Error: Invalid value for '--steps': 'ten' is not a valid integer.
cannot parse an argument
    LexerNoViableAltException: +env.NCCL_IB_HCA='mlx5_0:1,mlx5_3:1'
    See https://hydra.cc/docs/next/advanced/command_line_syntax for details
no configuration of that name
    In 'ppo_trainer': Could not load 'data/legacy_data'.
has the wrong type
    Value 'maybe' is not a valid bool (type str)
    Value '[1]' of type 'list' is incompatible with type hint 'Optional[int]'
an environment variable
    omegaconf.errors.InterpolationResolutionError: KeyError raised while resolving interpolation: "Environment variable
        'USER' not found"
another major version of NumPy
    ImportError: numpy._core.multiarray failed to import
    ValueError: numpy.ufunc size changed, may indicate binary incompatibility. Expected 216 from C header, got 192
has the name of a package
    ImportError: cannot import name 'choice' from 'random' (consider renaming '/w/random.py' since it has the same name
        as the standard library module named 'random' and prevents importing that standard library module)
Two packages do not fit
    TypeError: got an unexpected keyword argument 'num_cpus'
another version than a program requires
    ImportError: tokenizers>=0.22.0,<=0.23.0 is required for a normal functioning of this module, but found
        tokenizers==0.21.4.
uses a variable that has no value
    run.sh: line 4: $1: unbound variable
# runc, crun, newuidmap, Apptainer 1.3, enroot 3.5, libnvidia-container, Docker 29.
no program by that name
    docker: Error response from daemon: OCI runtime create failed: container_linux.go:345: starting container process
        caused "exec: \"/bin/bash\": stat /bin/bash: no such file or directory": unknown.
a cgroup of its own
    Error: OCI runtime error: runc: runc create failed: unable to start container process: unable to apply cgroup
        configuration: rootless needs no limits + no cgrouppath when no permission is granted for cgroups: mkdir
        /sys/fs/cgroup/530a853f5d02: permission denied
kernel keys
    container init caused: join session keyring: create session key: disk quota exceeded
create user namespaces
    cannot clone: No space left on device
    ERROR  : Could not write info to setgroups: Permission denied
    FATAL:   while extracting ray.sif: root filesystem extraction failed: extract command failed: ERROR  : Failed to
        create user namespace: not allowed to create user namespace
map your subordinate ids
    newuidmap: uid range [1-65537) -> [100000-165536) not allowed
mount the image with FUSE
    FATAL:   container creation failed: mount /proc/self/fd/3->/var/apptainer/mnt/session/rootfs error: while mounting
        image /proc/self/fd/3: squashfuse_ll failed to mount /var/apptainer/mnt/session/rootfs in 2s
could not mount the image
    FATAL:   container creation failed: mount /proc/self/fd/3->/var/lib/singularity/mnt/session/rootfs error: while
        mounting image /proc/self/fd/3: kernel reported a bad superblock for squashfs image partition
another CPU architecture
    FATAL:   could not open image ray.sif: the image's architecture (arm64) could not run on the host's (amd64)
has not loaded NVIDIA's driver
    nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file:
        no such file or directory: unknown.
lacks a program that the container runtime calls
    slurmstepd: error: pyxis:     [ERROR] Command not found: nvidia-container-cli, see
        https://github.com/NVIDIA/libnvidia-container
not logged in to the registry
    [ERROR] URL https://nvcr.io/proxy_auth returned error code: 401 Unauthorized
lets the nodes' address pull
    [ERROR] URL https://registry-1.docker.io/v2/a returned error code: 429 Too Many
not logged in to the registry
    unauthorized: access to the requested resource is not authorized
does not reach the registry
    Error response from daemon: Get "https://registry-1.docker.io/v2/": net/http: request canceled while waiting for
        connection (Client.Timeout exceeded while awaiting headers)
does not trust the registry's certificate
    Get "https://r.example/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority
enroot could not create or start
    slurmstepd: error: pyxis: container exited too soon
disk for images
    * docker-archive: copying contents to temporary file "/var/tmp/docker-tar2345326614": write
        /var/tmp/docker-tar2345326614: no space left on device
# Slurm 17 to 25.
more memory than slurm.mem
    slurmstepd: error: Detected 1 oom-kill event(s) in step 123.0 cgroup. Some of your processes may have been killed
more memory in use than slurm.mem
    slurmstepd: error: Exceeded step memory limit at some point.
srun ran for a job that has ended
    srun: error: SLURM job 7 has expired.
MUNGE
    srun: error: Unable to create step for job 7: Protocol authentication error
    srun: error: Task launch for StepId=7.0 failed on node node2: Protocol authentication error
bound to CPUs
    srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x34000004.
does not reach slurmd
    srun: error: Task launch for 6.0 failed on node node2: Can't find an address, check slurm.conf
one of these variables
    srun: fatal: cpus_per_task set by two different environment variables SLURM_CPUS_PER_TASK=2 !=
        SLURM_TRES_PER_TASK=cpu:1
two requests for GPUs
    srun: fatal: --gpus-per-node and --gres=gpu are mutually exclusive.
was cancelled
    [2026-11-29T12:59:26.773] error: *** JOB 1 ON node1 CANCELLED AT 2026-11-29T12:59:26 DUE to SIGNAL Terminated ***
# Podman 4.3 and 5.4, run.
lacks a program that the container runtime calls
    Error: lookup init binary: exec: "catatonit": executable file not found in $PATH
    Error: container-init binary not found on the host: stat /usr/libexec/podman/catatonit: no such file or directory
# Apptainer 1.4.5, and its mksquashfs, run on a full disk.
disk for images
    FATAL:   While performing build: while creating SIF: while creating container: write /mnt/x.sif: no space left on
        device
    FATAL ERROR: Probably out of space on output filesystem
# Ray 2.60, run.
this process has none
    ray.exceptions.AuthenticationError: Token authentication is enabled but no authentication token was found.
has another token
    Unauthenticated: InvalidAuthToken: Authentication token is missing or incorrect
has not got its Ray cluster
    Failed to start Ray: Command '['ray', 'start']' returned non-zero exit status 1.
not installed where the command runs
    slurmray: pyhton3: No such file or directory
# wandb 0.17, 0.26 and 0.28.
entity or project
    wandb.errors.errors.CommError: permission denied
    wandb.errors.errors.CommError: Error uploading run: returned error 404:
        {"data":{"upsertBucket":null},"errors":[{"message":"entity alice not found during
        upsertBucket","path":["upsertBucket"]}]}
    wandb.errors.CommError: It appears that you do not have permission to access the requested resource. Please reach
        out to the project owner to grant you access.
did not reach the Weights
    wandb.errors.errors.CommError: Timed out while retrying: HTTP 502: Bad Gateway
The run that should be resumed
    wandb.errors.UsageError: You provided an invalid value for the `resume` argument. The value 'must' is not a valid
        option for resuming a run (8squmyay) that does not exist.
# Other wordings, of public threads and sources.
ECC could not correct
    NVRM: Xid (PCI:0000:07:00 GPU-I:05 GPU-CI:00): 94, pid=1234, name=python3, Contained ECC error
link between GPUs
    NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6)
waits for the reset
    NVRM: Xid (PCI:0000:02:00): 109, pid=45252, name=python3, channel 0x0000000d, CTX SWITCH
has lost a GPU
    slurmstepd: error: NVML: Failed to get usage(15): GPU is lost
sees fewer GPUs
    RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at
        "/pytorch/aten/src/ATen/cuda/CUDAContext.cpp":52, please report a bug to PyTorch. device=1, num_gpus=1
newer driver
    RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.
    RuntimeError: CUDA error: API call is not supported in the installed CUDA driver
with NVSwitch
    node1: Test CUDA failure common.cu:941 'system not yet initialized'
driver was updated
    pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.
not built for
    "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"
    RuntimeError: CUDA error: invalid device function
CUDA does not work
    RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.
outside PyTorch's own
    RuntimeError: CUDA driver error: out of memory
    RuntimeError: Triton Error [CUDA]: out of memory
no memory left
    RuntimeError: NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at
        "../c10/cuda/CUDACachingAllocator.cpp":1123, please report a bug to PyTorch.
Triton
    /usr/bin/ld: cannot find -lcuda: No such file or directory
for another version
    python: symbol lookup error: /opt/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister
kernel killed that process
    Out of memory: Kill process 16832 (python3) score 912 or sacrifice child
limit of processes
    what():  Resource temporarily unavailable
    OMP: System error #11: Resource temporarily unavailable
corrupted its memory
    corrupted size vs. prev_size while consolidating
quota
    OSError: [Errno 122] Disk quota exceeded: '/home/alice/.triton/cache/cff6/x.ttir.tmp.pid_15735_304289'
Triton's cache
    ImportError: /home/alice/.triton/cache/cff6/__triton_launcher.so: cannot open shared object file: No such file or
        directory
address that its node
    zmq.error.ZMQError: Cannot assign requested address (addr='tcp://172.17.0.5:34762')
"""


def read_lines(text: str) -> list[tuple[str, str]]:
    """(part of the cause, line)"""
    rows, cause = [], ""
    for line in text.replace("\n        ", " ").splitlines():
        if line.startswith("    "):
            rows.append((cause, line.removeprefix("    ")))
        elif not line.startswith("#"):
            assert line == line.lstrip(), f"neither a cause nor a line: {line}"
            cause = line
    return rows


LINES = read_lines(TEXT)


@pytest.mark.parametrize("message", [*MESSAGES, *SLURM_ERRORS, *PENDING], ids=lambda each: each.example[:40])
def test_an_example_has_its_own_message_only(message: Message) -> None:
    table = next(each for each in (MESSAGES, SLURM_ERRORS, PENDING) if message in each)
    assert [each.name for each in table if re.search(each.pattern, message.example)] == [message.name]
    assert message.source
    assert message.cause or message.fix


@pytest.mark.parametrize(("cause", "line"), LINES)
def test_a_line_has_one_message(cause: str, line: str) -> None:
    (found,) = failures(MESSAGES, [("log", f"before\n  {line}\nafter\n")])
    assert cause in found.message.cause
    assert (found.source, found.line) == ("log", line[:300])


@pytest.mark.parametrize(
    "line",
    [
        # ANTLR's listener, of a parser of LaTeX in a reward.
        "line 1:12 mismatched input '<EOF>' expecting {'(', NUMBER}",
        "line 1:112 no viable alternative at input '\\\\frac'",
        # A connection to a multiprocessing socket whose owner has ended, and its shared memory.
        "FileNotFoundError: [Errno 2] No such file or directory",
        "FileNotFoundError: [Errno 2] No such file or directory: '/psm_10b3d52e'",
        "UserWarning: Protobuf gencode version 5.27.2 is exactly one major version older than the runtime version 6.31.1",
        "enroot-switchroot: failed to execute: /bin/sh: Permission denied",
    ],
)
def test_other_lines_are_no_cause(line: str) -> None:
    assert failures(MESSAGES, [("log", f"before\n{line}\nafter\n")]) == []


def test_progress_is_no_cause() -> None:
    log = "[slurmray   5.0 s] trainer: sh -c 'echo Too many open files'\nstep 1, loss 0.3\nsaved to /ckpt\n"
    assert failures(MESSAGES, [("log", log)]) == []


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("None", "Slurm has not looked at it yet"),
        ("Priority", "waits behind jobs with a higher priority (Priority)"),
        ("QOSMaxJobsPerUserLimit", "a limit of the QOS is reached (QOSMaxJobsPerUserLimit)"),
        ("AssocGrpGRES", "a limit of your account is reached (AssocGrpGRES)"),
        (
            "ReqNodeNotAvail,_UnavailableNodes:a",
            "nodes that it needs are down, drained or reserved (ReqNodeNotAvail,_UnavailableNodes:a)",
        ),
        ("Cleaning", "Cleaning"),
    ],
)
def test_reasons_in_words(reason: str, expected: str) -> None:
    assert explain("PENDING", reason, "(null)") == expected


def fixes() -> list[str]:
    """What messages, states and exit codes tell to do, with the cause, which may name fields, too."""
    known = [*STATES.values(), *(look_up(0, signal)[1] for signal in range(1, 128))]
    known += [each(code)[1] for each in (look_up, look_up_trainer) for code in range(256)]
    messages = [*MESSAGES, *SLURM_ERRORS, *PENDING]
    return sorted(
        {f"{each.cause} {each.fix}" for each in known} | {f"{each.cause} {each.fix}" for each in messages}
    )


def fields(schema: dict[str, Any], definitions: dict[str, Any], parent: str = "") -> Iterator[str]:
    """Yield the fields of the job spec, e.g. container.mounts; of a service without `services`."""
    for name, value in schema.get("properties", {}).items():
        yield f"{parent}{name}"
        for found in re.findall(r"#/\$defs/(\w+)", json.dumps(value)):
            is_item = value.get("type", "") == ["array", "null"]
            yield from fields(definitions[found], definitions, "" if is_item else f"{parent}{name}.")


SCHEMA = json.loads(schema_text())
FIELDS = set(fields(SCHEMA, SCHEMA["$defs"]))
# Names with dots that are no fields: keys of verl, Python, sysctl, files, hosts.
OTHERS = re.compile(
    r"(actor|actor_rollout_ref|data|model|rollout|trainer|torch|verl|vllm|vm|fs|kernel|user|status)\.|e\.g$"
    r"|ray\.(init|kill|util)\b|.*\.(co|conf|err|io|json|jsonl|log|out|sh|txt)$"
)


def test_fixes_name_fields_and_commands_that_exist() -> None:
    wrong = []
    for text in fixes():
        for name in re.findall(r"(?<![\w/.@-])[a-z_]+(?:\.[A-Za-z_]\w*)+", text):
            field = "env" if re.fullmatch(r"env\.[A-Za-z_]\w*", name) else name
            if field not in FIELDS and not OTHERS.match(name):
                wrong.append(name)
        for verb, options in re.findall(r"`?\bslurmray ([a-z]+)((?: (?:[A-Z]+|--[\w-]+))*)`", text):
            command = slurmray.get_command(click.Context(slurmray), verb)
            known = {option for each in (command.params if command else []) for option in each.opts}
            wrong += [f"slurmray {verb}"] * (command is None)
            wrong += [option for option in re.findall(r"--[\w-]+", options) if option not in known]
        for option in re.findall(r"sbatch --([\w-]+)", text):
            wrong += [f"sbatch --{option}"] * (f"slurm.{option.replace('-', '_')}" not in FIELDS)
    assert wrong == []
