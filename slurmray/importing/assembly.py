"""Divides a launcher's programs into prepare steps, services and trainer, and completes the job spec."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from slurmray.importing.calls import Program
from slurmray.importing.draft import Draft
from slurmray.importing.importer import Importer
from slurmray.importing.known import FILES, NO_FILE
from slurmray.importing.sbatch_lines import count_gpus
from slurmray.importing.words import Part, Word, bash_source, is_log
from slurmray.presets.trainers import NUMBERS, OWN_PLACEMENT, find_preset, looks_like_trainer
from slurmray.spec.runtimes import RUNTIMES

# Variables that a program in the job has, without `env`: those of Slurm, and those below.
_KNOWN_VARIABLES = {
    *("HOME", "PWD", "USER", "LOGNAME", "PATH", "RANDOM", "UID", "SECONDS"),
    *("NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "RAY_ADDRESS"),
}
_SLURMS_NUMBERS = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE")
_END = "END_OF_DOCUMENT"
_MAX_LINE = 100  # characters of a command, above which each argument gets a line


def assemble(importer: Importer) -> None:
    """Set the fields that depend on the whole script."""
    programs, draft = importer.programs, importer.draft
    trainer = _find_trainer(programs)
    last = programs.index(trainer) if trainer else -1
    importer.ray.merge_arguments()
    _set_runtime(importer, trainer)
    _set_folder(importer)
    _leave_out_unsupported(draft)
    _warn_of_unpassed(importer)
    _note_activations(importer)
    for number, program in enumerate(programs):
        if program is trainer:
            continue
        if program.context.is_background:
            _add_service(draft, program)
        elif number < last:
            _add_prepare(draft, program)
        else:
            draft.look(program.lines, "runs after the trainer; a job ends with its trainer")
    if trainer is not None:
        _set_trainer(draft, trainer)
    draft.hide_all()


def _find_trainer(programs: list[Program]) -> Program | None:
    """Return the trainer: the last program with a preset, or that looks like one, or that is waited for."""
    programs = [program for program in programs if program.text.split(" ")[0] not in FILES]
    by_form = [
        [program for program in programs if find_preset(program.text)],
        [
            program
            for program in programs
            if not program.context.is_background and looks_like_trainer(program.text)
        ],
        [program for program in programs if not program.context.is_background],
        programs,
    ]
    return next((some[-1] for some in by_form if some), None)


def _set_runtime(importer: Importer, trainer: Program | None) -> None:
    draft = importer.draft
    if draft.get("container.runtime") is None:
        if trainer is not None:
            draft.set("container.runtime", "none", trainer.lines[:1])
    elif trainer is not None and not trainer.context.is_inside:
        draft.look(trainer.lines[:1], "the trainer ran on the host, and now runs in the container")


def _leave_out_unsupported(draft: Draft) -> None:
    """Leave out fields that the runtime does not have, e.g. limits of a shell around Apptainer."""
    runtime = draft.get("container.runtime") or "auto"
    for name in RUNTIMES[runtime].unsupported:
        key = ("container", name)
        for path in [path for path in draft.fields if path[:2] == key]:
            del draft.fields[path]
            reason = f"container.{name}: not supported with runtime {runtime}"
            draft.look(draft.withdraw(".".join(path)), reason)


def _set_folder(importer: Importer) -> None:
    draft = importer.draft
    shares_folder = draft.get("container.runtime") in ("none", "apptainer", "singularity")
    for word, lines, is_inside in importer.setup.folders:
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
        if path[0] == "env" and path[1] not in importer.environment.passed:
            lines = sorted(importer.draft.lines.get(path, ()))
            importer.draft.look(lines, f"{path[1]} was not passed on to the container; now it is")


def _note_activations(importer: Importer) -> None:
    """Note what became of activations in containers: they go with each command after them."""
    used = {source for program in importer.programs for source in program.context.prefix}
    for source, lines in importer.setup.activations:
        if source in used:
            importer.draft.became("run", lines)
        else:
            importer.draft.look(lines, "Ray starts without it: the image's own Python needs Ray")


def _command(draft: Draft, program: Program) -> list[str] | str:
    """Return a command for a job spec: a list of arguments, or bash where it has variables."""
    words = [_with_addresses(word) for word in program.words]
    _set_missing(draft, program)
    rest = _redirections(draft, program)
    if not program.context.prefix and not rest and all(word.constant is not None for word in words):
        return [word.constant or "" for word in words]
    text = bash_source(words)
    if len(text) > _MAX_LINE and "\n" not in text:
        text = " \\\n  ".join(word.bash for word in words)
    return " && ".join((*program.context.prefix, text)) + rest


def _redirections(draft: Draft, program: Program) -> str:
    """Return the files of a command's standard input and output, and its here-document, as bash."""
    text = ""
    if program.writes is not None and not is_log(program.writes):
        text += f" > {program.writes.bash}"
    if program.reads is not None:
        text += f" < {program.reads.bash}"
    if program.document is not None:
        if program.document.constant is None:
            draft.look(
                program.lines[:1], "a here-document with values that are only known when the script runs"
            )
        else:
            document = program.document.constant.removesuffix("\n")
            end = _END
            while end in document:
                end += "_"
            text += f" <<'{end}'\n{document}\n{end}"
    return text


def _with_addresses(word: Word) -> Word:
    """Replace what the script knows of the head node's address."""
    parts = [Part("MASTER_ADDR", "variable") if part.kind == "cluster" else part for part in word.parts]
    return replace(word, parts=tuple(parts))


def _set_missing(draft: Draft, program: Program) -> None:
    """Take variables that the script does not set from the submitter, and note what needs a look."""
    assigned = {name for name, _ in program.assignments}
    has_container = draft.get("container.runtime") != "none"
    for word in program.words:
        line = [word.line]
        for name in word.variables:
            if name == "HOME" and has_container:
                draft.look(line, "HOME: the container's may be another folder than yours; write the path")
            elif name in _KNOWN_VARIABLES or name.startswith("SLURM_") or name in assigned:
                continue
            elif (
                ("env", name) not in draft.fields and name.isidentifier() and not _is_in_node_env(draft, name)
            ):
                draft.set_variable(name, None, line)
                if not draft.is_secret(name, None):
                    draft.look(
                        line, f"{name} is not set in the script: taken from your environment at sbatch"
                    )
        if word.has("cluster"):
            draft.look(line, "an address: MASTER_ADDR is the head node's, and RAY_ADDRESS is that of Ray")
        if word.has("code"):
            draft.look(
                line,
                "only known when it runs; bash evaluates it in the job, without the script's variables",
            )


def _is_in_node_env(draft: Draft, name: str) -> bool:
    text = f"{draft.get('node_env') or ''}\n{draft.get('setup') or ''}"
    return bool(re.search(rf"^export {re.escape(name)}=", text, re.MULTILINE))


def _add_prepare(draft: Draft, program: Program) -> None:
    step: dict[str, Any] = {"run": _command(draft, program)}
    if program.context.place == "all" or program.context.is_looped:
        step["where"] = "all"
    if "ray.init" in program.text:
        step["needs_ray"] = "true"
    for name, value in program.assignments:
        _set_assigned(draft, name, value)
    items = draft.fields.setdefault(("prepare",), [])
    index = next((n for n, item in enumerate(items) if item["run"] == step["run"]), len(items))
    if index == len(items):
        items.append({"name": _choose_name(program, items), **step})
    draft.became("prepare", program.lines, ("prepare", str(index)))
    if looks_like_trainer(program.text):
        draft.look(program.lines[:1], "another trainer; it runs before the last one, as a prepare step")
    if program.context.is_conditional:
        draft.look(program.lines[:1], "in an if; now it always runs")
    if not program.context.is_inside and draft.get("container.runtime") != "none":
        draft.look(program.lines[:1], "ran on the host, and now runs in the container")


def _add_service(draft: Draft, program: Program) -> None:
    context = program.context
    is_everywhere = context.place == "all" or context.is_looped
    service: dict[str, Any] = {"run": _command(draft, program), "where": "all" if is_everywhere else "head"}
    has_container = draft.get("container.runtime") != "none"
    if has_container and not context.is_inside:
        service["host"] = "true"
    if context.image and context.image != draft.get("container.image"):
        service["image"] = context.image
    lines = program.lines
    for name, value in program.assignments:
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
    items = draft.fields.setdefault(("services",), [])
    items.append({"name": _choose_name(program, items), **service})
    draft.became("services", lines, ("services", str(len(items) - 1)))


def _set_assigned(draft: Draft, name: str, value: Word) -> None:
    if name.endswith("VISIBLE_DEVICES"):
        return
    is_secret = draft.is_secret(name, value.constant)
    if value.constant is None and not is_secret:
        draft.look([value.line], f"{name}: set it in env")
    else:
        draft.set_variable(name, None if is_secret else value.constant, [value.line])


def _set_trainer(draft: Draft, program: Program) -> None:
    lines = program.lines
    if program.writes is not None and not is_log(program.writes):
        draft.look(lines[-1:], NO_FILE)
    program.writes = None
    for name, value in program.assignments:
        _set_assigned(draft, name, value)
    if preset := find_preset(program.text):
        draft.set("preset", preset, lines[:1])
        _leave_out_numbers(draft, program, preset)
    draft.set("run", _command(draft, program), [])
    # Without lines that have only arguments that the preset adds.
    own = [line for line in lines if line not in draft.notes or draft.notes[line].became != ["preset"]]
    draft.became("run", own, ("run",))
    if program.context.is_conditional:
        draft.look(lines[:1], "in an if; now it always runs")
    if program.context.is_looped and program.context.place != "all":
        draft.look(lines[:1], "in a loop; now it runs once. See slurm.array, and job specs with include")
    if program.context.is_background:
        draft.skip(lines[:1], "the job waits for the trainer")


def _leave_out_numbers(draft: Draft, program: Program, preset: str) -> None:
    """Leave out the numbers of nodes and GPUs that the preset adds; a text for bash gets variables."""
    nodes_names, gpus_names = NUMBERS.get(preset, ((), ()))
    nodes = draft.get("slurm.nodes") or "1"
    gpus = count_gpus(draft) or draft.get("ray.gpus_per_node")
    numbers = {**dict.fromkeys(nodes_names, nodes), **dict.fromkeys(gpus_names, gpus)}
    if OWN_PLACEMENT.search(program.text):
        return
    others = [word for word in program.words if word.partition("=")[0] not in numbers]
    is_text = bool(program.context.prefix) or any(word.constant is None for word in others)
    kept = []
    for word in program.words:
        name, value = word.partition("=")
        if name not in numbers or value is None or not _is_number_of_job(value, numbers[name]):
            kept.append(word)
        elif is_text:
            variable = "NNODES" if name in nodes_names else "GPUS_PER_NODE"
            kept.append(Word((Part(f"{name}="), Part(variable, "variable")), word.line))
        else:
            draft.became("preset", [word.line], ("preset",))
    program.words = kept


def _is_number_of_job(value: Word, number: str | None) -> bool:
    """Whether a value is the job's number, or a variable of Slurm that has it."""
    if value.constant is not None:
        return number is not None and value.constant.rpartition(":")[2] == number
    return any(map(value.is_variable, _SLURMS_NUMBERS))


def _choose_name(program: Program, items: list[dict[str, Any]]) -> str:
    """Return a name for a prepare step or a service, from its command."""
    texts = [word.beginning for word in program.words]
    name = texts[0].rpartition("/")[2]
    if re.fullmatch(r"python[0-9.]*|bash|sh|uv|torchrun", name):
        after = texts[texts.index("-m") + 1 : texts.index("-m") + 2] if "-m" in texts else []
        files = [text for text in texts[1:] if re.search(r"\.(?:py|sh)$", text)]
        name = after[0].rpartition(".")[2] if after else files[0].rpartition("/")[2] if files else name
    elif (
        len(texts) > 1
        and re.fullmatch(r"[a-z-]+", texts[1])
        and name in ("hf", "huggingface-cli", "aws", "git")
    ):
        name = texts[1]
    name = re.sub(r"\.(?:py|sh)$", "", name)
    name = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    name = (name if name[:1].isalpha() else f"step-{name}".strip("-"))[:28].rstrip("-")
    taken = {item["name"] for item in items}
    return next(
        each for n in range(1, len(items) + 2) if (each := name if n == 1 else f"{name}-{n}") not in taken
    )
