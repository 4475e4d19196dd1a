"""Acts on the commands of a launcher: what belongs to the cluster, and what it becomes in a job spec."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from slurmray.importing import container_options as containers
from slurmray.importing import known
from slurmray.importing import ray_options as ray
from slurmray.importing.container_options import APPTAINERS, ENGINES
from slurmray.importing.draft import HIDDEN, Draft
from slurmray.importing.options import Option, Table, split_options
from slurmray.importing.reader import Command, Context, Left, Statement, written
from slurmray.importing.secrets import find_secrets
from slurmray.importing.slurm_options import SRUN, count_gpus
from slurmray.importing.syntax_tree import BashSyntaxError, walk
from slurmray.importing.words import Part, Word, bash_source, constant, is_log, text_of
from slurmray.presets.trainers import looks_like_trainer
from slurmray.slurm.syntax import parse_count

_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH")  # a container's image sets its own
# Letters of bash's ulimit -> Docker's names.
_LIMITS = {"n": "nofile", "l": "memlock", "u": "nproc", "s": "stack", "c": "core"}
_IN_KB = "lsc"  # bash counts these in KB, and Docker in bytes
_LEFT_BY_RAY = r"/tmp/ray|.*ray_head_ip|/dev/shm/"  # noqa: S108
_OWN_PROCESS = "only the trainer's own process has it, and not Ray's workers: see env and node_env"
_NOT_READ = "slurmray init does not read this script: it must not start Ray or use srun"
_MAX_RUNNER = 12  # words before Ray's own, of what runs it
_RUNS_RAY = re.compile(r"(?:\bray|ray\.scripts\.scripts)\s+(?:start|stop|status)\b")


@dataclass
class Program:
    """A command that is no part of starting Ray: a prepare step, a service or the trainer.

    statement: of the script, if that has it outside of structures. shell: why nothing can be added to it.
    is_rebuilt: the script has it in several pieces, so that the text of `run` has its values.
    """

    command: Command
    statement: Statement | None
    shell: str = ""
    is_rebuilt: bool = False
    ready: dict[str, object] = field(default_factory=dict)

    @property
    def own_statement(self) -> Statement | None:
        """The statement that it is, if it is one."""
        return self.statement if self.statement and self.statement.node is self.command.node else None

    @property
    def words(self) -> list[Word]:
        """The words of the command."""
        return self.command.words

    @property
    def lines(self) -> list[int]:
        """Its lines."""
        return self.command.lines

    @property
    def text(self) -> str:
        """The command, for patterns; with the text that another shell gets."""
        command = self.command
        source = command.reader.source.text_of(command.node) if self.shell else ""
        return f"{command.text}\n{source}".strip()


class Importer:
    """Acts on what the reader finds. programs: in order."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.programs: list[Program] = []
        self.images: dict[str, str | None] = {}  # of named containers
        self.folders: list[tuple[Word, list[int], bool]] = []  # folder, lines, whether it is in a container
        self.handlers: dict[str, Callable[[Command], Left]] = {
            **dict.fromkeys(known.RUNNERS, self._run_runner),
            **dict.fromkeys(ENGINES, self._run_engine),
            **dict.fromkeys(APPTAINERS, self._run_apptainer),
            **dict.fromkeys(known.OTHER_RUNTIMES, self._run_other_runtime),
            **dict.fromkeys(("bash", "sh"), self._run_shell),
            **dict.fromkeys(known.LOGINS, self._log_in),
            **dict.fromkeys(known.MODULES, self._activate),
            **dict.fromkeys(known.CONDAS, self._run_conda),
            **dict.fromkeys(("source", "."), self._source),
            **dict.fromkeys(("cd", "pushd"), self._change_folder),
            **{"env": self._run_env, "ray": self._run_ray, "srun": self._run_srun, "unset": self._unset},
            **{"curl": self._request, "mkdir": self._make_folder, "eval": self._evaluate},
            **{
                "timeout": self._run_timeout,
                "ulimit": self._set_limit,
                "rm": self._remove,
                "trap": self._trap,
            },
        }

    # What the reader finds.

    def handle_assignment(self, name: str, value: Word, lines: list[int]) -> bool:
        """Note an assignment of the shell; return whether its value is a secret, which env then has."""
        self.draft.skip(lines, known.VARIABLE)
        is_secret = self.draft.is_secret(name, value.constant)
        if is_secret and value.constant:
            self.draft.set_variable(name, None, lines)
        return is_secret and bool(value.constant)

    def handle_export(self, name: str, value: Word | None, lines: list[int], context: Context) -> Left:
        """Set a variable for Ray and the trainer; it stays in the script if only bash knows its value."""
        text = value.constant if value is not None else None
        name = known.OF_CONTAINER.sub("", name)
        if (
            name in ("APPTAINER_BINDPATH", "SINGULARITY_BINDPATH", "APPTAINER_BIND", "SINGULARITY_BIND")
            and value
        ):
            containers.APPTAINER.read(self, [Option("--bind", value, (value,))])
        elif name == "RAY_TMPDIR" and value:
            ray.set_temp_dir(self, Option(name, value, (value,)))
        elif name in known.MASKS_OF_GPUS and text and count_gpus(self.draft) is None:
            if not context.is_conditional:
                ray.set_gpus(self.draft, str(len(text.split(","))), lines)
        elif name in known.VARIABLES:
            self.draft.skip(lines, f"{name}: {known.VARIABLES[name]}")
        elif value is None or (text is not None and self.draft.is_secret(name, text)):
            self.draft.set_variable(name, None, lines)
        elif context.is_conditional or context.is_looped:
            self.draft.look(lines, f"{name} is set in an if or a loop: {_OWN_PROCESS}")
            return Left.SETUP
        elif text is not None:
            self.draft.set_variable(name, text, lines)
        elif [part.text for part in value.parts if part.text] == [name] or self.draft.is_secret(name, None):
            self.draft.set_variable(name, None, lines)
        elif value.has("code") or "MASTER_ADDR" in value.variables:
            self.draft.look(lines, f"{name}: {_OWN_PROCESS}")
            return Left.SETUP
        else:
            self.draft.remove_variable(name)
            place = "setup" if name in _SEARCH_PATHS and not context.is_inside else "node_env"
            self.draft.add_line(place, f"export {name}={value.bash}", lines)
        return Left.NOTHING

    def handle_missing_path(self, path: Word, lines: list[int]) -> bool:
        """Check the path on each node."""
        if path.path:
            self.draft.add("checks.paths", path.path, lines)
        return bool(path.path)

    def judge_condition(self, words: list[Word]) -> tuple[Left, bool]:
        """Return what a command of a condition is, and whether it asks about the cluster."""
        if words[0].constant in ENGINES and len(words) > 1 and words[1].constant == "exec":
            return self.judge_condition(containers.ENGINE.split(words[2:])[1][1:] or words[:1])
        name, text = words[0].program, text_of(words)
        if name == "curl" and not known.DASHBOARD.search(text):
            return self._judge_request(words), False
        is_about = name in ("ray", "srun", "scontrol", "squeue", "curl", *ENGINES) or bool(
            _RUNS_RAY.search(text)
        )
        is_inert = is_about or name in known.PROGRAMS or name in (*known.FILTERS, "xargs", "kill", "command")
        return (Left.INERT if is_inert else Left.ACTIVE), is_about

    def handle_command(self, command: Command) -> Left:
        """Act on a command."""
        left = self._run(command)
        whole = command.reader.source.lines(command.node)
        missing = [line for line in whole if line not in self.draft.notes]
        if len(missing) < len(whole):
            self.draft.skip(missing, known.CONTINUES)
        return left

    def _run(self, command: Command) -> Left:
        secrets = self._hide_secrets(command)
        left = self._act(command)
        if left >= Left.SETUP:
            self.draft.look(secrets, "a secret in the command, left out: take it from env, as null")
        return left

    def handle_runner(self, command: Command) -> Left:
        """Act on a call of a function that runs its arguments."""
        return self._keep_before(command, command.words[1:])

    def _act(self, command: Command) -> Left:  # noqa: PLR0911 - a case each
        draft, program, lines = self.draft, command.program, command.lines
        if known.INSTALLERS.match(command.text):
            return self._install(command)
        starts_others = program in known.OTHER_HOSTS or (
            program in self.handlers and program not in known.CONDAS
        )
        if not starts_others and (words := _ray_words(command)):
            return self._run_ray(command.rest(words))
        if handler := self.handlers.get(program):
            return handler(command)
        if program == "scontrol" and command.verb == "requeue":
            draft.look(lines, "it requeues the job: see requeue.max")
            return Left.NOTHING
        if program in known.OPTIONS:
            draft.skip(lines, known.STRUCTURE)
            return Left.SETUP if "--" in command.text else Left.OPTION
        is_end = program == "return" or (program == "exit" and command.context.is_conditional)
        if program == "shift" or is_end:
            draft.skip(lines, known.STRUCTURE)
            return Left.SETUP if program == "shift" else Left.EXIT
        if program == ":":
            self._require(command)
        if program in known.PROGRAMS and not _writes_data(command):
            draft.skip(lines, known.PROGRAMS[program])
            return Left.NOTHING if program == "sleep" and not command.context.is_looped else Left.INERT
        if program in known.OTHER_HOSTS:
            return self._run_elsewhere(command)
        if program.endswith(".sh"):
            draft.look(lines, _NOT_READ)
        return self._add_program(command)

    def _rest(self, command: Command, rest: list[Word], **context: object) -> Left:
        return self._run(command.rest(rest, **context)) if rest else Left.NOTHING

    def _hide_secrets(self, command: Command) -> list[int]:
        """Take secrets out of a command and its source; return their lines."""
        source, lines = command.reader.source.text, []
        for word, secret in find_secrets(command.words, command.program):
            self.draft.add_secret(secret)
            lines.append(word.line)
            place = source.find(secret.encode(), word.start, word.end)
            if place >= 0 and word.start >= 0 and not secret.startswith("$"):  # else hidden where it was set
                command.reader.source.remove(place, place + len(secret.encode()), HIDDEN)
        return lines

    def _add_program(self, command: Command, shell: str = "") -> Left:
        """Keep a program; what only starts it somewhere, e.g. srun, is removed from the source."""
        reader, words = command.reader, command.words
        source = reader.source.text[command.node["Pos"]["Offset"] : command.node["Last"][0]].decode()
        if re.match(r"python|uv$", command.program) and known.RAY_STATE.search(source):
            self.draft.skip(command.lines, known.RAY)
            return Left.NOTHING
        for name, value in command.assigns:
            self.draft.is_secret(name, value.constant)
        arguments, count = command.node["Cmd"]["Args"], len(command.all_words) - len(words)
        first = arguments[0]["Pos"]["Offset"]
        is_end = all(word is other for word, other in zip(words, command.all_words[count:], strict=False))
        is_rebuilt = (
            not is_end or count < 0 or (count > 0 and command.all_words[count - 1].start == words[0].start)
        )
        if is_rebuilt:  # e.g. of an entrypoint, or of a variable with srun and a program
            reader.source.remove(first, arguments[-1]["End"]["Offset"], bash_source(words))
        elif count:
            reader.source.remove(first, words[0].start)
        statement = reader.statements[-1] if command.context.is_top else None
        self.programs.append(Program(command, statement, shell, is_rebuilt))
        return Left.ACTIVE

    # Services.

    def _judge_request(self, words: list[Word]) -> Left:
        """Take a request that is repeated until it succeeds as the readiness check of the last server."""
        texts = [word.constant or "" for word in words[1:]]
        addresses = [text for text in texts if re.match(r"https?://|[\w.-]+:[0-9]+(?:/|$)", text)]
        servers = [program for program in self.programs if program.command.context.is_background]
        if not addresses or not servers:
            return Left.ACTIVE
        address = addresses[0]
        servers[-1].ready = {"http": address if "://" in address else f"http://{address}"}
        self.draft.skip([words[0].line], "the job waits for its services")
        return Left.INERT

    def _request(self, command: Command) -> Left:
        if command.context.is_looped and self._judge_request(command.words) == Left.INERT:
            return Left.INERT
        return self._add_program(command)

    # Variables and the shell.

    def _require(self, command: Command) -> None:
        """Take the variables without which the script ends, `: "${NAME:?}"`, from the submitter."""
        variables = command.reader.variables
        own = {*variables.texts, *variables.arrays, *known.VARIABLES, *known.SET_IN_JOB}
        for node in walk(command.node):
            name = node["Param"]["Value"] if (node.get("Exp") or {}).get("Op") in (":?", "?") else ""
            if name.isidentifier() and name not in own and not name.startswith("SLURM"):
                self.draft.set_variable(name, None, command.lines)

    def set_in_container(self, name: str, value: Word | None, lines: list[int]) -> None:
        """Set a variable of programs in the container. value: None: that of the shell."""
        if value is None and ("env", name) in self.draft.fields:  # exported before
            self.draft.became(f"env.{name}", lines, ("env", name))
        elif value is None and f"export {name}=" in (self.draft.get("node_env") or ""):
            self.draft.became("node_env", lines)
        elif name in ("SLURM_NODEID", "SLURM_PROCID"):
            self.draft.look(lines, f"{name} would be the batch host's on all nodes: use NODE_RANK")
        elif self.handle_export(name, value, lines, Context(is_inside=True)):
            self.draft.look(lines, f"{name}: set it in env")

    def _unset(self, command: Command) -> Left:
        names = [word.constant or "" for word in command.words[1:] if not word.beginning.startswith("-")]
        own = {"IFS", *command.reader.variables.texts, *command.reader.variables.arrays}
        for name in names:
            self.draft.remove_variable(name)
        others = [name for name in names if name not in (*known.VARIABLES, *own)]
        others = [name for name in others if not name.startswith(("SLURM", "PMI"))]
        if others:
            reason = "containers do not get your environment; env names what they get"
            self.draft.look(command.lines, f"{', '.join(others)}: {reason}")
        else:
            self.draft.skip(command.lines, known.MASKS)
        return Left.INERT

    def _trap(self, command: Command) -> Left:
        text = command.words[1].constant or "" if len(command.words) > 1 else ""
        if text in command.reader.functions:
            text = command.reader.source.text_of(command.reader.functions[text])
        if re.search(r"\b(?:requeue|sbatch)\b", text):
            self.draft.look(command.lines, "it resubmits the job: see requeue.max")
        elif not re.search(r"\bpython|rsync|\bcp\b|\bmv\b", text):
            self.draft.skip(command.lines, "slurmray cleans up")
        else:
            self.draft.look(command.lines, "it runs at the end of the trainer's shell")
            return Left.SETUP
        return Left.NOTHING

    def _log_in(self, command: Command) -> Left:
        if "login" not in [word.constant for word in command.words[1:]]:
            return self._add_program(command)
        self.draft.set_variable(known.LOGINS[command.program], None, command.lines)
        return Left.NOTHING

    def _activate(self, command: Command) -> Left:
        """Take an activation, e.g. `conda activate`, for the node or the container, where Ray starts."""
        is_inside, is_certain = command.context.is_inside, not any(word.has("code") for word in command.words)
        if is_inside and command.program in known.MODULES:
            self.draft.look(command.lines, "a container has no modules: what it loads must be in the image")
            return Left.SETUP
        if command.context.is_conditional or not (is_certain or command.program == "eval"):
            self.draft.look(command.lines, "it stays with the trainer: see setup and container.setup")
            return Left.SETUP
        source = bash_source(command.words)
        if command.program == "eval":
            source = command.reader.source.text_of(command.node)
        self.draft.add_line("container.setup" if is_inside else "setup", source, command.lines)
        return Left.NOTHING

    def _run_conda(self, command: Command) -> Left:
        if command.verb in ("activate", "deactivate"):
            return self._activate(command)
        if command.verb == "run":
            return self._add_program(command)
        self.draft.look(command.lines, "a change of the environment: make it before the job")
        return Left.NOTHING

    def _source(self, command: Command) -> Left:
        name = "".join(part.text for part in command.words[1].parts) if len(command.words) > 1 else ""
        if known.ACTIVATING_FILES.search(name):
            return self._activate(command)
        reason = f"slurmray init does not read this file: {_OWN_PROCESS}. Secrets: env_file"
        self.draft.look(command.lines, reason)
        return Left.SETUP

    def _evaluate(self, command: Command) -> Left:
        return (
            self._activate(command)
            if known.ACTIVATING_CODE.search(command.text)
            else self._add_program(command)
        )

    def _install(self, command: Command) -> Left:
        if not command.context.is_inside:
            reason = "an installation on the host: do it once before the job, or in container.setup"
            self.draft.look(command.lines, reason)
        elif any(word.has("code") for word in command.words):
            self.draft.look(
                command.lines, "an installation with values that are not certain: see container.setup"
            )
        else:
            self.draft.add_line("container.setup", bash_source(command.words), command.lines)
        return Left.NOTHING

    def _change_folder(self, command: Command) -> Left:
        context, words = command.context, command.words
        is_certain = len(words) == 2 and words[1].absolute_path not in (None, "-")
        if is_certain and not context.is_conditional and not context.is_looped:
            self.folders.append((words[1], command.lines, context.is_inside))
            return Left.NOTHING
        self.draft.skip(command.lines, known.KEPT)
        return Left.SETUP

    def _set_limit(self, command: Command) -> Left:
        texts = [word.constant or "" for word in command.words[1:]]
        letter = texts[-2][-1:] if len(texts) > 1 else ""
        text = texts[-1] if texts else ""
        value = -1 if text == "unlimited" else parse_count(text)
        if letter not in _LIMITS or value is None:
            self.draft.look(command.lines, "a limit: see container.ulimits")
            return Left.NOTHING
        size = value * 1024 if letter in _IN_KB and value > 0 else value
        self.draft.add("container.ulimits", f"{_LIMITS[letter]}={size}:{size}", command.lines)
        return Left.NOTHING

    def _make_folder(self, command: Command) -> Left:
        if (
            command.context.is_inside
            or command.context.is_looped
            or any(w.has("code") for w in command.words)
        ):
            return self._add_program(command)
        has_parents = any(re.match(r"-\w*p|--parents", word.beginning) for word in command.words)
        options = "" if has_parents else "-p "  # as it may be there
        self.draft.add_line("setup", f"mkdir {options}{bash_source(command.words[1:])}", command.lines)
        return Left.NOTHING

    def _remove(self, command: Command) -> Left:
        names = [word.beginning for word in command.words[1:] if not word.beginning.startswith("-")]
        if names and all(re.match(_LEFT_BY_RAY, name) for name in names):
            self.draft.skip(command.lines, "slurmray cleans up")
            return Left.NOTHING
        return self._add_program(command)

    # What runs other commands.

    def _run_runner(self, command: Command) -> Left:
        _, rest = split_options(command.words[1:], known.RUNNERS[command.program])
        if not rest:  # e.g. exec > log
            self.draft.skip(command.lines, known.NO_FILE)
            return Left.NOTHING
        self.draft.skip([command.words[0].line], f"{command.program}: slurmray starts programs itself")
        return self._rest(command, rest)

    def _run_env(self, command: Command) -> Left:
        options, rest = split_options(command.words[1:], {"-i", "--ignore-environment", "-0"})
        while rest and rest[0].partition("=")[1] is not None:
            rest = rest[1:]
        masks = [option.value.constant for option in options if option.name == "-u"]
        if len(masks) == len(options) and len(masks) * 2 + len(rest) + 1 == len(command.words):
            self.draft.skip([command.words[0].line], "see env")
            if not all(name in known.VARIABLES for name in masks):
                self.draft.look(command.lines, "env -u: env names what the container gets")
            return self._rest(command, rest)
        return self._keep_before(command, rest)

    def _run_timeout(self, command: Command) -> Left:
        _, rest = split_options(command.words[1:], {"--foreground", "--preserve-status", "-v", "--verbose"})
        return self._keep_before(command, rest[1:])

    def _run_elsewhere(self, command: Command) -> Left:
        """Act on what e.g. ssh runs, and keep both as they are if it is more than the cluster."""
        line, (options, rest) = command.words[0].line, split_options(command.words[1:], known.SSH_FLAGS)
        if not {"-L", "-R", "-D"}.isdisjoint(option.name for option in options):
            self.draft.skip(command.lines, "a tunnel: see slurmray dashboard")
            return Left.NOTHING
        rest = rest[1:] if command.program in known.WITH_HOST else rest
        if len(rest) == 1:  # a text for the other host's shell
            rest = [constant("bash", line), constant("-c", line), *rest]
        left = self._keep_before(command, rest, command.program)
        if left < Left.ACTIVE:
            self.draft.skip([line, *(each for option in options for each in option.lines)], known.STEP)
        else:
            reason = "a job spec has none; see prepare and services"
            if command.program == "sbatch":
                reason = "if it submits this script, its options win over the directives: see slurm"
            self.draft.look(command.lines, f"{command.program}: {reason}")
        return left

    def _keep_before(self, command: Command, rest: list[Word], shell: str = "") -> Left:
        """Act on what a program runs, and keep both as they are if that is a program."""
        programs, edits = len(self.programs), len(command.reader.source.edits)
        left = self._rest(command, rest)
        if rest and left < Left.ACTIVE:
            return left
        shells = [program.shell for program in self.programs[programs:]]
        is_free = any(shells) or not self.programs[programs:]
        del self.programs[programs:], command.reader.source.edits[edits:]
        return self._add_program(command, shell or (shells[0] if is_free and shells else ""))

    def _run_shell(self, command: Command) -> Left:
        words, variables = command.words, command.reader.variables
        index, has_text = 1, False
        while index < len(words) and words[index].beginning.startswith("-"):
            text = words[index].constant or ""
            has_text = has_text or (text[1:2] != "-" and "c" in text)
            takes_next = text == "--rcfile" or (text[1:2] != "-" and text.endswith("o"))  # e.g. -euo pipefail
            index += 2 if takes_next else 1
        following = words[index:]
        if following and not has_text:
            self.draft.look(command.lines, _NOT_READ)
            return self._add_program(command, "a script of its own")
        document = next((each for each in command.node.get("Redirs") or [] if each.get("Hdoc")), None)
        arguments = command.node["Cmd"]["Args"]
        node = next(
            (each for each in arguments if following and each["Pos"]["Offset"] == following[0].start), None
        )
        node = node or (document or {}).get("Hdoc")
        if node is None or len(following) > 1:
            return self._add_program(command, "another shell")
        is_quoted = document is not None and any(part["Type"] != "Lit" for part in document["Word"]["Parts"])
        script = variables.script(node, is_document=document is not None and not is_quoted)
        return self._read_script(command, script, is_certain=is_quoted or variables.is_certain(node))

    def _read_script(
        self, command: Command, script: tuple[str, list[tuple[int, int]]] | None, *, is_certain: bool
    ) -> Left:
        """Put a script within the script in its place, if it is certain or has parts of the cluster."""
        programs = len(self.programs)
        if script is None and _RUNS_RAY.search(command.text) and not looks_like_trainer(command.text):
            self.draft.look(command.lines, "slurmray starts Ray itself: see ray for options of this one")
            return Left.NOTHING
        if script is None:
            return self._add_program(command, "another shell")
        try:
            inner = command.reader.read_script(*script, command)
        except BashSyntaxError:
            return self._add_program(command, "another shell")
        if _RUNS_RAY.search(script[0]):  # what runs beside it is the trainer
            for program in self.programs[programs:]:
                context = replace(program.command.context, is_background=False)
                program.command = replace(program.command, context=context)
        is_changed = bool(inner.source.edits) or any(not each.left for each in inner.statements)
        if not is_certain and not is_changed:
            del self.programs[programs:]
            return self._add_program(command, "another shell")
        self.draft.skip([command.words[0].line, command.lines[-1]], "a shell")
        if inner.left < Left.ACTIVE:
            for each in inner.statements:
                if each.left == Left.SETUP:
                    self.draft.look(each.lines, "Ray starts without it: the image's own Python needs Ray")
            return Left.NOTHING
        node, statement = command.node, command.reader.statements[-1]
        command.reader.source.remove(node["Cmd"]["Args"][0]["Pos"]["Offset"], node["Last"][0], inner.body)
        if statement.node is node:
            statement.inner = inner
        return inner.left

    def _run_ray(self, command: Command) -> Left:
        words, verb = command.words, command.verb
        waits = "the trainer starts on the head node, and the job waits for it"
        if verb == "start":
            self.draft.skip(command.lines, known.RAY)
            for name, value in command.assigns:
                self.handle_export(name, value, [value.line], Context())
            options, rest = ray.HEAD.split(words[2:])
            is_head = any(option.name == "--head" for option in options)
            (ray.HEAD if is_head else ray.WORKER).read(self, options)
            for word in rest:
                self.draft.look([word.line], "an argument of ray start")
        elif verb == "job" and len(words) > 2 and words[2].constant == "submit":
            options, rest = ray.SUBMIT.split(words[3:])
            self.draft.skip([words[0].line], waits)
            ray.SUBMIT.read(self, options)
            is_background = "--no-wait" in [option.name for option in options]
            return self._rest(command, rest, is_background=is_background, place="head")
        elif verb == "job":
            self.draft.skip(command.lines, waits)
        elif verb == "symmetric-run":
            options, rest = ray.ALL.split(words[2:])
            self.draft.skip([words[0].line], known.RAY)
            ray.ALL.read(self, options)
            return self._rest(command, rest, place="head")
        elif verb in known.RAY_VERBS:
            self.draft.skip(command.lines, known.RAY_VERBS[verb])
        else:
            self.draft.look(command.lines, f"ray {verb or ''}")
        return Left.NOTHING

    def _run_srun(self, command: Command) -> Left:
        options, rest = SRUN.split(command.words[1:])
        SRUN.read(self, options)
        self.draft.skip([command.words[0].line], known.STEP)
        place, inside, image = "all", command.context.is_inside, command.context.image
        for option in options:
            is_one = option.name in ("-N", "--nodes", "-n", "--ntasks") and option.text == "1"
            is_named = option.name in ("-w", "--nodelist", "-r", "--relative")
            if (is_one or is_named) and not command.context.is_looped:
                place = "head"
            if option.name == "--container-image":
                inside, image = True, option.value.path
            elif option.name == "--container-name":
                inside = True
        return self._rest(command, rest, place=place, is_inside=inside, image=image)

    # Containers.

    def _run_engine(self, command: Command) -> Left:
        words, verb, inside = command.words, command.verb, "slurmray runs commands in the container"
        if verb == "run":
            return self._run_container(command, containers.ENGINE, *containers.ENGINE.split(words[2:]))
        if verb == "exec":
            options, rest = containers.ENGINE.split(words[2:])
            self.draft.skip([word.line for word in (words[0], *rest[:1])], inside)
            containers.ENGINE.read(self, options)
            image = self.images.get(bash_source(rest[:1]), command.context.image)
            return self._rest(command, rest[1:], is_inside=True, image=image)
        if verb == "build":
            containers.read_build(self, words[2:], command.lines)
        elif verb == "load" and len(words) > 2:
            containers.LOAD.read(self, containers.LOAD.split(words[2:])[0])
        elif verb in known.ENGINE_VERBS:
            self.draft.skip(command.lines, known.ENGINE_VERBS[verb])
        else:
            self.draft.look(command.lines, f"{command.program} {verb or ''}: see container")
        return Left.NOTHING

    def _run_apptainer(self, command: Command) -> Left:
        table = containers.APPTAINER
        options, rest = table.split(command.words[1:])
        verb = rest[0].constant if rest else None
        if verb in ("exec", "run", "shell"):
            more, rest = table.split(rest[1:])
            return self._run_container(command, table, [*options, *more], rest)
        reason = f"{command.program} {verb or ''}: slurmray converts container.image itself"
        self.draft.look(command.lines, reason)
        return Left.NOTHING

    def _run_other_runtime(self, command: Command) -> Left:
        options, rest = split_options(command.words[1:], ())
        lines = sorted({command.words[0].line, *(line for option in options for line in option.lines)})
        self.draft.look(lines, f"{command.program} is no runtime of slurmray: see container.runtime")
        return self._rest(command, rest, is_inside=True)

    def _run_container(self, command: Command, table: Table, options: list[Option], rest: list[Word]) -> Left:
        if not rest:
            self.draft.look(command.lines, "a container without an image")
            return Left.NOTHING
        image, inner = rest[0], rest[1:]
        values = {option.name: option.value for option in options}
        if program := values.get("--entrypoint"):
            inner = [*_entrypoint(program), *inner]
        is_background = command.context.is_background or not {"-d", "--detach"}.isdisjoint(values)
        context = {"is_inside": True, "image": image.path, "is_background": is_background}
        first, text = [command.words[0].line], bash_source(inner)
        self.draft.skip(first, known.LIFE)
        is_idle = not inner or known.WAITING.fullmatch(text)
        is_main = _RUNS_RAY.search(text) or looks_like_trainer(text)
        is_other = image.path not in (self.draft.get("container.image"), None)
        if is_background and is_other and not is_idle and not is_main:
            containers.SERVICE.read(self, options)
            return self._add_program(command.rest(inner, **context))
        containers.set_runtime(self.draft, command.program, first)
        containers.set_image(self, image)
        table.read(self, options)
        if name := values.get("--name"):
            self.images[bash_source([name])] = image.path
        if is_idle:
            self.draft.skip([word.line for word in inner], "slurmray keeps the container")
            return Left.NOTHING
        return self._rest(command, inner, **context)


def _ray_words(command: Command) -> list[Word] | None:
    """Return the words from `ray` on, of a command that runs it by e.g. uv, conda or Python."""
    names = [word.program for word in command.words[:_MAX_RUNNER]]
    for number, (name, verb) in enumerate(itertools.pairwise(names)):
        if name in ("ray", "ray.scripts.scripts") and verb in known.RAY_COMMANDS:
            return command.words[number:]
    return None


def _writes_data(command: Command) -> bool:
    """Whether a command that only prints writes a file that is no log."""
    variables = command.reader.variables
    return any(not is_log(variables.value(each["Word"], 1)) for each in written(command.node))


def _entrypoint(value: Word) -> list[Word]:
    """Return the words of --entrypoint: a program, a list in JSON, or nothing."""
    text = value.constant
    if not text:
        return [] if text == "" else [value]
    try:
        items = json.loads(text) if text.startswith("[") else [text]
    except ValueError:
        items = [text]
    return [Word((Part(str(item)),), value.line, value.start, value.end) for item in items]
