"""The text of `run`: what is left of the script, and before it what the cluster had set."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from slurmray.importing.draft import Draft
from slurmray.importing.known import KEPT, PRINTS, RAY, SET_IN_JOB, VARIABLE
from slurmray.importing.reader import Left, Reader, Statement
from slurmray.importing.syntax_tree import calls_in
from slurmray.spec.types import FILL_IN

# Variables of Slurm -> the job's own with the same value.
_SLURM = {
    **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "$NNODES"),
    **dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"), "$GPUS_PER_NODE"),
    **dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID"), "$NODE_RANK"),
    **dict.fromkeys(("SLURM_LOCALID",), "0"),
    **dict.fromkeys(("SLURM_JOBID",), "$SLURM_JOB_ID"),
}
_NODE_S = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID")
_COUNT = re.compile(r"\$(?:\{#\}|#)(?!\w)\"?\s*(?:-\w\w|[<>=!]=?=?)\s*\"?([0-9]+)")
_OPTIONS_LOOP = re.compile(r"while\b[^\n;]*(?:\$\{?#|\$\{?1\b|\bgetopts\b)")
_OF_KEPT = (VARIABLE, KEPT, PRINTS, RAY)  # why a line is not needed unless it is kept


def left(reader: Reader) -> list[Statement]:
    """Return what is left of the script and those within it, in order."""
    made: list[Statement] = []
    for statement in reader.statements:
        if statement.inner is not None:
            made += left(statement.inner)
        elif statement.left:
            made.append(statement)
    return made


def write_text(
    draft: Draft, reader: Reader, takes_preset: bool, arguments: Sequence[str] | None, given: dict[str, str]
) -> str:
    """Return the text of `run`: what is left of the script, and before it what the cluster had set."""
    kept = choose(left(reader))
    note_kept(draft, kept, "run")
    first = "; ".join([*['preset_args=("$@")'] * takes_preset, *positions(draft, kept, arguments)])
    lines = [first] if first else []
    lines += preamble(draft, reader, kept, given)
    return "\n".join([*lines, *(statement.text.strip() for statement in kept)])


def note_kept(draft: Draft, kept: list[Statement], name: str) -> None:
    """Note that statements became a field, which they had not been needed for when they were read."""
    for line in {line for statement in kept for line in statement.lines}:
        draft.became(name, [line])
        skipped = draft.notes[line].skipped
        draft.notes[line].skipped = [reason for reason in skipped if reason not in _OF_KEPT]


def preamble(draft: Draft, reader: Reader, kept: list[Statement], given: dict[str, str]) -> list[str]:
    """Return lines for the variables that statements use and that Slurm or the launcher had set."""
    lines: list[str] = []
    for each in kept:
        each.reader.count_nodes(each.node)
    names = {"preset_args"}.union(*(statement.names for statement in kept))
    uses = [use for statement in kept for use in statement.reader.source.uses(statement.node)]
    _look_at_its_place(draft, kept)
    places: dict[str, int] = {}
    optional = {name for name, has_default, _ in uses if has_default}
    for name, _, line in uses:
        places.setdefault(name, line)
    for name, line in places.items():
        where = [line]
        if name in reader.head_names:
            lines.append(f"{name}={reader.head_names[name]}")
            _look_at_head(draft, kept, name, reader.head_names[name], line)
        elif name in names or name in SET_IN_JOB or ("env", name) in draft.fields or _exports(draft, name):
            continue
        elif name in given or name in _SLURM:
            value = _SLURM.get(name, "")
            lines.append(f"{name}={value or shlex.quote(given[name])}")
            if name in _NODE_S:
                draft.look(where, f"{name} of the head node; `run` runs there only")
        elif name.startswith("SLURM") and draft.get("container.runtime") == "none":
            continue
        elif name.startswith("SLURM"):
            draft.look(where, f"{name} is not set in a container; set it in the text, or in env")
        elif name.isidentifier() and name not in optional:
            draft.set_variable(name, None, where)
            if not draft.is_secret(name, None):
                draft.look(where, f"{name} is not set in the script: taken from your environment at sbatch")
    return lines


def _look_at_head(draft: Draft, kept: list[Statement], name: str, value: str, line: int) -> None:
    if "MASTER_ADDR" in value:
        draft.look([line], f"{name} is the head node's address, from MASTER_ADDR")
    if any(re.search(rf"{name}\[(?!0\])|#{name}\b", each.text) for each in kept):
        draft.look([line], f"{name} has only the head node: the job's other nodes run Ray alone")


def _look_at_its_place(draft: Draft, kept: list[Statement]) -> None:
    """Note where statements mean something else in the job than in the script's file."""
    for reader, call in ((each.reader, call) for each in kept for call in calls_in(each.node)):
        program = reader.source.text_of(call["Args"][0]) if call.get("Args") else ""
        for name, _, line in () if program in ("echo", "printf") else reader.source.uses(call):
            if name in ("0", "BASH_SOURCE"):
                draft.look([line], f"${name} is not the script's path in the job: write the path")
        if program == "exit" and not reader.source.is_removed(call):
            draft.remark(
                reader.source.lines(call)[0], "exit ends the trainer, and so the job, with this code"
            )


def choose(left: list[Statement]) -> list[Statement]:
    """Return the statements that stay: programs, and what they use."""
    setters: dict[str, list[int]] = {}
    for number, statement in enumerate(left):
        if statement.left != Left.INERT:
            continue
        for name in statement.names.difference(statement.reader.source.loop_variables(statement.node)):
            setters.setdefault(name, []).append(number)
    programs = sum(statement.left == Left.ACTIVE for statement in left)
    todo = [
        number
        for number, statement in enumerate(left)
        # With programs after the trainer, the exit code is what the script says.
        if statement.left > Left.INERT or (programs > 1 and re.match(r"exit\b", statement.text))
    ]
    kept = set(todo)
    while todo:
        text = left[todo.pop()].text
        for name in {*re.findall(r"\w[\w-]*", text), *re.findall(r"(?<![\w-])\w+", text)}:
            more = [number for number in setters.pop(name, []) if number not in kept]
            kept.update(more)
            todo += more
    runs_beside = any(left[number].text.endswith("&") for number in kept)
    waits = [number for number, each in enumerate(left) if runs_beside and re.match(r"wait\b", each.text)]
    return [left[number] for number in sorted({*kept, *waits})]


def positions(draft: Draft, kept: list[Statement], arguments: Sequence[str] | None) -> list[str]:
    """Return `set --` with the script's own arguments, or with what the user has to fill in."""
    if arguments is not None:
        return [shlex.join(["set", "--", *arguments])]
    kept = [each for each in kept if not _OPTIONS_LOOP.match(each.text)]  # whose arguments are optional
    uses = [use for each in kept for use in each.reader.source.uses(each.node, in_functions=False)]
    needed = [int(name) for name, has_default, _ in uses if re.fullmatch("[1-9]", name) and not has_default]
    text = "\n".join(each.text for each in kept if each.node["Cmd"]["Type"] != "FuncDecl")
    counted = [int(number) for number in _COUNT.findall(text)]
    shifts = len(re.findall(r"(?:^|[;&|{]|\b(?:then|do))\s*shift\b(?!\s*(?:\$|\|\|))", text, re.MULTILINE))
    count = min(max([*needed, *counted, shifts]), 9) if [*needed, *counted, shifts] else 0
    if not count:
        if where := [line for name, _, line in uses if re.fullmatch(r"[@*#]|[1-9]\d*", name)]:
            draft.look(where[:1], "the script had arguments: init --from FILE -- ARGUMENTS writes them")
        return ["set --"]
    texts = []
    for number in range(1, count + 1):
        name = re.search(rf"\b(\w+)=\"?\$(?:\{{{number}\b|{number}\b)", text)
        texts.append(f"'{FILL_IN} ${number}{f' ({name[1]})' if name else ''}'")
    return [" ".join(["set --", *texts])]


def _exports(draft: Draft, name: str) -> bool:
    text = f"{draft.get('node_env') or ''}\n{draft.get('setup') or ''}"
    return bool(re.search(rf"^export {re.escape(name)}=", text, re.MULTILINE))
