"""The nodes' latest samples in Prometheus' text format.

prometheus.io/docs/instrumenting/exposition_formats
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from ..wire.settings import Job

# Field of wire/messages.Use -> name of the metric, unit, what it is.
METRICS = {
    "gpu": ("slurmray_gpu_utilization_percent", "mean utilization of the node's GPUs"),
    "lowest": ("slurmray_gpu_utilization_lowest_percent", "utilization of the least used GPU of the node"),
    "gpu_memory": ("slurmray_gpu_memory_used_percent", "mean use of the GPUs' memory"),
    "power": ("slurmray_gpu_power_watts", "mean power of the node's GPUs"),
    "cores": ("slurmray_cpu_cores_busy", "CPUs that the job uses on the node"),
    "memory": ("slurmray_memory_used_mebibytes", "memory of the job on the node"),
    "shm": ("slurmray_shm_used_mebibytes", "used of the node's /dev/shm"),
    "age": ("slurmray_sample_age_seconds", "how old the node's sample was when this was written"),
}


def as_text(nodes: "Dict[str, Dict[str, Any]]", job: "Job") -> str:
    """The metrics of a job. nodes: as of Usage.as_dict."""
    lines = []
    for field, (name, text) in METRICS.items():
        rows = [(node, use[field]) for node, use in nodes.items() if field in use]
        if rows:
            lines += ["# HELP %s %s" % (name, text), "# TYPE %s gauge" % name]
        for node, value in rows:
            labels = (("job", job["id"]), ("name", job["name"]), ("node", node))
            shown = ",".join('%s="%s"' % (label, _escape(value)) for label, value in labels)
            lines.append("%s{%s} %s" % (name, shown, value))
    return "".join(line + "\n" for line in lines)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
