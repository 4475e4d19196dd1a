"""PyTorch and the trainers: data loaders, process groups, checkpoints, compilation."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "gpus-fewer-than-wanted",
        "ValueError: Total available GPUs 8.0 is less than total desired GPUs 16",
        "verl: verl/trainer/ppo/ray_trainer.py",
        r"Total available GPUs \S+ is less than total desired GPUs \S+",
        "The trainer wants more GPUs than Ray has.",
        "Make trainer.nnodes x trainer.n_gpus_per_node fit the job, or leave both to preset: verl.",
    ),
    Message(
        "dataloader-bus-error",
        "RuntimeError: DataLoader worker (pid 4301) is killed by signal: Bus error.",
        "PyTorch: torch/utils/data/_utils/signal_handling.py",
        r"DataLoader worker \(pid .*\) is killed by signal: Bus error",
        "The shared memory (/dev/shm) was full: PyTorch's data loaders keep batches there.",
        "Raise container.shm_size, or use fewer or no workers in the data loader.",
    ),
)
