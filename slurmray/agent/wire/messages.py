"""Types of the messages. docs/inside/wire.md has the tables that are printed from this file.

Only type checkers read it: no script has it. What the controller accepts from nodes while a job
runs is in controller/protocol.py.
"""

TYPE_CHECKING = False  # see settings.py
if TYPE_CHECKING:  # novermin: no Python of a node reads this
    from typing import Dict, List, Tuple, Union

    from typing_extensions import Literal, NotRequired, TypedDict

    from .settings import Job, Settings

    class Use(TypedDict):
        """A sample of a node, in short. GPUs are numbered from 0, in the order of the job's GPUs there."""

        gpu: NotRequired[int]  # mean utilization of its GPUs, %
        lowest: NotRequired[int]  # the lowest of them, %
        idlest: NotRequired[int]  # the GPU that has it
        gpu_memory: NotRequired[int]  # mean use of the GPUs' memory, %
        power: NotRequired[int]  # mean of the GPUs, W
        gpus: NotRequired[int]  # how many have samples
        idle_gpus: NotRequired[int]  # how many of these do nothing
        waiting_gpus: NotRequired[int]  # how many are busy at low power, e.g. NCCL waits for other ranks
        slowed: NotRequired[int]  # a GPU whose hardware has lowered its clock
        cores: NotRequired[float]  # CPUs that the job uses
        memory: NotRequired[int]  # of the job, MiB
        shm: NotRequired[int]  # used of /dev/shm, MiB
        error: NotRequired[str]  # why the GPUs cannot be read
        other: NotRequired[str]  # a process that holds memory of a GPU and is not the job's

    # -- up: from node agents and container processes to the controller; each also has its `node` ---------

    class Started(TypedDict):
        """The node's task has become the node agent."""

        type: Literal["started"]
        step: str  # number of the step, for scancel

    class NodeHeartbeat(TypedDict):
        """Every 2.5 s, or ten within a shorter heartbeat timeout."""

        type: Literal["heartbeat"]
        doing: str  # what takes long at the moment, e.g. `pull`
        field: NotRequired[str]  # `setup` or `node_env` while it runs
        use: NotRequired[Use]  # after a new sample

    class Phase(TypedDict):
        """Progress, for the log."""

        type: Literal["phase"]
        phase: str  # as in the event `phase`
        text: str

    class Finding(TypedDict):
        """A row of the table of findings."""

        type: Literal["finding"]
        kind: str  # a name in `agent/job_errors.py`, or `warn`
        check: str
        found: str
        wanted: str
        fix: str
        worker: NotRequired[str]  # that does not match the head node: no connection, or other versions

    class LeftoverJobs(TypedDict):
        """With pyxis, where nodes have no Slurm commands: jobs whose leftovers are on this node."""

        type: Literal["leftover_jobs"]
        jobs: List[str]

    class Unfit(TypedDict):
        """This node has sent all its findings, and one of them ends the job."""

        type: Literal["unfit"]

    class Checked(TypedDict):
        """The checks outside the container are done."""

        type: Literal["checked"]
        addresses: List[str]
        proxy: bool  # whether a proxy is set
        folder: str  # the job's folder
        gpus: NotRequired[int]  # NVIDIA GPUs that the node can be asked about

    class Versions(TypedDict):
        """The head node is in the GCS."""

        type: Literal["versions"]
        text: str  # Ray and Python

    class ReachableAt(TypedDict):
        """Where the head node is to connect to this worker."""

        type: Literal["reachable_at"]
        address: str
        ports: List[int]  # a leased one, and an ephemeral one unless `ray.args` choose those of Ray's workers

    class HeadJoined(TypedDict):
        """The head node is in the GCS: workers may join."""

        type: Literal["join"]
        address: str  # of the GCS, with its port

    class Joined(TypedDict):
        """Nodes that are in Ray."""

        type: Literal["joined"]
        nodes: List[str]
        gpus: int  # of each

    class ClusterReady(TypedDict):
        """The readiness probe has all nodes and GPUs."""

        type: Literal["ready"]
        burn_in_port: NotRequired[int]  # of PyTorch's store on the head node

    class BurnIn(TypedDict):
        """The figures of a node's GPUs; -1: could not be measured, 0: there are no others to measure with."""

        type: Literal["burn_in"]
        kind: str  # name of its GPUs, or `CPU`
        products: List[float]  # TFLOP/s of each GPU
        copies: List[float]  # bandwidth of each GPU's memory, GB/s
        within: float  # bandwidth of an all-reduce within the node, GB/s
        pairs: float  # likewise with another node, the best of two
        all: float  # likewise over all of more than two nodes
        problems: List[List[str]]  # measurement, and error

    class NodeStageDone(TypedDict):
        """This node is done with a stage."""

        type: Literal["stage_done"]
        stage: str

    class Prepared(TypedDict):
        """A prepare step that is not repeated after a requeue."""

        type: Literal["prepared"]
        name: str

    class TrainerWaits(TypedDict):
        """The trainer starts when its output is read."""

        type: Literal["trainer"]
        command: str

    class Attach(TypedDict):
        """How to run a command in the container from outside: for the log, and for `slurmray attach`."""

        type: Literal["attach"]
        command: List[str]  # an example
        runtime: str
        folder: str  # the job's folder
        unset: List[str]  # names of variables

    class Dashboard(TypedDict):
        """A process of the job listens there."""

        type: Literal["dashboard"]
        address: str
        port: int

    class Unplaceable(TypedDict):
        """No node could hold a demand of Ray for a minute, even an empty one."""

        type: Literal["unplaceable"]
        text: str  # what is asked for, and what there is
        fix: str
        ended: bool  # this is over

    class NotReady(TypedDict):
        """A node is not ready when the time is up."""

        type: Literal["not_ready"]
        missing: str  # its name
        why: str

    class Exit(TypedDict):
        """The trainer has ended."""

        type: Literal["exit"]
        code: int

    class Healthy(TypedDict):
        """Ray runs here: the answer to `check_health`."""

        type: Literal["healthy"]

    class Gpus(TypedDict):
        """The node agent's answer to `check_health` where there are GPUs."""

        type: Literal["gpus"]
        lost: str  # those that nvidia-smi no longer lists, with its error message; "" for none

    class Stacks(TypedDict):
        """In which functions processes of a stalled trainer are, on this node."""

        type: Literal["stacks"]
        number: int  # of the stall
        rows: List[List[str]]  # process, and function with file and line
        is_complete: bool  # no more follow

    class Failed(TypedDict):
        """The job cannot go on."""

        type: Literal["failed"]
        kind: str  # a name in `agent/job_errors.py`
        message: str
        log: NotRequired[str]  # which log shows why, if not the node's

    class NodeSignal(TypedDict):
        """Slurm sent the head node's task a signal for the trainer."""

        type: Literal["signal"]
        name: str  # e.g. `USR1`

    class StopRequested(TypedDict):
        """Slurm sent SIGTERM to the task: a preemption with GraceTime signals only the steps."""

        type: Literal["stop_requested"]

    class Signalled(TypedDict):
        """The container process got SIGTERM. If Slurm does not end the job, somebody else stopped it."""

        type: Literal["signalled"]

    class TetherLost(TypedDict):
        """The container's input ended unexpectedly: its task was killed."""

        type: Literal["tether_lost"]

    class ThreadError(TypedDict):
        """An error in a thread of this node, which goes on."""

        type: Literal["thread_error"]
        text: str  # of background_io.Errors

    class Gone(TypedDict):
        """The node has cleaned up."""

        type: Literal["gone"]

    # -- down: from the controller to all nodes -----------------------------------------------------------

    class StartOfJob(TypedDict):
        """The first message."""

        type: Literal["job"]
        job: Job  # this attempt: nodes, token, mark, run directory, the submitter's values for `env`

    class Heartbeat(TypedDict):
        """Every 2.5 s, or ten within a shorter heartbeat timeout."""

        type: Literal["heartbeat"]

    class StartRay(TypedDict):
        """All nodes are checked."""

        type: Literal["start_ray"]
        peers: List[str]  # their addresses, but only where a proxy is set

    class HeadVersions(TypedDict):
        """Workers compare theirs with them."""

        type: Literal["head_versions"]
        text: str  # Ray and Python on the head node

    class CheckReachable(TypedDict):
        """Workers that the head node is to connect to, many in one message."""

        type: Literal["check_reachable"]
        targets: List[Tuple[str, str, List[int]]]  # name, address, ports

    class Join(TypedDict):
        """Workers join Ray: the head node is in the GCS."""

        type: Literal["join"]
        address: str  # of the GCS, with its port

    class Ready(TypedDict):
        """All nodes and GPUs are in Ray."""

        type: Literal["ready"]
        burn_in_port: NotRequired[int]  # of PyTorch's store on the head node

    class Replace(TypedDict):
        """A spare node joins Ray in place of a lost one, while the trainer runs."""

        type: Literal["replace"]
        node: str
        lost: str
        address: str  # of the GCS, with its port

    class EndedJobs(TypedDict):
        """The answer to `leftover_jobs`."""

        type: Literal["ended_jobs"]
        node: str  # for which it is
        jobs: List[str]  # those that have ended

    class StageDone(TypedDict):
        """All nodes are done with a stage."""

        type: Literal["stage_done"]
        stage: str

    class CheckHealth(TypedDict):
        """The trainer has failed: does Ray run on this node, and has it its GPUs?"""

        type: Literal["check_health"]

    class Succeeded(TypedDict):
        """The trainer exited with 0: Ray's logs need not be kept."""

        type: Literal["succeeded"]

    class Signal(TypedDict):
        """A signal for the trainer."""

        type: Literal["signal"]
        name: str  # e.g. `USR1`

    class Stop(TypedDict):
        """The trainer gets the stop signal."""

        type: Literal["stop"]
        seconds: float  # until SIGKILL

    class StopAtLimit(TypedDict):
        """The trainer gets the warning signal: the time limit is near."""

        type: Literal["stop_at_limit"]
        seconds: float  # until SIGKILL

    class EndTime(TypedDict):
        """When Slurm ends the job, which `scontrol update` may have changed; every 2 minutes."""

        type: Literal["end_time"]
        end_time: int  # as in Job

    class CollectEvidence(TypedDict):
        """The trainer is stalled: the nodes write what they can find out into the run directory."""

        type: Literal["collect_evidence"]
        number: int  # of the stall, from 1

    class StopBeforeRestart(TypedDict):
        """The trainer gets the warning signal: a node was lost, or it is stalled."""

        type: Literal["stop_before_restart"]
        seconds: float  # until SIGKILL

    # -- in: from a node agent to its container process, beside those that it passes on ------------------

    class ScriptSettings(TypedDict):
        """The first message."""

        type: Literal["settings"]
        settings: Settings

    class Node(TypedDict):
        """Facts about this node."""

        type: Literal["node"]
        rank: int  # index in job["nodes"], and after these in job["spares"]; 0 is the head node
        user: str  # name of the submitter
        umask: int
        memory: int  # MiB of the job on this node; 0: unknown
        addresses: List[str]  # of the node's name, in the resolver's order
        labels: Dict[str, str]  # of the node in Ray
        runtime: str
        unset: List[str]  # names of variables to remove in order to attach from outside
        gpu_masks: Dict[str, str]
        env_file: Dict[str, str]  # variables from the job spec's `env_file`
        node_env: Dict[str, str]  # variables from the job spec's `node_env`
        workdir: str

    class ServiceEnded(TypedDict):
        """A service outside the container has ended."""

        type: Literal["service_ended"]
        name: str
        code: int

    ToController = Union[
        Started,
        NodeHeartbeat,
        Phase,
        Finding,
        LeftoverJobs,
        Unfit,
        Checked,
        Versions,
        ReachableAt,
        HeadJoined,
        Joined,
        ClusterReady,
        BurnIn,
        NodeStageDone,
        Prepared,
        TrainerWaits,
        Attach,
        Dashboard,
        Unplaceable,
        NotReady,
        Exit,
        Healthy,
        Gpus,
        Stacks,
        Failed,
        NodeSignal,
        StopRequested,
        Signalled,
        TetherLost,
        ThreadError,
        Gone,
    ]
    ToNodes = Union[
        StartOfJob,
        Heartbeat,
        StartRay,
        HeadVersions,
        CheckReachable,
        Join,
        Ready,
        Replace,
        EndedJobs,
        StageDone,
        CheckHealth,
        Succeeded,
        Signal,
        Stop,
        StopAtLimit,
        StopBeforeRestart,
        EndTime,
        CollectEvidence,
    ]
    ToContainer = Union[ToNodes, ScriptSettings, Node, ServiceEnded]
