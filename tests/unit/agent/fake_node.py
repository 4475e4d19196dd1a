"""A node agent for unit tests: runs stand-ins for programs, and records findings, phases and commands."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from slurmray.agent import command_runner, job_errors
from slurmray.agent.command_runner import Result
from slurmray.agent.node.agent_interface import NodeApi

from .containers import group, job, merge, settings

CONTAINER: dict[str, Any] = {
    "runtimes": ["podman"],
    "image": "rayproject/ray:2.60.0",
    "image_with_registry": "docker.io/rayproject/ray:2.60.0",
    "workdir": "",
}


class FakeNode(NodeApi):
    """A node with its programs in `bin` of a folder, and its files below that folder."""

    def __init__(
        self, folder: Path, container: dict[str, Any] | None = None, gpus: int = 0, **changes: Any
    ) -> None:
        self.root = folder
        self.name = "node1"
        self.is_head = True
        for name in ("bin", "submit", "temp", "run/logs", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        values: Any = settings(
            temp_dir=str(folder / "temp"), container={**CONTAINER, **(container or {})}, ray={"nodes": 1}
        )
        merge(values, changes)
        self.settings = values
        record: Any = job(id="9", nodes=["node1"], run_dir=str(folder / "run"), mark="abcdef0123")
        self.job = record
        of_node: Any = group(1, gpus)
        self.group, self.cpus, self.memory = of_node, 1, 0
        self.env = {
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "SLURM_SUBMIT_DIR": str(folder / "submit"),
            "TMPDIR": str(folder / "tmp"),
        }
        self.folder = str(folder / "temp/ray-9-0-abcdef")
        self.container_name = "slurmray-9-0-node1"
        self.log_path = str(folder / "run/logs/node1.log")
        self.doing = ""
        mail: Any = SimpleNamespace(is_stopped=False)
        self.mail, self.gpus, self.render_nodes = mail, [], []
        self.findings: list[tuple[str, ...]] = []
        self.phases: list[str] = []
        self.commands: list[list[str]] = []
        self.waited: list[float] = []
        self.is_stopped = False

    def program(self, name: str, text: str) -> FakeNode:
        """Write a stand-in for a program, in sh."""
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return self

    def make_folder(self) -> FakeNode:
        Path(self.inside).mkdir(parents=True)
        return self

    def calls(self) -> list[str]:
        """The lines of the file `calls`, which stand-ins for programs may write."""
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def phase(self, phase: str, text: str) -> None:
        self.phases.append(f"{phase} {text}")

    def finding(self, kind: str, check: str, found: str, wanted: str, fix: str) -> None:
        self.findings.append((kind, check, found, wanted, fix))

    def soft_finding(self, check: str, found: str, wanted: str, fix: str) -> None:
        if self.settings["preflight"] != "none":
            self.finding(
                "warn" if self.settings["preflight"] == "warn" else "preflight", check, found, wanted, fix
            )

    def require_no_findings(self) -> None:
        if any(finding[0] != "warn" for finding in self.findings):
            raise job_errors.Unfit

    def run(self, argv: list[str], timeout: float = 20.0, env: dict[str, str] | None = None) -> Result:
        self.commands.append(argv)
        environment = self.env if env is None else env
        try:
            done = subprocess.run(
                argv, env=environment, capture_output=True, text=True, check=False, timeout=timeout
            )
        except FileNotFoundError:
            return Result(127, "", "", f"{argv[0]}: not found")
        except OSError as error:
            return Result(127, "", "", f"cannot execute {argv[0]}: {error.strerror}")
        lines = done.stderr.rstrip().splitlines()
        why = lines[-1] if lines else f"{' '.join(argv[:2])} exited with {done.returncode}"
        return Result(done.returncode, done.stdout, done.stderr, why)

    def run_long(
        self,
        argv: list[str],
        doing: str,
        env: dict[str, str] | None = None,
        is_hopeless: Callable[[bytearray], bool] = lambda _: False,
    ) -> Result:
        assert doing
        self.commands.append(argv)
        return command_runner.run(
            argv, env or self.env, None, lambda: self.is_stopped, is_hopeless=is_hopeless
        )

    def story_command(self, function: str, *args: str) -> list[str]:
        return ["story", function, *args]

    def host_path(self, path: str) -> str:
        return os.path.join(self.env["SLURM_SUBMIT_DIR"], path)  # noqa: PTH118

    def log(self, text: str) -> None:
        with Path(self.log_path).open("a") as file:
            file.write(text + "\n")

    def wait(self, seconds: float) -> None:
        if self.is_stopped:
            raise job_errors.Stopped
        self.waited.append(seconds)
