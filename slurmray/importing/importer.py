"""Acts on the commands of a launcher: what each one becomes in a job spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from slurmray.agent.container.variables import FOREIGN
from slurmray.importing import containers
from slurmray.importing.containers import Containers
from slurmray.importing.draft import HIDDEN, Draft
from slurmray.importing.options import Option, split_options
from slurmray.importing.ray_options import SUBMIT_FLAGS, RayOptions
from slurmray.importing.reader import Command, Context, Reader
from slurmray.importing.syntax_tree import BashSyntaxError
from slurmray.importing.words import Word, bash_source, constant

_SRUN_FLAGS = {
    *("--overlap", "--exclusive", "--pty", "-l", "--label", "-u", "--unbuffered", "--exact", "-K", "-O", "-s"),
    *("--overcommit", "--oversubscribe", "--kill-on-bad-exit", "--no-kill", "-k", "-q", "-Q", "--quiet", "-v"),
    *("--no-container-mount-home", "--container-mount-home", "--container-writable", "--container-readonly"),
    *("--container-remap-root", "--no-container-remap-root", "--container-entrypoint", "--verbose", "-H"),
    *("--no-container-entrypoint", "--spread-job", "--whole", "--disable-status", "-X", "--multi-prog", "-E"),
}
_STEP = "slurmray starts one task on each node"
_ENDS = "slurmray starts Ray, waits for all nodes, and ends it"
_PRINTS = "it only prints"
_MASKS = "the container has only the job's GPUs"

# Programs that a job spec does not need, and why.
_SKIPPED = {
    **dict.fromkeys(("echo", "printf", "printenv", "date", "nvidia-smi", "rocm-smi", "ibdev2netdev"), _PRINTS),
    **dict.fromkeys(("hostname", "whoami", "pwd", "ls", "id", "uname", "df", "free", "nproc", "lscpu"), _PRINTS),
    **dict.fromkeys(("squeue", "sinfo", "scontrol", "sacct", "lsof", "netstat", "ss", "tail", "ps"), _PRINTS),
    **dict.fromkeys(("sleep", "wait", "ping", "nc", "pkill", "kill", "killall"), _ENDS),
    **dict.fromkeys(("set", "shopt", "trap", "true", "false", ":", "exit", "return", "break"), "structure of the script"),
    **dict.fromkeys(("continue", "[", "test", "shift", "local", "cat", "grep", "let", "which", "type"), "structure of the script"),
    **dict.fromkeys(("hash", "seq"), "structure of the script"),
    "umask": "jobs keep the umask of the submitter",
}
_ENGINE_SKIPPED = {
    **dict.fromkeys(("pull", "login"), "slurmray pulls the image where it is missing"),
    **dict.fromkeys(("image", "images", "ps", "inspect", "info", "version", "logs"), _PRINTS),
    **dict.fromkeys(("rm", "stop", "kill", "container", "system", "rmi"), "slurmray names, starts and removes the containers"),
}
# Programs that set up the shell in which they run: an environment of modules, conda or a venv.
_ACTIVATIONS = re.compile(
    r"(?:module|ml|spack|conda|mamba|micromamba)$"
)
_ACTIVATING_FILES = re.compile(r"(?:^|/)(?:activate|conda\.sh|modules?\.sh|bash|lmod\.sh|init/bash|setvars\.sh|\.bashrc|\.bash_profile|profile)$")
_MAX_INSTALLER = 6  # words, in which `install` is
_INSTALLERS = re.compile(r"(?:pip3?|apt-get|apt|conda|uv pip|yum|dnf|python3? -m pip) .*\binstall\b|pip3? uninstall")
# Programs that only run the command after them; those with options that have no value.
_RUNNERS = {"nohup", "exec", "time", "sudo", "setsid", "command", "ionice", "nice", "stdbuf", "unbuffer"}
# Variables that slurmray or Slurm set, and why a job spec does not.
_VARIABLES_SKIPPED = {
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), _MASKS),
    **dict.fromkeys(FOREIGN, "the trainer joins the job's own Ray"),
    **dict.fromkeys(("NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT"), "slurmray sets it"),
    **dict.fromkeys(("RANK", "WORLD_SIZE", "head_node_ip", "ip_head", "RAY_HEAD_IP"), "slurmray starts Ray itself"),
}
_LOGINS = {"wandb": "WANDB_API_KEY", "huggingface-cli": "HF_TOKEN", "hf": "HF_TOKEN"}
# Commands that only keep a container running.
_WAITING = re.compile(r"tail -f .*|sleep \S+|cat|(?:/bin/)?(?:ba)?sh(?: -[il])*")
_RAY_STATE = r"ray\.nodes|cluster_resources|available_resources"
_MAX_TEXT = 20_000  # characters
# Options of trainers whose value is a secret though the name does not show it.
_SECRET_OPTIONS = {"--use_wandb"}
# And the other way round: names of columns and of special tokens.
_NO_SECRETS = re.compile(
    r"key|(?:.*_)?(?:(?:input|output|prompt|label|response|data|image|images|video|reward_fn|chosen|rejected|eos|bos|pad"
    r"|tool|system|target|text|multi_turn)_(?:key|token)|token_(?:level|id|ids|mean).*|(?:max|min|num)_.*)"
)


@dataclass
class Program:
    """A command that is no part of starting Ray: a prepare step, a service or the trainer."""

    words: list[Word]
    lines: list[int]
    context: Context
    assignments: list[tuple[str, Word]]
    ready: dict[str, object] = field(default_factory=dict)
    document: Word | None = None
    reads: Word | None = None
    writes: Word | None = None
    is_trainer: bool = False

    @property
    def text(self) -> str:
        """The beginning of the command line, for patterns."""
        return bash_source(self.words)[:_MAX_TEXT]


class Importer:
    """The reader's handler. programs: in order."""

    def __init__(self, draft: Draft, gpus: str | None) -> None:
        self.draft, self.gpus = draft, gpus
        self.ray = RayOptions(draft)
        self.containers = Containers(draft, self._set_for_container)
        self.programs: list[Program] = []
        self.passed: set[str] = set()
        self.engine_used = False
        self.folders: list[tuple[Word, list[int], bool]] = []
        self.named: dict[str, str | None] = {}
        self.wrappers: dict[str, Callable[[list[Word], Command, Context, Reader], None]] = {
            "srun": self._run_srun,
            **dict.fromkeys(containers.ENGINES, self._run_engine),
            **dict.fromkeys(containers.APPTAINERS, self._run_apptainer),
            **dict.fromkeys(("bash", "sh"), self._run_shell),
            **dict.fromkeys(_RUNNERS, self._run_runner),
            "env": self._run_env,
            "ray": self._run_ray,
            "cd": self._change_folder,
            "pushd": self._change_folder,
            "ulimit": self._set_limit,
            "mkdir": self._make_folder,
            "export": self._ignore_export,
            "unset": self._unset,
            "eval": self._evaluate,
            **dict.fromkeys(("source", "."), self._source),
            **dict.fromkeys(_LOGINS, self._log_in),
            "curl": self._request,
            "rm": self._remove,
        }

    def skip(self, lines: Sequence[int], reason: str) -> None:
        """Note lines that a job spec does not need."""
        self.draft.skip(lines, reason)

    def look(self, lines: Sequence[int], reason: str) -> None:
        """Note lines that the user has to look at."""
        self.draft.look(lines, reason)

    def handle_assignment(self, name: str, value: Word, lines: Sequence[int], context: Context) -> None:
        """Note an assignment of the shell: its value is where it is used."""
        del context
        self.draft.is_secret(name, value.constant)
        code = [part.text for part in value.parts if part.kind == "code"]
        if any(_has_effect(text) for text in code):
            self.draft.look(lines, f"{name} is what a command prints; slurmray does not run it")
        else:
            self.draft.skip(lines, "a variable of the script")

    def handle_export(self, name: str, value: Word | None, lines: Sequence[int], context: Context) -> None:
        """Set a variable for Ray and the trainer."""
        if (context.is_conditional or context.is_looped) and not (value is not None and value.has("cluster")):
            if name not in _VARIABLES_SKIPPED:
                self.draft.look(lines, f"{name} is set in an if or a loop: set it in env")
                return
        self._set_variable(name, value, list(lines), context.is_inside)

    def handle_missing_path(self, path: Word, lines: Sequence[int]) -> None:
        """Check the path on each node."""
        text = path.path
        if text:
            self.draft.add("checks.paths", text, lines)
        else:
            self.draft.look(lines, "a check of a path that is only known when the script runs: see checks.paths")

    def handle_command(self, command: Command, context: Context, reader: Reader) -> None:
        """Act on a command."""
        self._run(command.words, command, context, reader)
        # Lines on which no word begins, e.g. of a text over several lines.
        missing = [line for line in command.lines if line not in self.draft.notes]
        if len(missing) < len(command.lines):
            self.draft.skip(missing, "continues the line above")

    def _run(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        name = words[0].constant
        base = name.rpartition("/")[2] if name else None
        wrapper = self.wrappers.get(base or "")
        lines = self._lines(words, command)
        if wrapper:
            wrapper(words, command, context, reader)
        elif base in _SKIPPED and command.writes is not None and not is_log(command.writes):
            self.draft.look(lines, "it writes a file: do that before the job, or in a prepare step")
        elif base in _SKIPPED:
            self.draft.skip(lines, _SKIPPED[base])
        elif _INSTALLERS.search(bash_source(words[:_MAX_INSTALLER])):
            self._install(words, lines, context)
        elif base and _ACTIVATIONS.match(base):
            self._activate(words, lines, context, reader)
        elif context.is_condition:
            self.draft.look(lines, "a command whose result the script uses")
        else:
            self._add_program(words, command, context)

    def _lines(self, words: list[Word], command: Command) -> list[int]:
        """Return the lines from the first to the last of some words of a command."""
        is_end = bool(command.words) and words[-1] is command.words[-1]
        last = command.last if is_end else words[-1].line
        return list(range(words[0].line, max(last, words[0].line) + 1))

    def _add_program(self, words: list[Word], command: Command, context: Context) -> None:
        lines = self._lines(words, command)
        code = "".join(word.beginning for word in (*words, *([command.document] if command.document else [])))
        if "python" in words[0].beginning and "ray.init" in code and re.search(_RAY_STATE, code):
            self.draft.skip(lines, _ENDS)
            return
        for assigned, value in command.assignments:
            self.draft.is_secret(assigned, value.constant)
        if words[0].constant is None and not words[0].variables:
            self.draft.look(lines, "a command that is only known when the script runs")
            return
        program = Program(self._without_secrets(words), lines, context, command.assignments)
        program.document, program.reads, program.writes = command.document, command.reads, command.writes
        self.programs.append(program)

    def _without_secrets(self, words: list[Word]) -> list[Word]:
        """Return a command with `...` in place of constants that are secrets by the names of their options."""
        kept: list[Word] = []
        is_secret = False
        for word in words:
            name, value = word.partition("=")
            text = (value if value is not None else word).constant
            if value is not None:
                is_secret = self._is_secret_option(name)
            if is_secret and text and not text.startswith("-"):
                self.draft.add_secret(text)
                self.draft.look([word.line], "a secret in the command, left out: take it from env, as null")
                kept.append(constant(f"{name}={HIDDEN}" if value is not None else HIDDEN, word.line))
            else:
                kept.append(word)
            is_secret = value is None and name.startswith("-") and self._is_secret_option(name)
        return kept

    def _is_secret_option(self, name: str) -> bool:
        plain = name.lstrip("-+").replace(".", "_")
        return name in _SECRET_OPTIONS or (not _NO_SECRETS.fullmatch(plain) and self.draft.is_secret(plain, None))

    # Variables.

    def _set_for_container(self, name: str, value: Word | None, lines: list[int]) -> None:
        self.passed.add(name)
        self._set_variable(name, value, lines, True)

    def _set_variable(self, name: str, value: Word | None, lines: list[int], is_inside: bool) -> None:
        text = value.constant if value is not None else None
        if name in _VARIABLES_SKIPPED:
            self.draft.skip(lines, f"{name}: {_VARIABLES_SKIPPED[name]}")
        elif name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH") and text is None and value is not None and not is_inside:
            self.draft.add_line("setup", f"export {name}={value.quoted.bash}", lines)
        elif value is None or self.draft.is_secret(name, text) or value.variables == [name] == [
            part.text for part in value.parts if part.text
        ]:
            self.draft.set_variable(name, None, lines)
        elif text is not None:
            self.draft.set_variable(name, text, lines)
        elif value.has("cluster"):
            self.draft.skip(lines, f"{name}: slurmray finds nodes and addresses itself")
        else:
            self.draft.add_line("node_env", f"export {name}={value.quoted.bash}", lines)
            self.draft.fields.pop(("env", name), None)
            if value.has("code"):
                self.draft.look(lines, f"{name} is what a command prints, now on each node")

    def _unset(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        del context, reader
        lines = self._lines(words, command)
        names = [word.constant or "" for word in words[1:] if not word.beginning.startswith("-")]
        kept = [name for name in names if name not in _VARIABLES_SKIPPED and not name.startswith(("SLURM", "PMI"))]
        for name in names:
            self.draft.fields.pop(("env", name), None)
        if kept:
            self.draft.look(lines, f"{', '.join(kept)}: containers do not get your environment; env names what they get")
        else:
            self.draft.skip(lines, _MASKS)

    def _ignore_export(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        del context, reader
        self.draft.look(self._lines(words, command), "an export that is only known when the script runs")

    # What runs other commands.

    def _run_srun(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        options, rest = split_options(words[1:], _SRUN_FLAGS)
        self.draft.skip([words[0].line], _STEP)
        place = "all"
        for option in options:
            value = option.value.constant if option.value else None
            is_one = option.name in ("-N", "--nodes", "-n", "--ntasks") and value == "1"
            if (is_one or option.name in ("-w", "--nodelist", "-r", "--relative")) and not context.is_looped:
                place = "head"
            if option.name == "--export" and option.value is not None:
                for item in option.value.split(","):
                    name, text = item.partition("=")
                    if name not in ("ALL", "NONE"):
                        self._set_variable(name, text, option.lines, True)
            elif not self.containers.read_srun_option(option):
                self.draft.skip(option.lines, _STEP)
        is_pyxis = any(option.name == "--container-image" for option in options)
        image = next((option.value.path for option in options if option.name == "--container-image" and option.value), None)
        self._run_rest(rest, command, replace(context, place=place, image=image or context.image,
                       is_inside=context.is_inside or is_pyxis), reader)

    def _run_rest(self, rest: list[Word], command: Command, context: Context, reader: Reader) -> None:
        if rest:
            self._run(rest, command, context, reader)

    def _run_engine(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        verb = words[1].constant if len(words) > 1 else None
        lines = self._lines(words, command)
        program = str(words[0].constant).rpartition("/")[2]
        if verb in _ENGINE_SKIPPED:
            self.draft.skip(lines, _ENGINE_SKIPPED[verb])
        elif verb == "exec":
            options, rest = split_options(words[2:], containers.ENGINE_FLAGS)
            self.draft.skip([words[0].line], "slurmray runs commands in the container")
            for option in options:
                self.containers.read_option(option, False)
            if rest:
                self.draft.skip([rest[0].line], "slurmray runs commands in the container")
            name = bash_source(rest[:1])
            inside = replace(context, is_inside=True, image=self.named.get(name, context.image))
            self._run_rest(rest[1:], command, inside, reader)
        elif verb == "run" or verb == "create":
            options, rest = split_options(words[2:], containers.ENGINE_FLAGS)
            self._run_container(program, options, rest, command, context, reader)
        elif verb == "build":
            self._build(words, command)
        elif verb == "load" and len(words) > 2:
            options, _ = split_options(words[2:], containers.ENGINE_FLAGS)
            archive = next((option.value for option in options if option.name in ("-i", "--input")), None)
            if archive is not None and archive.path:
                self.draft.set("container.archive", archive.path, lines)
            else:
                self.draft.look(lines, "an image from a file: see container.archive")
        elif verb in ("start", "tag"):
            self.draft.look(lines, f"{program} {verb}: slurmray starts each container from container.image")
        else:
            self.draft.look(lines, f"{program} {verb or ''}")

    def _run_container(self, program: str, options: list[Option], rest: list[Word], command: Command,
                       context: Context, reader: Reader) -> None:
        is_apptainer = program in containers.APPTAINERS
        name = next((bash_source([option.value]) for option in options if option.name == "--name" and option.value), "")
        is_detached = any(option.name in ("-d", "--detach") for option in options)
        if not rest:
            self.draft.look(self._lines(command.words, command), "a container without an image")
            return
        image, inner = rest[0], rest[1:]
        main = self.draft.get("container.image")
        holds = not inner or bool(_WAITING.fullmatch(bash_source(inner)))
        is_other = main is not None and image.path != main
        if is_other and inner and (is_detached or context.is_background) and image.path:
            self._add_service_container(options, image, inner, command, context)
            return
        self.draft.skip([command.first], "slurmray names, starts and removes the containers")
        runtime = "podman" if program == "podman-hpc" else program if program != "nerdctl" else "docker"
        self.draft.set("container.runtime", runtime, [command.first])
        if program == "podman-hpc":
            self.draft.set("container.command", program, [command.first])
        self.engine_used = self.engine_used or not is_apptainer
        self.containers.read_image(image)
        for option in options:
            self.containers.read_option(option, is_apptainer)
        if name:
            self.named[name] = image.path
        inside = replace(context, is_inside=True, image=image.path, is_background=context.is_background or is_detached)
        if holds:
            self.draft.skip([word.line for word in inner], "slurmray keeps the container")
        else:
            self._run(inner, command, inside, reader)

    def _add_service_container(self, options: list[Option], image: Word, inner: list[Word], command: Command,
                               context: Context) -> None:
        """Add a service with an image of its own; its other options are for the user to look at."""
        lines = list(range(command.first, command.last + 1))
        known = ("-d", "--detach", "--rm", "--name", "--network", "--net", "--gpus", "-it", "-i", "-t")
        for option in options:
            if option.name not in known:
                self.draft.look(option.lines, f"{option.name} of a service: it has the mounts of container, and services[].env")
        place = replace(context, is_inside=True, image=image.path, is_background=True)
        self.programs.append(Program(inner, lines, place, command.assignments))

    def _run_apptainer(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        options, rest = split_options(words[1:], containers.APPTAINER_FLAGS)
        verb = rest[0].constant if rest else None
        program = str(words[0].constant).rpartition("/")[2]
        if verb in ("exec", "run", "shell"):
            more, rest = split_options(rest[1:], containers.APPTAINER_FLAGS)
            self._run_container(program, [*options, *more], rest, command, context, reader)
        elif verb in ("pull", "build") and len(rest) > 2 and rest[-1].beginning.startswith("docker://"):
            self.draft.look(self._lines(words, command), "slurmray converts container.image, which may be this docker:// name")
        else:
            self.draft.look(self._lines(words, command), f"{program} {verb or ''}")

    def _build(self, words: list[Word], command: Command) -> None:
        options, rest = split_options(words[2:], {"--no-cache", "--pull", "-q", "--quiet", "--rm", "--squash"})
        lines = self._lines(words, command)
        values = {option.name: option.value.path for option in options if option.value is not None}
        known = {"-f", "--file", "-t", "--tag"}
        context = rest[0].path if rest else None
        if not context or set(values) - known or not set(values) & {"-t", "--tag"}:
            self.draft.look(lines, "a build: see container.build")
            return
        name = values.get("-f") or values.get("--file") or f"{context}/Dockerfile"
        tag = values.get("-t") or values.get("--tag")
        self.draft.set("container.build.file", name, lines)
        if context != ".":
            self.draft.set("container.build.context", context, lines)
        if tag:
            self.draft.set("container.image", tag, lines)

    def _run_shell(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        lines = self._lines(words, command)
        index = 1
        has_text = False
        while index < len(words) and words[index].beginning.startswith("-"):
            text = words[index].constant or ""
            has_text = has_text or (text[1:2] != "-" and "c" in text)
            index += 2 if text in ("-o", "--rcfile") else 1
        script = words[index] if has_text and index < len(words) else command.document if index >= len(words) else None
        if script is None and not has_text and index < len(words) and words[index].constant != "-":
            self._add_program(words, command, context)  # a script of its own
            return
        if script is None:
            self.draft.look(lines, "a shell that reads commands from elsewhere")
            return
        self.draft.skip([words[0].line, command.last], "a shell")
        try:
            reader.read_script(script, context)
        except BashSyntaxError as error:
            self.draft.look(lines, f"a script that is not valid bash: {error}")

    def _run_runner(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        _, rest = split_options(words[1:], {"-E", "-H", "-n", "-p", "-f", "-w"})
        self.draft.skip([words[0].line], "slurmray starts programs itself")
        self._run_rest(rest, command, context, reader)

    def _run_env(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        options, rest = split_options(words[1:], {"-i", "--ignore-environment", "-0"})
        assignments = []
        while rest and (pair := rest[0].partition("="))[1] is not None:
            assignments.append((pair[0], pair[1] or constant("", rest[0].line)))
            rest = rest[1:]
        self.draft.skip([words[0].line], "see env")
        for option in options:
            if option.name != "-u" or not option.value or option.value.constant not in _VARIABLES_SKIPPED:
                self.draft.look(option.lines, f"env {option.name}: env names what the container gets")
        made = replace(command, assignments=[*command.assignments, *assignments])
        self._run_rest(rest, made, context, reader)

    def _run_ray(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        verb = words[1].constant if len(words) > 1 else None
        lines = self._lines(words, command)
        if verb == "start":
            self.draft.skip(lines, _ENDS)
            self._set_assignments(command)
            self.ray.read_start(words[2:], self.gpus)
        elif verb in ("stop", "status", "list", "summary", "health-check", "logs", "timeline"):
            self.draft.skip(lines, _ENDS)
        elif verb == "job" and len(words) > 2 and words[2].constant == "submit":
            options, rest = split_options(words[3:], SUBMIT_FLAGS)
            self.draft.skip([words[0].line], "the trainer starts on the head node, and the job waits for it")
            self.ray.read_submit(options)
            self._run_rest(rest, command, replace(context, is_background=False, place="head"), reader)
        elif verb == "job":
            self.draft.skip(lines, "the job waits for the trainer")
        elif verb == "symmetric-run":
            options, rest = split_options(words[2:], set())
            for option in options:
                self.draft.skip(option.lines, _ENDS)
            self.draft.skip([words[0].line], _ENDS)
            self._run_rest(rest, command, replace(context, place="head"), reader)
        else:
            self.draft.look(lines, f"ray {verb or ''}")

    def _set_assignments(self, command: Command) -> None:
        for name, value in command.assignments:
            self._set_variable(name, value, [value.line], True)

    # What sets up nodes or containers.

    def _activate(self, words: list[Word], lines: list[int], context: Context, reader: Reader) -> None:
        source = bash_source(words)
        if context.is_inside:
            reader.prefix = (*reader.prefix, source)
            self.draft.became("run", lines)
        else:
            self.draft.add_line("setup", source, lines)
            if context.is_conditional:
                self.draft.look(lines, "in an if")

    def _source(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        lines = self._lines(words, command)
        name = "".join(part.text for part in words[1].parts) if len(words) > 1 else ""
        if _ACTIVATING_FILES.search(name):
            self._activate(words, lines, context, reader)
        else:
            self.draft.look(lines, "slurmray init does not read this file: see env, env_file and setup")

    def _evaluate(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        lines = self._lines(words, command)
        text = bash_source(words)
        if re.search(r"\b(?:conda|mamba|micromamba|spack|modulecmd)\b", text):
            self._activate(words, lines, context, reader)
        else:
            self.draft.look(lines, "eval: what it runs is only known when the script runs")

    def _install(self, words: list[Word], lines: list[int], context: Context) -> None:
        if not context.is_inside:
            self.draft.look(lines, "an installation on the host: do it once before the job, or in container.setup")
            return
        if any(word.has("code") for word in words):
            self.draft.look(lines, "an installation that is only known when the script runs: see container.setup")
            return
        self.draft.add_line("container.setup", bash_source(words), lines)

    def _change_folder(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        del reader
        lines = self._lines(words, command)
        if len(words) != 2 or words[1].absolute_path is None:
            self.draft.look(lines, "a folder that is only known when the script runs: see container.workdir")
        else:
            self.folders.append((words[1], lines, context.is_inside))

    def _set_limit(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        del context, reader
        lines = self._lines(words, command)
        texts = [word.constant or "" for word in words[1:]]
        letters = {"n": "nofile", "l": "memlock", "u": "nproc", "s": "stack", "c": "core"}
        options, values = texts[:-1], texts[-1:]
        letter = options[-1][-1:] if options else ""
        value = values[0] if values else ""
        if letter not in letters or not (value.isdecimal() or value == "unlimited"):
            self.draft.look(lines, "a limit: see container.ulimits")
            return
        # ulimit counts KB for these two, Docker bytes.
        size = -1 if value == "unlimited" else int(value) * (1024 if letter in "ls" else 1)
        self.draft.add("container.ulimits", f"{letters[letter]}={size}:{size}", lines)

    def _make_folder(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        del reader
        lines = self._lines(words, command)
        if context.is_inside:
            self._add_program(words, command, context)
        elif any(word.has("code") or word.has("cluster") for word in words):
            self.draft.look(lines, "a folder that is only known when the script runs: make it before the job")
        else:
            self.draft.add_line("setup", bash_source(words), lines)

    def _log_in(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        del reader
        lines = self._lines(words, command)
        texts = [word.constant or "" for word in words[1:]]
        if "login" not in texts:
            self._add_program(words, command, context)
            return
        for text in texts:
            if text not in ("auth", "login") and not text.startswith("--"):
                self.draft.add_secret(text)
        name = _LOGINS[str(words[0].constant).rpartition("/")[2]]
        self.draft.set_variable(name, None, lines)
        self.draft.skip(lines, f"{name} is enough")

    def _request(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        del reader
        lines = self._lines(words, command)
        url = next((word.constant for word in words[1:] if word.beginning.startswith(("http://", "https://"))), None)
        services = [program for program in self.programs if program.context.is_background]
        if (context.is_condition or context.is_looped) and url and services:
            services[-1].ready = {"http": url}
            self.draft.became("services[].ready", lines)
        elif context.is_condition:
            self.draft.look(lines, "a check of an address: see services[].ready")
        else:
            self._add_program(words, command, context)

    def _remove(self, words: list[Word], command: Command, context: Context, reader: Reader) -> None:
        del reader, context
        lines = self._lines(words, command)
        names = [word.beginning for word in words[1:] if not word.beginning.startswith("-")]
        if names and all(re.match(r"/tmp/ray|.*ray_head_ip|/dev/shm/", name) for name in names):
            self.draft.skip(lines, "slurmray cleans up")
        else:
            self.draft.look(lines, "it removes files: do it before the job if you want that")


_READERS = "pwd|date|realpath|readlink|basename|dirname|scontrol|hostname|wc|tr|head|awk|sed|grep|cut|cat|echo|printf|nproc"
_HARMLESS = re.compile(
    rf"(?:\$\(|`|\|\s*|\$\(\()\s*(?:{_READERS}|whoami|id|mktemp|seq|uuidgen|tail|sort|uniq|shuf|getent|ip|which|squeue|sinfo|nvidia-smi|\$|srun .*hostname)\b"
)


def is_log(word: Word) -> bool:
    """Whether a file that a command writes to is a log, or none: the job has its own."""
    text = "".join(part.text for part in word.parts)
    return bool(re.search(r"/dev/|\.(?:log|out|err)$|(?i:log)", text)) or word.constant in ("1", "2")


def _has_effect(code: str) -> bool:
    """Whether a substitution runs a program that may do more than print a fact."""
    return bool(re.search(r"\$\((?!\()|`", code)) and not _HARMLESS.match(code)
