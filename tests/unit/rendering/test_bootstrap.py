"""From the script to a running agent, with a small agent instead of the real one."""

import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from slurmray.agent import loader
from slurmray.agent import script_parts as parts
from slurmray.agent.controller.step import CONTROLLER_ONLY
from slurmray.agent.parts import PARTS
from slurmray.rendering.pretty_json import format_json
from slurmray.rendering.script import agent_text, assemble

VERSIONS = [f"3.{minor}" for minor in range(6, 14)]
LOADER = "#### agent/loader.py\n" + (Path(parts.__file__).parent / "loader.py").read_text()
# Written with the tests' Python; runs with Python 3.6 and later.
SMALL_AGENT = LOADER + textwrap.dedent("""\
    #### agent/__init__.py
    \"\"\"The package.\"\"\"
    #### agent/__main__.py
    import json
    import os
    import sys
    from . import helper
    from .deep import leaf

    def main(role, argv, script, rest):
        rest += sys.stdin.buffer.read()
        record = {
            "role": role, "argv": argv, "script": script, "rest": rest.decode(), "leaf": leaf.NAME,
            "trace": helper.trace(), "broken": "slurmray_agent.broken" in sys.modules,
            "version": "%d.%d" % sys.version_info[:2], "setup": os.environ.get("MADE_BY_SETUP", ""),
            "done": os.environ.get("SLURMRAY_SETUP_DONE", ""), "environment": dict(os.environ),
        }
        print(json.dumps(record))
        return 7
    #### agent/broken.py
    this is not Python, and must never be compiled
    #### agent/deep/__init__.py
    #### agent/deep/leaf.py
    from .. import helper
    NAME = helper.__name__ + " " + __name__ + " " + __package__
    #### agent/helper.py
    import traceback

    def trace():
        try:
            raise ValueError("é")  # the line that a traceback shows
        except ValueError:
            return traceback.format_exc()
    """)


@functools.cache
def find_pythons() -> dict[str, str]:
    """Return Python version -> path, from PATH and pyenv. Runs each: a shim of pyenv may lack its version."""
    pythons = {}
    for version in VERSIONS:
        folders = sorted(Path("/root/.pyenv/versions").glob(f"{version}.*/bin")) if os.getuid() == 0 else []
        for folder in [None, *folders]:
            path = shutil.which(f"python{version}", path=folder and str(folder))
            if path and subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0:
                pythons[version] = path
    return pythons


SYSTEM_PYTHON = f'exec {sys.executable} "$@"'
every_python = pytest.mark.parametrize("version", VERSIONS)


def small_script(folder: Path, setup: str = "") -> Path:
    """A script with the real story and the small agent."""
    settings = format_json({"version": "x", "setup": setup, "preflight": "fail"})
    text = assemble(["#SBATCH --job-name=é"], settings, ["podman", "docker"], [])
    file = folder / "generated.sh"
    file.write_text(text.replace(parts.read_agent(text) + "\n", SMALL_AGENT))
    return file


def programs(folder: Path, **scripts: str) -> Path:
    """Make a folder for PATH with these programs, and the system's that the story needs."""
    folder.mkdir()
    for name in ("bash", "grep", "sed", "env"):
        (folder / name).symlink_to(str(shutil.which(name)))
    for name, text in {"srun": "", **scripts}.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def python(version: str) -> str:
    if version not in find_pythons():
        pytest.skip(f"there is no Python {version} here")
    return f'exec {find_pythons()[version]} "$@"'


Done: TypeAlias = "subprocess.CompletedProcess[bytes]"


def run(argv: Sequence[str | Path], env: Mapping[str, str], data: bytes | None = None, **more: Any) -> Done:
    return subprocess.run(argv, env=env, input=data, capture_output=True, check=False, **more)


def start_node(script: str, env: Mapping[str, str], *bash: str) -> Done:
    """Start the node agent as srun does; bash: and its options, if they are not those of srun's."""
    argv = [*bash, "-c", parts.read_story(script), "slurmray", "start_node"]
    return run(
        argv if bash else parts.story_command(script, "start_node"), env, zlib.compress(script.encode())
    )


def environment(path: Path, **more: str) -> dict[str, str]:
    """Variables of a batch script. HOME and SHELL: the static bash 4.4 cannot read the user database."""
    of_slurm = {"SLURMD_NODENAME": "n2", "SLURM_JOB_NODELIST": "n[1-3]"}
    return {"PATH": str(path), "HOME": "/", "SHELL": "/bin/sh", **of_slurm, **more}


SCONTROL = '[[ $* == "show hostnames n[1-3]" ]] && printf "%s\\n" n1 n2 n3'


@every_python
def test_the_batch_script_becomes_the_controller(version: str, bash: str, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", python3=python(version), scontrol=SCONTROL)
    file = small_script(tmp_path)
    done = run([bash, file], environment(path), b"", cwd=tmp_path)
    assert done.stderr.decode() == ""
    assert done.returncode == 7
    record = json.loads(done.stdout)
    assert record["role"] == "controller"
    assert record["argv"] == ["n2", "n1", "n3"], "the head node, which is this node, comes first"
    assert record["script"] == file.read_text()
    assert record["version"] == version
    assert record["leaf"] == "slurmray_agent.helper slurmray_agent.deep.leaf slurmray_agent.deep"
    assert not record["broken"]
    assert "the line that a traceback shows" in record["trace"]
    assert "slurmray:agent/helper.py" in record["trace"]


@every_python
@pytest.mark.parametrize("seed", range(3))
def test_a_task_becomes_the_node_agent(version: str, seed: int, bash: str, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", python3=python(version))
    text = small_script(tmp_path).read_text()
    messages = '{"type":"settings","v":1}\n{"type":"é"}\n'
    data = zlib.compress(text.encode()) + messages.encode()
    argv = [bash, "-c", parts.read_story(text), "slurmray", "start_node"]
    with subprocess.Popen(
        argv, env=environment(path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdin
        assert process.stdout
        chance, at = random.Random(seed), 0
        while at < len(data):
            size = chance.choice([1, 2, 7, 1000, 5000])
            process.stdin.write(data[at : at + size])
            process.stdin.flush()
            at += size
        process.stdin.close()
        record = json.loads(process.stdout.read())
    assert process.returncode == 7
    assert record["role"] == "node"
    assert record["argv"] == []
    assert record["script"] == text
    assert record["rest"] == messages


@every_python
def test_every_python_compiles_the_agent(version: str) -> None:
    python(version)
    program = (
        "import sys; exec(sys.stdin.buffer.read().decode())\n"
        "for name, text in split_sections(AGENT).items(): compile(text, name, 'exec')"
    )
    given = f"{(Path(parts.__file__).parent / 'loader.py').read_text()}\nAGENT = {agent_text(PARTS)!r}\n"
    subprocess.run([find_pythons()[version], "-I", "-c", program], input=given.encode(), check=True)


def test_modules_of_the_controller_are_imported_by_no_other_module() -> None:
    kept = loader.remove_sections(agent_text(PARTS).removesuffix("\n"), CONTROLLER_ONLY)
    assert "class Controller:" not in kept
    names = [name[:-3].replace("/", ".").replace(".__init__", "") for name in loader.split_sections(kept)]
    program = (
        "import importlib, sys\n"
        "text = sys.stdin.buffer.read().decode()\n"
        "exec(text.partition('#### agent/__init__')[0])\n"
        "load(text)\n"
        "for name in sys.argv[1:]: importlib.import_module('slurmray_agent.' + name)"
    )
    argv = [sys.executable, "-I", "-c", program, *(name for name in names if name != "__init__")]
    subprocess.run(argv, input=kept.encode(), check=True)


def test_input_that_ends_too_early(tmp_path: Path) -> None:
    version = min(find_pythons(), key=VERSIONS.index)
    path = programs(tmp_path / "bin", python3=python(version))
    text = small_script(tmp_path).read_text()
    argv = ["bash", "-c", parts.read_story(text), "slurmray", "start_node"]
    done = run(argv, environment(path), zlib.compress(text.encode())[:-3])
    assert done.returncode == 1
    assert done.stderr == b"slurmray: standard input ended before the script was complete\n"


OLD = 'echo "no python for you" >&2; exit 1'


# Runs a command where the system's Python cannot be executed.
HIDE = (
    "for each in /usr/bin/python3 /usr/libexec/platform-python; do "
    '[ ! -e "$each" ] || mount --bind /dev/null "$each"; done'
)
WITHOUT_PYTHON = [
    *("/usr/bin/unshare", "--map-root-user", "--mount", "/bin/sh", "-c"),
    f'PATH=$PATH:/usr/bin:/bin:/sbin; {HIDE}; PATH=${{PATH%:/usr/bin:*}}; exec "$@"',
    "sh",
]


@pytest.mark.parametrize("programs_there", [{}, {"python3": OLD}])
def test_a_node_without_python(programs_there: dict[str, str], tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", scontrol=SCONTROL, **programs_there)
    file = small_script(tmp_path)
    done = run([*WITHOUT_PYTHON, "bash", file], environment(path))
    assert (done.returncode, done.stdout) == (65, b"")
    assert re.fullmatch(
        r"slurmray: n2: no Python 3\.6 .*setup: module load python \(without exit\)\n", done.stderr.decode()
    )
    done = start_node(file.read_text(), environment(path), *WITHOUT_PYTHON, "bash")
    assert done.returncode == 65
    from slurmray.agent.wire import codec

    message = codec.decode(done.stdout.rstrip(b"\n"))
    assert message
    assert message["type"] == "failed"
    assert message["node"] == "n2"
    assert message["kind"] == "preflight"
    assert "setup: module load python" in message["message"]


def copied(python: str, folder: Path) -> str:
    """A program that runs a copy of a Python, which may be the system's, by whatever name."""
    copy = shutil.copy(os.path.realpath(python), folder / "a-python")
    return f'exec {copy} "$@"'


def test_python_that_setup_provides(bash: str, tmp_path: Path) -> None:
    version = min(find_pythons(), key=VERSIONS.index)
    path = programs(tmp_path / "bin", python3=OLD, scontrol=SCONTROL)
    modules = programs(tmp_path / "modules", python3=copied(find_pythons()[version], tmp_path))
    setup = f'false\necho "$NOT_SET"\nexport MADE_BY_SETUP="it\'s \\"so\\""\nPATH={modules}:$PATH\n'
    setup += f"for pid in $$ $PPID; do /bin/cat /proc/$pid/cmdline; done >>{tmp_path}/shown; true hunter2\n"
    file = small_script(tmp_path, setup)
    record = json.loads(run([*WITHOUT_PYTHON, bash, file], environment(path), b"x").stdout)
    assert record["setup"] == 'it\'s "so"'
    assert record["done"] == "n2"
    assert record["rest"] == "x", "setup must not read the agent's input"
    env = environment(path, SLURMRAY_SETUP=setup)
    record = json.loads(start_node(file.read_text(), env, *WITHOUT_PYTHON, bash, "-p").stdout)
    assert record["setup"] == 'it\'s "so"'
    assert record["done"] == "n2"
    shown = (tmp_path / "shown").read_text()  # as `ps` shows it to everybody
    assert "run_setup" in shown
    assert "hunter2" not in shown


def test_a_setup_that_stops_at_an_error_provides_no_python(bash: str, tmp_path: Path) -> None:
    """`set -e` of the commands counts, on the head node as well as on the others."""
    version = min(find_pythons(), key=VERSIONS.index)
    path = programs(tmp_path / "bin", python3=OLD, scontrol=SCONTROL)
    modules = programs(tmp_path / "modules", python3=copied(find_pythons()[version], tmp_path))
    file = small_script(tmp_path, f"set -e\nfalse\nPATH={modules}:$PATH\n")
    done = run([*WITHOUT_PYTHON, bash, file], environment(path))
    assert (done.returncode, done.stdout) == (65, b"")
    assert b"no Python 3.6 or later" in done.stderr


@pytest.mark.parametrize(
    "of_salloc",
    [
        {},
        {"SLURM_JOB_NODELIST": "node[1-2]"},
        {"SLURM_JOB_NODELIST": "node[1-2]", "SLURMD_NODENAME": "node1", "SLURM_TASK_PID": "1"},
    ],
    ids=["no job", "salloc", "interactive step of salloc"],
)
def test_outside_of_a_batch_job(tmp_path: Path, of_salloc: dict[str, str], bash: str) -> None:
    file = small_script(tmp_path)
    env = {"PATH": "/nowhere", "HOME": "/", "SHELL": "/bin/sh", **of_salloc}
    done = run([bash, file], env)
    assert done.returncode == 64
    text = f"slurmray: this runs only as a batch script, inside salloc too. Submit it: sbatch {file}\n"
    assert done.stderr.decode() == text


# -- environment -----------------------------------------------------------------------------------

# Variables that the story uses, too.
THEIRS = {
    name: f"their {name}\nof two lines"
    for name in (
        "PYTHON",
        "NO_PYTHON",
        "BOOTSTRAP",
        "nodes",
        "python",
        "variables",
        "options",
        "name",
        "image",
    )
}
THEIRS["LC_ALL"] = "C.UTF-8"  # without a locale, Python sets one
OF_BASH = {"_", "PWD", "OLDPWD", "SHLVL"}


def environment_of(done: Done) -> dict[str, str]:
    """The environment that the small agent had, without what bash sets."""
    variables = json.loads(done.stdout)["environment"]
    return {name: value for name, value in variables.items() if name not in OF_BASH}


def test_environment_of_the_controller_is_the_submitter_s(bash: str, tmp_path: Path) -> None:
    """The controller takes values of `env` from them, and srun gets all of them."""
    env = environment(programs(tmp_path / "bin", python3=SYSTEM_PYTHON, scontrol=SCONTROL), **THEIRS)
    assert environment_of(run([bash, small_script(tmp_path)], env)) == env


def test_environment_of_the_node_agent_is_the_submitter_s(bash: str, tmp_path: Path) -> None:
    env = environment(programs(tmp_path / "bin", python3=SYSTEM_PYTHON), **THEIRS)
    assert environment_of(start_node(small_script(tmp_path).read_text(), env, bash)) == env


def test_environment_without_a_container_is_the_submitter_s(bash: str, tmp_path: Path) -> None:
    env = environment(programs(tmp_path / "bin"), **THEIRS)
    story = parts.read_story(assemble([], "{}", ["none"], []))
    argv = [bash, "-c", story, "slurmray", "run_with_none", "env", "1", "MORE=a b", "-0"]
    done = subprocess.run(argv, env=env, capture_output=True, check=True)
    variables = dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0") if entry)
    more = {"MORE": "a b", "SPT_NOENV": "1"}
    assert {name: value for name, value in variables.items() if name not in OF_BASH} == {**env, **more}


def test_setup_cannot_change_the_story(bash: str, tmp_path: Path) -> None:
    """Without a Python on the host, setup runs in the story's own shell."""
    path = programs(tmp_path / "bin", python3=OLD, scontrol=SCONTROL)
    modules = programs(tmp_path / "modules", python3=copied(sys.executable, tmp_path))
    setup = (
        "export MADE_BY_SETUP=1 nodes=9 PYTHON=x; NODE=1; set -- y z; cd /; IFS=o; set -x; exec 2>/dev/null"
    )
    file = small_script(tmp_path, f"PATH={modules}:$PATH; {setup}")
    record = json.loads(run([*WITHOUT_PYTHON, bash, file], environment(path)).stdout)
    assert record["argv"] == ["n2", "n1", "n3"]
    made = {name: record["environment"].get(name) for name in ("MADE_BY_SETUP", "nodes", "PYTHON", "NODE")}
    assert made == {"MADE_BY_SETUP": "1", "nodes": "9", "PYTHON": "x", "NODE": None}
    assert record["script"] == file.read_text()


PRINTS = "echo loaded; echo loaded >&2"  # as some modules do
HOSTILE = {
    "a library that the host lacks": {"LD_PRELOAD": "/no/such/library.so"},
    "an option of grep": {"GREP_OPTIONS": "--color=always --invert-match"},
    "shell options": {"SHELLOPTS": "noclobber", "BASHOPTS": "nocasematch"},
    "exported functions": {f"BASH_FUNC_{name}%%": "() { echo no; }" for name in ("grep", "sed", "scontrol")},
    "a startup file of bash that prints": {"BASH_ENV": "{folder}/env.sh", "ENV": "{folder}/env.sh"},
    "another cluster": {"SLURM_CLUSTERS": "other", "SQUEUE_FORMAT": "x", "SCONTROL_ALL": "1"},
    "options of Python": {"PYTHONPATH": "{folder}", "PYTHONHOME": "/no/such", "PYTHONINSPECT": "1"},
    "a locale that the host lacks": {"LC_ALL": "xx_XX.UTF-8", "LANG": "xx_XX.UTF-8"},
}


@pytest.mark.attack("the submitter's environment")
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_environment(case: str, tmp_path: Path) -> None:
    """Controller and node agent start, and only the node agent prints to its standard output."""
    (tmp_path / "env.sh").write_text(PRINTS)
    (tmp_path / "sys.py").write_text("print('loaded')")
    hostile = {name: value.replace("{folder}", str(tmp_path)) for name, value in HOSTILE[case].items()}
    path = programs(tmp_path / "bin", scontrol=SCONTROL)
    (path / "python3").symlink_to(Path(sys.executable).resolve())
    env = environment(path, **hostile)
    file = small_script(tmp_path)
    done = run(["/bin/bash", file], env)
    record = json.loads(done.stdout.splitlines()[-1])  # BASH_ENV prints first, as in any batch script
    assert record["argv"] == ["n2", "n1", "n3"]
    assert set(hostile) <= set(record["environment"]), "the trainer gets them"
    assert set(hostile) <= set(json.loads(start_node(file.read_text(), env).stdout)["environment"])


BROKEN = {
    "of another processor": b"\x7fELF\x02\x01\x01" + bytes(11) + b"\xb7" + bytes(100),
    "a shim without its version": b'#!/bin/sh\necho "pyenv: version 3.12 is not installed" >&2; exit 127\n',
    "a link to nothing": None,
    "too old": b"#!/bin/sh\nexit 1\n",
}


@pytest.mark.attack("a python3 in PATH that cannot run")
@pytest.mark.parametrize("case", BROKEN)
def test_the_first_python_that_runs(case: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    content = BROKEN[case]
    if content is None:
        (first / "python3").symlink_to("/no/such/python3")
    else:
        (first / "python3").write_bytes(content)
        (first / "python3").chmod(0o755)
    text = small_script(tmp_path).read_text()
    path = programs(tmp_path / "bin", python3=SYSTEM_PYTHON)
    env = environment(Path(f"{first}:{path}"))
    assert json.loads(start_node(text, env).stdout)["role"] == "node"
    (path / "python3").unlink()
    assert json.loads(start_node(text, env).stdout)["role"] == "node", "that of the system"


# What Slurm gives to a job of sbatch --export=...
EXPORTED = {
    "NIL": {},
    "NAME": {"NAME": "x"},
    "an empty PATH": {"PATH": ""},
    "PATH of another system": {"PATH": "/no/such/bin:/also/none"},
}


@pytest.mark.attack("sbatch --export", inputs=1)
@pytest.mark.parametrize("case", EXPORTED)
def test_a_job_without_path(case: str, tmp_path: Path) -> None:
    """Slurm's programs are in /usr/local/bin or /usr/bin."""
    file = small_script(tmp_path)
    env = {"SLURMD_NODENAME": "n2", "SLURM_JOB_NODELIST": "n2", **EXPORTED[case]}
    done = run(["/bin/bash", file], env)
    variables = json.loads(done.stdout)["environment"]
    assert {"/usr/bin", "/bin"} <= set(variables["PATH"].split(":")), done.stderr
    assert {name: value for name, value in variables.items() if name in env and name != "PATH"} == {
        name: value for name, value in env.items() if name != "PATH"
    }


# -- the other functions of the story --------------------------------------------------------------


def call(tmp_path: Path, runtime: str, program: str, *argv: str) -> list[str]:
    """Call a function of the story; return the arguments with which it starts the program."""
    path = programs(tmp_path / "bin", **{program: 'printf "%s\\n" "$@"'})
    names = ["podman", "docker"] if runtime == "auto" else [runtime]
    story = parts.read_story(assemble([], "{}", names, []))
    done = subprocess.run(
        ["bash", "-c", story, "slurmray", *argv], env=environment(path), capture_output=True, check=True
    )
    return done.stdout.decode().splitlines()


def test_the_step(tmp_path: Path) -> None:
    argv = call(tmp_path, "auto", "srun", "start_step", "3", "8", "--no-kill", "--x=a b")
    options, rest = argv[: argv.index("/bin/bash")], argv[argv.index("/bin/bash") :]
    assert {"--nodes=3", "--ntasks=3", "--cpus-per-task=8", "--mpi=none", "--kill-on-bad-exit=0"} <= set(
        options
    )
    assert options[-2:] == ["--no-kill", "--x=a b"]
    assert rest[:3] == ["/bin/bash", "-p", "-c"]
    assert rest[-2:] == ["slurmray", "start_node"]
    assert '"${@:-main}"' in rest, "srun gets the text of the story"


@pytest.mark.parametrize("engine", ["podman", "docker"])
@pytest.mark.parametrize("runtime", ["auto", "own"])
def test_containers_of_podman_and_docker(engine: str, runtime: str, tmp_path: Path) -> None:
    options = ["--label=a b", "--", "--entrypoint", "/bin/sh"]
    names = runtime if runtime == "auto" else engine
    argv = [f"run_with_{engine}", "wrapper", "name", "image", str(len(options)), *options, "x", "--", ""]
    words = call(tmp_path, names, "wrapper", *argv)
    assert words[0] == "run"
    assert words[-8:] == [*options, "image", "x", "--", ""]
    assert "--entrypoint" not in words[:-8]
    assert words[words.index("--name") + 1] == "name"
    assert {"--rm", "--interactive", "--network"} <= set(words)


def test_apptainer_and_none(tmp_path: Path) -> None:
    argv = ["run_with_apptainer", "singularity", "image.sif", "1", "--nv", "python3", "a"]
    words = call(tmp_path, "apptainer", "singularity", *argv)
    assert words[0] == "exec"
    assert words[-4:] == ["--nv", "image.sif", "python3", "a"]
    shutil.rmtree(tmp_path / "bin")
    words = call(tmp_path, "none", "python9", "run_with_none", "python9", "1", "A=b c", "-I", "agent")
    assert words == ["-I", "agent"]


def test_run_setup_writes_its_environment(tmp_path: Path) -> None:
    path = programs(tmp_path / "bin")
    story = parts.read_story(assemble([], "{}", ["none"], []))
    commands = 'cd /; { printf "BAD=1\\0" >&3; } 2>/dev/null; '
    commands += 'echo "to the log"; export A="b\nc"; read -r X; echo "$X"; B=$NOT_SET; true'
    argv = ["bash", "-c", f"exec 3>{tmp_path}/env; {story}", "slurmray", "run_setup"]

    def run_setup(setup: str) -> Done:
        return run(argv, environment(path), setup.encode())

    done = run_setup(commands)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"to the log\n\n"  # `read` gets nothing
    variables = (tmp_path / "env").read_text().split("\0")
    assert "A=b\nc" in variables
    assert "PWD=/" in variables
    assert "BAD=1" not in variables
    assert run_setup("false").returncode == 1
    assert (tmp_path / "env").read_text() == ""
    assert run_setup("exit 9").returncode == 9
    stops = run_setup("set -e\n(exit 4)\ntrue")
    assert (stops.returncode, stops.stderr) == (4, b"")
    assert run_setup("fi").returncode
    assert run_setup("set -e\nfalse || true").returncode == 0
    assert "PWD=" in (tmp_path / "env").read_text()
