"""Prepare steps and services, from programs of the script that need nothing else of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from slurmray.importing.draft import Draft
from slurmray.importing.importer import Program
from slurmray.importing.known import NO_FILE
from slurmray.importing.reader import Left, Reader
from slurmray.importing.run_text import choose, left, note_kept, positions, preamble
from slurmray.importing.words import is_log
from slurmray.presets.trainers import looks_like_trainer

_USES_RAY = re.compile(r"ray\.init|-backend[ =]ray\b")  # of a program, also of vLLM


def own_command(
    draft: Draft,
    program: Program,
    reader: Reader,
    arguments: Sequence[str] | None,
    given: dict[str, str],
) -> list[str] | str | None:
    """Return the command of a stage; None if it is in a structure, or a step that uses the script's own.

    arguments, given: see assemble().
    """
    command = program.command
    if program.own_statement is None or command.context.is_conditional or command.context.is_looped:
        return None
    has_files = not remove_redirections(draft, program)
    texts = [word.constant for word in program.words]
    if not has_files and None not in texts and not command.reader.source.edits_in(command.node):
        return [text or "" for text in texts]
    source = _source(program)
    own = {*command.reader.variables.texts, *command.reader.variables.arrays, *reader.functions}
    own -= {name for path in reader.draft.fields if path[0] == "env" for name in path[1:]}
    is_free = own.isdisjoint(re.findall(r"\w+", source)) and not re.search(r"\$[1-9@*#{]", source)
    written = [
        *program.words,
        *(command.reader.variables.value(each.get("Word"), 0) for each in command.node.get("Redirs") or []),
    ]
    kept = [program.own_statement]
    if not (is_free or all(word.is_plain for word in written)):
        if not command.context.is_background:
            return None
        before = itertools.takewhile(lambda each: each is not program.statement, left(reader))
        kept = choose([*(each for each in before if each.left == Left.INERT), *kept])
        note_kept(draft, kept, "services")
    first = [line for line in positions(draft, kept, arguments) if line != "set --"]
    needed = [each.text.strip() for each in kept[:-1]]
    return "\n".join([*first, *preamble(draft, reader, kept, given), *needed, source])


def _source(program: Program) -> str:
    """Return a command as it was written, without what started it in the background."""
    assert program.statement  # noqa: S101 - the callers have looked
    text = program.statement.text
    return re.sub(r"\s*&\s*$", "", text) if program.command.node.get("Background") else text


def add_stage(draft: Draft, program: Program, command: list[str] | str) -> None:
    """Make a program a prepare step, or a service if it runs in the background. command: of own_command."""
    context, lines = program.command.context, program.lines
    is_service = context.is_background
    section, stage = "services" if is_service else "prepare", {"run": command}
    if context.place == "all":
        stage["where"] = "all"
    elif is_service:
        stage["where"] = "head"
    if _USES_RAY.search(program.text):
        stage["needs_ray"] = "true"
    if is_service:
        _complete_service(draft, program, stage)
    else:
        for name, value in program.command.assigns if isinstance(command, list) else []:
            is_secret = draft.is_secret(name, value.constant)
            if not name.endswith("VISIBLE_DEVICES"):
                draft.set_variable(name, None if is_secret else value.constant, lines[:1])
    items = draft.fields.setdefault((section,), [])
    index = next((n for n, item in enumerate(items) if item["run"] == command), len(items))
    if index == len(items):
        items.append({"name": _choose_name(program, items), **stage})
    draft.became(section, lines, (section, str(index)))
    if not is_service and looks_like_trainer(program.text):
        draft.look(lines[:1], "another trainer; it runs before the last one, as a prepare step")
    if not is_service and not context.is_inside and draft.get("container.runtime") != "none":
        draft.look(lines[:1], "ran on the host, and now runs in the container")
    assert program.statement  # noqa: S101 - own_command has looked
    program.statement.own = Left.NOTHING


def _complete_service(draft: Draft, program: Program, service: dict[str, Any]) -> None:
    context, lines = program.command.context, program.lines
    if draft.get("container.runtime") != "none" and not context.is_inside:
        service["host"] = "true"
    if context.image and context.image != draft.get("container.image"):
        service["image"] = context.image
    for name, value in program.command.assigns if isinstance(service["run"], list) else []:
        if name == "RAY_ADDRESS":
            draft.skip(lines[:1], f"{name}: it joins the job's own Ray")
        elif name.endswith("VISIBLE_DEVICES") and value.constant:
            service["gpus"] = str(value.constant.count(",") + 1)
            draft.look(lines[:1], f"{name}: services[].gpus takes them from Ray, and so from the trainer")
        elif value.constant is None or draft.is_secret(name, value.constant):
            draft.look(lines[:1], f"{name} of the service: see services[].env")
        else:
            service.setdefault("env", {})[name] = value.constant
    if program.ready:
        service["ready"] = program.ready
    else:
        draft.look(lines[:1], "the trainer does not wait until this service is ready: see services[].ready")


def _choose_name(program: Program, items: list[dict[str, Any]]) -> str:
    """Return a name for a prepare step or a service, from its command."""
    texts = [word.beginning for word in program.words]
    name = texts[0].rpartition("/")[2]
    if re.fullmatch(r"python[0-9.]*|bash|sh|uv|torchrun", name):
        after = texts[texts.index("-m") + 1 : texts.index("-m") + 2] if "-m" in texts else []
        files = [text for text in texts[1:] if re.search(r"\.(?:py|sh)$", text)]
        name = after[0].rpartition(".")[2] if after else files[0].rpartition("/")[2] if files else name
    elif len(texts) > 1 and name in ("hf", "huggingface-cli", "aws", "git"):
        name = texts[1]
    name = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\.(?:py|sh)$", "", name).lower()).strip("-")[:28]
    name = name if re.match("[a-z]", name) else "step"
    taken = {item["name"] for item in items}
    return next(
        f"{name}-{n}" if n > 1 else name
        for n in range(1, 1000)
        if (f"{name}-{n}" if n > 1 else name) not in taken
    )


def remove_redirections(draft: Draft, program: Program) -> bool:
    """Remove those to logs, as the job has its own; return whether there are no others."""
    variables = program.command.reader.variables
    redirections = program.command.node.get("Redirs") or []
    files = [(each, variables.value(each.get("Word"), program.lines[0])) for each in redirections]
    if any(each.get("Hdoc") or not is_log(word) or each["Op"].startswith("<") for each, word in files):
        return False
    if files:
        draft.skip([program.command.reader.source.lines(each)[0] for each, _ in files], NO_FILE)
        start = program.words[-1].end if program.words[-1].end > 0 else files[0][0]["Pos"]["Offset"]
        first = files[0][0]["Pos"]["Offset"]
        program.command.reader.source.remove(min(start, first), files[-1][0]["End"]["Offset"])
    return True
