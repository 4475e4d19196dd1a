"""The side effects of the controller. Only type checkers read it: no script has it."""

TYPE_CHECKING = False  # see wire/settings.py
if TYPE_CHECKING:
    from typing import Any, Dict, List, Protocol  # novermin

    from ..wire import messages

    class Actions(Protocol):
        """Side effects of the controller. JobRun implements them; tests simulate them."""

        def send(self, message: messages.ToNodes) -> None:
            """Send a message to all nodes."""

        def find_ended_jobs(self, node: str, jobs: List[str]) -> None:
            """Send a node those of these jobs that have ended. For nodes without Slurm's commands."""

        def find_answers(self, addresses: Dict[str, List[str]]) -> None:
            """Find out which hosts answer to a new connection, or SLURMCTLD: see Losses.on_answer.

            addresses: of each node; none where they are not known.
            """

        def find_connections(self) -> None:
            """Find out to which addresses srun has connections: see Losses.on_connections."""

        def find_node_records(self, nodes: List[str]) -> None:
            """Ask slurmctld for its records of nodes, by one request: see Losses.on_node_records."""

        def start_services(self, folder: str) -> None:
            """Start services that are steps of their own: with pyxis, those with an image of their own.

            folder: the job's folder on the nodes.
            """

        def read_trainer_output(self, folder: str) -> None:
            """Copy the trainer's output to the job's log. The trainer starts once its output is read.

            folder: the job's folder on the head node.
            """

        def write_heartbeat_file(self) -> None:
            """Write a heartbeat into the run directory, for nodes that get no messages any more."""

        def write_usage(self, nodes: Dict[str, Dict[str, Any]]) -> None:
            """Write what the nodes use into the run directory."""

        def mark_done(self, name: str) -> None:
            """Note in the run directory that a prepare step need not be repeated after a requeue."""
