"""Whose variables are whose: those of the submitter, of `setup`, and of the script; in a real bash."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from slurmray.rendering import render
from slurmray.spec import JobSpec
from tests.script import CALL, run_instead

# Names that the script has, too, as sites and users have them.
THEIRS = {
    "SCRATCH": "/scratch/me",
    "TEMP": "/scratch/tmp",
    "NODES": "a b",
    "IMAGE": "their\nimage",
    "NODE": "it",
}
SHOW = "".join(f'printf "%s\\0" "${{{name}-}}"; ' for name in THEIRS)


def run(folder: Path, call: str, theirs: dict[str, str], **spec: Any) -> list[str]:
    """What a script says on standard output that ends with that call; texts with a NUL behind each."""
    script = render(JobSpec.model_validate({"container": {"runtime": "none"}, **spec}))
    (folder / "srun").write_text(f"#!/bin/bash\n{SHOW}")
    (folder / "srun").chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURMD_NODENAME": "node1", **theirs}
    done = run_instead(script, call, folder, env=env)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split("\0")[:-1]


def test_the_step_has_the_variables_of_the_submitter(tmp_path: Path) -> None:
    assert run(tmp_path, "SCRATCH=ours TEMP=ours; node_step", THEIRS) == [*THEIRS.values()]


def test_the_step_has_no_variables_of_the_script(tmp_path: Path) -> None:
    assert run(tmp_path, "SCRATCH=ours TEMP=ours NODE=ours; node_step", {}) == [""] * len(THEIRS)


@pytest.mark.parametrize("name", ["SRUN_LABEL", "SLURM_LABELIO", "SLURM_EXPORT_ENV", "SLURM_STDOUTMODE"])
def test_what_would_change_the_messages_of_the_step(tmp_path: Path, name: str) -> None:
    call = f"echo 'printenv {name} || true' >>srun; node_step"
    assert run(tmp_path, call, {name: "1"}) == [""] * len(THEIRS)


START = """
node_step() { cat; }
SLURM_SUBMIT_DIR=/ SLURM_JOB_ID=1 ATTEMPT=0 RUN=/run HEAD=node1 JOB=1 MARK=1 JOB_LOG=/log
GRACE=1 NODE_NAMES=()
start_nodes
exec 9>&-
cat <&"$FROM_NODES"
"""


def test_a_value_of_env_is_the_submitters(tmp_path: Path) -> None:
    assert "env=IMAGE=their\nimage" in run(tmp_path, START, THEIRS, env={"IMAGE": None})


# As start_nodes sends it.
ON_A_NODE = """
send "$(declare -f set_up run_setup beat say)"$'\\nset_up' "$SETUP" \
	"$(declare -p NODES && declare -f)"$'\\nmine' 9>&1 |
	bash -c 'IFS= read -r -d "" program && eval "$program"'
"""


def test_setup_on_a_node(tmp_path: Path) -> None:
    setup = "export SCRATCH=/new; TEMP=/scratch/tmp; NODES=9; say() { :; }; export NODE=x; set -- x; false"
    call = f'mine() {{ {SHOW} say hello; become bash -c \'printf "%s\\0" "$NODES" "$SCRATCH"\'; }}{ON_A_NODE}'
    found = run(tmp_path, call, {"NODES": "a b"}, setup=setup, slurm={"nodes": 3})
    said = ["slurmray node1 alive \n/new", "", "3", "", "x", "slurmray node1 hello \n9", "/new"]
    assert found == said


def test_setup_on_a_node_that_exits(tmp_path: Path) -> None:
    found = run(tmp_path, f"mine() {{ echo never; }}{ON_A_NODE}printf '\\0'", {}, setup="exit 3")
    said = "slurmray node1 alive \nslurmray node1 fail config setup ended the script with exit code 3\n"
    assert found == [said]


def test_setup_in_the_batch_script(tmp_path: Path) -> None:
    setup = "export MORE=1; NODES=9; log() { exit 5; }; IMAGE=/x; cd /; STOPPING=1; set -- y"
    show = 'printf "%s\\0" "$NODES" "$MORE"; (become printenv -0 NODES)'
    call = f"check_allocation() {{ {show}; trap - EXIT; exit 0; }}\n{CALL}"
    assert run(tmp_path, call, {"NODES": "a b"}, setup=setup, slurm={"nodes": 3}) == ["3", "1", "9"]
