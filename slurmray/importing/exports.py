"""Variables of the launcher as fields of a job spec."""

from __future__ import annotations

from slurmray.importing.draft import Draft
from slurmray.importing.known import MASKS, VARIABLES
from slurmray.importing.words import Word

# Where host commands find programs and their libraries. A container's image sets its own.
_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH")


class Environment:
    """Sets `env`, `node_env` for values that only the nodes know, and `setup` for search paths of the host.

    passed: names given to a container.
    """

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.passed: set[str] = set()

    def set_in_container(self, name: str, value: Word | None, lines: list[int]) -> None:
        """Set a variable of a container's programs. value: None is the submitter's."""
        self.passed.add(name)
        self.set(name, value, lines)

    def set_on_host(self, name: str, value: Word | None, lines: list[int]) -> None:
        """Set a variable that the script exports."""
        if name in _SEARCH_PATHS and value is not None and value.constant is None:
            self.draft.add_line("setup", f"export {name}={value.quoted.bash}", lines)
        else:
            self.set(name, value, lines)

    def set(self, name: str, value: Word | None, lines: list[int]) -> None:
        """Set a variable of Ray and the trainer."""
        text = value.constant if value is not None else None
        if name in VARIABLES:
            self.draft.skip(lines, f"{name}: {VARIABLES[name]}")
        elif value is None or self.draft.is_secret(name, text) or value.is_variable(name):
            self.draft.set_variable(name, None, lines)
        elif text is not None:
            self.draft.set_variable(name, text, lines)
        elif value.has("cluster"):
            self.draft.skip(lines, f"{name}: slurmray finds nodes and addresses itself")
        else:
            self.draft.remove_variable(name)
            self.draft.add_line("node_env", f"export {name}={value.quoted.bash}", lines)
            if value.has("code"):
                self.draft.look(lines, f"{name} is what a command prints, now on each node")

    def set_conditionally(self, name: str, value: Word | None, lines: list[int]) -> None:
        """Note a variable that is set in an `if` or a loop."""
        if name in VARIABLES or (value is not None and value.has("cluster")):
            self.set(name, value, lines)
        else:
            self.draft.is_secret(name, value.constant if value is not None else None)
            self.draft.look(lines, f"{name} is set in an if or a loop: set it in env")

    def unset(self, names: list[str], lines: list[int]) -> None:
        """Remove variables."""
        for name in names:
            self.draft.remove_variable(name)
        others = [name for name in names if name not in VARIABLES and not name.startswith(("SLURM", "PMI"))]
        if others:
            reason = "containers do not get your environment; env names what they get"
            self.draft.look(lines, f"{', '.join(others)}: {reason}")
        else:
            self.draft.skip(lines, MASKS)
