"""What srun prints about the nodes of a step: which are lost, and where a signal has ended the task.

srun also prints the standard error of its tasks, so a line may be of another program.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

MARKED_DOWN = "Slurm has marked it down. Has it lost power or its network?"
# A message, what it means, and whether srun then ends all tasks of the step: Slurm's src/api/step_launch.c.
# An io error is a connection that was reset, and has the node's place in the step.
LOSSES = (
    (
        r"srun: error: .*[Aa]borting, io error .*on node (?P<place>[0-9]{1,6})$",
        "its host closed the connection to srun. Has it rebooted?",
        True,
    ),
    (
        # Revoked: the job was cancelled meanwhile (_rpc_launch_tasks() of slurmd).
        r"srun: error: Task launch for \S+ failed on node (?P<name>\S+): (?!Job credential revoked)",
        "Slurm could not start its task. Has it lost power or its network?",
        True,
    ),
    (
        r"srun: error: Node failure on (?P<name>\S+)$",
        MARKED_DOWN,
        False,
    ),
)
# Likewise, about tasks that a signal has ended: src/srun/launch.c. The number of a task is its node's place.
TASKS_KILLED = r"srun: error: \S+: tasks? ([0-9,-]+): (?!Exited with )"


def lost_node(line: str, nodes: "List[str]") -> "Optional[Tuple[str, str, bool]]":
    """The node that this line calls lost, what has happened, and whether srun then ends the step.

    nodes: of the step, in its order.
    """
    for pattern, text, is_step_over in LOSSES:
        found = re.match(pattern, line)
        if found:
            groups = found.groupdict()
            named = [groups["name"]] if "name" in groups else nodes[int(groups["place"]) :][:1]
            return (named[0], text, is_step_over) if named and named[0] in nodes else None
    return None


def nodes_of_killed_tasks(line: str, nodes: "List[str]") -> "List[str]":
    """The nodes whose tasks were ended by a signal. nodes: of the step, in its order."""
    found = re.match(TASKS_KILLED, line)
    places = re.findall("([0-9]{1,6})-?([0-9]{0,6})", found.group(1)) if found else []
    return [node for first, last in places for node in nodes[int(first) : int(last or first) + 1]]
