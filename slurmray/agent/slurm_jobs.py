"""Which jobs Slurm still runs. Used where Slurm's commands are: on nodes, or by the controller for them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, List, Optional, Set

    from .commands import Result


def active_jobs(jobs: "Iterable[str]", run: "Callable[[List[str]], Result]") -> "Optional[Set[str]]":
    """Jobs that may use a node, by one request to slurmctld; None if it does not answer."""
    ids = sorted(jobs, key=int)
    argv = ["squeue", "--all", "--noheader", "--jobs=" + ",".join(ids), "--format=%A %t"]
    found = run(argv)
    if found.code == 0:
        lines: "List[List[str]]" = [line.split() for line in found.out.splitlines()]
        # PD: requeued, so its last attempt has ended.
        return {line[0] for line in lines if line and line[1:] != ["PD"]}
    if "Invalid job id specified" not in found.err:
        return None
    if len(ids) == 1:
        return set()
    # squeue does not name the invalid id, and some versions fail because of one of several. So ask for each.
    active: "Set[str]" = set()
    for job in ids[:20]:
        answer = active_jobs([job], run)
        if answer is None:
            return None
        active |= answer
    return active | set(ids[20:])
