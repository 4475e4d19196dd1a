"""The argv that runs a command in a container from outside: for the job's log, and for `slurmray attach`."""

from ..node.runtimes import ENTER, EXEC, RUNTIMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Mapping, Optional, Sequence

    from ..wire.settings import Container


def attach_argv(
    job: str,
    component: "Optional[str]",
    node: str,
    name: str,
    container: "Container",
    facts: "Mapping[str, Any]",
    command: "Sequence[str]",
    exec_options: "Sequence[str]" = (),
    exec_prefix: "Sequence[str]" = (),
    run: "Sequence[str]" = (),
) -> "List[str]":
    """argv that runs a command with Ray's environment, and RAY_ADDRESS.

    job: for Slurm's commands. component: of a heterogeneous job; None in others. name: of the container.
    container: the settings. facts: `runtime`, `folder` and `unset` of the event `attach`.
    exec_options, exec_prefix: after and before `podman exec`. run: argv that runs a program of a folder on
    the node, given both.
    """
    runtime, folder = facts["runtime"], facts["folder"]

    def own(program: str) -> "List[str]":
        return [*run, folder, program] if run else ["%s/%s" % (folder, program)]

    # srun has no default for a job from outside.
    group = [] if component is None else ["--het-group=" + component]
    srun = ["srun", "--overlap", "--jobid=" + job, *group, "-N1", "-n1", "-w", node]
    attach = folder + "/attach"
    entry = RUNTIMES[runtime].entry
    if entry == EXEC:
        unset = ["--unset=" + name for name in facts["unset"]]
        program = [*(["env", *unset] if unset else []), container["command"] or runtime, "exec"]
        return [*srun, *exec_prefix, *program, *exec_options, name, attach, *command]
    if entry == ENTER:
        return [*srun, *own("enter"), attach, *command]
    image: "List[str]" = []
    if container["image"]:
        temp_dir = folder.rpartition("/ray-")[0]
        mounts = "--container-mounts=%s:%s" % (temp_dir, temp_dir)
        image = ["--container-image=" + container["image"], mounts]
    return [*srun, *image, *container["step_args"], *own("attach"), *command]
