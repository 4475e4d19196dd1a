"""Completes the job spec: prepare steps, services, and `run`, from what is left of the script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from slurmray.importing.draft import Draft
from slurmray.importing.importer import Importer, Program
from slurmray.importing.known import FILES, HEAD_VARIABLES, KEPT, NO_FILE, PRINTS, RAY, VARIABLE
from slurmray.importing.reader import Left, Reader, Statement
from slurmray.importing.words import bash_source, is_log
from slurmray.presets.trainers import NUMBERS, find_preset, looks_like_trainer
from slurmray.spec.job_spec import OF_THE_JOB
from slurmray.spec.runtimes import RUNTIMES
from slurmray.spec.types import FILL_IN

# Variables that a program in the job has without `env`: those of bash, of the user, and of the job.
_KNOWN = {
    *(
        "HOME",
        "PWD",
        "OLDPWD",
        "USER",
        "LOGNAME",
        "UID",
        "EUID",
        "PATH",
        "HOSTNAME",
        "TMPDIR",
        "IFS",
        "REPLY",
    ),
    *("RANDOM", "SECONDS", "LINENO", "BASH_SOURCE", "FUNCNAME", "PIPESTATUS", "BASH_REMATCH", "OPTARG"),
    *("OPTIND", "NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "RAY_ADDRESS"),
    *OF_THE_JOB,
}
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
_RANKED = re.compile(r"(?:^|[\s/])(?:torchrun|deepspeed|accelerate launch|python\S* -m torch\.distributed)")
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
    importer.ray.merge_arguments()
    _set_runtime(draft, trainer)
    _set_folder(importer)
    _leave_out_unsupported(draft)
    _warn_of_unpassed(importer)
    for number, program in enumerate(programs):
        if program is trainer:
            continue
        if number > last >= 0 and not program.command.context.is_background:
            draft.look(program.lines, "runs after the trainer, in its shell, and only on the head node")
        elif command := _own_command(program, reader):
            _add_stage(draft, program, command)
        elif program.command.context.is_background:
            draft.look(program.lines, "it stays beside the trainer, on the head node: see services")
            draft.became("run", program.lines)
        else:
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
    programs = [program for program in programs if program.text.split(" ")[0] not in FILES]
    waited = [program for program in programs if not program.command.context.is_background]
    by_form = [
        [program for program in programs if find_preset(program.text)],
        [program for program in waited if looks_like_trainer(program.text)],
        waited,
        programs,
    ]
    return next((some[-1] for some in by_form if some), None)


def _set_runtime(draft: Draft, trainer: Program | None) -> None:
    if draft.get("container.runtime") is None:
        if trainer is not None:
            draft.set("container.runtime", "none", trainer.lines[:1])
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


def _warn_of_unpassed(importer: Importer) -> None:
    """Note variables of the host that `docker run` did not pass on, and that are now in the container."""
    if importer.draft.get("container.runtime") not in ("docker", "podman"):
        return
    for path in list(importer.draft.fields):
        if path[0] == "env" and path[1] not in importer.passed:
            lines = sorted(importer.draft.lines.get(path, ()))
            importer.draft.look(lines, f"{path[1]} was not passed on to the container; now it is")


# Prepare steps and services.


def _own_command(program: Program, reader: Reader) -> list[str] | str | None:
    """Return the command of a stage; None if it needs what the script has set, or is in a structure."""
    command = program.command
    if program.own_statement is None or command.context.is_conditional or command.context.is_looped:
        return None
    texts = [word.constant for word in program.words]
    source = _source(program)
    own = {*command.reader.variables.texts, *command.reader.variables.arrays, *reader.functions}
    own -= {name for path in reader.draft.fields if path[0] == "env" for name in path[1:]}
    if not command.node.get("Redirs") and None not in texts and not command.reader.edits_in(command.node):
        return [text or "" for text in texts]
    is_free = own.isdisjoint(re.findall(r"\w+", source)) and not re.search(r"\$[1-9@*#{]", source)
    return source if is_free or all(word.is_plain for word in program.words) else None


def _source(program: Program) -> str:
    """Return a command as it was written, without what started it in the background."""
    assert program.statement  # noqa: S101 - the callers have looked
    text = program.statement.text
    return re.sub(r"\s*&\s*$", "", text) if program.command.node.get("Background") else text


def _add_stage(draft: Draft, program: Program, command: list[str] | str) -> None:
    context, lines = program.command.context, program.lines
    is_service = context.is_background
    section, stage = "services" if is_service else "prepare", {"run": command}
    if context.place == "all":
        stage["where"] = "all"
    elif is_service:
        stage["where"] = "head"
    if "ray.init" in program.text:
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
    assert program.statement  # noqa: S101 - _own_command has looked
    program.statement.own = Left.NOTHING


def _complete_service(draft: Draft, program: Program, service: dict[str, Any]) -> None:
    context, lines = program.command.context, program.lines
    if draft.get("container.runtime") != "none" and not context.is_inside:
        service["host"] = "true"
    if context.image and context.image != draft.get("container.image"):
        service["image"] = context.image
    for name, value in program.command.assigns if isinstance(service["run"], list) else []:
        if (
            value.constant is None
            or draft.is_secret(name, value.constant)
            or name.endswith("VISIBLE_DEVICES")
        ):
            draft.look(lines[:1], f"{name} of the service: see services[].env and services[].gpus")
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
    _remove_redirections(draft, trainer)
    if command.context.place == "all" and (_RANKED.search(trainer.text) or trainer.shell):
        draft.look(lines[:1], "it ran on every node; `run` runs on the head node only")
    if command.context.is_background:
        draft.skip(lines[:1], "the job waits for the trainer")
        if semicolon := command.node.get("Semicolon"):
            command.reader.remove(semicolon["Offset"], semicolon["Offset"] + 1)
    words = _plain_command(reader, trainer)
    draft.became("run", lines, ("run",))
    if words is not None and arguments is None:
        draft.fields["run",] = [draft.hide(word) for word in words]
        return
    added = _add_preset_arguments(importer, trainer, preset)
    draft.fields["run",] = _write_text(draft, reader, added, arguments, given)


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
        blank = re.match(rb"(?:\s|\\\n)*", trainer.command.reader.variables.source[end:])
        trainer.command.reader.remove(start, end + (blank.end() if blank else 0))


def _remove_redirections(draft: Draft, trainer: Program) -> None:
    """Remove those to logs: the job has its own."""
    variables = trainer.command.reader.variables
    redirections = trainer.command.node.get("Redirs") or []
    files = [(each, variables.value(each.get("Word"), trainer.lines[0])) for each in redirections]
    if not files or any(
        each.get("Hdoc") or not is_log(word) or each["Op"].startswith("<") for each, word in files
    ):
        return
    draft.skip([variables.lines(each)[0] for each, _ in files], NO_FILE)
    start = trainer.words[-1].end if trainer.words[-1].end > 0 else files[0][0]["Pos"]["Offset"]
    trainer.command.reader.remove(min(start, files[0][0]["Pos"]["Offset"]), files[-1][0]["End"]["Offset"])


def _left(reader: Reader) -> list[Statement]:
    """Return what is left of the script and those within it, in order."""
    made: list[Statement] = []
    for statement in reader.statements:
        if statement.inner is not None:
            made += _left(statement.inner)
        elif statement.left:
            made.append(statement)
    return made


def _plain_command(reader: Reader, trainer: Program) -> list[str] | None:
    """Return the trainer's arguments, if they are the same for every shell and nothing else is left."""
    words = [word.constant for word in trainer.words]
    others = [each for each in _left(reader) if each.left > Left.OPTION and each is not trainer.statement]
    is_plain = None not in words and (trainer.is_rebuilt or all(word.is_plain for word in trainer.words))
    if others or not is_plain or trainer.shell or trainer.statement is None:
        return None
    written = bash_source(trainer.words)
    if not trainer.is_rebuilt:
        written = trainer.command.reader.render(trainer.words[0].start, trainer.words[-1].end)
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
        program.command.reader.insert(args[-1]["End"]["Offset"], f" {array}")
        added = True
    return added


def _write_text(
    draft: Draft, reader: Reader, takes_preset: bool, arguments: Sequence[str] | None, given: dict[str, str]
) -> str:
    """Return the text of `run`: what is left of the script, and before it what the cluster had set."""
    kept = _choose(_left(reader))
    body = "\n".join(statement.text.strip() for statement in kept)
    for line in {line for statement in kept for line in statement.lines}:
        draft.became("run", [line])
        skipped = draft.notes[line].skipped
        draft.notes[line].skipped = [reason for reason in skipped if reason not in _OF_KEPT]
    first = "; ".join([*['preset_args=("$@")'] * takes_preset, *_positions(draft, kept, arguments)])
    lines = [first] if first else []
    names = {"preset_args"}.union(*(statement.names for statement in kept))
    uses = [use for statement in kept for use in statement.reader.uses(statement.node)]
    places: dict[str, int] = {}
    optional = {name for name, has_default, _ in uses if has_default}
    for name, _, line in uses:
        places.setdefault(name, line)
    for name, line in places.items():
        where = [line]
        if name in reader.head_names:
            lines.append(f"{name}={reader.head_names[name]}")
            draft.look(where, f"{name} is the head node's address, from MASTER_ADDR")
            if re.search(rf"{name}\[(?!0\])|#{name}\b", body):
                draft.look(where, f"{name} has only the head node: the job's other nodes run Ray alone")
        elif name in names or name in _KNOWN or ("env", name) in draft.fields or _exports(draft, name):
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
    return "\n".join([*lines, body])


def _choose(left: list[Statement]) -> list[Statement]:
    """Return the statements that stay: programs, and what they use."""
    setters: dict[str, list[int]] = {}
    for number, statement in enumerate(left):
        for name in statement.names if statement.left == Left.INERT else ():
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
        for name in {*re.findall(r"\w[\w-]*", text), *re.findall(r"\w+", text)}:
            more = [number for number in setters.pop(name, []) if number not in kept]
            kept.update(more)
            todo += more
    runs_beside = any(left[number].text.endswith("&") for number in kept)
    waits = [number for number, each in enumerate(left) if runs_beside and re.match(r"wait\b", each.text)]
    return [left[number] for number in sorted({*kept, *waits})]


def _positions(draft: Draft, kept: list[Statement], arguments: Sequence[str] | None) -> list[str]:
    """Return `set --` with the script's own arguments, or with what the user has to fill in."""
    if arguments is not None:
        return [shlex.join(["set", "--", *arguments])]
    kept = [each for each in kept if not _OPTIONS_LOOP.match(each.text)]  # whose arguments are optional
    uses = [use for each in kept for use in each.reader.uses(each.node, in_functions=False)]
    needed = [int(name) for name, has_default, _ in uses if re.fullmatch("[1-9]", name) and not has_default]
    text = "\n".join(each.text for each in kept if each.node["Cmd"]["Type"] != "FuncDecl")
    counted = [int(number) for number in _COUNT.findall(text)]
    shifts = len(re.findall(r"(?:^|[;&|{]|\b(?:then|do))\s*shift\b", text, re.MULTILINE))
    count = min(max([*needed, *counted, shifts]), 9) if [*needed, *counted, shifts] else 0
    if not count:
        if where := [line for name, _, line in uses if name in ("@", "*", "#") or name.isdigit()]:
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
