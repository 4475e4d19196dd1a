"""The shape of a script's settings: one job, as JSON, written when rendering and read by every process of the
agent.
"""

TYPE_CHECKING = False  # `import typing` costs each process milliseconds, and 3.6 has no TypedDict
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from typing_extensions import TypedDict

    class Requeue(TypedDict):
        """The job spec's `requeue`."""

        max: int  # restarts after a lost node or preemption
        exit_code: int  # of a trainer that asks for another attempt; 0: none

    class Stop(TypedDict):
        """The job spec's `stop`."""

        lead: int  # seconds before the time limit; 0: no warning
        grace: int  # seconds between stop signal and SIGKILL
        signal: str  # "TERM"
        cancel_signal: str  # after scancel

    class Mount(TypedDict):
        """A bind mount."""

        source: str
        destination: str  # "": the source's path
        options: List[str]  # "ro", or a mode of bind propagation

    class Build(TypedDict):
        """The job spec's `container.build`."""

        file: str
        context: str

    class Container(TypedDict):
        """The job spec's `container`, and what was decided about it."""

        runtimes: List[str]  # the first one that works on a node is used there
        accelerators: List[str]  # "nvidia", "amd"; empty: no devices
        image: str  # "": no container
        image_with_registry: str
        source: str  # what Apptainer builds `image` from; "": the image is a file or folder
        pull: str  # "missing", "always", "never"
        build: Optional[Build]
        archive: str  # "": none
        user: str  # "auto", "image", or UID:GID
        mounts: List[Mount]
        args: List[str]  # more options for the runtime, --user and --ulimit included
        workdir: str  # "": the submit folder
        shm_size: str  # "": as large as the node's /dev/shm

    class Checks(TypedDict):
        """The job spec's `checks`."""

        paths: List[str]
        same_commit: str  # "": not checked
        bf16: bool  # whether NVIDIA GPUs must have bfloat16

    class RayOptions(TypedDict):
        """The job spec's `ray`."""

        gpus: int  # on each node, without those of services
        port: str  # "auto" or a number
        dashboard_port: str
        auth: str  # "auto", "token", "none"
        metrics: bool
        debug: str  # "none", "legacy", "post-mortem"
        start: str  # "fast" or "plain"
        args: List[str]
        head_args: List[str]
        worker_args: List[str]

    class Network(TypedDict):
        """The job spec's `network`."""

        interface: str  # "": chosen
        family: str  # "auto", "ipv4", "ipv6"

    class Trainer(TypedDict):
        """The trainer's command and how it is launched."""

        launch: str  # "exec" or "ray-job"
        command: List[str]  # empty: the built-in check
        resume: List[str]  # arguments that are added in later attempts
        runtime_env: Any  # mapping, path of a YAML file, or None

    class Timeouts(TypedDict):
        """Seconds."""

        ready: int  # seconds until the cluster must be ready
        heartbeat: int  # seconds without a sign of life until a node is lost

    class Settings(TypedDict):
        """All of a script's settings."""

        version: str  # of slurmray
        render_again: str  # the command that renders this script; options can be added to its end
        nodes: int
        gpus_per_node: int
        cpus_per_node: int  # 0: what Slurm gives
        run_dir: str
        temp_dir: str
        setup: str
        preflight: str  # "fail", "warn", "none"
        on_node_loss: str  # "fail", "continue"
        requeue: Requeue
        stop: Stop
        timeouts: Timeouts
        container: Container
        checks: Checks
        ray: RayOptions
        network: Network
        env: Dict[str, str]
        env_from_submitter: List[str]  # names
        node_env: Dict[str, str]  # variable -> fact: "rank", "nodes", "head", "ray_port", "interface"
        prepare: List[Dict[str, Any]]  # items as in the job spec, `run` as argv
        services: List[Dict[str, Any]]
        trainer: Trainer

    class Job(TypedDict):
        """What the controller tells every node about this attempt: the message `job`."""

        id: str  # Slurm's job id
        name_for_commands: str  # the same, or ARRAY_TASK
        attempt: int  # 0 is the first
        chances: int  # restarts that are left
        nodes: List[str]  # the head node first
        cpus: int  # of each node
        grace: int  # seconds
        run_dir: str  # absolute, of this attempt
        log_file: str  # the job's output file
        mark: str  # random, of this attempt: in the run directory and on its containers
        token: str  # for Ray
        started: float  # time.time() when the batch script began
        env: Dict[str, str]  # values of `env_from_submitter`
        done_before: List[str]  # prepare steps that are not repeated
        commit: str  # of checks.same_commit on the head node
