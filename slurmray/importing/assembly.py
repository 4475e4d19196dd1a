"""Completes the job spec from what is left of the script: what its programs become, and the trainer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurmray.importing.draft import Draft
from slurmray.importing.importer import Importer, Program
from slurmray.importing.known import FILES, HEAD_VARIABLES, PROGRAMS
from slurmray.importing.ray_options import merge_arguments
from slurmray.importing.reader import Left, Reader
from slurmray.importing.run_text import left, write_text
from slurmray.importing.stages import add_stage, own_command, remove_redirections
from slurmray.importing.words import bash_source
from slurmray.presets.trainers import NUMBERS, find_preset, looks_like_trainer
from slurmray.spec.runtimes import RUNTIMES
from slurmray.spec.types import FILL_IN

_NO_TRAINER = "no trainer found: write the command here"


def assemble(
    importer: Importer, reader: Reader, arguments: Sequence[str] | None, given: dict[str, str]
) -> bool:
    """Set the fields that depend on the whole script; return whether it has a trainer.

    arguments: of the script. given: values of Slurm's variables, as far as the directives have them.
    """
    draft, programs = importer.draft, importer.programs
    trainer = _find_trainer(programs)
    last = programs.index(trainer) if trainer else -1
    merge_arguments(draft)
    _set_runtime(draft, trainer)
    _set_folder(importer)
    _leave_out_unsupported(draft)
    for number, program in enumerate(programs):
        if program is trainer:
            continue
        if number > last >= 0 and not program.command.context.is_background:
            draft.look(program.lines, "runs after the trainer, in its shell, and only on the head node")
        elif command := own_command(draft, program, reader, arguments, given):
            add_stage(draft, program, command)
        elif program.command.context.is_background:
            gone = ". The loop that waited for it is gone" * bool(program.ready)
            draft.look(program.lines, f"it stays beside the trainer, on the head node: see services{gone}")
            draft.became("run", program.lines)
        else:
            _look_at_place(draft, program)
            draft.became("run", program.lines)
    if trainer is None:
        likely = [f"line {program.lines[0]}" for program in programs[:3]]
        draft.fields["run",] = f"{FILL_IN} {_NO_TRAINER}{', e.g. that of ' * bool(likely)}{', '.join(likely)}"
    else:
        _set_trainer(importer, reader, trainer, arguments, given)
    draft.hide_all()
    return trainer is not None


def _find_trainer(programs: list[Program]) -> Program | None:
    """Return the trainer: the last program with a preset, or that looks like one, or that is waited for."""
    programs = [program for program in programs if not _is_about_files(program)]
    waited = [program for program in programs if not program.command.context.is_background]
    by_form = [
        [program for program in programs if find_preset(program.text)],
        [program for program in waited if looks_like_trainer(program.text)],
        waited,
        programs,
    ]
    return next((some[-1] for some in by_form if some), None)


def _is_about_files(program: Program) -> bool:
    """Whether it only handles files, also in a shell, so that it is no trainer."""
    inner = re.sub(r"^(?:ba)?sh -\w+ ", "", program.command.text)
    firsts = [part.split()[0] for part in re.split(r"&&|\|\||[;\n]", inner) if part.split()]
    return all(first in (*FILES, *PROGRAMS) for first in firsts)


def _set_runtime(draft: Draft, trainer: Program | None) -> None:
    if draft.get("container.runtime") is None:
        draft.set("container.runtime", "none", trainer.lines[:1] if trainer else [])
    elif trainer is not None and not trainer.command.context.is_inside:
        draft.look(trainer.lines[:1], "the trainer ran on the host, and now runs in the container")


def _leave_out_unsupported(draft: Draft) -> None:
    """Leave out fields that the runtime does not have, e.g. limits of a shell around Apptainer."""
    runtime = draft.get("container.runtime") or "auto"
    for name in RUNTIMES[runtime].unsupported:
        key = ("container", name)
        for path in [path for path in draft.fields if path[:2] == key]:
            del draft.fields[path]
            draft.look(
                draft.withdraw(".".join(path)), f"container.{name}: not supported with runtime {runtime}"
            )


def _set_folder(importer: Importer) -> None:
    draft = importer.draft
    shares_folder = draft.get("container.runtime") in ("none", "apptainer", "singularity")
    for word, lines, is_inside in importer.folders:
        path = word.path or ""
        if path == ".":
            draft.skip(lines, "the default, the submit folder")
        elif not is_inside and not shares_folder:
            draft.look(lines, "on the host; programs in the container start in container.workdir")
        elif path and path[0] in "/$~":
            draft.set("container.workdir", word.absolute_path, lines)
        elif path and path[0] != "-":
            draft.set("container.workdir", f"$SLURM_SUBMIT_DIR/{path.removeprefix('./')}", lines)
        else:
            draft.look(lines, "see container.workdir")


# The trainer.


def _set_trainer(
    importer: Importer,
    reader: Reader,
    trainer: Program,
    arguments: Sequence[str] | None,
    given: dict[str, str],
) -> None:
    draft, command, lines = importer.draft, trainer.command, trainer.lines
    preset = find_preset(trainer.text) or find_preset(reader.body())
    if preset:
        draft.set("preset", preset, lines[:1])
    _set_assigns(draft, trainer)
    remove_redirections(draft, trainer)
    _look_at_place(draft, trainer)
    if command.context.is_background:
        draft.skip(lines[:1], "the job waits for the trainer")
        if (semicolon := command.node.get("Semicolon")) and command.node.get("Background"):
            command.reader.source.remove(semicolon["Offset"], semicolon["Offset"] + 1)
    words = _plain_command(reader, trainer)
    draft.became("run", lines, ("run",))
    if words is not None and arguments is None:
        draft.fields["run",] = [draft.hide(word) for word in words]
        return
    added = _add_preset_arguments(importer, trainer, preset)
    draft.fields["run",] = write_text(draft, reader, added, arguments, given)


def _look_at_place(draft: Draft, program: Program) -> None:
    context, has_others = program.command.context, draft.get("slurm.nodes") not in (None, "1")
    if context.place == "all" and has_others and not context.is_conditional:
        draft.look(program.lines[:1], "it ran on every node; `run` runs on the head node only")


def _set_assigns(draft: Draft, trainer: Program) -> None:
    """Move the variables in front of a command into env, so that Ray's workers have them, too."""
    assigns = trainer.command.node["Cmd"].get("Assigns") or []
    for (name, value), node in zip(trainer.command.assigns, assigns, strict=False):
        is_secret = draft.is_secret(name, value.constant)
        if name in HEAD_VARIABLES:
            draft.skip([value.line], f"{name}: the trainer joins the job's own Ray, with the job's GPUs")
        elif value.constant is None and not is_secret:
            draft.look([value.line], f"{name}: only the trainer's own process has it: see env")
            continue
        else:
            draft.set_variable(name, None if is_secret else value.constant, [value.line])
        start, end = node["Pos"]["Offset"], node["End"]["Offset"]
        blank = re.match(rb"(?:\s|\\\n)*", trainer.command.reader.source.text[end:])
        trainer.command.reader.source.remove(start, end + (blank.end() if blank else 0))


def _plain_command(reader: Reader, trainer: Program) -> list[str] | None:
    """Return the trainer's arguments, if they are the same for every shell and nothing else is left."""
    words = [word.constant for word in trainer.words]
    others = [each for each in left(reader) if each.left > Left.OPTION and each is not trainer.statement]
    is_plain = None not in words and (trainer.is_rebuilt or all(word.is_plain for word in trainer.words))
    if others or not is_plain or trainer.shell or trainer.statement is None:
        return None
    written = bash_source(trainer.words)
    if not trainer.is_rebuilt:
        written = trainer.command.reader.source.render(trainer.words[0].start, trainer.words[-1].end)
    return [word or "" for word in words] if trainer.statement.text.strip() == written.strip() else None


def _add_preset_arguments(importer: Importer, trainer: Program, preset: str | None) -> bool:
    """Write the preset's arguments behind those of the trainer; return whether that is possible."""
    added = False
    for program in importer.programs:
        if program is not trainer and (preset is None or find_preset(program.text) != preset):
            continue
        if program.shell:
            nodes, gpus = NUMBERS.get(preset or "", ((), ()))
            names = [*(f"{name}=$NNODES" for name in nodes), *(f"{name}=$GPUS_PER_NODE" for name in gpus)]
            if preset:
                text = " ".join(names) or "what slurmray render prints"
                importer.draft.look(
                    program.lines[:1], f"{program.shell} runs it, so nothing is added; write there: {text}"
                )
            continue
        args = program.command.node["Cmd"]["Args"]
        is_eval = program.command.program == "eval"
        array = '"${preset_args[@]@Q}"' if is_eval else '"${preset_args[@]}"'
        program.command.reader.source.insert(args[-1]["End"]["Offset"], f" {array}")
        added = True
    return added
