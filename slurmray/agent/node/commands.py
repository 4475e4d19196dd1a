"""Runs `setup` and `node_env` of the job spec: commands whose environment others get."""

import os
import subprocess

from .. import background_io, command_runner, job_errors, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from .agent_interface import NodeApi


def environment_after(node: "NodeApi", program: str, field: str) -> "Dict[str, str]":
    """Run commands (bash) of a field of the job spec on this host, and return their environment.

    JobError where they fail. Raises job_errors.Stopped.
    """
    output = bytearray()
    reader, writer = os.pipe()
    # The commands travel through standard input, as `ps` shows arguments to everybody. The story's
    # function writes the environment to descriptor 3. Output goes to the log: a daemon may keep it open.
    argv = ["/bin/bash", "-p", "-c", 'exec "$@" 3>&"$0"-', str(writer), *node.story_command("run_setup")]
    begin = os.fstat(2).st_size
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=2, stderr=2, env=node.env, pass_fds=[writer],
        start_new_session=True,
    )  # fmt: skip
    os.close(writer)
    assert process.stdin
    pipe = background_io.PipeWriter(os.dup(process.stdin.fileno()))
    process.stdin.close()
    pipe.send(program.encode("utf-8", "surrogateescape"))
    pipe.close()
    node.field = field  # not `doing`: commands that hang must not extend ray.ready_timeout
    try:
        command_runner.collect(process, {reader: output.extend}, float("inf"), node.is_interrupted)
    finally:
        node.field = ""
        os.close(reader)
    node.require_time()
    if not (process.returncode or output):
        message = "%s must not exit, return or exec, nor may files that it sources: what it sets is lost"
        raise job_errors.JobError("preflight", message % field)
    if process.returncode:
        lines = paths.last_lines(node.log_path, 3, begin)
        message = "%s exited with %d: %s. Correct it; the node's log has all of its output"
        message = message % (field, process.returncode, " / ".join(lines) or "no output")
        raise job_errors.JobError("preflight", message)
    pairs = (entry.partition("=") for entry in output.decode("utf-8", "surrogateescape").split("\0"))
    return {name: value for name, equals, value in pairs if equals}
