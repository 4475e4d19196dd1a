"""Loader, libc, kernel: memory, threads, files, disks."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    # The dynamic loader
    Message(
        "libcuda-missing",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        "glibc: elf/dl-load.c; github.com/ray-project/ray/issues/25582",
        r"(ImportError|OSError|loading shared libraries): libcuda\.so[\w.]*: cannot open shared object file",
        "The driver's library is not there: the node has no GPU or driver, or the container was started without GPUs.",
        "Request GPUs (slurm.gpus_per_node), and let container.accelerator be auto or nvidia; `nvidia-smi` must work on "
        "the node.",
        "node",
    ),
    Message(
        "triton-libcuda",
        "AssertionError: libcuda.so cannot found!",
        "Triton: third_party/nvidia/backend/driver.py; github.com/state-spaces/mamba/issues/14, 123, "
        "github.com/vllm-project/vllm/issues/11643",
        r"libcuda\.so cannot found!|cannot find -l:?(?:lib)?cuda\b",
        "Triton links a program with the driver's library (libcuda), and finds no file for it: often only one with a "
        "version in its name, or there is no driver.",
        "Set env.TRITON_LIBCUDA_PATH to a folder that has one, e.g. lib64/stubs of the CUDA toolkit. If `ldconfig -p` "
        "lists no libcuda in the container, it was started without GPUs: see container.accelerator.",
    ),
    Message(
        "library-missing",
        "python: error while loading shared libraries: libcudart.so.12: cannot open shared object file: No such file or "
        "directory",
        "glibc: elf/dl-load.c; github.com/Dao-AILab/flash-attention/issues/631",
        r"(ImportError|OSError|loading shared libraries): (?!libcuda\.so|\S+/\.triton/)\S+: cannot open shared object file",
        "A shared library is not installed where the program runs, or not in LD_LIBRARY_PATH: often a package was built "
        "for another CUDA version.",
        "Install the library or a build for the image's CUDA, or add its folder to env.LD_LIBRARY_PATH.",
    ),
    Message(
        "glibc-too-old",
        "ImportError: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by "
        "/opt/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so)",
        "glibc: elf/dl-version.c; github.com/SkyworkAI/SkyReels-V2/issues/105",
        r": (?<!Stacktrace: )\S+: version .GLIBC_[\d.]+. not found",
        "A program or library was built on a newer Linux than that of the node or image.",
        "Run it in a container with a newer base image, or build the package there.",
    ),
    Message(
        "libstdcxx-too-old",
        "ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by "
        "/opt/lib/python3.10/site-packages/pandas/_libs/window/aggregations.so)",
        "glibc: elf/dl-version.c; github.com/InternLM/xtuner/issues/365",
        r": (?<!Stacktrace: )\S+: version .(?:GLIBCXX|CXXABI)_[\d.]+. not found",
        "An older libstdc++ is loaded than a library was built with, e.g. the system's instead of conda's.",
        "Put the folder of the newer one first in env.LD_LIBRARY_PATH, or use a newer image.",
    ),
    Message(
        "undefined-symbol",
        "ImportError: /opt/lib/python3.11/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined "
        "symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
        "glibc: elf/dl-lookup.c; github.com/huggingface/open-r1/issues/684",
        r"(ImportError|OSError|AttributeError|symbol lookup error): \S+: undefined symbol: "
        r"|\.cpython-\S+: undefined symbol: ",
        "A compiled package (the line names it) is for another version of PyTorch or CUDA than the installed one.",
        "Install a build for this PyTorch, CUDA and C++ ABI, or build it in the image with --no-build-isolation.",
    ),
    Message(
        "static-tls",
        "OSError: /usr/lib/aarch64-linux-gnu/libgomp.so.1: cannot allocate memory in static TLS block",
        "glibc: elf/dl-reloc.c; github.com/keras-team/keras-tuner/issues/317",
        r": cannot allocate memory in static TLS block",
        "The library that the line names is loaded too late: others have used up the space that it needs.",
        "Load it first: set env.LD_PRELOAD to its path.",
    ),
    Message(
        "library-not-mapped",
        "ImportError: /tmp/torchinductor_alice/cuda_utils.so: failed to map segment from shared object",
        "glibc: elf/dl-load.c; github.com/pytorch/pytorch/issues/91005 and issues/16558",
        r": failed to map segment from shared object",
        "The library is on a file system that is mounted with noexec, often /tmp; else a memory limit is reached.",
        "Put what is compiled at run time elsewhere: env.TORCHINDUCTOR_CACHE_DIR, env.TRITON_CACHE_DIR.",
    ),
    Message(
        "program-architecture",
        "OSError: [Errno 8] Exec format error: '/usr/local/bin/ninja'",
        "Linux: errno 8; github.com/pachterlab/kb_python/issues/139",
        r"Exec format error",
        "The image or program is for another processor architecture than the node, e.g. x86-64 on Arm; or a script "
        "lacks its first line (#!).",
        "Use an image for the node's architecture (`uname -m`), or request other nodes with slurm.constraint.",
    ),
    Message(
        "illegal-instruction",
        "bash: line 1: 14746 Illegal instruction     (core dumped) python3 train.py",
        "glibc: signal 4, run with it; Python: faulthandler; Ray: logging.cc",
        r"\d Illegal instruction  |Fatal Python error: Illegal instruction"
        r"|\*\*\* SIGILL received at",
        "A package was built for a newer processor than the node has.",
        "Request newer nodes with slurm.constraint, or build the package for the oldest of them.",
        "node",
    ),
    # Memory, threads and limits
    Message(
        "kernel-oom-kill",
        "Out of memory: Killed process 16832 (ray::_shuffle_m) total-vm:33905928kB, anon-rss:6481792kB, file-rss:0kB",
        "Linux: mm/oom_kill.c; github.com/ray-project/ray/issues/23450",
        r"ut of memory: Kill(?:ed)? process \d+|oom-kill:constraint=",
        "The node or the job had no memory left, and the kernel killed that process.",
        "Raise slurm.mem, or let the trainer use less: fewer workers, smaller batches, less offloading.",
    ),
    Message(
        "shared-memory-full",
        "RuntimeError: unable to write to file </torch_169035_1920244589_10>: No space left on device (28)",
        "PyTorch: aten/src/ATen/MapAllocator.cpp",
        r"unable to write to file </torch_|</torch_\S+: No space left on device",
        "The shared memory (/dev/shm) was full: PyTorch's data loaders keep batches there.",
        "Raise container.shm_size, or use fewer workers in the data loader.",
    ),
    Message(
        "torch-mmap-failed",
        "RuntimeError: unable to mmap 29764 bytes from file </torch_10182_3020184674_63991>: Cannot allocate memory (12)",
        "PyTorch: aten/src/ATen/MapAllocator.cpp; github.com/pytorch/pytorch/issues/87861",
        r"unable to mmap \d+ bytes from file <.*>: Cannot allocate memory \(12\)",
        "A process has too many memory maps (vm.max_map_count), often as data loaders share many small tensors; else "
        "there was no memory left.",
        "Use fewer data loader workers, or let an administrator raise vm.max_map_count; or raise slurm.mem.",
    ),
    Message(
        "cannot-allocate-memory",
        "OSError: [Errno 12] Cannot allocate memory",
        "Linux: errno 12; PyTorch: c10/core/impl/alloc_cpu.cpp",
        r"DefaultCPUAllocator: (?:can't|not enough)|(?<!' )[:\]] Cannot allocate memory(?! \(12\))",
        "The node or the job had no memory left, or a limit of a process was reached (ulimit -v, -l).",
        "Raise slurm.mem, or let the trainer use less.",
    ),
    Message(
        "python-memory-error",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000, 1000) "
        "and data type float64",
        "NumPy: _core/_exceptions.py; Python: MemoryError",
        r"Error: Unable to allocate .* for an array with shape|\bMemoryError(?:$|\n)",
        "The node or the job had no memory left for the data of a Python program.",
        "Raise slurm.mem, or load less at a time.",
    ),
    Message(
        "bad-alloc",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "libstdc++: vterminate.cc; github.com/ljanyst/ssd-tensorflow/issues/8",
        r"std::bad_alloc",
        "A C++ library got no memory: the node or the job had none left.",
        "Raise slurm.mem, or let the trainer use less.",
    ),
    Message(
        "openblas-threads",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 50 of 64: Resource temporarily unavailable",
        "OpenBLAS: driver/others/blas_server.c; github.com/MIC-DKFZ/nnUNet/issues/1343",
        r"OpenBLAS blas_thread_init: pthread_create",
        "NumPy's OpenBLAS starts a thread for each core in each process, and the limit of processes was reached.",
        "Set env.OPENBLAS_NUM_THREADS: 1.",
    ),
    Message(
        "no-more-threads",
        "RuntimeError: can't start new thread",
        "Python: Modules/_threadmodule.c; gRPC: github.com/vllm-project/vllm/issues/6295; libgomp, Boost: "
        "github.com/ray-project/ray/issues/8546, 54225; libstdc++: github.com/RasaHQ/rasa/issues/5997; LLVM's OpenMP; "
        "Bash: jobs.c",
        r"can't start new thread|pthread_create failed: Resource temporarily unavailable"
        r"|Thread creation failed: Resource temporarily unavailable|thread: Resource temporarily unavailable"
        r"|what\(\): +Resource temporarily unavailable|OMP: System error #11: Resource temporarily unavailable"
        r"|fork: (?:retry: )?Resource temporarily unavailable",
        "The limit of processes and threads was reached: of the user (ulimit -Hu; slurmray has raised the soft limit to "
        "it) or of the container.",
        "Start fewer: env.OMP_NUM_THREADS: 1, env.RAY_worker_num_grpc_internal_threads: 1, fewer data loader workers. Or "
        "raise the limit: container.ulimits with Podman and Docker, else slurmd's LimitNPROC.",
    ),
    Message(
        "too-many-open-files",
        "OSError: [Errno 24] Too many open files: '/proc/1/stat'",
        "Python: errno 24",
        r"Too many open files",
        "A process reached its limit of open files.",
        "With Podman and Docker: container.ulimits: [nofile=1048576:1048576]. Else raise slurmd's LimitNOFILE, of which "
        "programs get 65535 at most; a trainer that needs more begins `run` with ulimit -n $(ulimit -Hn).",
    ),
    Message(
        "inotify-limit",
        "OSError: [Errno 28] inotify watch limit reached",
        "watchdog: observers/inotify_c.py",
        r"inotify (?:watch|instance) limit reached",
        "The node's limit of watched files is reached (fs.inotify): no disk is full.",
        "Turn off what watches files, or let an administrator raise fs.inotify.max_user_watches and "
        "fs.inotify.max_user_instances.",
    ),
    Message(
        "socket-path-too-long",
        "OSError: AF_UNIX path too long",
        "Python: Modules/socketmodule.c",
        r"AF_UNIX path too long",
        "The path of a socket has more than 107 characters: a folder for temporary files has a long path.",
        "Set ray.temp_dir, or env.TMPDIR, to a short path, e.g. /tmp.",
    ),
    # Files and disks
    Message(
        "disk-full",
        "OSError: [Errno 28] No space left on device: '/ckpt/global_step_100'",
        "Python: errno 28; without a file: github.com/NVIDIA/Megatron-LM/issues/878",
        r"\[Errno 28\] (?!inotify|.*joblib will)|(?<!' : )No space left on device(?! \(28\)|\.  joblib will)",
        "A disk was full: often that of checkpoints, or /tmp; or /dev/shm if the line names no file.",
        "Free space where that file is, or write to another file system. For /dev/shm raise container.shm_size.",
        "disk",
    ),
    Message(
        "quota-exceeded",
        "OSError: [Errno 122] Disk quota exceeded: '/home/alice/x'",
        "Python: errno 122",
        r"Disk quota exceeded",
        "Your quota on a file system is used up.",
        "The line names the file. Free space there, or write to another file system.",
    ),
    Message(
        "triton-cache-race",
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/alice/.triton/cache/cff628804055ab05/"
        "_rms_norm_bwd_dx_fused.ttir.tmp.pid_15735_304289' -> '/home/alice/.triton/cache/cff628804055ab05/x.ttir'",
        "github.com/triton-lang/triton/issues/2688, 11512; github.com/PrimeIntellect-ai/prime-rl/pull/2305",
        r"(FileNotFoundError: .*|Device or resource busy: .*|Error: \S*)/\.triton/cache/(?!.*(?:segment|GLIBC|symbol))",
        "Several processes write Triton's cache at the same time, usually those of several nodes in a shared home.",
        "Put it on the node's own disk: env.TRITON_CACHE_DIR: /tmp/triton-cache.",
    ),
    Message(
        "stale-file-handle",
        "OSError: [Errno 116] Stale file handle: '/ckpt/optimizer.pt'",
        "Linux: errno 116; github.com/huggingface/transformers/issues/9732",
        r"[: ](?<!shared object: )Stale (?:NFS )?file handle(?!.*/\.triton/)|\[Errno 116\] (?!Stale)",
        "A file of a network file system was removed or replaced on another node while it was open.",
        "Let no two jobs or nodes write the same file, and keep caches on the node's own disk (e.g. env.TMPDIR, "
        "env.TRITON_CACHE_DIR).",
    ),
    Message(
        "io-error",
        "OSError: [Errno 5] Input/output error: '/lustre/ckpt/model.pt'",
        "Linux: errno 5 and 121; of a lock: github.com/huggingface/datasets/issues/6505",
        r"^(?!.*(?:UCX|ucp_|ibv_)).*Input/output error|^(?!.*(?:UCX|ucp_|ibv_)).*Remote I/O error",
        "A disk or the server of a network file system did not read, write or lock what it should.",
        "Tell the administrators the node, the path and the time; until then use other nodes (slurm.exclude) or "
        "another file system.",
        "disk",
    ),
    Message(
        "read-only-file-system",
        "OSError: [Errno 30] Read-only file system: '/opt/cache'",
        "Linux: errno 30",
        r"Read-only file system",
        "The path is in a read-only image (Apptainer, pyxis) or mount, or the kernel made a failing disk read-only.",
        "Write to a folder that container.mounts mounts without ro, e.g. with env.HF_HOME and env.TRITON_CACHE_DIR.",
    ),
    Message(
        "mount-disconnected",
        "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/bucket/train'",
        "Linux: errno 107 and 108; github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/issues/50; Lustre: "
        "github.com/whamcloud/integrated-manager-for-lustre/issues/230",
        r"Transport endpoint is not connected: b?['\"]|/\S*: Transport endpoint is not connected"
        r"|after transport endpoint shutdown",
        "The process behind a FUSE mount has ended, or a Lustre server has evicted the node.",
        "Mount it again or leave the node out: sbatch --exclude=NODE generated.sh.",
        "node",
    ),
    Message(
        "no-locks",
        "OSError: [Errno 37] No locks available",
        "Linux: errno 37; github.com/huggingface/datasets/issues/2618",
        r"No locks available",
        "The file system does not support locks, or its lock server does not answer (NFS).",
        "Put the file on another file system: for Hugging Face env.HF_HOME or env.HF_DATASETS_CACHE.",
    ),
    Message(
        "text-file-busy",
        "OSError: [Errno 26] Text file busy: '/code/bin/server'",
        "Linux: errno 26",
        r"Text file busy",
        "A program was started while another process writes its file, or written while it runs.",
        "Copy or build programs before the job starts, or once per node on its own disk.",
    ),
    Message(
        "file-name-too-long",
        "OSError: [Errno 36] File name too long: '/ckpt/a_very_long_experiment_name'",
        "Linux: errno 36",
        r"File name too long",
        "A file name has more than 255 bytes: often names of experiments list all their parameters.",
        "Choose a shorter name for the experiment.",
    ),
    # Connections, as Python sees them
    Message(
        "clock-wrong",
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not "
        "yet valid (_ssl.c:1007)",
        "OpenSSL: crypto/x509/x509_txt.c",
        r"certificate verify failed: certificate is not yet valid",
        "The node's clock is slow.",
        "Leave the node out: sbatch --exclude=NODE generated.sh. Its administrators must set its clock.",
        "node",
    ),
    Message(
        "address-in-use",
        "OSError: [Errno 98] Address already in use",
        "Python: errno 98",
        r"Address already in use|EADDRINUSE",
        "A port that the trainer or a service fixes is taken by another program on the node.",
        "Let it choose a free port, or request whole nodes with slurm.exclusive.",
    ),
    Message(
        "address-of-another-node",
        "OSError: [Errno 99] Cannot assign requested address",
        "Linux: errno 99; github.com/ai-dynamo/dynamo/issues/2706, github.com/gpustack/gpustack/issues/4241",
        r"Error: \[Errno 99\] |ZMQError: Cannot assign requested address",
        "A program should listen at an address that its node does not have: e.g. env sets that of the head node "
        "(VLLM_HOST_IP) for all nodes.",
        "Leave addresses out of env, or set each node's own in node_env.",
    ),
    Message(
        "no-route",
        "OSError: [Errno 113] No route to host",
        "Linux: errno 113 and 101",
        r"Error: \[Errno 113\] No route to host|Error: \[Errno 101\] Network is unreachable",
        "The other host is down, behind a firewall, or in a network that the node does not reach.",
        "Set network.interface to the one that connects the nodes; for hosts outside set env.https_proxy.",
        "network",
    ),
    Message(
        "connection-timed-out",
        "TimeoutError: [Errno 110] Connection timed out",
        "Linux: errno 110",
        r"TimeoutError: \[Errno 110\] Connection timed out",
        "The other host did not answer: a firewall, a host that is down, or no internet access.",
        "Set network.interface to the one that connects the nodes; for hosts outside set env.https_proxy.",
        "network",
    ),
    Message(
        "connection-refused",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "Linux: errno 111",
        r"ConnectionRefusedError: \[Errno 111\]",
        "No process listens at that address: it has ended, does not listen yet, or is elsewhere.",
        "Look for what ended the other process, and compare address and port.",
        is_follow_up=True,
    ),
    Message(
        "connection-reset",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "Linux: errno 104 and 32",
        r"ConnectionResetError: \[Errno 104\]|BrokenPipeError: \[Errno 32\]",
        "The process at the other end has ended.",
        "Look for what ended it.",
        is_follow_up=True,
    ),
    # Crashes
    Message(
        "heap-corrupted",
        "double free or corruption (!prev)",
        "glibc: malloc/malloc.c",
        r"double free or corruption|double free detected in tcache|free\(\): invalid (?:pointer|size|next size)|munmap_chunk\(\): invalid pointer"
        r"|corrupted double-linked list|corrupted size vs\. prev_size|malloc_consolidate\(\): |realloc\(\): invalid "
        r"|malloc\(\): (?:corrupted|invalid|memory corruption|unsorted|mismatching|unaligned|smallbin)",
        "A compiled package corrupted its memory: often builds for different PyTorch or CUDA versions are mixed.",
        "Install builds that fit each other. Set env.PYTHONFAULTHANDLER: 1 to see where it ends.",
    ),
    Message(
        "bus-error",
        "bash: line 1: 14745 Bus error               (core dumped) python3 train.py",
        "glibc: signal 7, run with it; Python: faulthandler; Ray: logging.cc",
        r"\d Bus error  |Fatal Python error: Bus error|\*\*\* SIGBUS received at",
        "The shared memory (/dev/shm) was full, or a file that a process had mapped was cut off or became unreadable.",
        "Raise container.shm_size; let nobody write the files that the trainer reads.",
    ),
    Message(
        "segmentation-fault",
        "Fatal Python error: Segmentation fault",
        "Python: Modules/faulthandler.c; Bash, run with it; Ray: github.com/ray-project/ray/issues/43456",
        r"Fatal Python error: Segmentation fault|\d Segmentation fault  "
        r"|\*\*\* SIGSEGV received at",
        "A compiled package crashed: often one that is for another PyTorch, CUDA or NumPy.",
        "Set env.PYTHONFAULTHANDLER: 1 to see where. Install builds that fit each other.",
    ),
    Message(
        "process-killed",
        "run.sh: line 12: 14735 Killed                  python3 train.py",
        "Bash: jobs.c, run with it",
        r"\d Killed          ",
        "A process was ended with SIGKILL: by the kernel as there was no memory left, or as the job was stopped.",
        "Raise slurm.mem if the job was not stopped.",
        is_follow_up=True,
    ),
    Message(
        "aborted",
        "Fatal Python error: Aborted",
        "Python: Modules/faulthandler.c; Bash, run with it; Ray: logging.cc",
        r"Fatal Python error: Aborted|\d Aborted          |\*\*\* SIGABRT received at",
        "A library ended the process; the lines above it say why.",
        "Read the lines above it.",
        is_follow_up=True,
    ),
)
