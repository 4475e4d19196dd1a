"""The first process of a container, outside of one and without Ray."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from slurmray.rendering import template_root
from tests.processes import bounded

# The first process of a container as it is, but for Ray: a port that is open stands for the GCS.
RAYLESS = """
import sys

sys.path.insert(0, sys.argv[1])
import children
import member
import node
import ray_start

ray_start.ray_version = lambda: ("2.60.0", (2, 60))
LISTEN = '''
import json, socket, sys, time
port = next(word for word in json.load(sys.stdin)[0] if word.startswith("--port="))
listener = socket.create_server(("127.0.0.1", int(port[7:])))
time.sleep(60)
'''


class Rayless(children.Children):
    def spawn(self, role, words, *args, **more):
        if role == "ray":
            words = [sys.executable, "-c", LISTEN]
        elif role == "probe":
            words = ["cat"]
        return super().spawn(role, words, *args, **more)


loop = member.Member(sys.argv[1], "gpu-1")
loop.choose_address = lambda family: "127.0.0.1"
loop.children = Rayless(loop.ended)
try:
    node.loop(loop)
except node.GiveUp as reason:
    loop.say("fail", *reason.args)
finally:
    for pid in loop.children.roles:
        member.os.killpg(pid, 9)
"""

# Records of a job on one node, up to what its job spec says.
START = [
    "job=1-0",
    "token=abc",
    "cpus=1",
    "gpus=0",
    "workdir=/",
    "nodes=gpu-1",
    "rank=0",
    "user=me",
    "ready_timeout=600",
]


def programs_in(folder: Path) -> Path:
    """The folder, as a container has it."""
    for file in (template_root() / "node").glob("*.py"):
        shutil.copy(file, folder)
    for name in ("out", "err"):
        os.mkfifo(folder / name)
    return folder


def end_in_the_first_process(records: list[str], programs: Path) -> str:
    """How the trainer ended that the container's first process started, or what it found, in its words."""
    started = subprocess.Popen(
        [sys.executable, "-c", RAYLESS, programs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with bounded(started) as process:
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write("".join(f"{record}\0" for record in records).encode())
            process.stdin.flush()
            said = b""
            for said in process.stdout:
                if said.split()[2] == b"whole":
                    process.stdin.write(b"whole=\0")
                    process.stdin.flush()
                if said.split()[2] in (b"exit", b"fail") or b" finding preflight|" in said:
                    break
            return said.decode()
        finally:
            process.stdin.close()  # the tether
