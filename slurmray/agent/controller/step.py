"""A step of the job: one srun with a task on each node, in a heterogeneous job one for each component."""

import os
import subprocess

from .. import background_io
from ..wire import codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple


class Step:
    """A running srun. Its tasks read messages from its standard input and write theirs to its output.

    output, errors: the descriptors of its standard output and standard error.
    """

    def __init__(self, argv: "List[str]", env: "Dict[str, str]", job: str, nodes: "List[str]") -> None:
        """Start srun. job: for scancel. nodes: of its tasks."""
        self.job = job
        self.nodes = nodes
        self.number = ""  # Slurm's, for scancel; "": no task has started
        self.is_over = False  # no task runs any more
        self._decoder = codec.LineDecoder(codec.MAX_TEXT)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
        assert self.process.stdin and self.process.stdout and self.process.stderr  # noqa: S101 - PIPE
        self.errors = self.process.stderr.fileno()
        self._error_decoder = codec.LineDecoder(codec.MAX_TEXT)
        self.outbox = background_io.PipeWriter(os.dup(self.process.stdin.fileno()))
        self.process.stdin.close()
        self.output = self.process.stdout.fileno()

    def read_errors(self) -> "Tuple[bytes, List[bytes]]":
        """What srun has printed, b"" at its end, and the lines that are complete."""
        data = os.read(self.errors, 1 << 16)
        return data, self._error_decoder.feed(data)

    def read(self) -> "List[bytes]":
        """Lines of the output, when there is some; sets `is_over` at its end."""
        data = os.read(self.output, 1 << 16)
        self.is_over = not data
        return self._decoder.feed(data)
