"""Commands that set up a shell, a node or a container, as fields of a job spec."""

from __future__ import annotations

import re

from slurmray.importing.calls import Call
from slurmray.importing.draft import Draft
from slurmray.importing.known import ACTIVATING_CODE, ACTIVATING_FILES
from slurmray.importing.words import Word, bash_source
from slurmray.slurm.syntax import parse_count

# Letters of bash's ulimit -> Docker's names.
_LIMITS = {"n": "nofile", "l": "memlock", "u": "nproc", "s": "stack", "c": "core"}
_LEFT_BY_RAY = r"/tmp/ray|.*ray_head_ip|/dev/shm/"  # noqa: S108
_IN_KB = "lsc"  # bash counts these in KB, and Docker in bytes


class ShellSetup:
    """Sets `setup`, `container.setup` and the like. folders: those that the script changes to."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.folders: list[tuple[Word, list[int], bool]] = []
        """Folder, lines, and whether it is in a container."""
        self.activations: list[tuple[str, list[int]]] = []
        """Those in containers, and their lines."""

    def activate(self, call: Call) -> None:
        """Keep an activation, e.g. `conda activate`, for the node or for the command in the container."""
        source = bash_source(call.words)
        if call.context.is_inside:
            call.reader.prefix = (*call.reader.prefix, source)
            self.activations.append((source, call.lines))
        else:
            self.draft.add_line("setup", source, call.lines)
            if call.context.is_conditional:
                self.draft.look(call.lines, "in an if; now it always runs")

    def source(self, call: Call) -> None:
        """Keep `source FILE` if the file is an activation; others are for the user to look at."""
        name = "".join(part.text for part in call.words[1].parts) if len(call.words) > 1 else ""
        if ACTIVATING_FILES.search(name):
            self.activate(call)
        else:
            reason = "slurmray init does not read this file: see env, env_file and setup"
            self.draft.look(call.lines, reason)

    def evaluate(self, call: Call) -> None:
        """Keep e.g. `eval "$(conda shell.bash hook)"`."""
        if ACTIVATING_CODE.search(bash_source(call.words)):
            self.activate(call)
        else:
            self.draft.look(call.lines, "eval: what it runs is only known when the script runs")

    def install(self, call: Call) -> None:
        """Add an installation in the container."""
        if not call.context.is_inside:
            reason = "an installation on the host: do it once before the job, or in container.setup"
            self.draft.look(call.lines, reason)
        elif any(word.has("code") for word in call.words):
            reason = "an installation that is only known when the script runs: see container.setup"
            self.draft.look(call.lines, reason)
        else:
            self.draft.add_line("container.setup", bash_source(call.words), call.lines)

    def change_folder(self, call: Call) -> None:
        """Remember the folder."""
        if len(call.words) == 2 and call.words[1].absolute_path is not None:
            self.folders.append((call.words[1], call.lines, call.context.is_inside))
        else:
            reason = "a folder that is only known when the script runs: see container.workdir"
            self.draft.look(call.lines, reason)

    def set_limit(self, call: Call) -> None:
        """Set a limit of the container."""
        texts = [word.constant or "" for word in call.words[1:]]
        letter = texts[-2][-1:] if len(texts) > 1 else ""
        text = texts[-1] if texts else ""
        value = -1 if text == "unlimited" else parse_count(text)
        if letter not in _LIMITS or value is None:
            self.draft.look(call.lines, "a limit: see container.ulimits")
            return
        size = value * 1024 if letter in _IN_KB and value > 0 else value
        self.draft.add("container.ulimits", f"{_LIMITS[letter]}={size}:{size}", call.lines)

    def make_folder(self, call: Call) -> None:
        """Make a folder on each node."""
        if any(word.has("code") or word.has("cluster") for word in call.words):
            reason = "a folder that is only known when the script runs: make it before the job"
            self.draft.look(call.lines, reason)
        else:
            self.draft.add_line("setup", bash_source(call.words), call.lines)

    def remove(self, call: Call) -> None:
        """Skip the removal of what Ray leaves."""
        names = [word.beginning for word in call.words[1:] if not word.beginning.startswith("-")]
        if names and all(re.match(_LEFT_BY_RAY, name) for name in names):
            self.draft.skip(call.lines, "slurmray cleans up")
        else:
            self.draft.look(call.lines, "it removes files: do it before the job if you want that")
