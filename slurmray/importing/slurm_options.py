"""Options of sbatch, in `#SBATCH` lines, and of srun, as fields of a job spec."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from slurmray.importing.container_options import PYXIS, set_variables
from slurmray.importing.draft import Draft
from slurmray.importing.known import STEP
from slurmray.importing.options import Action, Option, Table, Target, append, field, look, skip, when
from slurmray.importing.words import constant
from slurmray.slurm import syntax

_NAMES = (*syntax.OPTIONS, *syntax.RESERVED)
_LONG = {**{f"-{short}": name for short, name in syntax.SHORT.items()}, "--tasks-per-node": "ntasks-per-node"}
_COUNTS = ("ntasks", "ntasks-per-node", "gpus", "gpus-per-task")


def read_directives(text: str, target: Target) -> dict[str, str]:
    """Set the fields of a script's directives. Return what Slurm's variables will be, as far as known."""
    draft, options = target.draft, list(_directives(text, target.draft))
    given = {_long_name(option): option for option in options}  # the last one of a name counts
    tasks = _set_counts(target, given)
    for option in options:
        name = _long_name(option)
        if name in _NAMES and given[name] is not option:
            draft.skip(option.lines, "set again below")
        elif name not in _COUNTS:
            _SBATCH.read(target, [option])
    _drop_equal_gpus(draft)
    texts = {name: option.text for name, option in given.items()}
    variables = {
        "SLURM_NNODES": draft.get("slurm.nodes") or "1",
        "SLURM_JOB_NUM_NODES": draft.get("slurm.nodes") or "1",
        "SLURM_CPUS_PER_TASK": texts.get("cpus-per-task"),
        "SLURM_GPUS_PER_NODE": texts.get("gpus-per-node"),
        "SLURM_GPUS_ON_NODE": count_gpus(draft),
        "SLURM_NTASKS_PER_NODE": texts.get("ntasks-per-node"),
        "SLURM_NTASKS": tasks,
        "SLURM_GPUS_PER_TASK": (texts.get("gpus-per-task") or "").rpartition(":")[2],
        "SLURM_JOB_NAME": texts.get("job-name"),
    }
    return {name: value for name, value in variables.items() if value}


def _directives(text: str, draft: Draft) -> Iterator[Option]:
    """Yield the options of the directives. Each line stands alone."""
    ignored = ""  # why no more are read
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.startswith("#SBATCH"):
            if line.strip() and not line.lstrip().startswith("#"):
                ignored = "sbatch ignores a directive after the first command"
            continue
        try:
            words = [constant(word, number) for word in syntax.split_directive(line[len("#SBATCH") :])]
        except ValueError as error:
            draft.look([number], str(error))
            continue
        if any(word.constant in ("hetjob", "packjob") for word in words):
            ignored = ignored or "another component: write it as an item of slurm.groups"
        options, rest = _SBATCH.split(words)
        if ignored or rest:
            draft.look([number], ignored or "a directive with something that is no option")
        yield from [] if ignored else options


def _long_name(option: Option) -> str:
    return _LONG.get(option.name, option.name[2:])


def count_gpus(draft: Draft) -> str | None:
    """Return the number of GPUs of a node; None if it is not set, or wrong."""
    each, gres = draft.get("slurm.gpus_per_node"), draft.get("slurm.gres")
    try:
        count = syntax.gpus_in_count(each)[1] if each else syntax.gpus_in_gres(gres or "")[1]
    except ValueError:
        return None
    return str(count) if count or each else None


def _set_counts(target: Target, given: dict[str, Option]) -> str:
    """Set nodes and GPUs as sbatch works them out from tasks; return the number of tasks, if it is known."""
    counts = {name: syntax.parse_count(option.text or "") for name, option in given.items()}
    nodes, tasks, each = counts.get("nodes", 1), counts.get("ntasks"), counts.get("ntasks-per-node", 1)
    if "ntasks" in given and "nodes" not in given:
        if tasks and each and ("ntasks-per-node" in given or tasks == 1):
            nodes = -(-tasks // each)
            target.draft.set("slurm.nodes", str(nodes), given["ntasks"].lines)
        else:
            nodes = each = None
    elif "ntasks" in given and "ntasks-per-node" not in given:
        each = tasks // nodes if tasks and nodes and tasks % nodes == 0 else None
    several = look("slurmray starts one task on each node: see slurm.nodes and slurm.cpus_per_task")
    for name in ("ntasks", "ntasks-per-node"):
        if name in given:
            (_STEP if each == 1 else several)(target, given[name])
    for name, per, among in (("gpus", 1, nodes), ("gpus-per-task", each, 1)):
        if name in given:
            _set_gpus(target, given[name], per, among)
    return str(tasks or (nodes or 0) * (each or 0) or "")


def _set_gpus(target: Target, option: Option, per: int | None, among: int | None) -> None:
    """Set the GPUs of each node: so many for each of `per` tasks, or for all of `among` nodes."""
    kind, colon, number = (option.text or "").rpartition(":")
    count = syntax.parse_count(number)
    if count is None or not per or not among or count % among:
        look("set slurm.gpus_per_node")(target, option)
        return
    target.draft.set("slurm.gpus_per_node", f"{kind}{colon}{count * per // among}", option.lines)
    if among > 1:
        look(f"GPUs of the whole job, taken as {count // among} on each node")(target, option)


def _drop_equal_gpus(draft: Draft) -> None:
    """Drop one of slurm.gres and slurm.gpus_per_node if both ask for the same: the one without a type."""
    each = draft.get("slurm.gpus_per_node")
    match = re.fullmatch(r"(?:gres/)?gpu(:[A-Za-z][\w.-]*)?(?::([0-9]+))?", draft.get("slurm.gres") or "")
    if each and match and (match[2] or "1") == count_gpus(draft):
        names = ("gpus_per_node", "gres") if match[1] and ":" not in each else ("gres", "gpus_per_node")
        del draft.fields["slurm", names[0]]
        draft.skip(draft.withdraw(f"slurm.{names[0]}"), f"the same as --{names[1].replace('_', '-')}")


def _set_nodes(target: Target, option: Option) -> None:
    low, _, high = (option.text or "").partition("-")
    target.draft.set("slurm.nodes", low, option.lines)
    if high not in ("", low):
        look(f"a job spec has one number of nodes, so {low}")(target, option)


def _read_stop(option: Option) -> dict[str, str] | None:
    pattern = r"(?:[BR]+:)?(?:SIG)?(?P<signal>HUP|INT|QUIT|TERM|USR1|USR2)(?:@(?P<lead>[0-9]+))?"
    match = re.fullmatch(pattern, (option.text or "").upper())
    return {name: value for name, value in match.groupdict().items() if value} if match else None


def _export(target: Target, option: Option) -> None:
    names = [word for word in option.value.split(",") if word.constant not in ("ALL", "")]
    set_variables(target, option, names)


def _other(target: Target, option: Option) -> None:
    """Take an option of a plugin of the site, unless it is a mistake in one of sbatch."""
    name = option.name.removeprefix("--")
    similar = [known for known in _NAMES if known.startswith(name)]
    similar = similar or difflib.get_close_matches(name, _NAMES, 1, cutoff=0.85)
    if similar:
        look(f"sbatch has no such option, but --{', --'.join(similar)}")(target, option)
    elif name.startswith("-"):
        look("sbatch has no such option")(target, option)
    else:
        append("slurm.extra")(target, option)


def _of_step(name: str) -> Action:
    """Return what takes a resource of a step for the job's, if the job asks for none."""
    path, is_gpu = _path(name), name in ("gpus-per-node", "gres")

    def take(target: Target, option: Option) -> None:
        if target.draft.get(path) or (is_gpu and count_gpus(target.draft)) or not option.text:
            skip(f"{option.name} of a step: it has all of the job's resources")(target, option)
        else:
            target.draft.set(path, option.text, option.lines)
            if is_gpu:  # what a mask has set before
                target.draft.fields.pop(("ray", "gpus_per_node"), None)
            reason = f"{option.name} {option.text} of a step, taken as {path} of the job"
            target.draft.look(option.lines, reason)

    return take


def _path(name: str) -> str:
    return f"slurm.{name.replace('-', '_')}"


def _rows(actions: dict[str, Action]) -> Iterator[tuple[str, Action]]:
    """Yield the rows of options of sbatch by their long names."""
    for name, action in actions.items():
        equals = "" if name in _FLAGS else "="
        yield f"--{name}{equals}", action
        if name in _SHORT:
            yield f"-{_SHORT[name]}{equals}", action


_SHORT = {name: short for short, name in syntax.SHORT.items()}
_FLAGS = {
    *(name for name, option in syntax.OPTIONS.items() if option.kind in ("flag", "optional")),
    *("help", "no-kill", "no-requeue", "parsable", "quiet", "requeue", "test-only", "usage", "version"),
}
_STEP = skip(STEP)
_EXPORT = when("ALL", skip("the default"), when("(?:NONE|NIL).*", look("see environment"), _export))
_SBATCH = Table(
    *PYXIS,
    *_rows({name: field(_path(name)) for name in syntax.OPTIONS}),
    *_rows({name: field(_path(name), lambda option: option.text or "true") for name in _FLAGS}),
    *_rows({name: look(instead) for name, instead in syntax.RESERVED.items()}),
    *_rows(dict.fromkeys(("no-requeue", "open-mode", "ntasks-per-core"), skip("slurmray sets it"))),
    *_rows(dict.fromkeys(("parsable", "quiet"), skip("it only changes what sbatch prints"))),
    *_rows(
        {"job-name": field("name"), "nodes": _set_nodes, "export": _EXPORT, "extra": append("slurm.extra")}
    ),
    *_rows({"input": when("/dev/null", skip("the default"), look(syntax.RESERVED["input"]))}),
    *_rows({"signal": field("stop", _read_stop)}),
    other=_other,
)
_OF_SRUN = {
    *(f"--{name}" for name in _NAMES),
    *"""
    --mpi --cpu-bind --accel-bind --jobid --relative --threads --task-prolog --task-epilog --tres-bind --bcast
    --prolog --epilog --compress --het-group --msg-timeout --send-libs --treewidth --slurmd-debug --unbuffered
    """.split(),  # noqa: SIM905 - one name a line would hide the rest
}


def _other_of_step(target: Target, option: Option) -> None:
    """Keep an option of a plugin, e.g. of a container runtime, for the job's own step."""
    is_known = option.name in _OF_SRUN or not option.name.startswith("--")
    (_STEP if is_known else append("container.step_args"))(target, option)


SRUN = Table(
    *PYXIS,
    ("--export=", _EXPORT),
    ("-c= --cpus-per-task=", _of_step("cpus-per-task")),
    ("-G= --gpus= --gpus-per-task= --gpus-per-node=", _of_step("gpus-per-node")),
    ("-p= --partition=", _of_step("partition")),
    ("-A= --account=", _of_step("account")),
    ("-q= --qos=", _of_step("qos")),
    *(
        (f"--{name}=", _of_step(name))
        for name in ("gres", "mem", "mem-per-cpu", "mem-per-gpu", "cpus-per-gpu")
    ),
    (
        """
    --overlap --exclusive --pty -l --label -u --unbuffered --exact -K -O -s --overcommit --oversubscribe
    --kill-on-bad-exit --no-kill -k -Q --quiet -v --verbose -H -X -E --multi-prog --spread-job --whole
    --disable-status --preserve-env --interactive --hold --contiguous --no-allocate --reboot --use-min-nodes
    --quit-on-interrupt --external-launcher --propagate --x11 --nice --resv-ports
    """,
        _STEP,
    ),
    other=_other_of_step,
)
