"""Every decision between the job spec and the script. Templates decide nothing: they write down a Plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmray import __version__
from slurmray.container_words import container_args, image_of, mount_words, service_images, with_registry
from slurmray.directives import directives_of
from slurmray.errors import ExitCode
from slurmray.presets import advise
from slurmray.records import records
from slurmray.spec import JobSpec

# The first that works on a node is used there.
AUTO_RUNTIMES = ("podman", "docker")

# The task of a node runs no container: there is none, or Slurm starts it around the task.
BARE = ("none", "pyxis")

# Programs for the containers that only jobs with `prepare` or `services` need.
STAGE_PROGRAMS = ("outside.py", "preparation.py", "progress.py", "ready.py", "services.py", "stages.py")
RAY_JOB_PROGRAMS = ("ray_driver.py", "ray_job.py")

# Assignments of the script that its nodes need; more where the spec uses more.
NODE_VALUES = (
    "GPUS_PER_NODE CPUS_PER_NODE TEMP_DIR RUNTIMES NODE_NAMES HEAD JOB ATTEMPT RUN MARK JOB_LOG"
    " STARTED PATIENCE PROGRAMS"
)


@dataclass(frozen=True)
class Program:
    """A Python file that travels in the script."""

    name: str
    text: str


@dataclass(frozen=True)
class Plan:
    """What the templates need. Lists become words of a bash array; the renderer quotes every text."""

    version: str
    directives: list[str]
    """`#SBATCH` lines, quoted for Slurm."""
    render_again: str
    """Command that renders the script anew."""
    nodes: int
    gpus: int
    """For each node; 0: none."""
    cpus: int
    """For each node; 0: what Slurm gives."""
    run_dir: str
    temp_dir: str
    setup: str
    runtimes: list[str]
    accelerators: list[str]
    """Whose device flags may be needed; empty: nobody's."""
    bf16: bool
    """Whether NVIDIA's GPUs are looked at for it."""
    image: str
    """Empty: there is no container."""
    image_name: str
    """The image with its registry."""
    source: str
    """What Apptainer makes `image` of; empty: that is there."""
    pull: str
    build_file: str
    """Empty: nothing to build."""
    build_context: str
    archive: str
    """Empty: none."""
    user: str
    mounts: list[str]
    """Three words for each: source, destination (empty: the source's path), flags for --mount."""
    container_args: list[str]
    workdir: str
    shm_size: str
    records: list[str]
    """`key=value` for the first process in the containers."""
    env_from_submitter: list[str]
    """Names only; their values never come near the script."""
    preflight: str
    """`fail`, `warn` or `none`."""
    check_paths: list[str]
    same_commit: str
    """Empty: not checked."""
    ready_timeout: int
    stop_grace: int
    stop_lead: int
    on_node_loss: str
    requeues: bool
    """Whether the job may be started anew."""
    requeue_max: int
    requeue_exit_code: int
    """0: none."""
    services_outside: list[str]
    """Three words for each service outside of Ray's container: name, image, image with its registry."""
    once: bool
    """Whether some of that is not done again after a requeue."""
    programs: list[Program]

    @property
    def has_engine(self) -> bool:
        """Whether Podman or Docker run the containers."""
        return not set(self.runtimes).isdisjoint(AUTO_RUNTIMES)

    @property
    def has_run_args(self) -> bool:
        """Whether the task of each node runs a container."""
        return set(self.runtimes).isdisjoint(BARE)

    @property
    def host_services(self) -> bool:
        """Whether services run on the nodes themselves."""
        return "" in self.services_outside[1::3]

    @property
    def exec(self) -> str:
        """What starts something for which it matters that it has the variables of the submitter."""
        matters = self.setup or self.env_from_submitter or self.services_outside or not self.has_run_args
        return "become" if matters else "exec"

    @property
    def fetches(self) -> bool:
        """Whether a node may have to get an image, or to try it."""
        if not self.has_engine:
            return True
        return bool(self.pull != "never" or self.build_file or self.archive or self.services_outside)

    @property
    def finding(self) -> str:
        """Kind of a finding that is not fatal by itself."""
        return "warn" if self.preflight == "warn" else "preflight"

    @property
    def exit_codes(self) -> list[str]:
        """Kind to exit code, as entries of a bash array: what a job ends with if not for the trainer."""
        codes = [code for code in ExitCode if code not in (ExitCode.USAGE, ExitCode.REHEARSAL)]
        return [f"[{code.name.lower()}]={code.value}" for code in codes]

    @property
    def node_values(self) -> str:
        """Names of the assignments that the nodes need, for `declare -p`."""
        used = {
            " IMAGE CONTAINER_ARGS": self.image,
            " SHM_SIZE": self.has_engine,
            " IMAGE_NAME": self.has_engine and self.image_name != self.image,
            " SOURCE": self.source,
            " BUILD_FILE BUILD_CONTEXT": self.build_file,
            " ARCHIVE": self.archive,
            " MOUNTS": self.mounts,
            " SERVICES_OUTSIDE": self.services_outside,
            " CHECK_PATHS": self.check_paths,
            " SAME_COMMIT COMMIT": self.same_commit,
            " CHANCES": self.requeue_max,
        }
        return NODE_VALUES + "".join(names for names, use in used.items() if use)


def make_plan(spec: JobSpec, render_again: str, programs: Path) -> Plan:
    """Decide everything. programs: the folder with the Python files that run in the containers."""
    container = spec.container
    image, source = image_of(container)
    stages = bool(spec.prepare or spec.services)
    return Plan(
        version=__version__,
        directives=directives_of(spec),
        render_again=render_again,
        nodes=spec.slurm.nodes,
        gpus=spec.gpus,
        cpus=spec.slurm.cpus_per_task or 0,
        run_dir=spec.run_dir,
        temp_dir=spec.ray.temp_dir,
        setup=spec.setup,
        runtimes=list(AUTO_RUNTIMES) if container.runtime == "auto" else [container.runtime],
        accelerators=_accelerators(spec),
        bf16=spec.preflight != "none" and advise(spec).bf16,
        image=image,
        image_name=with_registry(image) if image else "",
        source=source,
        pull=container.pull,
        build_file=container.build.file if container.build else "",
        build_context=container.build.context if container.build else "",
        archive=container.archive or "",
        user=container.user,
        mounts=mount_words(container),
        container_args=container_args(container),
        workdir=container.workdir or "",
        shm_size=container.shm_size or "",
        records=records(spec),
        env_from_submitter=spec.env_from_submitter,
        preflight=spec.preflight,
        check_paths=spec.checks.paths if spec.preflight != "none" else [],
        same_commit=(spec.checks.same_commit or "") if spec.preflight != "none" else "",
        ready_timeout=spec.ray.ready_timeout,
        stop_grace=spec.stop.grace,
        stop_lead=spec.stop.lead,
        on_node_loss=spec.on_node_loss,
        requeues=spec.requeue.possible,
        requeue_max=spec.requeue.max,
        requeue_exit_code=spec.requeue.exit_code,
        services_outside=service_images(spec.services),
        once=spec.requeue.possible and any(item.once for item in spec.prepare),
        programs=[
            Program(file.name, file.read_text(encoding="utf-8"))
            for file in sorted(programs.glob("*.py"))
            if (stages or file.name not in STAGE_PROGRAMS)
            and (spec.launch == "ray-job" or file.name not in RAY_JOB_PROGRAMS)
            and (container.runtime in BARE or file.name != "guard.py")
        ],
    )


def _accelerators(spec: JobSpec) -> list[str]:
    if not spec.gpus or spec.container.accelerator == "none":
        return []
    return ["nvidia", "amd"] if spec.container.accelerator == "auto" else [spec.container.accelerator]
