"""What the batch script makes of its nodes' messages: a real bash, and a stand-in for the step."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import pytest

from slurmray.rendering import render
from slurmray.spec import JobSpec
from tests.script import CALL, run_instead

# Three nodes that say what is wanted, and nothing else; the trainer runs.
STAND_INS = """
check_allocation() { NODE_NAMES=(node1 node2 node3) HEAD=node1 JOB=7 NODES=3 PATIENCE=12; }
fit_grace() { GRACE=1; }
make_run() { RUN=$PWD ATTEMPT=0; mkdir -p logs; echo of node2 >logs/node2.log; }
read_output() { :; }
nodes() {
	for node in node1 node2 node3; do say "$node step 0"; say "$node checked"; done
	say "node1 trainer it"
	SAID
	while IFS= read -r -d '' _; do :; done <&3 # until they are to end
}
say() { echo "slurmray $1"; }
alive() { for _ in {1..17}; do sleep 0.3; for n; do say "node$n alive"; done; done; }
start_nodes() {
	coproc STEP { exec 3<&0; nodes; }
	SRUN=$! STEP_ID=7.0
	exec {FROM_NODES}<&"${STEP[0]}" 9>&"${STEP[1]}"
	eval "exec ${STEP[1]}>&-"
}
clock() { the_time; NOW=$(((TIME - STARTED) / 200000)); } # five times as fast
"""
WELL = 'say "node1 well"; say "node2 well"; say "node3 well"'
DIED = 'say "node2 fail ray ray start ended with 1"; say "node2 gone"'
OURS = "exit code 71 from slurmray: "
LEFT = "its container has ended, and not by Slurm"


def ending(folder: Path, said: str, command: str = "", **spec: Any) -> tuple[int, str, str]:
    """Exit code, last line and all of the log, once the nodes have said that, shell commands."""
    with (folder / "log").open("w+") as log:
        code = run(folder, said, log, command, **spec)
        log.seek(0)
        text = log.read()
    return code, text.splitlines()[-1].partition("] end: ")[2], text


def run(folder: Path, said: str, log: IO[str], command: str = "", **spec: Any) -> int:
    """The exit code, as `ending`."""
    script = render(JobSpec.model_validate(spec), command)
    call = STAND_INS.replace("SAID", said) + CALL
    return run_instead(script, call, folder, env={"PATH": "/usr/bin:/bin"}, stderr=log).returncode


CASES = {
    "its own": (f'say "node1 exit 5"; {WELL}', 5, "exit code 5 from trainer: its own"),
    "of a worker, which is noticed later": (
        f'say "node1 exit 1"; say "node1 well"; say "node3 well"; sleep 0.4; {DIED}',
        71,
        OURS + "node2: ray start ended with 1; the trainer ended with 1",
    ),
    "a worker leaves": ('say "node2 gone"', 71, f"{OURS}node2: {LEFT}"),
    "a worker is told to end": (
        f'say "node2 signal"; say "node1 exit 1"; {WELL}; sleep 2; say "node2 gone"',
        71,
        f"{OURS}node2: {LEFT}; the trainer ended with 1",
    ),
    "the head is told to end": (
        'say "node1 signal"; say "node1 exit 143"',
        71,
        OURS + "node1: its container was told to end, and not by Slurm; the trainer ended with 143",
    ),
    "the head is told to end, the trainer is done": (
        'say "node1 signal"; say "node1 exit 0"',
        0,
        "exit code 0 from trainer: its own",
    ),
    "the head is cut off": (
        "alive 1",
        71,
        OURS + "node1: it hears none of the other nodes any more: has it lost its network?",
    ),
    "a worker is cut off": (
        "alive 1 2",
        71,
        OURS + "node3: no sign of life for 12 s: has it lost its power or its network?",
    ),
    "a node falls silent when all is over": (
        "trap '' PIPE; say \"node1 exit 0\"; alive 1",
        0,
        "exit code 0 from trainer: its own",
    ),
    "nodes that do not say whether they are well": (
        'say "node1 exit 5"; alive 1 2 3',
        5,
        "exit code 5 from trainer: its own",
    ),
}


@pytest.mark.parametrize(("said", "code", "last"), CASES.values(), ids=CASES)
def test_whose_exit_code_it_is(tmp_path: Path, said: str, code: int, last: str) -> None:
    found = ending(tmp_path, said)
    assert found[:2] == (code, last), found[2]


def test_a_worker_that_was_told_to_end_is_no_excuse_where_the_job_goes_on(tmp_path: Path) -> None:
    said = f'say "node2 signal"; say "node2 gone"; sleep 1; say "node1 exit 5"; {WELL}'
    found = ending(tmp_path, said, on_node_loss="continue")
    assert found[:2] == (5, "exit code 5 from trainer: its own"), found[2]
    assert (
        "node_loss: node2: its container has ended, and not by Slurm; the job goes on without it" in found[2]
    )


def test_a_node_that_falls_silent_at_the_end_of_a_job_that_goes_on(tmp_path: Path) -> None:
    said = "trap '' PIPE; say \"node1 exit 0\"; alive 1"
    found = ending(tmp_path, said, on_node_loss="continue")
    assert found[:2] == (0, "exit code 0 from trainer: its own"), found[2]
    assert "node_loss" not in found[2]


@pytest.mark.parametrize("code", [0, 5])
def test_a_disk_that_is_full_is_not_in_the_way_of_the_exit_code(tmp_path: Path, code: int) -> None:
    with Path("/dev/full").open("w") as log:
        assert run(tmp_path, f'say "node1 exit {code}"; {WELL}', log) == code


def test_slurm_tells_the_steps_alone(tmp_path: Path) -> None:
    """As at a preemption with GraceTime: a worker that ends of it is not to blame."""
    told = 'say "node1 told"; say "node2 told"; say "node2 gone"; say "node1 exit 143"'
    found = ending(tmp_path, told)
    assert found[:2] == (143, "exit code 143 from trainer: its own, which stands for signal TERM"), found[2]
    assert "stop: asked to end by scancel, preemption or the time limit" in found[2]


def test_a_probe_that_fails_shows_its_log(tmp_path: Path) -> None:
    found = ending(tmp_path, 'say "node2 fail probe the probe ended with 1"')
    assert found[:2] == (68, "exit code 68 from slurmray: node2: the probe ended with 1"), found[2]
    assert "of node2\n" in found[2]


def test_setup_that_exits(tmp_path: Path) -> None:
    found = ending(tmp_path, "", setup="exit 3")
    assert found[0] == 64, found[2]
    assert found[1].startswith("exit code 64 from slurmray: setup ended this script with exit code 3"), found[
        2
    ]


def test_the_command_that_renders_anew_is_whole(tmp_path: Path) -> None:
    said = 'say "node2 finding config|GPUs|4 given to the job|8|--gpus-per-node 4"'
    command = f"slurmray render {'word ' * 100}'a|b' --end"
    found = ending(tmp_path, said, command)
    assert (
        found[1]
        == f"exit code 64 from slurmray: node2: GPUs: 4 given to the job; {command} --gpus-per-node 4"
    )
    assert f" 4 given to the job | 8 | {command} --gpus-per-node 4\n" in found[2]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("slurmray node1 exit 0", "node1|exit|0"),
        ("slurmray node1 whole", "node1|whole|"),
        ("slurmray node1 alive ", "node1|alive|"),
        ("slurmray node1 phase end a  b", "node1|phase|end a  b"),
        ("srun: something", "||"),
    ],
)
def test_a_message(line: str, expected: str, tmp_path: Path) -> None:
    stand_ins = f"receive() {{ RECEIVED='{line}'; }}; log() {{ :; }}; declare -A HEARD=() OUT=()\n"
    values = 'LOOKED=0 AWAY=0 BEAT=99 FROM_NODES=0; next_message; echo "$FROM|$VERB|$TEXT"\n'
    done = run_instead(render(JobSpec()), stand_ins + values, tmp_path)
    assert done.stdout.decode() == f"{expected}\n", done.stderr
