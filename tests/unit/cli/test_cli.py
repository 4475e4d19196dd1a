"""slurmray's command line; init, explain and completion have their own modules."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import slurmray
from slurmray import cli
from slurmray.agent.script_parts import read_settings
from slurmray.cli import flags, rendered
from slurmray.errors import ExitCode
from slurmray.loading.load import FLAGS
from slurmray.plan import Plan
from slurmray.rendering.verification import verify
from slurmray.resources import data_folder
from slurmray.spec.job_spec import JobSpec

from .command_line import ROOT, imported_by, main, modules_of, run

NOT_CODES = ["-1", "--nope", "256", "1:128", "0:", "1:2:3", "+1", "\u0661", "what"]
CODES = (
    "expected 0 to 255, CODE:SIGNAL, e.g. 0:15, or one of usage, config, preflight, image, bring_up, "
    "probe, prepare, service, node_lost, time_limit, rehearsal, stalled, internal"
)
SITES = sorted((data_folder("templates") / "sites").iterdir())
DOWN_ALONE = "slurmray rehearse --down: takes no other arguments"
pytestmark = pytest.mark.usefixtures("current_folder")


@pytest.mark.parametrize(
    "args",
    [
        "--help",
        "--version",
        "init",
        "init --help",
        "render --help",
        "schema --help",
        "explain",
    ],
)
def test_help_imports_nothing_heavy(args: str) -> None:
    heavy, out = imported_by(f"from slurmray.cli import main; main({args.split()})")
    assert out
    assert not heavy


def test_help_imports_little_more_than_click() -> None:
    of_click = "import click; click.Command('a').main(['--help'])"
    extra = modules_of("from slurmray.cli import main; main(['--help'])") - modules_of(of_click)
    assert {name for name in extra if name.partition(".")[0] != "slurmray"} <= {"importlib", "__future__"}


def test_render_imports_no_preset_and_nothing_of_submitted_jobs() -> None:
    modules = modules_of("from slurmray.cli import main; main(['render', '--nodes=2', '-o-'])")
    assert "slurmray.rendering.script" in modules
    others = {"slurmray.presets", "slurmray.rendering.dstack.task", "slurmray.slurm.submitted_job"}
    assert not others & modules


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"], capsys) == (0, f"slurmray {slurmray.__version__}\n", "")


def test_help_has_a_line_for_each_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = main(["--help"], capsys)
    assert code == 0
    for name in ("init", "render", "rehearse", "verify", "explain", "schema"):
        assert any(line.split()[:1] == [name] for line in out.splitlines())


MISTAKES = {
    "rendr": "slurmray: unknown command 'rendr', did you mean render?",
    "xyz": "slurmray: unknown command 'xyz', known are init, render, check, submit, up, doctor, list, "
    "status, report, logs, fetch, attach, dashboard, why, cancel, clean, rehearse, verify, explain, config, "
    "schema, mcp",
    "render --": "slurmray: no command after --; for the built-in check, leave out the --",
    "attach --": "slurmray: no command after --; for a shell, leave out the --",
    "-- render": "slurmray: no subcommand before --; use render, check, submit, rehearse or attach",
    "explain -- 71": "slurmray explain: takes no command; leave out -- and everything after it",
    "rehearse x.sh": "x.sh: No such file or directory",
    "render 'j\udcff.yaml'": "'j\\udcff.yaml': not UTF-8; give the file another name",
    "render -o '\udcff.sh'": "'\\udcff.sh': not UTF-8; give the file another name",
    "init verl -o '\udcff'": "'\\udcff': not UTF-8; give the file another name",
    "render --template '\udcff'": "--template: not UTF-8; use text only",
    "render --template ''": "--template: is empty; set a value or leave it out",
    "render --template x.j2 --target dstack": "--template: not supported by dstack; leave it out: --set "
    "template=null",
    "rehearse no.yaml --down": "slurmray rehearse --down: takes no other arguments",
    "rehearse --down -- y": "slurmray rehearse --down: takes no other arguments",
    "rehearse --shell --build-image -- y": "slurmray rehearse --shell: takes only a command after --",
    "render --set name": "--set name: expected PATH=VALUE, e.g. --set container.shm_size=64g",
    "render nope.yaml": "nope.yaml: no such file; `slurmray init` can write one",
    "render train": "train: no such job spec; if it is the trainer's command, put -- before it: -- train",
    "submit python3 train.py x": "slurmray submit: Got unexpected extra arguments (train.py x) (see "
    "slurmray submit --help); if it is of the trainer's command, put -- before that command",
    "render --gpus 8": "slurmray render: --gpus: slurmray counts GPUs by node: use slurm.gpus_per_node, or "
    "--gpus-per-node",
    "submit --ntasks-per-node=1": "slurmray submit: --ntasks-per-node: slurmray starts one task on each "
    "node; leave it out",
    "render train.py --lr 1": "slurmray render: No such option '--lr'. (Did you mean one of: '--gres', "
    "'--help', '--hold'?) (see slurmray render --help); if it is of the trainer's command, put -- before "
    "that command",
    "render job.yaml --lr 1": "slurmray render: No such option '--lr'. (Did you mean one of: '--gres', "
    "'--help', '--hold'?) (see slurmray render --help); an option of the trainer goes into run of the job "
    "spec",
    "attach 7 nvidia-smi": "slurmray attach: Got unexpected extra argument (nvidia-smi) (see slurmray "
    "attach --help); if it is of a command, put -- before that command",
    "--follow submit job.yaml": "slurmray: No such option '--follow'. (see slurmray --help); options of a "
    "subcommand go after its name",
    "submit job.yaml more.yaml": "slurmray submit: Got unexpected extra argument (more.yaml) (see slurmray "
    "submit --help); slurmray submit takes one job spec",
    "submit job.yaml slurm.nodes=4": "slurmray submit: Got unexpected extra argument (slurm.nodes=4) (see "
    "slurmray submit --help); a field is set with --set PATH=VALUE",
    "render --nodez 2": "slurmray render: No such option '--nodez'. (Did you mean one of: '--nodefile', "
    "'--nodelist', '--nodes'?) (see slurmray render --help)",
    "render -n 4": "slurmray render: -n: slurmray starts one task on each node; leave it out",
    "logs --tail 4": "slurmray logs: --tail: use -n",
    "submit --host a": "slurmray submit: --host: use --profile, with the host in that profile",
    "status job.yaml": "no job named 'job.yaml' was submitted with slurmray submit; give its id or its "
    "name, not the file of its job spec",
    "run job.yaml": "slurmray: unknown command 'run', did you mean submit?",
    "ls": "slurmray: unknown command 'ls', did you mean list?",
    "job.yaml": "slurmray: unknown command 'job.yaml', did you mean submit job.yaml?",
    "logs -n 0": "slurmray logs: Invalid value for '-n' / '--lines': 0 is not in the range x>=1. (see "
    "slurmray logs --help)",
    "completion": "slurmray: slurmray --help has the line for your shell",
    "help rendr": "slurmray: unknown command 'rendr', did you mean render?",
    "render --nodes -1 --mem ''": "--nodes: expected 1 or more, got '-1'",
    "explain noed_lost": "slurmray explain: 'noed_lost' is not an exit code, did you mean node_lost?",
    **{f"explain {bad}": f"slurmray explain: {bad!r} is not an exit code, {CODES}" for bad in NOT_CODES},
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = main(shlex.split(line), capsys)
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.splitlines()[0] == MISTAKES[line]
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("example", "args", "message"),
    [
        ("verl", ["--gpus-per-node", "3"], "an engine of 2 would lie across nodes of 3 GPUs"),
        (
            "rlinf",
            ["--", "python3", "main_grpo.py", "cluster.num_nodes=3"],
            "cluster.num_nodes is 3, the job has",
        ),
        (
            "search-r1",
            ["--", "python3", "-m", "verl.trainer.main_ppo", "trainer.nnodes=3"],
            "trainer.nnodes=3",
        ),
        ("roll", ["--gpus-per-node", "1"], "num_gpus_per_node is 2, the job has 2 nodes x 1 = 2"),
        ("openrlhf", ["--nodes", "1"], "--actor_num_nodes 2, the job has 1 node x 8 = 8"),
    ],
)
def test_a_placement_that_does_not_fit_is_bad_input(
    example: str, args: list[str], message: str, in_checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = in_checkout / "not-written.sh"
    code, out, err = main(["render", f"examples/{example}.yaml", "-o", str(output), *args], capsys)
    assert (code, out) == (ExitCode.USAGE, "")
    assert message in err
    assert not output.exists()


def test_a_script_is_recognized_by_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "--nodes", "1", "-o", "job.sbatch"], capsys)[0] == 0
    code, _, err = main(["rehearse", "job.sbatch", "--nodes", "2"], capsys)
    assert (code, err.startswith("job.sbatch: is a rendered script; change the ")) == (
        ExitCode.USAGE,
        True,
    ), err


def test_a_script_is_rehearsed_byte_for_byte(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("slurmray.rehearsal.session.rehearse", lambda script, **_: seen.append(script))
    Path("x.sh").write_bytes(b"#!/bin/bash\r\necho \xc3\xa9\n")
    assert main(["rehearse", "x.sh"], capsys)[0] == 0
    assert seen == ["#!/bin/bash\r\necho é\n"]
    Path("x.sh").write_bytes(b"#!/bin/bash\n\xff")
    error = "x.sh:2:1: not UTF-8; save the file as UTF-8\n"
    assert main(["rehearse", "x.sh"], capsys) == (ExitCode.USAGE, "", error)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("render >&-", "standard output is closed; redirect it to /dev/null if you do not want it\n"),
        ("render - <&-", "stdin: is closed; pipe the job spec to it, or use a file\n"),
        ("explain - <&-", "slurmray explain: stdin: is closed\n"),
        ("why --log - <&-", "slurmray why: --log -: is closed\n"),
    ],
)
def test_a_closed_stream_is_one_line(args: str, expected: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m slurmray {args}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (ExitCode.USAGE, expected)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("subcommand", ["init", "render", "rehearse"])
def test_a_current_folder_that_was_removed(
    subcommand: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code, _, err = main([subcommand, "-o", str(tmp_path / "x.sh")], capsys)
    assert (code, err) == (2, "current folder: No such file or directory; cd to a folder that exists\n")
    assert list(tmp_path.iterdir()) == []
    assert main(["explain", "71"], capsys)[0] == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["status", "99999"], capsys)[::2] == (code, err)


def test_a_file_is_checked_where_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Click's own checks have other messages, and would also check files that are only written."""
    Path("job.yaml").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    for _ in range(2):
        assert cli.main(["render", "job.yaml", "-o", "x.sh"]) == 0


def test_the_first_command_of_a_new_user() -> None:
    done = run("render", "--nodes", "2")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "wrote generated.sh: 2 nodes, no GPUs (request them with --gpus-per-node 8), "
        "CPUs: Slurm's default, often 1 (request more with --cpus-per-task), default partition, default "
        "time limit, the built-in check",
        "submit it with: sbatch generated.sh",
        "or try it on this machine: slurmray rehearse generated.sh",
    ]
    assert os.access("generated.sh", os.X_OK)
    assert "#SBATCH --nodes=2" in Path("generated.sh").read_text().splitlines()


@pytest.mark.parametrize("options", [["--cpus-per-gpu", "12"], ["--exclusive"]])
def test_other_options_that_request_cpus(options: list[str]) -> None:
    done = run("render", "--nodes", "2", "--gpus-per-node", "8", *options)
    assert done.returncode == 0
    assert "CPUs" not in done.stderr.splitlines()[0]


def test_options_of_sbatch_and_its_short_forms() -> None:
    argv = ["-N", "3", "-p", "gpu", "-q", "high", "-J", "my job", "--hold", "--exclusive", "-w", "node[1-3]"]
    assert run("render", *argv, "-t", "1:00:00", "-A", "me", "-c", "4", "-C", "h100&ib").returncode == 0
    script = Path("generated.sh").read_text()
    directives = set(re.findall("^#SBATCH (.*)$", script, re.MULTILINE))
    assert {
        *("--nodes=3", "--partition=gpu", "--qos=high", '--job-name="my job"', "--hold", "--exclusive"),
        *("--nodelist=node[1-3]", "--time=1:00:00", "--account=me", "--cpus-per-task=4"),
        '--constraint="h100&ib"',
    } <= directives
    again = shlex.split(read_settings(script)["render_again"])
    assert run(*again[1:]).returncode == 0
    assert Path("generated.sh").read_text() == script


def test_mistakes_in_options_of_sbatch() -> None:
    assert "--time-min: expected" in run("render", "-N", "2", "--time-min", "24h").stderr
    assert "--mem-per-cpu: " in run("render", "-N", "2", "--mem", "1G", "--mem-per-cpu", "1G").stderr
    assert run("render", "--help").stdout.count("--qos") == 1  # an example


def test_a_script_of_another_job_spec_is_not_replaced_unnoticed() -> None:
    for name in ("a.yaml", "b.yaml"):
        Path(name).write_text("slurm: {nodes: 2}\n")
    seen = [run("render", *args).stderr for args in (["a.yaml"], ["a.yaml"], ["b.yaml"], [], ["b.yaml"])]
    line = "generated.sh was the script of %s before; with -o FILE both are kept"
    assert [line % "a.yaml" in text for text in seen] == [False, False, True, False, False]
    assert [line % "b.yaml" in text for text in seen] == [False, False, False, True, False]


def write_specs(**specs: str) -> None:
    for name, text in specs.items():
        Path(f"{name}.yaml").write_text(text)


def test_a_script_for_each_of_several_job_specs() -> None:
    write_specs(a="name: small\nslurm: {nodes: 2}\n", b="name: large\nenv: {LR: 1}\n")
    done = run("render", "a.yaml", "b.yaml", "--time", "1:00:00")
    assert (done.returncode, done.stdout) == (0, "")
    small, large = Path("small.sh").read_text(), Path("large.sh").read_text()
    assert "#SBATCH --nodes=2\n" in small
    assert "#SBATCH --nodes=1\n" in large
    assert "#SBATCH --time=1:00:00\n" in small
    assert "#SBATCH --time=1:00:00\n" in large
    assert read_settings(small)["render_again"] == "slurmray render a.yaml --time 1:00:00 -o '{name}.sh'"
    for name in ("small", "large"):
        assert f"submit it with: sbatch {name}.sh\n" in done.stderr
    again = shlex.split(read_settings(large)["render_again"])
    assert run(*again[1:]).returncode == 0
    assert Path("large.sh").read_text() == large


def test_the_name_of_the_job_in_the_output() -> None:
    write_specs(a="name: a b\n")
    assert run("render", "a.yaml", "-o", "x-{name}.sh").returncode == 0
    assert Path("x-a b.sh").exists()
    refused = run("render", "a.yaml", "--job-name", "a/b", "-o", "{name}.sh")
    assert (refused.returncode, refused.stderr) == (2, "a.yaml: name: a/b has a /, and {name} is in -o\n")


def test_mistakes_in_several_job_specs() -> None:
    """All are reported, and nothing is written."""
    write_specs(a="slurm: {nodes: 0}\n", b="x: 1\n", c="name: c\n", d="name: c\n", e="name: e\n")
    done = run("render", "a.yaml", "c.yaml", "b.yaml")
    assert (done.returncode, [line[:7] for line in done.stderr.splitlines()]) == (2, ["a.yaml:", "b.yaml:"])
    done = run("render", "c.yaml", "d.yaml")
    line = "d.yaml: name: c is also that of c.yaml; give each its own\n"
    assert (done.returncode, done.stderr) == (2, line)
    for output in ("x.sh", "-"):
        done = run("render", "c.yaml", "e.yaml", "-o", output)
        line = f"-o {output}: is one file for 2 job specs; use {{name}} in it\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    done = run("render", "c.yaml", "-o", "logs/%j.out")
    assert (done.returncode, "--set slurm.output=logs/%j.out\n" in done.stderr) == (2, True), done.stderr
    done = run("render", "-o", "x.sh", "python3", "train.py")  # a forgotten --
    assert [line.rpartition(": ")[2] for line in done.stderr.splitlines()] == ["-- python3", "-- train.py"]
    Path("e.sh").write_text("mine")
    assert run("render", "c.yaml", "e.yaml").returncode == 2
    assert not list(Path().glob("c*.sh"))


@pytest.mark.attack("terminal sequences in somebody else's job spec", inputs=2)
def test_a_job_spec_cannot_write_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """`config` and `check` are how one looks at it first."""
    spec = 'slurm: {partition: "gpu\\e]0;x\\a"}\ncontainer: {runtime: podman}\n'
    Path("job.yaml").write_text(spec)
    for command in ("check", "render"):
        _, out, err = main([command, "job.yaml"], capsys)  # check also asks Slurm, if there is one
        assert "\\x1b]0;x\\x07" in out + err
        assert "\x1b" not in out + err
    Path("job.yaml").write_text(spec + '"\\e]52;c;Y3Vy\\a": x\n')
    code, out, err = main(["config", "job.yaml"], capsys)
    assert (code, "\\x1b]52;c;Y3Vy\\x07" in out, "\x1b" in out + err) == (0, True, False)


def test_standard_input_that_is_not_read() -> None:
    line = "standard input was not read; slurmray render - takes it as the job spec\n"
    assert run("render", "--nodes", "2", stdin="name: a\n").stderr.endswith(line)
    write_specs(a="name: a\n")
    with Path("a.yaml").open() as file:
        argv = [sys.executable, "-m", "slurmray", "render"]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        done = subprocess.run(argv, stdin=file, capture_output=True, text=True, check=False, env=env)
    assert done.stderr.endswith(line)
    for args, stdin in ((["a.yaml"], "name: a\n"), ([], ""), (["-"], "name: a\n")):
        assert line not in run("render", *args, stdin=stdin).stderr


def test_an_edited_script_is_kept_until_forced() -> None:
    assert run("render").returncode == 0
    assert run("render").returncode == 0
    with Path("generated.sh").open("a") as script:
        script.write("# mine\n")
    refused = run("render")
    assert refused.returncode == ExitCode.USAGE
    assert refused.stderr.startswith("generated.sh: was edited")
    assert Path("generated.sh").read_text().endswith("# mine\n")
    assert run("render", "--force").returncode == 0


def test_a_task_of_dstack() -> None:
    Path("job.yaml").write_text("slurm: {nodes: 2, gpus_per_node: 8, partition: p}\nenv: {A: 1, B: null}\n")
    done = run("render", "job.yaml", "--target", "dstack")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "wrote generated.dstack.yml: 2 nodes, 8 GPUs each, CPUs: 2 or more, as the instance has "
        "(request more with --cpus-per-task), the built-in check",
        "env.B is not set in your environment; export it before dstack apply",
        "not used by dstack, left out: slurm.partition",
        "container.shm_size is not set: /dev/shm has 64 MB under dstack; set a larger size, e.g. 64g",
        "run it with: dstack apply -f generated.dstack.yml",
    ]
    task = Path("generated.dstack.yml")
    assert task.stat().st_mode & 0o111 == 0
    assert task.read_text().splitlines()[2] == "type: task"
    assert run("render", "job.yaml", "--target", "dstack").returncode == 0
    with task.open("a") as file:
        file.write("priority: 1\n")
    assert run("render", "--target", "dstack").stderr.startswith("generated.dstack.yml: was edited")
    to_stdout = run("render", "--target", "dstack", "-o", "-", "--set", "container.shm_size=1g")
    assert (to_stdout.returncode, to_stdout.stderr) == (0, "")
    refused = run("render", "--target", "dstack", "--runtime", "podman", "-o", "x.yml")
    assert (refused.returncode, refused.stdout) == (ExitCode.USAGE, "")
    assert refused.stderr == "--runtime: dstack runs containers with Docker; set it to auto\n"
    assert not Path("x.yml").exists()


def test_standard_input_and_output() -> None:
    from_stdin = run("render", "-", "-o", "-", stdin="slurm: {nodes: 3}\n")
    assert (from_stdin.returncode, from_stdin.stderr) == (0, "")
    assert "#SBATCH --nodes=3" in from_stdin.stdout.splitlines()
    assert list(Path().iterdir()) == []


def test_the_same_bytes_on_every_machine(tmp_path: Path) -> None:
    Path("job.yaml").write_text("slurm: {nodes: 2}\nenv: {A: é}\ncontainer: {mounts: [~/d]}\n")
    here = run("render", "job.yaml", "-o", "-", HOME="/a", LANG="C", PYTHONUTF8="0", PYTHONHASHSEED="1")
    there = run(
        "render", str(tmp_path / "job.yaml"), "-o", "-", HOME="/b", LANG="C.UTF-8", PYTHONHASHSEED="2"
    )
    assert here.returncode == there.returncode == 0
    assert here.stdout == there.stdout


def test_a_variable_that_is_not_exported_is_named() -> None:
    args = [
        "render",
        *(f"--env={name}" for name in ("HERE", "NOT_HERE", "SLURM_JOB_ID", "NOR_HERE", "WRITTEN=x")),
    ]
    warnings = [
        f"env.{name} is not set in your environment; export it before sbatch, or the job ends with 64"
        for name in ("NOT_HERE", "NOR_HERE")
    ]
    done = run(*args, HERE="")
    assert (done.returncode, done.stderr.splitlines()[1:3]) == (0, warnings)
    assert "sbatch generated.sh" in done.stderr.splitlines()[3]
    script = Path("generated.sh").read_text()
    taken = [f"--set=env.{name}=null" for name in ("HERE", "NOT_HERE", "SLURM_JOB_ID", "NOR_HERE")]
    for name in ("check", "submit", "up", "rehearse"):
        refused = run(name, *taken, "--set=notify.url=env:HOOK", HERE="")
        assert refused.returncode == ExitCode.USAGE
        assert refused.stderr.splitlines() == [
            f"{field} is not set in your environment; export it first"
            for field in ("env.NOT_HERE", "env.NOR_HERE", "notify.url: HOOK")
        ]
    to_stdout = run(*args, "-o", "-", HERE="")
    assert to_stdout.stderr.splitlines() == warnings
    all_there = run(*args, "-o", "-", HERE="1", NOT_HERE="2", NOR_HERE="3")
    assert all_there.stderr == ""
    assert script == to_stdout.stdout == all_there.stdout


def test_every_flag_sets_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"--runtime": "podman", "--time": "2:00"}
    documented = ["--template", *(name for name, _, _ in flags._FLAGS)]
    given = {flag: values.get(flag, "7") for flag in documented}
    args = [arg for flag, value in given.items() for arg in (flag, value)]
    commands: list[str] = []
    seen: list[JobSpec] = []

    def fake(plan: Plan, command: str, *, only_checks: bool) -> str:
        assert not only_checks
        seen.append(plan.spec)
        commands.append(command)
        return "# Rendered by slurmray\n"

    monkeypatch.setattr("slurmray.rendering.script.render_script", fake)
    extra = ["--mount", "a:/a", "--env", "A=b c", "--env", "B", "--set", "stop.grace=3"]
    assert (
        cli.main(["render", *args, *extra, "-o", "x.sh", "--", "python", "-c", "'\"\n", "--", "--nodes"]) == 0
    )
    (spec,) = seen
    fields = spec.model_dump()
    for flag in documented:
        value: Any = fields
        for name in FLAGS[flag].split("."):
            value = value[name]
        assert str(value) == given[flag]
    assert fields["container"]["mounts"] == ["a:/a"]
    assert fields["env"] == {"A": "b c", "B": None}
    assert fields["stop"]["grace"] == 3
    assert fields["run"] == ["python", "-c", "'\"\n", "--", "--nodes"]
    # The command in the script renders the same script, and accepts more options at its end.
    again = shlex.split(commands[0].replace(" A=... ", " 'A=b c' "))
    assert again[:2] == ["slurmray", "render"]
    assert cli.main([*again[1:], "--nodes", "9"]) == 0
    assert seen[1].model_copy(update={"slurm": spec.slurm}) == spec
    assert seen[1].slurm.nodes == 9


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ("--env TOKEN=hunter2", "--env TOKEN=..."),
        ("--env TOKEN=a=hunter2", "--env TOKEN=..."),
        ("--set env.TOKEN=hunter2", "--set env.TOKEN=..."),
        ("--set 'env={A: hunter2}'", "--set env=..."),
        ("--set 'services=[{name: a, run: b, \"env\": {A: hunter2}}]'", "--set services=..."),
        ("--set launch=ray-job --set 'ray.runtime_env={env_vars: {A: hunter2}}'", "runtime_env=..."),
        ("--set launch=ray-job --set ray.runtime_env.env_vars.A=hunter2", "env_vars.A=..."),
    ],
)
def test_values_of_env_are_hidden_in_the_command(
    args: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["render", *shlex.split(args)]) == 0
    script = Path("generated.sh").read_text()
    again = read_settings(script)["render_again"]
    assert again.endswith(shown)
    assert script.count("hunter2") == 1
    # As shown it is refused, so it cannot render a job with other values.
    code, _, err = main(shlex.split(again)[1:], capsys)
    assert code == ExitCode.USAGE
    assert "replace ... by the value" in err


def test_other_values_are_in_the_command() -> None:
    args = "--set env.B=null --set prepare='[{name: a, run: b}]' --env A --account '[x'"
    assert cli.main(["render", *shlex.split(args)]) == 0
    again = "slurmray render --set env.B=null --set 'prepare=[{name: a, run: b}]' --env A --account '[x'"
    assert read_settings(Path("generated.sh").read_text())["render_again"] == again


def template_name(script: str) -> str:
    """Return the name of the site's template by `slurmray verify` of an unedited script."""
    verdict = verify(Path(script).read_text())
    assert verdict
    assert verdict.code == 0
    return verdict.text.partition("; commands of the site's template ")[2].partition(": ")[0]


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)
def test_the_template_of_a_site(site: Path) -> None:
    """In the job spec or on the command line, where paths are relative to the current folder."""
    for path in ("job.yaml", "jobs/job.yaml"):
        Path("jobs").mkdir(exist_ok=True)
        shutil.copy(site, "site.j2")
        Path(path).write_text("template: site.j2\n")
        assert cli.main(["render", path, "-o", "by-spec.sh", "--force"]) == 0
        assert template_name("by-spec.sh") == "site.j2"
    assert cli.main(["render", "--template", "site.j2"]) == 0
    assert template_name("generated.sh") == "site.j2"
    assert cli.main(["render", "--template", str(site), "-o", "absolute.sh"]) == 0
    assert template_name("absolute.sh") == str(site)
    assert cli.main(["render", "-o", "without.sh"]) == 0
    assert template_name("without.sh") == ""


def test_the_flag_wins_over_the_template_of_the_job_spec() -> None:
    shutil.copy(SITES[0], "site.j2")
    Path("job.yaml").write_text("template: no-such-file.j2\n")
    assert cli.main(["render", "job.yaml", "--template", "site.j2"]) == 0
    assert template_name("generated.sh") == "site.j2"
    again = read_settings(Path("generated.sh").read_text())["render_again"]
    assert again == "slurmray render job.yaml --template site.j2"
    assert cli.main(["render", "job.yaml", "--set", "template=null"]) == 0
    assert template_name("generated.sh") == ""


def test_a_template_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    shutil.copy(SITES[0], tmp_path / "home/site.j2")
    assert cli.main(["render", "--template", "~/site.j2"]) == 0
    assert template_name("generated.sh") == "~/site.j2"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("no.j2", "no.j2: No such file or directory; name a file that extends job.sbatch.j2"),
        (".", ".: Is a directory; name a file that extends job.sbatch.j2"),
        ("~nosuchuser/x", "~nosuchuser/x: no such home folder here; write the path without ~"),
        ("latin.j2", "latin.j2:1:1: not UTF-8; save the file as UTF-8"),
        ("other.j2", 'other.j2: its first line must be {% extends "job.sbatch.j2" %}'),
        ("open.j2", "open.j2:1: "),
        ("base.j2", "base.j2:1: template base.sh.j2 does not exist; extend job.sbatch.j2"),
    ],
)
@pytest.mark.parametrize("subcommand", ["render", "rehearse"])
def test_a_template_that_cannot_be_used(
    subcommand: str, file: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("latin.j2").write_bytes(b"\xe9")
    Path("other.j2").write_text("#!/bin/bash\n")
    Path("open.j2").write_text("{% block")
    Path("base.j2").write_text('{% extends "base.sh.j2" %}')
    Path("job.yaml").write_text(f"template: '{file}'\n")
    code, out, err = main([subcommand, "job.yaml"], capsys)
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith(expected)
    assert len(err.splitlines()) == 1
    assert not Path("generated.sh").exists()


def test_a_rehearsal_with_the_options_of_the_first_job(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr("slurmray.rehearsal.session.rehearse", lambda script, **_: seen.append(script))
    options = ["--nodes", "2", "--gpus-per-node", "8", "--cpus-per-task", "2", "--image", "my/image:1"]
    assert cli.main(["rehearse", *options, "--runtime", "podman", "--", "python3", "train.py"]) == 0
    lines = set(seen[0].splitlines())
    assert {"#SBATCH --nodes=2", "#SBATCH --gpus-per-node=8", "#SBATCH --cpus-per-task=2"} <= lines
    assert read_settings(seen[0])["container"]["image"] == "my/image:1"


@pytest.mark.parametrize("is_rendered", [True, False])
def test_variables_are_looked_for_before_a_rehearsal(
    is_rendered: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("slurmray.rehearsal.session.rehearse", lambda *_, **__: 0)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    Path("job.yaml").write_text("env: {WANDB_API_KEY: null, SLURM_JOB_ID: null}\n")
    assert cli.main(["render", "job.yaml"]) == 0
    argv = ["rehearse", "generated.sh" if is_rendered else "job.yaml", "--build-image"]
    capsys.readouterr()
    text = "env.WANDB_API_KEY is not set in your environment; export it first\n"
    assert main(argv, capsys) == (2, "", text)
    monkeypatch.setenv("WANDB_API_KEY", "x")
    assert main(argv, capsys)[0] == 0


def test_a_script_is_rehearsed_with_the_template_of_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(script: str, **_: object) -> int:
        Path("seen.sh").write_text(script)
        return 0

    monkeypatch.setattr("slurmray.rehearsal.session.rehearse", fake)
    Path("job.yaml").write_text(f"template: {SITES[0]}\n")
    assert cli.main(["rehearse", "job.yaml"]) == 0
    assert template_name("seen.sh") == str(SITES[0])


def test_ray_start_is_in_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    for args, expected in (([], "fast"), (["--set", "ray.start=standard"], "standard")):
        code, out, _ = main(["render", "-o", "-", *args], capsys)
        assert code == 0
        assert read_settings(out)["ray"]["start"] == expected
    code, _, err = main(["render", "-o", "-", "--set", "ray.start=standard", "--target", "dstack"], capsys)
    assert code == 0
    assert "left out: ray.start" in err


def test_paths_in_the_command_start_at_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []

    def fake(_: object, command: str, *, only_checks: bool) -> str:
        assert not only_checks
        commands.append(command)
        return "# Rendered by slurmray\n"

    monkeypatch.setattr("slurmray.rendering.script.render_script", fake)
    here, there, link = tmp_path / "here", tmp_path / "there", tmp_path / "link"
    (here / "sub").mkdir(parents=True)
    there.mkdir()
    link.symlink_to(here)
    for folder in (here / "sub", there):
        (folder / "a b.yaml").touch()
    monkeypatch.chdir(link)
    for root in (".", here, link, there, "../there"):
        name = root if root in (there, "../there") else f"{root}/sub"
        assert cli.main(["render", f"{name}/a b.yaml", "-o", f"{name}/x.sh"]) == 0
    inside = "slurmray render 'sub/a b.yaml' -o sub/x.sh"
    outside = f"slurmray render '{there}/a b.yaml' -o {there}/x.sh"
    beside = "slurmray render '../there/a b.yaml' -o ../there/x.sh"
    assert commands == [inside, inside, inside, outside, beside]


def test_interrupt_and_internal_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rendered, "render_job", interrupted)
    code, _, err = main(["render"], capsys)
    assert (code, err.strip()) == (130, "")
    monkeypatch.setattr(rendered, "render_job", broken)
    code, _, err = main(["render"], capsys)
    assert code == ExitCode.INTERNAL
    assert "please report it" in err
    assert "ZeroDivisionError" in err


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ("rehearse --follow", "slurmray rehearse: No such option '--follow'"),
        ("rehearse --runtime x", "--runtime: expected auto, docker, podman, "),
        ("render --nodes", "slurmray render: Option '--nodes' requires an argument."),
        ("render -o", "slurmray render: Option '-o' requires an argument. (see slurmray render --help)"),
        ("render --force=1", "slurmray render: Option '--force' does not take a value."),
        ("--version=1 render", "slurmray: Option '--version' does not take a value."),
        ("--nope", "slurmray: No such option '--nope'."),
    ],
)
def test_a_wrong_argument_is_one_line(args: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = main(shlex.split(args), capsys)
    assert (code, out) == (2, "")
    assert err.startswith(line)
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("args", [["schema"], ["--help"]])
def test_a_closed_pipe_is_no_internal_error(args: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = run(*args, stdout=write)
    os.close(write)
    assert done.stderr == ""
    assert done.returncode not in (0, ExitCode.INTERNAL)


@pytest.mark.parametrize("args", [["render", "-o", "-"], ["schema"], ["explain"], ["--help"]])
def test_a_full_standard_output_is_one_line(args: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run(*args, stdout=full)
    assert done.stderr == "standard output: No space left on device\n"
    assert done.returncode == ExitCode.USAGE


def test_an_error_about_another_file_does_not_name_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        with Path("/dev/full").open("w") as file:
            file.write("x")

    monkeypatch.setattr(rendered, "render_job", full)
    code, _, err = main(["render"], capsys)
    assert code == ExitCode.INTERNAL
    assert "No space left on device" in err
    assert "standard output" not in err


def test_every_field_of_the_schema_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = main(["schema"], capsys)
    assert code == 0
    document = json.loads(out)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "$id" not in document
    for part in (document, *document["$defs"].values()):
        for name, field in part["properties"].items():
            is_section = any("$ref" in choice for choice in field.get("anyOf", []))
            assert is_section or field.get("description"), name


def test_findings_of_a_preset_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("roll.yaml").write_text("actor_train:\n  device_mapping: list(range(0,8))\n")
    Path("job.yaml").write_text(
        "preset: {name: roll, config: roll.yaml}\nslurm: {nodes: 2, gpus_per_node: 8}\nrun: [python, x.py]\n"
    )
    code, _, err = main(["render", "job.yaml"], capsys)
    assert (code, err.splitlines()[1:2]) == (
        0,
        ["actor_train 0-7 (8), the job has 2 nodes x 8 = 16: 8 GPUs idle, 8-15"],
    )
    Path("generated.sh").unlink()
    code, out, err = main(["render", "job.yaml", "--nodes", "1", "--gpus-per-node", "4"], capsys)
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.splitlines() == [
        "roll.yaml:2:3: actor_train 0-7 (8) = 8 GPUs, the job has 1 node x 4 = 4: set slurm.nodes: 2, "
        "or place them on GPUs 0 to 3"
    ]
    assert not Path("generated.sh").exists()


@pytest.mark.parametrize("options", [[], ["--target", "dstack", "--set", "container.shm_size=1g"]])
def test_only_the_owner_can_read_a_script(options: list[str]) -> None:
    """`setup`, `node_env` and other texts may have secrets, like values of variables."""
    old = os.umask(0o022)
    try:
        assert cli.main(["render", *options, "-o", "job", "--", "true"]) == 0
    finally:
        os.umask(old)
    assert Path("job").stat().st_mode & 0o077 == 0


@pytest.mark.attack("values that are too long for a program")
@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("env:\n  A: {}\n", "job.yaml:2:6: env.A: has 200000 bytes"),
        ("setup: {}\n", "job.yaml:1:8: setup: has"),
        ("node_env: {}\n", "job.yaml:1:11: node_env: has"),
        ("run: [python3, {}]\n", "job.yaml:1:6: run: item 2: has"),
        ("prepare:\n- name: a\n  run: {}\n", "job.yaml:3:8: prepare, item 1, run: has"),
    ],
)
def test_a_value_that_no_program_can_get(field: str, place: str) -> None:
    Path("job.yaml").write_text(field.format("x" * 200_000))
    done = run("render", "job.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith(place), done.stderr[:300]
    assert len(done.stderr.splitlines()) == 1
    assert not Path("generated.sh").exists()
