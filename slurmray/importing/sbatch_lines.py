"""`#SBATCH` lines, in every form that sbatch accepts, as fields of a job spec."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterator

from slurmray.importing.draft import Draft
from slurmray.importing.options import Option, split_options
from slurmray.importing.words import Word, constant
from slurmray.slurm import syntax

_COMPONENTS = ("hetjob", "packjob")  # what comes after it is of other nodes
_OTHER_COMPONENT = "another component: write it as an item of slurm.groups"
_NAMES = (*syntax.OPTIONS, *syntax.RESERVED)
# Options of RESERVED without a value, or with one only after =.
_RESERVED_FLAGS = {
    *("help", "no-kill", "no-requeue", "parsable", "quiet", "requeue", "test-only", "usage", "version"),
}
_FLAGS = {
    *(f"--{name}" for name, option in syntax.OPTIONS.items() if option.kind in ("flag", "optional")),
    *(f"--{name}" for name in _RESERVED_FLAGS),
}
_SHORT_FLAGS = {f"-{short}" for short, name in syntax.SHORT.items() if f"--{name}" in _FLAGS}


def read_directives(
    text: str, draft: Draft, read_container: Callable[[Option], bool] = lambda _: False
) -> dict[str, str]:
    """Set the fields of a script's directives. Return what Slurm's variables will be, as far as known.

    read_container: takes the options of containers.
    """
    options: list[Option] = []
    is_over, component = False, 0
    for number, line in enumerate(text.split("\n"), start=1):
        is_directive = line.startswith("#SBATCH")
        if is_directive and component and not is_over:
            draft.look([number], _OTHER_COMPONENT)
        elif is_directive and is_over:
            draft.look([number], "sbatch ignores a directive after the first command")
        elif is_directive:
            try:
                words = [constant(word, number) for word in syntax.split_directive(line[len("#SBATCH") :])]
                component = next(
                    (n for n, word in enumerate(words, start=1) if word.constant in _COMPONENTS), 0
                )
                if component:
                    draft.look([number], _OTHER_COMPONENT)
                options += _options(words[: component - 1] if component else words, draft)
            except ValueError as error:
                draft.look([number], str(error))
        elif line.strip() and not line.lstrip().startswith("#"):
            is_over = True
    given: dict[str, str] = {}
    for option in options:
        name = option.name.removeprefix("--")
        given[name] = (option.value.constant or "") if option.value else ""
    reader = _Directives(draft, given)
    for option in options:
        if not (option.name.startswith("--container-") and read_container(option)):
            reader.read(option)
    reader.drop_duplicate_gpus()
    return reader.variables()


def _options(words: list[Word], draft: Draft) -> Iterator[Option]:
    """Yield the options with their long names. sbatch takes no arguments in a script."""
    rest = words
    while rest:
        rest = [_full_name(word) for word in rest]
        # A flag of the site's, which is before another option.
        flags = {
            word.beginning
            for word, after in itertools.pairwise(rest)
            if word.beginning.startswith("--")
            and word.beginning[2:] not in _NAMES
            and after.beginning[:1] == "-"
        }
        options, rest = split_options(rest, _FLAGS | _SHORT_FLAGS | flags)
        for option in options:
            name = option.name
            yield option._replace(
                name=f"--{syntax.SHORT.get(name[1:], name[1:])}" if name[1] != "-" else name
            )
        if rest:
            draft.look([rest[0].line], "a directive with something that is no option")
            rest = rest[1:]


def _full_name(word: Word) -> Word:
    """Complete an abbreviated long option, as getopt_long does."""
    name, value = word.partition("=")
    if not name.startswith("--") or name[2:] in _NAMES or len(name) < 3:
        return word
    full = [known for known in _NAMES if known.startswith(name[2:])]
    if len(full) != 1:
        return word
    return constant(f"--{full[0]}" + ("" if value is None else f"={value.constant}"), word.line)


_SIMILAR = 0.85  # of difflib
_DEFAULTS = {"export": "ALL", "input": "/dev/null"}
# Options that slurmray sets itself, so that nothing is lost: why.
_NOT_NEEDED = {
    "no-requeue": "the default; see requeue.max",
    "ntasks-per-core": "slurmray starts one task on each node",
    "open-mode": "slurmray sets it",
    "parsable": "it only changes what sbatch prints",
    "quiet": "it only changes what sbatch prints",
}


class _Directives:
    """Sets fields from options. given: all options of the script, with their values."""

    def __init__(self, draft: Draft, given: dict[str, str]) -> None:
        self.draft, self.given = draft, given
        self.special: dict[str, Callable[[str, list[int]], None]] = {
            "job-name": lambda value, lines: self._set("name", value, lines),
            "nodes": self._nodes,
            "ntasks": self._tasks,
            "ntasks-per-node": self._tasks,
            "tasks-per-node": self._tasks,
            "gpus": self._gpus,
            "gpus-per-task": self._gpus_per_task,
            "ntasks-per-gpu": self._tasks,
            "signal": self._signal,
            "export": self._export,
            "requeue": self._requeue,
        }

    def read(self, option: Option) -> None:
        """Set the field of an option."""
        name, lines = option.name.removeprefix("--"), option.lines
        value = (option.value.constant or "") if option.value is not None else None
        kind = syntax.OPTIONS[name].kind if name in syntax.OPTIONS else None
        if name in self.special:
            self.special[name](value or "", lines)
        elif value == _DEFAULTS.get(name, "\0") or name in _NOT_NEEDED:
            self.draft.skip(lines, _NOT_NEEDED.get(name, "the default"))
        elif name in syntax.RESERVED:
            self.draft.look(lines, f"--{name}: {syntax.RESERVED[name]}")
        elif kind is None and (similar := difflib.get_close_matches(name, syntax.OPTIONS, 1, _SIMILAR)):
            self.draft.look(lines, f"sbatch has no --{name}, but --{similar[0]}")
        elif kind is None:  # of a plugin of the site
            self.draft.add("slurm.extra", f"--{name}" + ("" if value is None else f"={value}"), lines)
        elif value is None and kind not in ("flag", "optional"):
            self.draft.look(lines, f"--{name} without a value")
        elif name == "extra":
            self.draft.add("slurm.extra", f"--extra={value}", lines)
        else:
            self._set(f"slurm.{name.replace('-', '_')}", True if value is None else value, lines)

    def _set(self, path: str, value: object, lines: list[int]) -> None:
        """Set a field; the last one of several counts, as in sbatch."""
        key = tuple(path.split("."))
        if key in self.draft.fields and self.draft.fields[key] != value:
            self.draft.skip(sorted(self.draft.lines.pop(key)), "set again below")
            del self.draft.fields[key]
        self.draft.set(path, value, lines)

    def _nodes(self, value: str, lines: list[int]) -> None:
        low, _, high = value.partition("-")
        self._set("slurm.nodes", low, lines)
        if high and high != low:
            self.draft.look(lines, f"{value} nodes: a job spec has one number, so {low}")

    def _count_nodes(self) -> int | None:
        """Return the number of nodes: also from that of tasks, with those on each node."""
        per_node = self.given.get("ntasks-per-node") or self.given.get("tasks-per-node")
        each, tasks = syntax.parse_count(per_node or ""), syntax.parse_count(self.given.get("ntasks", ""))
        if "nodes" not in self.given and each and tasks:
            return -(-tasks // each)
        return syntax.parse_count(self.given.get("nodes", "1"))

    def drop_duplicate_gpus(self) -> None:
        """Drop the GPUs in slurm.gres if slurm.gpus_per_node has the same number."""
        each, gres = self.draft.get("slurm.gpus_per_node"), self.draft.get("slurm.gres")
        try:
            is_same = each and gres and syntax.gpus_in_count(each)[1] == syntax.gpus_in_gres(gres)[1]
        except ValueError:
            return
        if is_same and gres.startswith("gpu") and "," not in gres:
            del self.draft.fields["slurm", "gres"]
            self.draft.skip(self.draft.withdraw("slurm.gres"), "the same as --gpus-per-node")

    def _tasks(self, value: str, lines: list[int]) -> None:
        nodes = self._count_nodes()
        if "nodes" not in self.given and "ntasks" in self.given and nodes and nodes > 1:
            self._set("slurm.nodes", str(nodes), lines)
        tasks, nodes = syntax.parse_count(value), self._count_nodes()
        per_node = self.given.get("ntasks-per-node") or self.given.get("tasks-per-node")
        if not per_node and tasks is not None and tasks == nodes:
            per_node = "1"
        if per_node == "1":
            self.draft.skip(lines, "slurmray starts one task on each node")
            return
        cpus = self.given.get("cpus-per-task", "1")
        self.draft.look(
            lines,
            f"several tasks on a node, each with {cpus} CPUs; slurmray starts one, with slurm.cpus_per_task",
        )

    def _gpus(self, value: str, lines: list[int]) -> None:
        kind, _, count = value.rpartition(":")
        gpus, nodes = syntax.parse_count(count), self._count_nodes()
        if gpus is None or not nodes or gpus % nodes:
            self.draft.look(lines, "GPUs of the whole job: set slurm.gpus_per_node")
            return
        each = f"{gpus // nodes}"
        self._set("slurm.gpus_per_node", f"{kind}:{each}" if kind else each, lines)
        if nodes > 1:
            self.draft.look(lines, f"{gpus} GPUs of the whole job: taken as {each} on each node")

    def _gpus_per_task(self, value: str, lines: list[int]) -> None:
        kind, _, count = value.rpartition(":")
        gpus, tasks = syntax.parse_count(count), self._tasks_per_node()
        if gpus is None or tasks is None:
            self.draft.look(lines, "GPUs of each task: set slurm.gpus_per_node")
            return
        each = f"{gpus * tasks}"
        self._set("slurm.gpus_per_node", f"{kind}:{each}" if kind else each, lines)

    def _tasks_per_node(self) -> int | None:
        """Return the number of tasks on each node; None if it is not the same on all, or not known."""
        if per_node := self.given.get("ntasks-per-node") or self.given.get("tasks-per-node"):
            return syntax.parse_count(per_node)
        nodes = self._count_nodes()
        tasks = syntax.parse_count(self.given.get("ntasks", str(nodes)))
        return None if not nodes or not tasks or tasks % nodes else tasks // nodes

    def _all_tasks(self) -> str | None:
        nodes, each = self._count_nodes(), self._tasks_per_node()
        return str(nodes * each) if nodes and each else None

    def _signal(self, value: str, lines: list[int]) -> None:
        match = re.fullmatch(r"(?:[BR]+:)?(?:SIG)?([A-Za-z0-9]+)(?:@([0-9]+))?", value)
        if not match or match[1].upper() not in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2"):
            self.draft.look(lines, "use stop.signal and stop.lead")
            return
        self._set("stop.signal", match[1].upper(), lines)
        if match[2]:
            self._set("stop.lead", match[2], lines)

    def _export(self, value: str, lines: list[int]) -> None:
        names = [item for item in value.split(",") if item not in ("ALL", "")]
        if value.startswith("NONE") or value == "NIL":
            self.draft.look(lines, "--export=NONE: slurmray passes on what env names; see environment")
            return
        for item in names:
            name, equals, text = item.partition("=")
            is_secret = self.draft.is_secret(name, text)
            self.draft.set_variable(name, text if equals and not is_secret else None, lines)
        if not names:
            self.draft.skip(lines, "the default")

    def _requeue(self, value: str, lines: list[int]) -> None:
        del value
        self.draft.look(lines, "--requeue: set requeue.max to the number of restarts that you want")

    def variables(self) -> dict[str, str]:
        """Return Slurm's variables in the job."""
        draft = self.draft
        values = {
            "SLURM_NNODES": draft.get("slurm.nodes") or "1",
            "SLURM_JOB_NUM_NODES": draft.get("slurm.nodes") or "1",
            "SLURM_CPUS_PER_TASK": draft.get("slurm.cpus_per_task"),
            "SLURM_GPUS_PER_NODE": self.given.get("gpus-per-node"),
            "SLURM_GPUS_ON_NODE": count_gpus(draft),
            "SLURM_NTASKS_PER_NODE": self.given.get("ntasks-per-node"),
            "SLURM_NTASKS": self.given.get("ntasks") or self._all_tasks(),
            "SLURM_GPUS_PER_TASK": self.given.get("gpus-per-task", "").rpartition(":")[2],
            "SLURM_JOB_NAME": draft.get("name"),
        }
        return {name: value for name, value in values.items() if value}


def count_gpus(draft: Draft) -> str | None:
    """Return the number of GPUs of a node; None if it is not set, or wrong."""
    try:
        if value := draft.get("slurm.gpus_per_node"):
            return str(syntax.gpus_in_count(value)[1])
        if value := draft.get("slurm.gres"):
            return str(syntax.gpus_in_gres(value)[1] or "") or None
    except ValueError:
        return None
    return None
