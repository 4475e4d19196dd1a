"""Acts on the commands of a launcher: what each one becomes in a job spec."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

from slurmray.importing import known
from slurmray.importing.calls import Call, Program
from slurmray.importing.container_options import (
    APPTAINER_FLAGS,
    APPTAINERS,
    BUILD_FLAGS,
    ENGINE_FLAGS,
    ENGINES,
    Containers,
)
from slurmray.importing.draft import HIDDEN, Draft
from slurmray.importing.exports import Environment
from slurmray.importing.options import Option, split_options
from slurmray.importing.ray_options import SUBMIT_FLAGS, RayOptions
from slurmray.importing.reader import Command, Context, Reader
from slurmray.importing.secret_names import is_secret_name
from slurmray.importing.shell_setup import ShellSetup
from slurmray.importing.syntax_tree import BashSyntaxError
from slurmray.importing.words import Word, bash_source, constant, is_log

_MAX_INSTALLER = 6  # words, in which `install` is
_IN_CONTAINER = "slurmray runs commands in the container"
_WAITS = "the trainer starts on the head node, and the job waits for it"


class Importer:
    """Acts on what the reader finds. gpus: of each node, as the directives have it. programs: in order."""

    def __init__(self, draft: Draft, gpus: str | None) -> None:
        self.draft, self.gpus = draft, gpus
        self.ray = RayOptions(draft)
        self.environment = Environment(draft)
        self.containers = Containers(draft, self.environment.set_in_container)
        self.setup = ShellSetup(draft)
        self.programs: list[Program] = []
        self.images: dict[str, str | None] = {}  # of named containers
        self.handlers: dict[str, Callable[[Call], None]] = {
            **dict.fromkeys(known.RUNNERS, self._run_runner),
            **dict.fromkeys(ENGINES, self._run_engine),
            **dict.fromkeys(APPTAINERS, self._run_apptainer),
            **dict.fromkeys(("bash", "sh"), self._run_shell),
            "env": self._run_env,
            "ray": self._run_ray,
            "srun": self._run_srun,
            "export": self._look_at_export,
            "unset": self._unset,
            "curl": self._request,
            **dict.fromkeys(known.LOGINS, self._log_in),
            "mkdir": self._make_folder,
            **dict.fromkeys(known.MODULES, self.setup.activate),
            **dict.fromkeys(known.CONDAS, self._run_conda),
            "timeout": self._run_timeout,
            **dict.fromkeys(("source", "."), self.setup.source),
            **dict.fromkeys(("cd", "pushd"), self.setup.change_folder),
            "eval": self.setup.evaluate,
            "ulimit": self.setup.set_limit,
            "rm": self.setup.remove,
        }

    def handle_assignment(self, name: str, value: Word, lines: list[int]) -> None:
        """Note an assignment of the shell: its value is where it is used."""
        self.draft.is_secret(name, value.constant)
        if any(part.kind == "code" and known.has_effect(part.text) for part in value.parts):
            self.draft.look(lines, f"{name} is what a command prints; slurmray does not run it")
        else:
            self.draft.skip(lines, "a variable of the script")

    def handle_export(self, name: str, value: Word | None, lines: list[int], context: Context) -> None:
        """Set a variable for Ray and the trainer."""
        if context.is_conditional or context.is_looped:
            self.environment.set_conditionally(name, value, lines)
        elif context.is_inside:
            self.environment.set(name, value, lines)
        else:
            self.environment.set_on_host(name, value, lines)

    def handle_missing_path(self, path: Word, lines: list[int]) -> None:
        """Check the path on each node."""
        if path.path:
            self.draft.add("checks.paths", path.path, lines)
        else:
            reason = "a check of a path that is only known when the script runs: see checks.paths"
            self.draft.look(lines, reason)

    def handle_command(self, command: Command, context: Context, reader: Reader) -> None:
        """Act on a command."""
        self._run(Call(command.words, command, context, reader))
        # Lines on which no word begins, e.g. of a text over several lines.
        missing = [line for line in command.lines if line not in self.draft.notes]
        if len(missing) < len(command.lines):
            self.draft.skip(missing, "continues the line above")

    def _run(self, call: Call) -> None:
        program, writes = call.program, call.command.writes
        if known.INSTALLERS.match(bash_source(call.words[:_MAX_INSTALLER])):
            self.setup.install(call)
        elif handler := self.handlers.get(program):
            handler(call)
        elif program in known.PROGRAMS and writes is not None and not is_log(writes):
            self.draft.look(call.lines, "it writes a file: do that before the job, or in a prepare step")
        elif program in known.PROGRAMS:
            self.draft.skip(call.lines, known.PROGRAMS[program])
        elif program in known.OTHER_HOSTS:
            self.draft.look(call.lines, f"{program}: a job spec has none; see prepare and services")
        elif call.context.is_condition:
            self.draft.look(call.lines, "a command whose result the script uses")
        else:
            self._add_program(call)

    def _run_rest(self, call: Call, rest: list[Word], context: Context | None = None) -> None:
        if rest:
            self._run(call.rest(rest, context))

    # Programs.

    def _add_program(self, call: Call) -> None:
        command = call.command
        texts = [*call.words, *([command.document] if command.document else [])]
        code = "".join(word.beginning for word in texts)
        if call.program.startswith("python") and "ray.init" in code and known.RAY_STATE.search(code):
            self.draft.skip(call.lines, known.RAY)
        elif not call.program and not call.words[0].variables:
            self.draft.look(call.lines, "a command that is only known when the script runs")
        else:
            for name, value in command.assignments:
                self.draft.is_secret(name, value.constant)
            words = self._without_secrets(call.words)
            redirections = (command.document, command.reads, command.writes)
            program = Program(words, call.lines, call.context, command.assignments, *redirections)
            self.programs.append(program)

    def _without_secrets(self, words: list[Word]) -> list[Word]:
        """Return a command with `...` in place of values whose options' names are those of secrets."""
        kept: list[Word] = []
        is_secret = False
        for word in words:
            name, value = word.partition("=")
            text = (value if value is not None else word).constant
            if value is not None:
                is_secret = is_secret_name(name)
            if is_secret and text and not text.startswith("-"):
                self.draft.add_secret(text)
                self.draft.look([word.line], "a secret in the command, left out: take it from env, as null")
                kept.append(constant(f"{name}={HIDDEN}" if value is not None else HIDDEN, word.line))
            else:
                kept.append(word)
            is_secret = value is None and name.startswith("-") and is_secret_name(name)
        return kept

    def _request(self, call: Call) -> None:
        """Take a request that is repeated until it succeeds as the readiness check of the last service."""
        context = call.context
        texts = [word.constant or "" for word in call.words[1:]]
        addresses = [text for text in texts if re.match(r"https?://|[\w.-]+:[0-9]+(?:/|$)", text)]
        services = [program for program in self.programs if program.context.is_background]
        if (context.is_condition or context.is_looped) and addresses and services:
            address = addresses[0]
            services[-1].ready = {"http": address if "://" in address else f"http://{address}"}
            self.draft.became("services[].ready", call.lines)
        elif context.is_condition:
            self.draft.look(call.lines, "a check of an address: see services[].ready")
        else:
            self._add_program(call)

    def _log_in(self, call: Call) -> None:
        texts = [word.constant or "" for word in call.words[1:]]
        if "login" not in texts:
            self._add_program(call)
            return
        for text in texts:
            if text not in ("auth", "login") and not text.startswith("--"):
                self.draft.add_secret(text)
        name = known.LOGINS[call.program]
        self.draft.set_variable(name, None, call.lines)

    def _make_folder(self, call: Call) -> None:
        if call.context.is_inside:
            self._add_program(call)
        else:
            self.setup.make_folder(call)

    def _run_conda(self, call: Call) -> None:
        if call.verb in ("activate", "deactivate"):
            self.setup.activate(call)
        elif call.verb == "run":
            self._add_program(call)
        else:
            self.draft.look(call.lines, "a change of the environment: make it before the job")

    # Variables.

    def _unset(self, call: Call) -> None:
        names = [word.constant or "" for word in call.words[1:] if not word.beginning.startswith("-")]
        own = call.reader.variables.own_names()
        self.environment.unset([name for name in names if name not in own], call.lines)

    def _look_at_export(self, call: Call) -> None:
        self.draft.look(call.lines, "an export that is only known when the script runs")

    # What runs other commands.

    def _run_runner(self, call: Call) -> None:
        _, rest = split_options(call.words[1:], known.RUNNERS[call.program])
        self.draft.skip([call.words[0].line], "slurmray starts programs itself")
        self._run_rest(call, rest)

    def _run_timeout(self, call: Call) -> None:
        _, rest = split_options(call.words[1:], {"--foreground", "--preserve-status", "-v", "--verbose"})
        self.draft.skip([call.words[0].line], "the job has slurm.time, and each readiness check a timeout")
        self._run_rest(call, rest[1:])

    def _run_env(self, call: Call) -> None:
        options, rest = split_options(call.words[1:], {"-i", "--ignore-environment", "-0"})
        self.draft.skip([call.words[0].line], "see env")
        for option in options:
            if option.name != "-u" or not option.value or option.value.constant not in known.VARIABLES:
                self.draft.look(option.lines, f"env {option.name}: env names what the container gets")
        assignments = list(call.command.assignments)
        while rest and (pair := rest[0].partition("="))[1] is not None:
            assignments.append((pair[0], pair[1] or constant("", rest[0].line)))
            rest = rest[1:]
        made = replace(call, command=replace(call.command, assignments=assignments))
        self._run_rest(made, rest)

    def _run_shell(self, call: Call) -> None:
        words = call.words
        index, has_text = 1, False
        while index < len(words) and words[index].beginning.startswith("-"):
            text = words[index].constant or ""
            has_text = has_text or (text[1:2] != "-" and "c" in text)
            takes_next = text == "--rcfile" or (text[1:2] != "-" and text.endswith("o"))  # e.g. -euo pipefail
            index += 2 if takes_next else 1
        following = words[index] if index < len(words) else None
        if following is not None and not has_text:
            self._add_program(call)  # a script of its own
            return
        script = following or call.command.document
        if script is None:
            self.draft.look(call.lines, "a shell that reads commands from elsewhere")
            return
        self.draft.skip([words[0].line, call.command.last], "a shell")
        try:
            call.reader.read_script(script, call.context)
        except BashSyntaxError as error:
            self.draft.look(call.lines, f"a script within it: {error}")

    def _run_ray(self, call: Call) -> None:
        words, verb = call.words, call.verb
        if verb == "start":
            self.draft.skip(call.lines, known.RAY)
            for name, value in call.command.assignments:
                self.environment.set(name, value, [value.line])
            self.ray.read_start(words[2:], self.gpus)
        elif verb == "job" and len(words) > 2 and words[2].constant == "submit":
            options, rest = split_options(words[3:], SUBMIT_FLAGS)
            self.draft.skip([words[0].line], _WAITS)
            self.ray.read_submit(options)
            self._run_rest(call, rest, replace(call.context, is_background=False, place="head"))
        elif verb == "job":
            self.draft.skip(call.lines, _WAITS)
        elif verb == "symmetric-run":
            options, rest = split_options(words[2:], set())
            self.draft.skip(
                [words[0].line, *(line for option in options for line in option.lines)], known.RAY
            )
            self._run_rest(call, rest, replace(call.context, place="head"))
        elif verb in known.RAY_VERBS:
            self.draft.skip(call.lines, known.RAY_VERBS[verb])
        else:
            self.draft.look(call.lines, f"ray {verb or ''}")

    def _run_srun(self, call: Call) -> None:
        options, rest = split_options(call.words[1:], known.SRUN_FLAGS)
        self.draft.skip([call.words[0].line], known.STEP)
        context = replace(call.context, place="all")
        for option in options:
            value = option.value.constant if option.value else None
            is_one = option.name in ("-N", "--nodes", "-n", "--ntasks") and value == "1"
            if (is_one or option.name in ("-w", "--nodelist", "-r", "--relative")) and not context.is_looped:
                context = replace(context, place="head")
            if option.name == "--container-image" and option.value is not None:
                context = replace(context, is_inside=True, image=option.value.path)
            if option.name == "--export" and option.value is not None:
                for item in option.value.split(","):
                    name, text = item.partition("=")
                    if name not in ("ALL", "NONE"):
                        self.environment.set(name, text, option.lines)
            elif not self.containers.read_srun_option(option):
                self.draft.skip(option.lines, known.STEP)
        self._run_rest(call, rest, context)

    # Containers.

    def _run_engine(self, call: Call) -> None:
        words, verb = call.words, call.verb
        if verb == "run":
            options, rest = split_options(words[2:], ENGINE_FLAGS)
            self._run_container(call, options, rest)
        elif verb == "exec":
            options, rest = split_options(words[2:], ENGINE_FLAGS)
            self.draft.skip([word.line for word in (words[0], *rest[:1])], _IN_CONTAINER)
            for option in options:
                self.containers.read_option(option, False)
            image = self.images.get(bash_source(rest[:1]), call.context.image)
            self._run_rest(call, rest[1:], replace(call.context, is_inside=True, image=image))
        elif verb == "build":
            self.containers.read_build(*split_options(words[2:], BUILD_FLAGS), call.lines)
        elif verb == "load":
            self.containers.read_archive(split_options(words[2:], set())[0], call.lines)
        elif verb in known.ENGINE_VERBS:
            self.draft.skip(call.lines, known.ENGINE_VERBS[verb])
        else:
            self.draft.look(call.lines, f"{call.program} {verb or ''}: see container")

    def _run_apptainer(self, call: Call) -> None:
        options, rest = split_options(call.words[1:], APPTAINER_FLAGS)
        verb = rest[0].constant if rest else None
        if verb in ("exec", "run", "shell"):
            more, rest = split_options(rest[1:], APPTAINER_FLAGS)
            self._run_container(call, [*options, *more], rest)
        else:
            self.draft.look(
                call.lines, f"{call.program} {verb or ''}: slurmray converts container.image itself"
            )

    def _run_container(self, call: Call, options: list[Option], rest: list[Word]) -> None:
        if not rest:
            self.draft.look(call.lines, "a container without an image")
            return
        image, inner = rest[0], rest[1:]
        values = {option.name: option.value for option in options}
        if program := values.get("--entrypoint"):
            inner = [*_entrypoint(program), *inner]
        is_background = call.context.is_background or not {"-d", "--detach"}.isdisjoint(values)
        context = replace(call.context, is_inside=True, image=image.path, is_background=is_background)
        main = self.draft.get("container.image")
        if main is not None and image.path not in (main, None) and is_background and inner:
            self._add_service(call.rest(inner, context), options)
            return
        first = [call.words[0].line]
        self.draft.skip(first, known.LIFE)
        self.containers.read_runtime(call.program, first)
        self.containers.read_image(image)
        for option in options:
            self.containers.read_option(option, call.program in APPTAINERS)
        if name := values.get("--name"):
            self.images[bash_source([name])] = image.path
        if known.WAITING.fullmatch(bash_source(inner)) or not inner:
            self.draft.skip([word.line for word in inner], "slurmray keeps the container")
        else:
            self._run_rest(call, inner, context)

    def _add_service(self, call: Call, options: list[Option]) -> None:
        """Add a service with an image of its own; most of its options are for the user to look at."""
        self._add_program(call)
        self.draft.skip([call.command.first], known.LIFE)
        for option in options:
            if not self.containers.is_skipped(option):
                reason = "a service has the mounts of container, and services[].env"
                self.draft.look(option.lines, f"{option.name}: {reason}")


def _entrypoint(value: Word) -> list[Word]:
    """Return the words of --entrypoint: a program, a list in JSON, or nothing."""
    text = value.constant
    if not text:
        return [] if text == "" else [value]
    try:
        items = json.loads(text) if text.startswith("[") else [text]
    except ValueError:
        items = [text]
    return [constant(str(item), value.line) for item in items]
