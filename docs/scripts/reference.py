"""Writes docs/reference, with its JSON Schemas, docs/inside/wire.md, llms.txt, and types of sbatch's options.

Of environment.md it writes the tables of layers.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from slurmray import events
from slurmray.agent import job_log
from slurmray.agent.container import variables
from slurmray.agent.controller import protocol
from slurmray.agent.wire import messages
from slurmray.cli import slurmray
from slurmray.cli.schema import schema_text
from slurmray.diagnosis import messages as known
from slurmray.diagnosis.exit_codes import EXIT_CODES
from slurmray.errors import ExitCode
from slurmray.slurm import syntax
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.slurm_section import Component

DOCS = Path(__file__).parents[1]

USUAL_FIELDS = (
    "name",
    "slurm.nodes",
    "slurm.gpus_per_node",
    "slurm.cpus_per_task",
    "slurm.mem",
    "slurm.time",
    "container.image",
    "container.mounts",
    "env",
    "run",
)

_RAW = "https://raw.githubusercontent.com/slurmray/slurmray/main/docs"
_LLMS = """# slurmray

> Runs a Ray trainer on several Slurm nodes: `slurmray render` turns one job spec, a YAML file, into one
> self-contained sbatch script. The job checks its nodes, starts a Ray cluster in containers or in a virtual
> environment, runs the trainer when every node and GPU is there, and cleans up. `slurmray mcp` has
> thirteen of its commands as tools for agents.

Start with For agents, then First job. Job spec has all fields, Exit codes and Messages have causes and fixes.
The job spec's JSON Schema is printed by `slurmray schema`. The package on PyPI called `slurmray` is an
unrelated one."""

_NOTE = "<!-- Written by docs/scripts/reference.py (`make schema`). Do not edit. -->\n"

_JOB_SPEC = """# Job spec

A YAML file with these fields. Most jobs need only the ten in the first table. Nearly all fields are
optional. `null` means not set, and `[]` stands for each item of a list. Text fields keep what you typed:
`12:00:00`, `1e-6`, `007` and `true` need no quotes. Text other than commands, arguments and values of
variables is one line without invisible characters, and numbers are at most 100,000,000. You see up to 20
mistakes at once, with line and column. How fields fit together (e.g. GPUs of services and of nodes) is
checked only once there is no unknown field, as a misspelt one would cause more mistakes.

An editor with a YAML language server completes and checks a file that names the schema. `slurmray init`
begins job specs with the address of its version's schema. If you have no internet, write the schema beside
the job spec (`slurmray schema > job-spec.schema.json`) and begin with:

```yaml
# yaml-language-server: $schema=job-spec.schema.json
```

Where relative paths begin: [Paths](../guides/paths.md).
"""

_COMMAND_LINE = """# Command line

Everything after the first `--` is the trainer's command. Wrong input ends a command with
[exit code 2](exit-codes.md), and nothing is written. `slurmray COMMAND --help` prints what is here.

## Tab completion

Completes commands, options, jobs, their nodes and services, the values of `--runtime` and `--target`, the
examples of `slurmray init` and the exit codes of `slurmray explain`. Add the line of your shell to its
configuration file:

| shell | file | line |
|---|---|---|
| bash 4.4 or later | `~/.bashrc` | `eval "$(_SLURMRAY_COMPLETE=bash_source slurmray)"` |
| zsh | `~/.zshrc`, after `compinit` | `eval "$(_SLURMRAY_COMPLETE=zsh_source slurmray)"` |
| fish | `~/.config/fish/config.fish` | <code>_SLURMRAY_COMPLETE=fish_source slurmray &#124; source</code> |
"""

_EXIT_CODES = """# Exit codes

The job's exit code is the trainer's own, 0 to 255; 128 + n stands for signal n. When something else ends
the job, it is one of slurmray's codes:

{table}

A trainer may use the same numbers. The last line of the job's log shows whose code it is:

```text
done: trainer exited with 0
done: trainer exited with 137 (128 + signal KILL)
failed (71 node lost): node2: no heartbeat for 25 s. Has it lost power or its network?
stopped by Slurm: scancel, preemption or the time limit
```

For example, a trainer's own 71 gives `done: trainer exited with 71`. After `scancel` the code is 143,
unless the trainer has one. `sacct` shows `CODE:SIGNAL`. With a SIGNAL other than 0 the script had no
influence: it was killed (`0:9`, `0:15`), or Slurm could not start it (`0:53`: the folder for its output
does not exist, or is not yours to write in).

`slurmray explain CODE` prints cause and fix. It takes a number, a name (`node_lost`), or what `sacct` shows
(`0:15`).
"""


_EVENTS = f"""# Events

`events.jsonl` in the run directory has one JSON object a line, for programs. The job's log is
for people, and its wording may change. Each line has `v` (the version), `time` (seconds since
1970) and `event`. The version is {job_log.VERSION}. Later versions may add events and fields;
`v` is raised only when one changes or is removed. The JSON Schema of a line:
[events.schema.json](events.schema.json).
"""

_MESSAGES = """# Messages

Messages of trainers, PyTorch, NCCL, Slurm and Ray that name a cause, by family. `slurmray why` looks for
them in the logs of a job, `slurmray why --log FILE` in any log, and `slurmray explain TEXT` in a line.
"""

_WIRE = """# Messages and states of a job

Controller, node agents and container processes send each other one JSON object a line, through `srun` and
the container's standard streams. slurmray opens no server or port. For example, a worker node sends

```json
{"type": "reachable_at", "address": "10.1.0.2", "ports": [22735, 41812], "node": "node2", "v": 1}
```

The trainer's output takes another way, so that nothing buffers or mixes it: two FIFOs in the job's folder
lead from the container to `copy_output.py` in the batch script. The types are in
`slurmray/agent/wire/messages.py`, and their order in a job in
[Architecture](architecture.md#a-job-message-by-message).
"""

# Union in wire/messages.py -> heading and text.
_DIRECTIONS = {
    "ToNodes": """## Down

The controller writes to srun's standard input, which reaches every task. First comes the script,
compressed. The node agent keeps `job`, `heartbeat` and `ended_jobs`, and passes all other messages on to the
container process.
""",
    "ToContainer": """## Inside

A node agent writes these to its container process. `job` comes between the first two.
""",
    "ToController": """## Up

Node agents and containers write to their standard output. Each message has `node`, and at most 1,000 bytes,
as srun breaks longer lines. Every program in a container can write there, so the controller ignores a
message with wrong fields or values, with one line in the log.
""",
}

_STATES = """## States

The controller keeps a state of the job (first diagram) and of each node (second diagram), by the table in
`slurmray/agent/controller/protocol.py`. A message that the state does not allow only shows that its node is
alive. Unless the job is ending, the log has a line about it.

```mermaid
stateDiagram-v2
{job}
```

```mermaid
stateDiagram-v2
{node}
```

In each of its states a node is up, until it becomes unfit (`unfit`), lost, or gone (`gone`).

| message | while the job is |
|---|---|
{expected}

Only the head node sends {from_head}.
While the controller ends the step, only {while_ending} have an effect.
"""

_LAYERS = """| layer of the trainer | what it sets |
|---|---|
{trainer}

Other programs, with the lowest layer first:

| program | layers |
|---|---|
{programs}

| layer of these programs alone | what it sets |
|---|---|
{others}
"""

# Name in agent/container/variables.py -> whose environment it is.
ENVIRONMENTS = {
    "SETUP": "`container.setup`",
    "RAY": "Ray, and the readiness probe",
    "RAY_START": "`ray start`",
    "GPU_CHECK": "check of the GPUs",
    "ATTACHED": "commands of who attaches",
    "PREPARE": "prepare steps",
    "SERVICE": "services in Ray's container, and readiness checks",
    "OUTSIDE_SERVICE": "services on the host or with an image of their own, in addition to what is there",
}


def make_files() -> dict[str, str]:
    """Return the generated files by their path in docs/."""
    return {
        "reference/job-spec.schema.json": schema_text(),
        "reference/job-spec.md": "\n".join([_NOTE, _JOB_SPEC, *_job_spec(JobSpec.model_json_schema()), ""]),
        "reference/command-line.md": "\n".join([_NOTE, _COMMAND_LINE, *_commands(), ""]),
        "reference/exit-codes.md": "\n".join([_NOTE, *_exit_codes(), ""]),
        "reference/events.schema.json": json.dumps(_events_schema(), indent=2) + "\n",
        "reference/events.md": "\n".join([_NOTE, _EVENTS, *_events()]),
        "reference/environment.md": _with_layers((DOCS / "reference/environment.md").read_text()),
        "inside/wire.md": "\n".join([_NOTE, _WIRE, *_messages(), _states()]),
        "../slurmray/spec/slurm_fields.py": "\n".join(_slurm_fields()),
        "reference/messages.md": "\n".join([_NOTE, _MESSAGES, *_known_messages(), ""]),
        "llms.txt": "\n".join([_LLMS, *_pages((DOCS / "index.md").read_text()), ""]),
    }


def _pages(index: str) -> Iterator[str]:
    """Yield the sections of the table of contents as lists (llmstxt.org)."""
    heading = ""
    for line in index.splitlines():
        link = re.search(r"\[(.+)\]\((.+)\)", line) if line.startswith("|") else None
        if line.startswith("## "):  # what comes last may be left out
            heading = "## Optional" if line == "## Inside" else line
        elif link:
            if heading:
                yield f"\n{heading}\n"
            heading = ""
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            text = next(cell for cell in cells if link[0] not in cell)
            yield f"- [{link[1]}]({_RAW}/{link[2]}): {text}"


def _job_spec(document: dict[str, Any]) -> Iterator[str]:
    """Yield the tables: the usual fields, then section by section what is left, in the order of the file."""
    sections = list(_sections(document))
    rows = {path: row for _, _, fields in sections for path, row in fields.items()}
    yield "## The ten usual fields\n"
    yield _HEADER
    yield from (rows[path] for path in USUAL_FIELDS)
    yield "\n## All other fields"
    for name, description, fields in sections:
        usual = [f"`{path}`" for path in fields if path in USUAL_FIELDS]
        above = f"{', '.join(usual)}: [above](#the-ten-usual-fields)." if usual else ""
        if name:
            yield f"\n### {name}\n\n{_link_pages(description)}{' ' * bool(above)}{above}\n"
        else:
            yield f"\n{above}\n"
        yield _HEADER
        yield from (row for path, row in fields.items() if path not in USUAL_FIELDS)


_HEADER = "| field | value | default | meaning |\n|---|---|---|---|"


def _sections(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield (name, description, table row of each field by its path); parents come before their sections.

    A section has no rows for fields that it shares with its parent.
    """
    queue: list[tuple[str, dict[str, Any], dict[str, Any]]] = [("", document, {})]
    while queue:
        name, section, parent = queue.pop(0)
        fields = {}
        for field, info in section["properties"].items():
            if parent.get(field) == info:
                continue
            path = f"{name}.{field}" if name else field
            if below := _reference(info):
                queue.append((path, document["$defs"][below], section["properties"]))
            if below := _reference(info.get("items", {})):
                queue.append((f"{path}[]", document["$defs"][below], section["properties"]))
            text = _link_pages(" ".join((info.get("description") or "see below").split()))
            default = "required" if field in section.get("required", ()) else _default(info)
            fields[path] = f"| `{path}` | {_value(info)} | {default} | {text} |"
        yield name, section.get("description", ""), fields


def _link_pages(text: str) -> str:
    """Return text in which pages of docs/ are links."""
    return re.sub(r"\bdocs/(\S+?/(\S+)\.md)", r"[\2](../\1)", text)


def _reference(info: dict[str, Any]) -> str | None:
    references = [option["$ref"] for option in (info, *info.get("anyOf", ())) if "$ref" in option]
    return references[0].rpartition("/")[2] if references else None


_TYPES = {
    "array": "list",
    "object": "names with values",
    "boolean": "true or false",
    "string": "text",
    "['string', 'number', 'boolean']": "text",
    "['string', 'number']": "text",
}


def _value(info: dict[str, Any]) -> str:
    if "anyOf" in info:
        kinds = [_value(option) for option in info["anyOf"] if option.get("type") != "null"]
        return " or ".join(kinds)
    if _reference(info):
        return "section"
    if "enum" in info:
        return ", ".join(info["enum"])
    if info.get("type") == "integer":
        low, high = info["minimum"], info.get("maximum")
        return f"{low} or more" if high is None else f"{low} to {high}"
    return str(info.get("const") or _TYPES[str(info["type"])])


def _default(info: dict[str, Any]) -> str:
    default = info.get("default")
    return "" if default is None else f"`{json.dumps(default)}`" if default != "" else ""


def _commands() -> Iterator[str]:
    """Yield each command's usage, help and options, as Click has them."""
    with slurmray.make_context("slurmray", [], resilient_parsing=True) as parent:
        for name in slurmray.list_commands(parent):
            command = slurmray.get_command(parent, name)
            if command is None:
                raise LookupError(name)
            with command.make_context(name, [], parent=parent, resilient_parsing=True) as context:
                yield f"## slurmray {name}\n"
                usage = " ".join(["slurmray", name, *command.collect_usage_pieces(context)])
                yield f"```text\n{usage.strip()}\n```\n"
                yield from map(_paragraph, inspect.cleandoc(command.help or "").split("\n\n"))
                options = [
                    param for param in command.params if isinstance(param, click.Option) and not param.hidden
                ]
                if options:
                    yield "| option | meaning |\n|---|---|"
                for option in options:
                    if record := option.get_help_record(context):
                        names, text = record
                        yield f"| {_code(names)} | {_cell(text)} |"
                yield ""


def _paragraph(text: str) -> str:
    """Return a paragraph of Click's help as Markdown; after its mark \\b lines stay as they are."""
    if not text.startswith("\b"):
        return f"{_escape(' '.join(text.split()))}\n"
    first, *lines = text.removeprefix("\b\n").splitlines()
    block = "\n".join(line.removeprefix("  ") for line in lines)
    return f"{first}\n\n```text\n{block}\n```\n"


def _code(text: str) -> str:
    """Return text as code in a table. `|` needs HTML: Python-Markdown shows the backslash of `a\\|b`."""
    return f"<code>{_escape(text).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _cell(text: str) -> str:
    return _escape(" ".join(text.split())).replace("|", "\\|")


def _escape(text: str) -> str:
    return text.replace("<", "&lt;")


def _exit_codes() -> Iterator[str]:
    table = "| code | name | meaning |\n|---|---|---|\n" + "\n".join(
        f"| {code.value} | {_name(code)} | {EXIT_CODES[code].meaning} |" for code in ExitCode
    )
    yield _EXIT_CODES.format(table=table)
    for code in ExitCode:
        each = EXIT_CODES[code]
        yield f"## {code.value} {_name(code)}\n\nCause: {each.cause}\n\nFix: {each.fix}\n"


def _events_schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of `events.jsonl`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of a job's events.jsonl",
        "oneOf": [_make_event_schema(name) for name in events.EVENTS],
    }


def _make_event_schema(name: str) -> dict[str, Any]:
    meaning, fields = events.EVENTS[name]
    own = {field: {**kind, "description": text} for field, (kind, text) in fields.items()}
    common = {
        "v": {"const": job_log.VERSION},
        "time": {**events.TIME, "description": "seconds since 1970, UTC"},
        "event": {"const": name},
    }
    return {
        "description": meaning,
        "type": "object",
        "properties": {**common, **own},
        "required": [*common, *own],
    }


def _events() -> Iterator[str]:
    for name, (meaning, fields) in events.EVENTS.items():
        yield f"## {name}\n\n{meaning}\n"
        if fields:
            yield "| field | type | meaning |\n|---|---|---|"
            for field, (kind, text) in fields.items():
                yield f"| `{field}` | {kind.get('type', 'string')} | {text} |"
            yield ""


def _known_messages() -> Iterator[str]:
    for family, entries in known.FAMILIES.items():
        about = inspect.getdoc(importlib.import_module(f"{known.__name__}.{family}"))
        yield f"## {family}\n\n{about}\n\n| message | cause | fix |\n|---|---|---|"
        for entry in entries:
            example = f"`` {entry.example} ``" if "`" in entry.example else _code(entry.example)
            yield f"| {example} | {_cell(entry.cause)} | {_cell(entry.fix)} |"
        yield ""


def _with_layers(page: str) -> str:
    """Return the page with new tables of layers."""
    before, mark, rest = re.split(r"(<!-- layers:.*?-->\n)", page, maxsplit=1)
    _, end, after = rest.partition("<!-- end of layers -->")
    of_ray = _names(variables.RAY)
    layers = {name: getattr(variables, name) for name in ENVIRONMENTS}
    # A layer that is there twice counts where it comes last.
    trainer = list(reversed(dict.fromkeys(reversed(variables.TRAINER))))
    others = dict.fromkeys(layer for group in layers.values() for layer in group if layer not in trainer)
    names = {name: _names(group).replace(of_ray, "those of Ray") for name, group in layers.items()}
    names["RAY"] = of_ray
    programs = [f"| {text} | {names[name]} |" for name, text in ENVIRONMENTS.items()]
    tables = _LAYERS.format(
        trainer="\n".join(map(_layer, trainer)),
        programs="\n".join(programs),
        others="\n".join(map(_layer, others)),
    )
    return f"{before}{mark}\n{tables}\n{end}{after}"


def _names(layers: Sequence[Callable[..., object]]) -> str:
    return ", ".join(f"`{layer.__name__}`" for layer in layers)


def _layer(layer: Callable[..., object]) -> str:
    late = " Not before Ray has an address on the node." if layer in variables.LATE else ""
    return f"| `{layer.__name__}` | {_cell(inspect.getdoc(layer) or '')}{late} |"


def _messages() -> Iterator[str]:
    """Yield the table of each direction, and of parts. The meaning of a field is in its comment."""
    source = Path(messages.__file__).read_text()
    (block,) = (node for node in ast.parse(source).body if isinstance(node, ast.If))
    kinds = [node for node in block.body if isinstance(node, ast.ClassDef)]
    rows = {kind.name: _message(kind, source.splitlines()) for kind in kinds}
    for union, text in _DIRECTIONS.items():
        (members,) = (
            [part.id for part in ast.walk(node.value) if isinstance(part, ast.Name) and part.id in rows]
            for node in block.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == union
        )
        yield "\n".join(
            [text, "| message | fields | |\n|---|---|---|", *(rows.pop(name) for name in members), ""]
        )
    yield "\n".join(["A field of a heartbeat:\n\n| part | fields | |\n|---|---|---|", *rows.values(), ""])


def _slurm_fields() -> Iterator[str]:
    """Yield the lines of a module with the fields of `slurm`, as type checkers see them."""
    types = {"flag": "bool", "optional": "bool | str"}
    yield '"""Fields of `slurm`, for type checkers. docs/scripts/reference.py writes this file."""\n\n'
    for name, base, is_whole in (("GroupFields", "", False), ("SlurmFields", "(GroupFields)", True)):
        yield f"class {name}{base}:"
        kinds = "of the whole job" if is_whole else "that a group may have"
        yield f'    """Options of sbatch {kinds}."""\n'
        for option, (_, kind) in syntax.OPTIONS.items():
            field = option.replace("-", "_")
            if field not in Component.model_fields and (option in syntax.OF_WHOLE_JOB) == is_whole:
                yield f"    {field}: {types.get(kind, 'str | None')}"
        yield "" if is_whole else "\n"


def _states() -> str:
    kinds = protocol.KINDS.items()
    by = {row.job or row.node: name for name, row in kinds} | {protocol.STARTING_RAY: "start_ray"}
    limited = {name: row.during for name, row in kinds if row.during != protocol.JOB}
    return _STATES.format(
        job="\n".join(_diagram(protocol.JOB, by)),
        node="\n".join(_diagram(protocol.NODE, by)),
        expected="\n".join(f"| `{name}` | {', '.join(during)} |" for name, during in limited.items()),
        from_head=", ".join(f"`{name}`" for name, row in kinds if row.is_from_head),
        while_ending=", ".join(f"`{name}`" for name, row in kinds if row.is_late),
    )


def _diagram(states: Sequence[str], by: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a diagram: each state follows the one before it. by: state -> message."""
    names = [name.replace(" ", "_") for name in states]
    yield f"    [*] --> {names[0]}"
    for number, state in enumerate(states[1:], 1):
        yield f"    {names[number - 1]} --> {names[number]}: {by[state]}"


def _message(kind: ast.ClassDef, lines: list[str]) -> str:
    """Return the row of a message. lines: of the file."""
    fields = [node for node in kind.body if isinstance(node, ast.AnnAssign)]
    found = re.findall(r"Literal\['(\w+)'\]", ast.unparse(fields[0].annotation))
    name = found[0] if found else kind.name
    fields = fields[len(found) :]
    names = [f"`{ast.unparse(field.target)}`" for field in fields]
    meanings = [lines[field.lineno - 1].partition("  # ")[2] for field in fields]
    texts = [f"{name}: {text}." for name, text in zip(names, meanings, strict=True) if text]
    meaning = _cell(" ".join([ast.get_docstring(kind) or "", *texts]))
    return f"| `{name}` | {' '.join(names)} | {meaning} |"


def _name(code: ExitCode) -> str:
    return code.name.lower()


if __name__ == "__main__":
    for path, content in make_files().items():
        (DOCS / path).write_text(content)
