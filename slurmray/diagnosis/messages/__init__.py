"""Messages that `slurmray why` looks for in a job's logs, by family."""

from slurmray.diagnosis.messages import (
    configuration,
    containers,
    gpu,
    hub,
    inference,
    network,
    pytorch,
    ray,
    slurm,
    system,
)

FAMILIES = {
    "gpu": gpu.MESSAGES,
    "network": network.MESSAGES,
    "ray": ray.MESSAGES,
    "inference": inference.MESSAGES,
    "pytorch": pytorch.MESSAGES,
    "hub": hub.MESSAGES,
    "configuration": configuration.MESSAGES,
    "system": system.MESSAGES,
    "containers": containers.MESSAGES,
    "slurm": slurm.MESSAGES,
}
MESSAGES = tuple(message for messages in FAMILIES.values() for message in messages)
