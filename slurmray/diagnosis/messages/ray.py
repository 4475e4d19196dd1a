"""Ray: actors, resources, the object store, the GCS."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "ray-no-node-fits",
        "No available node types can fulfill resource requests {'GPU': 9.0}*1.",
        "Ray: ray/autoscaler/v2/event_logger.py",
        r"No available node types can fulfill",
        "A task or placement group asks for resources that no node offers to Ray, and waits for ever.",
        "Compare the request in that line with the nodes: GPUs, CPUs and custom resources of each.",
    ),
    Message(
        "ray-memory-monitor",
        "1 worker(s) were killed due to the node running low on memory.",
        "Ray: raylet",
        r"killed due to the node running low on memory",
        "Ray killed a task because its node had nearly no memory left.",
        "Raise slurm.mem, run fewer tasks at a time, or let each use less.",
    ),
    Message(
        "ray-object-store-full",
        "The local object store is full of objects that are still in scope and cannot be evicted.",
        "Ray: ray/exceptions.py",
        r"local object store is full of objects that are still in scope",
        "Ray's object store is full of objects that the trainer still refers to.",
        "Raise container.shm_size and slurm.mem, or pass smaller batches; `ray memory` lists the objects.",
    ),
)
