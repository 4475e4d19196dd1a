"""CUDA, ROCm and the driver: what a GPU, or the memory of one, leads to."""

from slurmray.diagnosis.entries import Message

_LEAVE_OUT = "Leave the node out: sbatch --exclude=NODE generated.sh."
_ERROR = r"(CUDA [Ee]rror|HIP [Ee]rror|Triton Error \[CUDA\])"
_BLOCKING = "Run it again with env.CUDA_LAUNCH_BLOCKING: 1: the traceback then names the operation."

MESSAGES: tuple[Message, ...] = (
    # The kernel's log: Xid 45 and 63 are left out, as healthy jobs leave them, too.
    Message(
        "xid-off-the-bus",
        "NVRM: Xid (PCI:0000:44:00): 79, pid=4301, name=python3, GPU has fallen off the bus.",
        "NVIDIA: docs.nvidia.com/deploy/xid-errors; github.com/NVIDIA/NVSentinel/issues/155",
        r"NVRM: Xid \([^)]{0,60}\): 79,|fallen off the bus",
        "A GPU does not answer on the PCI bus any more: a fault of power, heat, slot or card.",
        f"{_LEAVE_OUT} Its administrators must reboot it, and check the GPU.",
        "gpu",
    ),
    Message(
        "xid-memory",
        "NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error",
        "NVIDIA: docs.nvidia.com/deploy/xid-errors; github.com/leptonai/gpud/pull/1174",
        r"NVRM: Xid \([^)]{0,60}\): (48|64|94|95|140|171|172),",
        "The memory of a GPU had an error that ECC could not correct.",
        f"{_LEAVE_OUT} Its administrators must reset the GPU, and replace it if that comes back.",
        "gpu",
    ),
    Message(
        "xid-nvlink",
        "NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14",
        "NVIDIA: docs.nvidia.com/deploy/xid-errors; Xid 74: NVSentinel: "
        "health-monitors/syslog-health-monitor/pkg/xid/parser/csv.go; Xid 149: github.com/leptonai/gpud/pull/1160, 1174",
        r"NVRM: Xid \([^)]{0,60}\): (74,|136,|1(44|45|46|47|48|49|50), .{0,200}\bFatal\b)",
        "A link between GPUs (NVLink) failed.",
        f"{_LEAVE_OUT} Its administrators must reset its GPUs and look at the link.",
        "gpu",
    ),
    Message(
        "xid-firmware",
        "NVRM: Xid (PCI:0004:01:00): 119, pid=430, name=nv_queue, Timeout waiting for RPC from GSP!",
        "NVIDIA: docs.nvidia.com/deploy/xid-errors; github.com/NVIDIA/open-gpu-kernel-modules/issues/446, 461",
        r"NVRM: Xid \([^)]{0,60}\): (62|119|120),",
        "A controller on a GPU stopped: with Xid 119 and 120 its system processor (GSP), with Xid 62 another one.",
        f"{_LEAVE_OUT} Its administrators must reset the GPU or reboot; a newer driver may have the fix.",
        "gpu",
    ),
    Message(
        "xid-reset-required",
        "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset "
        "Required)",
        "NVIDIA: docs.nvidia.com/deploy/xid-errors; github.com/NVIDIA/open-gpu-kernel-modules/issues/1134, 1146; "
        "gpud: components/accelerator/nvidia/xid/kmsg_test.go",
        r"NVRM: Xid \([^)]{0,60}\): (46|109|143|158),"
        r"|NVRM: Xid \([^)]{0,60}\): 154, GPU recovery action changed from .* to 0x[124] ",
        "A GPU stopped (Xid 46, 109, 143 and 158), or waits for the reset or reboot that Xid 154 names; a Xid before it "
        "tells why.",
        f"{_LEAVE_OUT} Its administrators must do what Xid 154 names; without one, reset the GPU.",
        "gpu",
    ),
    Message(
        "xid-program",
        "NVRM: Xid (PCI:0000:9a:00): 31, pid=477445, name=python3, channel 0x00000002, intr 00000000. MMU Fault: "
        "ENGINE GRAPHICS GPC0 UNRECOGNIZED_CLIENT faulted @ 0x182400_0030198d.",
        "NVIDIA: docs.nvidia.com/deploy/xid-errors; github.com/flashinfer-ai/flashinfer/issues/3869",
        r"NVRM: Xid \([^)]{0,60}\): (13|31|43),",
        "A program made a GPU stop, usually by a bug in one of its kernels: a wrong address or instruction.",
        f"{_BLOCKING} If other programs fail on this node, too, leave it out: sbatch --exclude=NODE generated.sh.",
    ),
    # CUDA's own errors, in PyTorch's words, NCCL's or others.
    Message(
        "cuda-ecc",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "CUDA: cudaErrorECCUncorrectable; github.com/vllm-project/vllm/issues/5222",
        r"uncorrectable ECC error encountered|CUDA_ERROR_ECC_UNCORRECTABLE",
        "The memory of a GPU had an error that ECC could not correct: a hardware fault.",
        f"{_LEAVE_OUT} Its administrators must reset the GPU, and replace it if that comes back.",
        "gpu",
    ),
    Message(
        "cuda-nvlink",
        "torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
        "CUDA: cudaErrorNvlinkUncorrectable; github.com/daydreamlive/scope/issues/749",
        r"Invalid access of peer GPU memory over nvlink|uncorrectable NVLink error detected",
        "A link between GPUs (NVLink) failed, or the GPU or process at its other end did.",
        f"{_LEAVE_OUT} `dmesg | grep Xid` on it tells which GPU it was.",
        "gpu",
    ),
    Message(
        "gpu-lost",
        "Unable to determine the device handle for GPU0000:17:00.0: Unknown Error",
        "nvidia-smi: github.com/NVIDIA/open-gpu-kernel-modules/issues/387; NVML: github.com/leptonai/gpud/issues/604, "
        "github.com/LSSI-ETH/plmfit/issues/40",
        r"Unable to determine the device handle for GPU|GPU is lost\b|NVMLError_GpuIsLost|ERROR_GPU_IS_LOST",
        "The driver has lost a GPU of the node.",
        f"{_LEAVE_OUT} Its administrators must reboot it, and check the GPU.",
        "gpu",
    ),
    Message(
        "gpu-busy",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "CUDA: cudaErrorDevicesUnavailable; github.com/modelscope/ms-swift/issues/3960, github.com/scitix/sichek/pull/121",
        r"CUDA-capable device\(s\) is/are busy or unavailable|all CUDA-capable devices are busy or unavailable",
        "A GPU in exclusive mode takes one process only, and another one has it: e.g. the inference engine beside the "
        "trainer, or a leftover. Or the GPU is in a bad state.",
        f"`nvidia-smi` on the node shows the mode (`Compute M.`) and the processes. {_LEAVE_OUT}",
        "gpu",
    ),
    Message(
        "gpu-none",
        "RuntimeError: No CUDA GPUs are available",
        "PyTorch: c10/cuda/CUDAFunctions.cpp; of ROCm: github.com/vllm-project/vllm/issues/34573; "
        "CUDA: cudaErrorNoDevice",
        r"RuntimeError: No (CUDA|HIP) GPUs are available|RuntimeError: Found no NVIDIA driver on your system"
        r"|CUDA [Ee]rror: no CUDA-capable device is detected"
        r"|Cuda failure (100 )?'no CUDA-capable device is detected'",
        "A process saw no GPU: usually a Ray task or actor without GPUs, or CUDA_VISIBLE_DEVICES that names none; "
        "else the container has none.",
        "Give the task or actor num_gpus, and leave CUDA_VISIBLE_DEVICES out of env. Without any GPU in Ray: ask "
        "for slurm.gpus_per_node.",
    ),
    Message(
        "gpu-number",
        "RuntimeError: CUDA error: invalid device ordinal",
        "CUDA: cudaErrorInvalidDevice; github.com/THUDM/slime/issues/10, 111",
        r"(CUDA|HIP|CUDA driver) [Ee]rror: invalid device ordinal|Cuda failure (101 )?'invalid device ordinal'"
        r"|device >= 0 && device < num_gpus INTERNAL ASSERT FAILED",
        "A process chose a GPU by a number that it does not have: it sees fewer GPUs (CUDA_VISIBLE_DEVICES, which "
        "Ray sets) than it counts on.",
        "Leave CUDA_VISIBLE_DEVICES out of env, and make the trainer's GPUs per node fit slurm.gpus_per_node.",
    ),
    Message(
        "driver-too-old",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11060). Please update your GPU",
        "PyTorch: c10/cuda/CUDAFunctions.cpp; CUDA: cudaErrorInsufficientDriver, cudaErrorCallRequiresNewerDriver, "
        "cudaErrorUnsupportedPtxVersion; github.com/haotian-liu/LLaVA/issues/1418",
        r"(RuntimeError|AssertionError): The NVIDIA driver on your system is too old"
        r"|CUDA driver version is insufficient for CUDA runtime version"
        r"|provided PTX was compiled with an unsupported toolchain"
        r"|API call is not supported in the installed CUDA driver",
        "The image needs a newer driver than the node has.",
        "Use an image for the CUDA version that `nvidia-smi` shows on the node, or nodes with a newer driver.",
        "node",
    ),
    Message(
        "driver-compat",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on "
        "non supported HW",
        "CUDA: cudaErrorCompatNotSupportedOnDevice, cudaErrorSystemDriverMismatch; "
        "github.com/gpustack/gpustack/issues/1254, 4678",
        r"forward compatibility was attempted on non supported|system has unsupported display driver",
        "The image brings a libcuda of its own (cuda-compat) that does not fit the node's driver or GPU.",
        "Leave the folder of cuda-compat out of LD_LIBRARY_PATH and /etc/ld.so.conf.d in the image, or use an image "
        "for the CUDA version that `nvidia-smi` shows on the node.",
        "node",
    ),
    Message(
        "fabric-manager",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized",
        "CUDA: cudaErrorSystemNotReady; github.com/pytorch/pytorch/issues/35710, "
        "github.com/NVIDIA/nccl-tests/issues/264",
        r"(Error 802: |CUDA error: |(Cuda|CUDA) failure .*'|error \(802\) : )system not yet initialized"
        r"|CUDA_ERROR_SYSTEM_NOT_READY",
        "The GPUs of a node with NVSwitch are not ready: its fabric manager does not run, or has another version "
        "than the driver.",
        f"{_LEAVE_OUT} Its administrators must start nvidia-fabricmanager, in the driver's version.",
        "node",
    ),
    Message(
        "driver-mismatch",
        "Failed to initialize NVML: Driver/library version mismatch",
        "nvidia-smi: github.com/mozilla/translations/issues/1167; nvidia-ml-py: pynvml.py",
        r"Failed to initialize NVML: Driver/library version mismatch|NVMLError_LibRmVersionMismatch",
        "The node's driver was updated, but its kernel still has the old one.",
        f"{_LEAVE_OUT} Its administrators must reboot it.",
        "node",
    ),
    Message(
        "nvml-unknown-error",
        "Failed to initialize NVML: Unknown Error",
        "nvidia-smi: github.com/NVIDIA/nvidia-docker/issues/1671",
        r"Failed to initialize NVML: Unknown Error",
        "The container has lost its GPUs, often because systemd was reloaded on the node; or a GPU is broken.",
        "Submit the job again. If it happens again on this node: sbatch --exclude=NODE generated.sh.",
        "node",
    ),
    Message(
        "driver-not-running",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest",
        "nvidia-smi: github.com/microsoft/WSL/issues/7716, github.com/NVIDIA/nvidia-docker/issues/988",
        r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
        "The NVIDIA driver does not run on the node.",
        f"{_LEAVE_OUT} Its administrators must load the driver (`modprobe nvidia`, `dmesg | grep NVRM`).",
        "node",
    ),
    Message(
        "nvml-missing",
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
        "nvidia-smi 550.163.01, run without its library; it exits with 12 and prints to standard output",
        r"NVIDIA-SMI couldn't find libnvidia-ml\.so library in your system",
        "nvidia-smi lacks the driver's library. In a container: it was started without its GPU hook. On the node: the "
        "driver's packages are being updated, or are not installed completely.",
        "`nvidia-smi` on the node shows which. If it works there, set container.accelerator: nvidia; otherwise its "
        "administrators must install the driver.",
        "node",
    ),
    Message(
        "amdgpu-not-loaded",
        "ERROR:root:Driver not initialized (amdgpu not found in modules)",
        "rocm-smi 6.1.2, run without the driver; it exits with 0",
        r"Driver not initialized \(amdgpu not found in modules\)",
        "The kernel of the node has not loaded AMD's driver. rocm-smi exits with 0 all the same.",
        f"{_LEAVE_OUT} Its administrators must load the driver (`modprobe amdgpu`).",
        "node",
    ),
    Message(
        "gpu-code-missing",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "CUDA: cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction; HIP: "
        "github.com/ROCm/legacy-rocm-build/issues/4728, 5264; before ROCm 6: hipamd/src/hip_code_object.cpp",
        r"no kernel image is available for execution on the device|(CUDA|HIP) error: invalid device function"
        r"|hipErrorNoBinaryForG[Pp][Uu]: ",
        "PyTorch or an extension in the image was not built for this type of GPU.",
        "Use an image that was built for it, or choose the type of the nodes' GPUs, e.g. slurm.gpus_per_node: h100:8.",
    ),
    Message(
        "cuda-assert",
        "RuntimeError: CUDA error: device-side assert triggered",
        "CUDA: cudaErrorAssert; github.com/huggingface/trl/issues/1995, 2996",
        r"(CUDA|HIP) error: device-side assert triggered",
        "A check in a GPU kernel failed: usually an index is out of range, e.g. a token that is not in the model's "
        "vocabulary, or a position that is too long; in sampling, a probability is NaN.",
        "The line with `Assertion` before it names the check: compare the tokenizer with the model, and the lengths "
        "with its maximum. With env.CUDA_LAUNCH_BLOCKING: 1 the traceback names the operation.",
    ),
    Message(
        "cuda-illegal-access",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "CUDA: cudaErrorIllegalAddress; github.com/verl-project/verl/issues/421, "
        "github.com/PeterGriffinJin/Search-R1/issues/61",
        r"an illegal memory access was encountered",
        "A GPU kernel used an address that is not its own: usually a bug in a kernel (attention, inference engine) or "
        "versions that do not fit; a broken GPU if it is always the same one.",
        f"{_BLOCKING} If it is always the same node, leave it out: sbatch --exclude=NODE generated.sh.",
    ),
    Message(
        "cuda-launch-failure",
        "[rank9]:[E113 11:43:02.241131296 ProcessGroupNCCL.cpp:1899] [PG ID 5 PG GUID 55(mesh_replicate) Rank 1] "
        "Process group watchdog thread terminated with exception: CUDA error: unspecified launch failure",
        "CUDA: cudaErrorLaunchFailure; github.com/hao-ai-lab/FastVideo/issues/1008, "
        "github.com/hiyouga/LlamaFactory/issues/8871",
        rf"{_ERROR}: unspecified launch failure|{_ERROR}: an illegal instruction was encountered"
        rf"|{_ERROR}: misaligned address",
        "A GPU kernel crashed: usually a bug in it, or an extension for another GPU or version; a broken GPU if it is "
        "always the same one.",
        f"{_BLOCKING} If it is always the same node, leave it out: sbatch --exclude=NODE generated.sh.",
    ),
    Message(
        "cuda-unknown-error",
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env "
        "variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
        "PyTorch: c10/cuda/CUDAFunctions.cpp; github.com/deepspeedai/DeepSpeed/issues/3403",
        r"RuntimeError: CUDA unknown error - |RuntimeError: CUDA driver initialization failed|CUDA error: unknown error",
        "CUDA does not work on the node: usually a GPU or the driver is in a bad state.",
        f"{_LEAVE_OUT} `dmesg | grep -e NVRM -e Xid` on it tells more.",
        "node",
    ),
    Message(
        "cuda-initialization-error",
        "RuntimeError: CUDA error: initialization error",
        "CUDA: cudaErrorInitializationError; github.com/pytorch/pytorch/issues/2517, 21092",
        r"CUDA error(?: \(3\))?: initialization error",
        "A process could not start CUDA: usually it was forked from one that uses CUDA, e.g. as a worker of a data "
        "loader that makes tensors on the GPU.",
        "Let data loaders make tensors on the CPU, or start processes with the method spawn. If no program can use "
        "CUDA on the node, leave it out: sbatch --exclude=NODE generated.sh.",
    ),
    Message(
        "gpu-uuid",
        "ValueError: invalid literal for int() with base 10: 'MIG-377e0049-554c-540b-93c6-d0976f8426cb'",
        "vLLM: vllm/platforms/interface.py; github.com/vllm-project/vllm/issues/13815, 41848, "
        "github.com/OpenRLHF/OpenRLHF/issues/402",
        r"invalid literal for int\(\) with base 10: '(MIG|GPU)-",
        "A program expects numbers in CUDA_VISIBLE_DEVICES, which has UUIDs of GPUs: always for parts of GPUs (MIG), "
        "else as env or the image sets it.",
        "Ask for whole GPUs, e.g. slurm.gpus_per_node: h100:8, and leave CUDA_VISIBLE_DEVICES out of env. Newer "
        "versions of the program may take UUIDs.",
    ),
    Message(
        "gpu-peer-access",
        "Cuda failure 217 'peer access is not supported between these two devices'",
        "CUDA: cudaErrorPeerAccessUnsupported; github.com/hiyouga/EasyR1/issues/579, "
        "github.com/sgl-project/sglang/issues/552, 4814",
        r"peer access is not supported between these two devices|peer mapping resources exhausted",
        "Two GPUs of a node cannot reach each other's memory, which NCCL or the inference engine counted on.",
        "Set env.NCCL_P2P_DISABLE: 1. In vLLM and SGLang switch their own all-reduce off: --disable-custom-all-reduce.",
    ),
    Message(
        "cuda-out-of-memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "PyTorch: c10/cuda/CUDACachingAllocator.cpp",
        r"(CUDA|HIP) out of memory(\. Tried to allocate|\.?$)",
        "A GPU had no memory left.",
        "Lower the micro batch size or the sequence length, give the inference engine a smaller share (verl: "
        "rollout.gpu_memory_utilization), or offload; more nodes help only if the model is sharded on them.",
    ),
    Message(
        "cuda-out-of-memory-driver",
        "torch.AcceleratorError: CUDA error: out of memory",
        "CUDA: cudaErrorMemoryAllocation; github.com/verl-project/verl/issues/302; NCCL: "
        "github.com/NVIDIA/nccl/issues/1235; cuBLAS: github.com/QwenLM/Qwen3/issues/873",
        r"Cuda failure (2 )?'out of memory'|CUBLAS_STATUS_ALLOC_FAILED"
        r"|(?<!graph failed: )(CUDA|HIP|CUDA driver) [Ee]rror: out of memory|Triton Error \[CUDA\]: out of memory",
        "A GPU had no memory left outside PyTorch's own: for the inference engine, NCCL or cuBLAS; another process "
        "may use the GPU, too.",
        "Give the inference engine a smaller share (verl: rollout.gpu_memory_utilization), or lower the micro batch "
        "size. `nvidia-smi` on the node shows other processes.",
    ),
    Message(
        "nvml-assert",
        'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":830, please '
        "report a bug to PyTorch.",
        "PyTorch: c10/cuda/CUDACachingAllocator.cpp; github.com/pytorch/pytorch/issues/112950, 122068, "
        "github.com/fal-ai/fal/pull/478",
        r"NVML_SUCCESS == .*INTERNAL ASSERT FAILED",
        "A GPU had no memory left, and PyTorch could not ask the driver (NVML) who uses it: e.g. with MIG, or as "
        "`nvidia-smi` fails, too.",
        "Lower the use of GPU memory as for `CUDA out of memory`. If `nvidia-smi` fails on the node, leave it out: "
        "sbatch --exclude=NODE generated.sh.",
    ),
    Message(
        "cublas-not-initialized",
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "PyTorch: aten/src/ATen/cuda/Exceptions.h; github.com/EleutherAI/lm-evaluation-harness/issues/1689",
        r"(CUDA error: CUBLAS|RuntimeError: cuDNN error: CUDNN)_STATUS_NOT_INITIALIZED",
        "cuBLAS or cuDNN could not start: usually the GPU had no memory left; else an index was out of range before, "
        "or the library does not fit the driver.",
        "Lower the use of GPU memory as for `CUDA out of memory`. If that does not help: env.CUDA_LAUNCH_BLOCKING: 1 "
        "makes the traceback name the operation.",
    ),
    Message(
        "cublas-failed",
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n,",
        "PyTorch: aten/src/ATen/cuda/Exceptions.h; github.com/deepspeedai/DeepSpeed/issues/294",
        r"(CUDA error: CUBLAS|RuntimeError: cuDNN error: CUDNN)_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)",
        "A kernel of cuBLAS or cuDNN failed: usually a library that does not fit the driver or GPU, or an earlier "
        "error in another kernel; a broken GPU if it is always the same one.",
        f"{_BLOCKING} If it is always the same node, leave it out: sbatch --exclude=NODE generated.sh.",
    ),
    # ROCm
    Message(
        "rocm-memory-fault",
        "Memory access fault by GPU node-1 (Agent handle: 0x5de975b3cc80) on address 0x799bfc063000. Reason: Page not "
        "present or supervisor privilege.",
        "ROCm: ROCR-Runtime; github.com/ROCm/legacy-rocm-build/issues/4021, 4554",
        r"Memory access fault by GPU node-",
        "A GPU kernel used an address that is not its own: usually a bug in a kernel, or versions that do not fit; a "
        "broken GPU if it is always the same one.",
        "Run it again with env.AMD_SERIALIZE_KERNEL: 3, which runs one kernel at a time. If it is always the same "
        "node, leave it out: sbatch --exclude=NODE generated.sh.",
    ),
    Message(
        "rocm-hang",
        "HW Exception by GPU node-9 (Agent handle: 0x631351bb5a20) reason :GPU Hang",
        "ROCm: ROCR-Runtime; github.com/ROCm/legacy-rocm-build/issues/4021, 5259",
        r"HW Exception by GPU node-",
        "A GPU hung: a bug in a kernel or the driver, or a broken GPU.",
        "`dmesg | grep amdgpu` on the node tells more. If it is always the same node, leave it out: sbatch "
        "--exclude=NODE generated.sh.",
    ),
    Message(
        "rocm-exception",
        ":0:rocdevice.cpp            :3588: 1945659664 us:  Callback: Queue 0x77791ea00000 aborting with error : "
        "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016",
        "ROCm: clr/rocclr/device/rocm/rocdevice.cpp; github.com/vllm-project/vllm/issues/20007, "
        "github.com/ROCm/legacy-rocm-build/issues/5025, github.com/ROCm/vllm/issues/527",
        r"HSA_STATUS_ERROR_(EXCEPTION|MEMORY_APERTURE_VIOLATION|ILLEGAL_INSTRUCTION)",
        "A GPU kernel crashed: a check in it failed (a line before it then has `assertion`), or it is for another GPU "
        "or version.",
        "Run it again with env.AMD_SERIALIZE_KERNEL: 3, which runs one kernel at a time. If it is always the same "
        "node, leave it out: sbatch --exclude=NODE generated.sh.",
    ),
    Message(
        "rocm-out-of-resources",
        ":0:rocdevice.cpp            :2652: 4238358292712 us: 48946: [tid:0x7fffd023f700] Device::callbackQueue "
        "aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary "
        "resources.",
        "ROCm: clr/rocclr/device/rocm/rocdevice.cpp; github.com/StanfordLegion/legion/issues/1339",
        r"HSA_STATUS_ERROR_OUT_OF_RESOURCES",
        "ROCm had nothing left of something it needs: usually memory of the GPU, else threads or locked memory.",
        "Lower the use of GPU memory, e.g. the inference engine's share. Then compare `ulimit -u` and `ulimit -l` in "
        "the container with the node's; container.ulimits raises them.",
    ),
)
