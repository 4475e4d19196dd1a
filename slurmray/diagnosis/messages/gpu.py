"""CUDA, ROCm and the driver: what a GPU, or the memory of one, leads to."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "cuda-out-of-memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "PyTorch: c10/cuda/CUDACachingAllocator.cpp",
        r"(CUDA|HIP) out of memory\. Tried to allocate",
        "A GPU had no memory left.",
        "Lower the micro batch size or the sequence length, give the inference engine a smaller share (verl: "
        "rollout.gpu_memory_utilization), or offload; more nodes help only if the model is sharded on them.",
    ),
)
