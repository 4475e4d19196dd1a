"""The logs of an attempt: of its nodes, of services and of Ray. Programs of the job may write into them."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slurmray.errors import SlurmrayError, UsageError
from slurmray.slurm.host import Host

_MAX_RAY_LOGS = 64 << 20  # bytes; the node agent keeps less, see agent/ray_logs.py


class LogFolder:
    """The folder `logs` of a run directory. `Job` documents what these methods return."""

    def __init__(self, host: Host, path: Path) -> None:
        """Name the folder. host: that has it."""
        self._host = host
        self.path = path

    def node_log(self, node: str, last: int | None) -> str:
        """Return what was printed on a node; at most `last` bytes, from the end."""
        try:
            return self._read(self.path / f"{_node_name(node)}.log", last)
        except FileNotFoundError:
            names = self._host.names(self.path)
            logs = [name for name in names if name.endswith(".log") and "@" not in name]
            known = sorted(name.removesuffix(".log") for name in logs)
            hint = f"there are those of {', '.join(known[:8])}" if known else "it has no logs"
            raise UsageError(f"{self.path}: no log of the node {node}; {hint}") from None
        except OSError as error:
            raise UsageError(f"{self.path}/{node}.log: cannot be read: {error.strerror}") from None

    def service_logs(self) -> dict[str, dict[str, Path]]:
        """Return {service: {node: its log}}. With pyxis there may be one of `srun`, of the service's step."""
        logs: dict[str, dict[str, Path]] = {}
        for name in self._host.names(self.path):
            if name.startswith("service-") and name.endswith(".log"):
                service, _, node = name.removeprefix("service-").removesuffix(".log").partition("@")
                logs.setdefault(service, {})[node or "srun"] = self.path / name
        return logs

    def service_log(self, service: str, node: str | None, last: int | None) -> str:
        """Return what a service printed, on one node or on all."""
        known = self.service_logs()
        paths = known.get(service, {})
        if not paths:
            hint = f"there are those of {', '.join(sorted(known))}" if known else "it has none of services"
            raise UsageError(f"{self.path}: no log of the service {service}; {hint}")
        if node is not None and node not in paths:
            places = ", ".join(sorted(paths))
            raise UsageError(f"{self.path}: {service} has no log on {node}, only on {places}")
        return self._read_service(paths if node is None else {node: paths[node]}, last)

    def last_logs(self, nodes: Sequence[str], last: int) -> Iterator[tuple[str, str]]:
        """Yield name and text of the logs of nodes and services that can be read."""
        names = set(self._host.names(self.path))
        for node in nodes:
            if f"{node}.log" in names:
                with suppress(SlurmrayError):
                    yield node, self.node_log(node, last)
        for service, paths in sorted(self.service_logs().items()):
            with suppress(SlurmrayError):
                yield service, self._read_service(paths, last // max(1, len(nodes)))

    def ray_logs(self, node: str) -> dict[str, str]:
        """Return Ray's logs of a node by file name."""
        path = self.path / f"{_node_name(node)}-ray.tar.gz"
        try:
            data = self._host.read(path, limit=_MAX_RAY_LOGS)
            return {name: text.decode(errors="replace") for name, text in _files_in(data)}
        except FileNotFoundError:
            hint = "they are kept when the trainer has failed, or with ray.keep_logs: always"
            raise UsageError(f"{path}: no such file; {hint}") from None
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
        except (tarfile.TarError, ArithmeticError, EOFError, ValueError, zlib.error) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None

    def _read(self, path: Path, last: int | None) -> str:
        return self._host.read(path, last=last).decode(errors="replace")

    def _read_service(self, paths: Mapping[str, Path], last: int | None) -> str:
        try:
            texts = {node: self._read(paths[node], last) for node in sorted(paths)}
        except OSError as error:
            raise UsageError(f"{error.filename}: cannot be read: {error.strerror}") from None
        if not texts.get("srun", "srun"):
            del texts["srun"]
        if len(texts) == 1:
            return "".join(texts.values())
        return "\n".join(f"==> {node} <==\n{text}" for node, text in texts.items())


def _node_name(node: str) -> str:
    """Return the name of a node, which is a part of a file's name. UsageError if it cannot be one."""
    if not re.fullmatch(r"[\w.-]+", node) or node.startswith("."):
        raise UsageError(f"--node: {node!r} is no name of a node")
    return node


def _files_in(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file in a .tar.gz. ValueError if it has too much; errors of tarfile."""
    left = _MAX_RAY_LOGS
    # It may unpack to any size, so the end of what is read is an error of tarfile.
    data = gzip.GzipFile(fileobj=io.BytesIO(archive)).read(2 * left)
    with tarfile.open(fileobj=io.BytesIO(data)) as files:
        for member in files:
            left -= member.size
            if left < 0:
                raise ValueError("it has too much")
            if member.isreg() and (file := files.extractfile(member)):
                yield member.name, file.read()
