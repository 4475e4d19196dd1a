# ruff: noqa: E501 - lines of logs
"""Messages of trainers, PyTorch, NCCL, Slurm and Ray that `slurmray why` looks for in a job's logs."""

from slurmray.diagnosis.entries import Message

# The first ones name causes, the later ones often only follow from another failure.
MESSAGES = (
    Message(
        "ValueError: Total available GPUs 8.0 is less than total desired GPUs 16",
        "verl: verl/trainer/ppo/ray_trainer.py",
        r"Total available GPUs \S+ is less than total desired GPUs \S+",
        "The trainer wants more GPUs than Ray has.",
        "Make trainer.nnodes x trainer.n_gpus_per_node fit the job, or leave both to preset: verl.",
    ),
    Message(
        "Error: crun: cannot stat /usr/lib/x86_64-linux-gnu/libcuda.so.575.159.04: No such file or directory",
        "crun 1.21; of 1.8: github.com/Igalia/webkit-container-sdk/issues/23; of Podman: github.com/NVIDIA/nvidia-container-toolkit/issues/885",
        r"(cannot stat|error stat'ing file) \S*(nvidia|libcuda|libnv)\S*: [Nn]o such file"
        r"|failed to stat CDI host device",
        "The node's CDI specification names files that are not there any more: it is older than the driver.",
        "Write it again on that node: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml.",
        "node",
    ),
    Message(
        "No available node types can fulfill resource requests {'GPU': 9.0}*1.",
        "Ray: ray/autoscaler/v2/event_logger.py",
        r"No available node types can fulfill",
        "A task or placement group asks for resources that no node offers to Ray, and waits for ever.",
        "Compare the request in that line with the nodes: GPUs, CPUs and custom resources of each.",
    ),
    Message(
        "RuntimeError: DataLoader worker (pid 4301) is killed by signal: Bus error.",
        "PyTorch: torch/utils/data/_utils/signal_handling.py",
        r"DataLoader worker \(pid .*\) is killed by signal: Bus error",
        "The shared memory (/dev/shm) was full: PyTorch's data loaders keep batches there.",
        "Raise container.shm_size, or use fewer or no workers in the data loader.",
    ),
    Message(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "PyTorch: c10/cuda/CUDACachingAllocator.cpp",
        r"(CUDA|HIP) out of memory\. Tried to allocate",
        "A GPU had no memory left.",
        "Lower the micro batch size or the sequence length, give the inference engine a smaller share (verl: "
        "rollout.gpu_memory_utilization), or offload; more nodes help only if the model is sharded on them.",
    ),
    Message(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "Slurm: src/slurmd/slurmstepd/mgr.c, and srun",
        r"Detected \d+ oom.kill events? in StepId=|task \d+: Out Of Memory",
        "The job used more memory than slurm.mem, and the kernel killed a process.",
        "Raise slurm.mem, or let the trainer use less.",
    ),
    Message(
        "1 worker(s) were killed due to the node running low on memory.",
        "Ray: raylet",
        r"killed due to the node running low on memory",
        "Ray killed a task because its node had nearly no memory left.",
        "Raise slurm.mem, run fewer tasks at a time, or let each use less.",
    ),
    Message(
        "The local object store is full of objects that are still in scope and cannot be evicted.",
        "Ray: ray/exceptions.py",
        r"local object store is full of objects that are still in scope",
        "Ray's object store is full of objects that the trainer still refers to.",
        "Raise container.shm_size and slurm.mem, or pass smaller batches; `ray memory` lists the objects.",
    ),
    Message(
        "OSError: [Errno 28] No space left on device: '/ckpt/global_step_100'",
        "Python: errno 28",
        r"No space left on device|\[Errno 28\]",
        "A disk was full: often that of checkpoints, or /tmp.",
        "The line names the file. Free space there, or write to another file system.",
        "disk",
    ),
    Message(
        "OSError: [Errno 122] Disk quota exceeded: '/home/alice/x'",
        "Python: errno 122",
        r"Disk quota exceeded",
        "Your quota on a file system is used up.",
        "The line names the file. Free space there, or write to another file system.",
    ),
    Message(
        "OSError: Qwen/Qwen2.5-0.5B-Instrukt is not a local folder and is not a valid model identifier listed on",
        "Transformers: transformers/utils/hub.py",
        r"is not a local folder and is not a valid model identifier listed on",
        "The model's name is wrong, it is private, or the folder is not in the container.",
        "Check the name; mount the folder with container.mounts; for a private model set env.HF_TOKEN: null.",
    ),
    Message(
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them",
        "Transformers: transformers/utils/hub.py",
        r"We couldn't connect to 'https?://\S+' to load",
        "The nodes could not reach the model hub, and the model is not in the cache.",
        "Download it on a login node first, mount the cache and set env.HF_HOME and HF_HUB_OFFLINE: 1; or "
        "set env.https_proxy.",
        "network",
    ),
    Message(
        "Cannot access gated repo for url https://huggingface.co/meta-llama/x/resolve/main/config.json.",
        "huggingface_hub: huggingface_hub/errors.py",
        r"Cannot access gated repo for url",
        "The model needs an accepted license and a token.",
        "Accept it on the model's page, and set env.HF_TOKEN: null to pass your token on.",
    ),
    Message(
        "wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "Weights & Biases: wandb/sdk/wandb_login.py",
        r"api_key not configured \(no-tty\)",
        "Weights & Biases has no key on the nodes.",
        "Set env.WANDB_API_KEY: null and export it before you submit, or env.WANDB_MODE: offline.",
    ),
    Message(
        "ModuleNotFoundError: No module named 'flash_attn'",
        "Python",
        r"ModuleNotFoundError: No module named '[^']+'",
        "A Python module is not where the trainer runs.",
        "Install it in the image or the virtual environment of `setup`, or in container.setup.",
    ),
    Message(
        "NCCL WARN Bootstrap : no socket interface found",
        "NCCL: src/bootstrap.cc",
        r"Bootstrap : no (socket|usable listening) interface found",
        "NCCL found no network interface by the name in NCCL_SOCKET_IFNAME.",
        "Set network.interface to the one that connects the nodes, and leave NCCL_SOCKET_IFNAME out of env.",
        "network",
    ),
    Message(
        "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error",
        "Gloo, in PyTorch: gloo/transport/tcp/pair.cc",
        r"Gloo connectFullMesh failed",
        "Gloo connected over an interface that does not reach the other nodes.",
        "Set network.interface to the one that connects the nodes.",
        "network",
    ),
    Message(
        "OSError: [Errno 24] Too many open files: '/proc/1/stat'",
        "Python: errno 24",
        r"Too many open files",
        "A process reached its limit of open files.",
        "Raise it in `run`, before the command: ulimit -n $(ulimit -Hn). That hard limit comes from "
        "container.ulimits with Podman and Docker, else from slurmd's LimitNOFILE.",
    ),
    Message(
        "OSError: [Errno 98] Address already in use",
        "Python: errno 98",
        r"Address already in use|EADDRINUSE",
        "A port that the trainer or a service fixes is taken by another program on the node.",
        "Let it choose a free port, or request whole nodes with slurm.exclusive.",
    ),
)
