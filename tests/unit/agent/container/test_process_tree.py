"""The processes below one: seen, and ended, wherever they have gone to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import slurmray

# Two orphans in sessions of their own, one of them spared; says who is seen before and after.
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
# All that there is belongs to somebody else.
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
# A child that nobody has waited for yet.
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


def test_orphans_are_seen_and_ended() -> None:
    done = subprocess.run(python(PROGRAM), capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["True", "True", "{}"], done.stderr


def test_one_that_has_ended_is_told_apart() -> None:
    done = subprocess.run(python(ENDED), capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout.splitlines() == ["{} {True: 'true'}", "{} {}"], done.stderr


def test_what_may_not_be_ended_is_left_alone() -> None:
    done = subprocess.run(python(FOREIGN), capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr


def test_who_holds_a_folder_can_be_waited_for(tmp_path: os.PathLike[str]) -> None:
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
