"""Types of the settings in a script, which slurmray renders as JSON, and of the message `job`.

Only type checkers read it: no script has it.
"""

TYPE_CHECKING = False  # `import typing` costs each process milliseconds, and 3.6 has no TypedDict
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from typing_extensions import NotRequired, TypedDict

    class Requeue(TypedDict):
        """The job spec's `requeue`."""

        max: int  # attempts after a lost node, a finding of some nodes or preemption
        exit_code: int  # with which a trainer requests another attempt; 0: none

    class Restart(TypedDict):
        """The job spec's `restart`."""

        max: int  # restarts of the trainer in this allocation
        window: int  # seconds after a restart in which the same failure ends the job
        exit_codes: List[int]  # with which the trainer requests a restart
        grace: int  # seconds between stop signal and SIGKILL

    class Stop(TypedDict):
        """The job spec's `stop`."""

        lead: int  # seconds before the time limit; 0: no warning
        grace: int  # seconds between stop signal and SIGKILL
        signal: str  # "TERM"
        cancel_signal: str  # after scancel

    class Notify(TypedDict):
        """The job spec's `notify`."""

        variable: str  # of the submitter; it has the webhook's URL
        on: List[str]  # "start", "stall", "loss", "end"

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
        """The job spec's `container`, resolved as far as is possible without a node."""

        runtimes: List[str]  # a node uses the first one that works there
        accelerators: List[str]  # "nvidia", "amd"; empty: no devices
        command: str  # "": the runtime's own name
        image: str  # "": no container
        image_with_registry: str
        source: str  # from which Apptainer builds `image`; "": the image is a file or folder
        pull: str  # "missing", "always", "never"
        stage: str  # "node", "shared"
        build: Optional[Build]
        archive: str  # "": none
        user: str  # "auto", "image", or UID:GID
        mounts: List[Mount]
        args: List[str]  # further options for the runtime, including --user and --ulimit
        step_args: List[str]  # further options for the srun of the step
        workdir: str  # "": the submit folder
        python: str  # that has Ray: a path, or a name to look up in PATH
        setup: str  # bash, in the container before Ray starts
        setup_timeout: int  # seconds
        shm_size: str  # "": as large as the node's /dev/shm

    class Checks(TypedDict):
        """The job spec's `checks`."""

        paths: List[str]
        same_commit: str  # "": not checked
        bf16: bool  # whether NVIDIA GPUs must have bfloat16
        burn_in: int  # seconds in which GPUs are measured; 0: none

    class Head(TypedDict):
        """The job spec's `ray.head`: what the head node offers to Ray."""

        gpus: int
        cpus: Optional[int]  # None: as many as the job has on the node
        memory: Optional[int]  # bytes; None: the job's without the object store

    class RayOptions(TypedDict):
        """The job spec's `ray`."""

        nodes: int  # the first ones of the job; the others are for services alone
        gpus: int  # on each node with GPUs, not counting those of services; see also `head`
        head: Head
        port: str  # "auto" or a number
        dashboard_port: str
        auth: str  # "auto", "token", "none"
        metrics: bool
        keep_logs: str  # "on_failure", "always", "never"
        debug: str  # "none", "legacy", "post-mortem"
        start: str  # "fast" or "standard"
        args: List[str]
        head_args: List[str]
        worker_args: List[str]

    class Network(TypedDict):
        """The job spec's `network`."""

        interface: str  # "": chosen
        subnet: str  # "10.3.0.0/16"; "": any
        family: str  # "auto", "ipv4", "ipv6"

    class Trainer(TypedDict):
        """The trainer's command and how it is launched."""

        nnodes: int  # nodes that offer all their GPUs to Ray, or all without GPUs
        launch: str  # "exec" or "ray-job"
        command: List[str]  # empty: the built-in check
        resume: List[str]  # arguments added in later attempts
        runtime_env: Any  # mapping, path of a YAML file, or None

    class Timeouts(TypedDict):
        """Seconds."""

        ready: int  # seconds until the cluster must be ready
        heartbeat: int  # heartbeat timeout: seconds without a message until a node counts as lost

    class Watch(TypedDict):
        """The job spec's `watch`."""

        interval: int  # seconds between two samples of a node; 0: none
        stall: int  # seconds without a sign of work after which the trainer is stalled; 0: never
        action: str  # "report", "restart", "end"
        progress: str  # a file that the trainer changes; "": none

    class Group(TypedDict):
        """Nodes that are alike: a group of the job spec, or all nodes of a job without groups."""

        name: str  # "" without groups
        nodes: int
        spares: int  # nodes in addition
        gpus_per_node: int
        cpus_per_node: int  # 0: as many as Slurm allocates

    class Settings(TypedDict):
        """All of a script's settings."""

        version: str  # of slurmray
        render_again: str  # the command that renders this script; options can be added to its end
        groups: List[Group]
        slurm_counts_gpus: bool  # False: Slurm has no GRES for them, and the job may use all of the node
        only_checks: bool  # True: the job ends after the node checks, which also remove leftovers
        run_dir: str
        temp_dir: str
        setup: str
        preflight: str  # "fail", "warn", "none"
        on_node_loss: str  # "fail", "continue", "restart"
        restart: Restart
        requeue: Requeue
        stop: Stop
        notify: Optional[Notify]
        timeouts: Timeouts
        watch: Watch
        container: Container
        checks: Checks
        ray: RayOptions
        network: Network
        env: Dict[str, str]
        env_from_submitter: List[str]  # names
        sweep: Dict[str, List[str]]  # parameter -> its values; {}: no sweep
        env_file: str  # "": none
        node_env: str  # bash; its exports are for Ray and the trainer
        preset_env: Dict[str, str]  # variable -> fact: "rank", "nodes", "head", "ray_port", "interface"
        prepare: List[Dict[str, Any]]  # items as in the job spec, `run` as argv
        services: List[Dict[str, Any]]
        trainer: Trainer
        # For restart.min_nodes: number of nodes -> dotted path of a setting -> its value on so many nodes.
        fewer_nodes: NotRequired[Dict[str, Dict[str, Any]]]

    class Job(TypedDict):
        """This attempt of the job; the controller sends it to every node in the message `job`."""

        id: str  # Slurm's job id
        name: str
        name_for_commands: str  # the job for Slurm's commands: the id, or ARRAY_TASK
        attempt: int  # 0 is the first
        restart: int  # how often the trainer was started again in this attempt
        restarts_before: int  # the same in all earlier attempts
        chances: int  # requeues that are left
        batch_host: str  # name of the node with the controller
        nodes: List[str]  # the head node first
        spares: List[str]  # nodes that wait for one of these to fail, in the order of their groups
        spares_of_groups: List[int]  # how many of them each group has
        cpus: List[int]  # of each node, by group
        memory: List[int]  # MiB of each node on average, by group; 0: unknown
        grace: int  # seconds
        slurmd_port: int
        run_dir: str  # absolute, of this attempt; its name begins with name_for_commands
        log_file: str  # the job's output file
        mark: str  # random, of this attempt: in the run directory and on its containers
        token: str  # for Ray
        started: float  # time.time() when the batch script began
        end_time: int  # when Slurm ends the job, in seconds since 1970; 0: without a time limit, or unknown
        env: Dict[str, str]  # variables in `env_from_submitter`, and the sweep's parameters
        done_before: List[str]  # prepare steps completed in earlier attempts, not to be repeated
        stalls: int  # of the trainer so far, in this attempt
        commit: str  # of the folder checks.same_commit on the head node
