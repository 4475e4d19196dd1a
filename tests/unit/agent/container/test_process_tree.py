"""Descendants of a process: found and killed, also orphans in other sessions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import slurmray

# Starts two orphans in separate sessions, and kills one after the other. Prints whether the remaining
# descendants are as expected.
PROGRAM = '''
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from slurmray.agent.container import process_tree
process_tree.adopt_orphans()
leave = """
import os, time
os.fork() and os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
time.sleep(600)
"""
pids = []
for _ in range(2):
    child = subprocess.Popen([sys.executable, "-c", leave], stdout=subprocess.PIPE)
    pids.append(int(child.stdout.readline()))
    child.wait()
print(set(process_tree.descendants()) == set(pids))
process_tree.kill_descendants(spared={pids[0]})
print(set(process_tree.descendants()) == {pids[0]})
process_tree.kill_descendants()
print(process_tree.descendants())
'''
# The only descendant belongs to another user.
FOREIGN = """
import os, sys
sys.path.insert(0, sys.argv[1])
from slurmray.agent.container import process_tree
def refuse(*_):
    raise PermissionError
os.kill = refuse
process_tree.descendants = lambda: {7: 7}
process_tree.kill_descendants()
"""
# A zombie, and then the same child after wait().
ENDED = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from slurmray.agent.container.process_tree import descendant_names as names
child = subprocess.Popen(["true"])
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print(names(), {pid == child.pid: name for pid, name in names(ended=True).items()})
child.wait()
print(names(), {pid == child.pid: name for pid, name in names(ended=True).items()})
"""
TETHER = """
import sys
sys.path.insert(0, sys.argv[1])
from slurmray.agent.container import process_tree
process_tree.lock_folder(sys.argv[2])
print(flush=True)
sys.stdin.read()
"""


def python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, str(Path(slurmray.__file__).parent.parent), *arguments]


def test_orphans_are_found_and_killed() -> None:
    done = subprocess.run(python(PROGRAM), capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["True", "True", "{}"], done.stderr


def test_ended_child_is_listed_only_on_request() -> None:
    done = subprocess.run(python(ENDED), capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout.splitlines() == ["{} {True: 'true'}", "{} {}"], done.stderr


def test_process_that_must_not_be_signalled_is_skipped() -> None:
    done = subprocess.run(python(FOREIGN), capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr


def test_folder_is_locked_until_the_tether_ends(tmp_path: os.PathLike[str]) -> None:
    def is_free() -> bool:
        return (
            subprocess.run(["flock", "--nonblock", tmp_path, "true"], check=False, timeout=60).returncode == 0
        )

    assert is_free()
    with subprocess.Popen(
        python(TETHER, str(tmp_path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        assert not is_free()
        process.stdin.close()
        process.wait(60)
    assert is_free()
