"""Any text arrives unchanged: from the spec through the script and its transport to the trainer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmray.rendering import render, template_root
from slurmray.spec import JobSpec
from tests.first_process import START, end_in_the_first_process, programs_in
from tests.script import run_instead

# fmt: off
TOKENS = [
    "'", '"', "\\", "$", "`", "\n", "\r", "\v", "\t", " ", "\x01", "\x7f", "~", "*", "?", "[a]", "!", "!!",
    "#", "&", ";", "|", "<", ">", "(", ")", "-", "--", "=", "$'", "$(id)", "${HOME}", "`id`", "{{ x }}", "{{",
    "}}", "{% raw %}", "{%", "{#", "#}", "{%#", "\n# ---- 2. log", "main\n", "é", "☃", "\U0001d4b3", "\u2028",
    "\u202e", "\ufeff", "\ud7ff",
]
# fmt: on
# A static bash 4.4 looks up what is missing of these in a user database that it cannot read.
ENV = {"PATH": os.environ["PATH"], "HOME": "/", "SHELL": "/bin/sh"}
TEXTS = st.lists(
    st.sampled_from(TOKENS) | st.characters(codec="utf-8", exclude_characters="\0"), max_size=10
).map("".join)
LINES = TEXTS.map(lambda text: text.replace("\n", " ")).filter(bool)


@pytest.fixture(scope="module", params=["bash", "bash 4.4"])
def bash(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("bash_44")) if request.param == "bash 4.4" else "/bin/bash"


def output(bash: str, script: str, call: str, folder: Path) -> list[str]:
    """The NUL-terminated texts that the call writes."""
    done = run_instead(script, call, folder, bash=bash, env=ENV)
    assert (done.returncode, done.stderr) == (0, b"")
    *texts, rest = done.stdout.split(b"\0")
    assert rest == b""
    return [text.decode() for text in texts]


# Once as the batch script sees them, and once more as a node does: see node_step and start_nodes.
# `declare -f` of bash 4.4 does not write every function as it read it: `>&"$1"` becomes `&> "$1"`, a file.
SHOW = r"""send "$RENDER_AGAIN" "$WORKDIR" "${CONTAINER_ARGS[@]}" "${RECORDS[@]}" 9>&1 """
BOTH = f"""
printf '%s\\0' "${{SETUP-}}"
{SHOW}
send "$(declare -p RENDER_AGAIN WORKDIR CONTAINER_ARGS RECORDS && declare -f)" 9>&1 |
	"$BASH" -c 'IFS= read -r -d "" program && eval "$program" && {SHOW}'
"""


@settings(max_examples=40)
@given(
    run=st.lists(TEXTS, min_size=1, max_size=4) | TEXTS.filter(str.strip),
    env=st.dictionaries(st.sampled_from(["A", "PATH", "_b1"]), TEXTS),
    args=st.lists(TEXTS, max_size=3),
    setup=TEXTS,
    folder=TEXTS,
    interface=LINES,
    command=TEXTS,
)
def test_any_text(
    run: list[str] | str,
    env: dict[str, str],
    args: list[str],
    setup: str,
    folder: str,
    interface: str,
    command: str,
    bash: str,
    tmp_path: Path,
) -> None:
    spec = {
        "run": run,
        "env": env,
        "setup": setup,
        "container": {"args": args, "workdir": f"/{folder}"},
        "network": {"interface": interface},
    }
    script = render(JobSpec.model_validate(spec), command)
    told, *found = output(bash, script, BOTH, tmp_path)
    assert told == setup
    half = len(found) // 2
    assert found[:half] == found[half:]
    words = ["bash", "-c", run] if isinstance(run, str) else run
    assert found[: 2 + len(args)] == [command, f"/{folder}", *args]
    records = found[2 + len(args) : half]
    assert f"interface={interface}" in records
    assert [record for record in records if record.startswith("env=")] == [
        f"env={k}={v}" for k, v in env.items()
    ]
    assert [record for record in records if record.startswith("run=")] == [f"run={word}" for word in words]


def test_the_programs_arrive(bash: str, tmp_path: Path) -> None:
    show = r"""for name in "${!PROGRAMS[@]}"; do printf "%s\0" "$name" "${PROGRAMS[$name]}"; done"""
    receive = f"""IFS= read -r -d "" program && eval "$program" && {show}"""
    program = f"""send "$(declare -p PROGRAMS)" 9>&1 | "$BASH" -c '{receive}'"""
    # For all of them but the one for nodes without a container.
    spec = JobSpec.model_validate({"prepare": [{"name": "data", "run": "true"}], "launch": "ray-job"})
    found = output(bash, render(spec), program, tmp_path)
    arrived = dict(zip(found[::2], found[1::2], strict=True))
    files = [file for file in (template_root() / "node").glob("*.py") if file.name != "guard.py"]
    assert arrived == {file.name: file.read_text() for file in files}


def test_outside_of_a_job_it_says_what_to_do(bash: str, tmp_path: Path) -> None:
    script = tmp_path / "generated.sh"
    script.write_text(render(JobSpec()))
    done = subprocess.run(
        [bash, script],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert f"submit it with sbatch {script}" in done.stderr.splitlines()[-1]


TRAINER = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], sys.stdout); sys.exit(7)"


@pytest.mark.parametrize(
    ("number", "index", "expected"),
    # One job of an array has its number. The last is of no array, but was submitted from within one.
    [("13", "0", "12_0"), ("12", "3", "12_3"), ("14", "3", "14"), ("12", "", "12")],
)
def test_what_slurm_is_to_end_or_to_start_again(
    bash: str, tmp_path: Path, number: str, index: str, expected: str
) -> None:
    stand_ins = """
timeout() { shift; "$@"; }
scontrol() { echo node1; }
squeue() { printf '%s\\n' '13 12_0' '12 12_3' '14 14'; }
"""
    facts = (
        f"SLURM_JOB_ID={number} SLURM_ARRAY_TASK_ID={index} SLURM_JOB_NUM_NODES=1 SLURM_JOB_CPUS_PER_NODE=4"
    )
    facts += " SLURM_JOB_NODELIST=node1 SLURMD_NODENAME=node1"
    script = render(JobSpec(), "again")
    call = "check_allocation && printf '%s\\0' \"$JOB\""
    assert output(bash, script, f"{stand_ins}{facts}\n{call}", tmp_path) == [expected]


@pytest.mark.parametrize(
    ("answer", "good", "expected"),
    [
        ("toomanyrequests: You have reached your pull rate limit", 2, ["2", ""]),
        ("dial tcp: i/o timeout", 9, ["3", "pull"]),
        ("manifest unknown", 9, ["1", "pull"]),
    ],
)
def test_an_image_is_asked_for_again_where_that_may_help(
    bash: str, tmp_path: Path, answer: str, good: int, expected: list[str]
) -> None:
    stand_ins = f"""
NODE_NAMES=(a b c d e f g h) TEMP=$PWD TRIES=0 LOST=''
pause() {{ :; }}
run_long() {{ TRIES=$((TRIES + 1)) && printf %s '{answer}' >output && ((TRIES == {good})); }}
not_there() {{ LOST=$1; }}
"""
    call = 'pull_image image && printf \'%s\\0\' "$TRIES" "$LOST"'
    assert output(bash, render(JobSpec()), stand_ins + call, tmp_path) == expected


def test_a_signal_that_ends_date_too(bash: str, tmp_path: Path) -> None:
    call = """
the_time
before=$TIME
date() { kill -KILL "$BASHPID"; }
the_time
printf '%s\\0' "$((TIME - before))"
"""
    assert output(bash, render(JobSpec()), call, tmp_path) == ["0"]


def test_every_node_hears_of_the_addresses_of_all(bash: str, tmp_path: Path) -> None:
    stand_ins = """
NODES=2 NODE_NAMES=(a b) HEAD=a READY_TIMEOUT=1 FAILED_KIND='' TRAINER_CODE='' TRAINING=0 STOPPING=0 TIME_UP=0
SAID=(a b) HEARD=() FINDINGS=() UNFIT=()
declare -A CHECKED=()
clock() { NOW=0; }
mind_silence() { :; }
send() { printf '%s\\0' "$@"; }
next_message() {
	VERB=checked FROM=${SAID[0]-} TEXT="10.0.0.1 fd00::${SAID[0]-}"
	((${#SAID[@]})) || VERB=over
	SAID=("${SAID[@]:1}")
}
"""
    assert output(bash, render(JobSpec()), f"{stand_ins}follow", tmp_path) == [
        "peer=10.0.0.1 fd00::a",
        "peer=10.0.0.1 fd00::b",
        "go=",
    ]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ("", "0"),
        ("SLURM_MEM_PER_NODE=300", "300"),
        ("SLURM_MEM_PER_CPU=100", "400"),
        ("SLURM_MEM_PER_GPU=1000", "3000"),
    ],
)
def test_the_memory_of_a_job(bash: str, tmp_path: Path, facts: str, expected: str) -> None:
    """And Docker's container, which leaves the job's cgroup, gets as much."""
    script = render(JobSpec(container={"runtime": "docker"}))
    facts = (
        f"SLURM_CPUS_ON_NODE=4 SLURM_GPUS_ON_NODE=3 {facts}\nRUN_ARGS=()\nsay() {{ :; }}\nRUNTIME=docker\n"
    )
    call = 'printf "%s\\0" "$(memory_of_job)" && allocation_args && printf "%s\\0" "${RUN_ARGS[*]}"'
    memory, args = output(bash, script, facts + call, tmp_path)
    assert memory == expected
    assert ("--memory" in args) == (expected != "0")
    assert expected == "0" or f"--memory {expected}m" in args


STALE = "mkdir ray-1-0 ray-1-0/inside && touch ray-1-0/old"
ENDED = f"echo {2**22 + 1} >ray-1-0/task"  # larger than the kernel's numbers


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", "made"),
        (f"{STALE} && {ENDED}", "made"),
        (f"{STALE} && echo $$ >ray-1-0/task", "refused"),
        (f"{STALE} && {ENDED} && exec 8<ray-1-0/inside && flock --shared 8", "refused"),
        (STALE, "refused"),
        (f"{STALE} && {ENDED} && mv ray-1-0 other && ln -s other ray-1-0", "refused"),
    ],
)
def test_a_folder_of_a_job_that_had_the_same_number(
    bash: str, tmp_path: Path, before: str, expected: str
) -> None:
    """It goes, unless somebody may need it."""
    facts = "TEMP_DIR=$PWD SLURM_JOB_ID=1 ATTEMPT=0 RUN=$PWD NODE=node1 PROGRAMS=()\n"
    facts += (
        "fail() { printf 'refused\\0' && exit 0; }\nexec 2>/dev/null\nmkdir logs && touch logs/node1.log\n"
    )
    call = "make_temp\n[[ ! -e ray-1-0/old && $(<ray-1-0/task) == $$ ]] && printf 'made\\0'"
    assert output(bash, render(JobSpec()), f"{facts}{before}\n{call}", tmp_path) == [expected]
    assert (tmp_path / "ray-1-0/old").exists() == (expected == "refused")


def test_the_last_words_of_a_runtime(bash: str, tmp_path: Path) -> None:
    """As Apptainer writes them."""
    (tmp_path / "output").write_text("INFO: x\n\x1b[91mERROR  : no such thing\n\x1b[0m\n")
    stand_ins = """
RUNTIME=apptainer IMAGE=image TEMP=$PWD NODE=node1
finding() { printf '%s\\0' "$3"; }
"""
    assert output(bash, render(JobSpec()), f"{stand_ins}not_there exec", tmp_path) == [
        "ERROR  : no such thing"
    ]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return programs_in(tmp_path_factory.mktemp("inside"))


@pytest.fixture
def output_of_trainer(programs: Path) -> Iterator[int]:
    reader = os.open(programs / "out", os.O_RDONLY | os.O_NONBLOCK)
    other = os.open(programs / "err", os.O_RDONLY | os.O_NONBLOCK)
    yield reader
    os.close(reader)
    os.close(other)


def through_the_first_process(
    records: list[str], programs: Path, reader: int
) -> tuple[list[str], dict[str, str]]:
    """argv and environment of a trainer that the container's first process started."""
    assert end_in_the_first_process(records, programs) == "slurmray gpu-1 exit 7\n"
    argv, environment = json.loads(b"".join(iter(lambda: os.read(reader, 65536), b"")))
    return argv, environment


@settings(max_examples=10)
@given(words=st.lists(TEXTS, max_size=20), values=st.lists(TEXTS, max_size=20))
def test_any_text_reaches_the_trainer(
    words: list[str], values: list[str], tmp_path: Path, programs: Path, output_of_trainer: int
) -> None:
    env = {f"V{number}": value for number, value in enumerate(values)} | {
        "BASH_ENV": "/etc/passwd",
        "HOME": "/ho\nme",
    }
    spec = {"run": [sys.executable, "-c", TRAINER, *words], "env": env}
    script = render(JobSpec.model_validate(spec))
    records = output("/bin/bash", script, r"""printf "%s\0" "${RECORDS[@]}" """, tmp_path)
    argv, environment = through_the_first_process([*START, *records, "go="], programs, output_of_trainer)
    assert argv == words
    assert {name: environment[name] for name in env} == env
    assert {"RAY_ADDRESS", "NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT"} <= set(
        environment
    )


@pytest.mark.parametrize(("attempt", "argv"), [(0, ["a"]), (1, ["a", "resume", "here"])])
def test_words_for_a_trainer_that_starts_again(
    attempt: int, argv: list[str], programs: Path, output_of_trainer: int
) -> None:
    run = [f"run={word}" for word in (sys.executable, "-c", TRAINER, "a")]
    records = [*START, f"job=1-{attempt}", *run, "resume=resume", "resume=here", "go="]
    assert through_the_first_process(records, programs, output_of_trainer)[0] == argv


@pytest.mark.usefixtures("output_of_trainer")
@pytest.mark.parametrize(("name", "code"), [("a-file", 126), ("no-file", 127)])
def test_a_trainer_that_cannot_be_run(name: str, code: int, programs: Path, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("#!/bin/sh\n")
    said = end_in_the_first_process([*START, f"run={tmp_path / name}", "go="], programs)
    assert said == f"slurmray gpu-1 exit {code}\n"


def test_no_node_is_reached_through_a_proxy(programs: Path, output_of_trainer: int) -> None:
    run = [f"run={word}" for word in (sys.executable, "-c", TRAINER)]
    records = [*START, "env=http_proxy=http://proxy", "peer=10.0.0.1 fd00::1", "peer=10.0.0.2", *run, "go="]
    environment = through_the_first_process(records, programs, output_of_trainer)[1]
    direct = environment["no_proxy"].split(",")
    assert {"gpu-1", "10.0.0.1", "10.0.0.2", "fd00::1"} <= set(direct)
