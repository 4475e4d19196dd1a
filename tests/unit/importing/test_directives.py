"""`#SBATCH` lines as sbatch reads them: src/sbatch/opt.c, and getopt_long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmray.loading.load import load_plan
from slurmray.slurm.syntax import split_directive
from tests.unit.importing.scripts import TRAINER, fields, import_text, looks, started


def directives(*lines: str) -> dict[str, Any]:
    return fields("\n".join(("#!/bin/bash", *(f"#SBATCH {line}" for line in lines), TRAINER)))


@pytest.mark.parametrize(
    "line", ["-N2", "-N 2", "--nodes=2", "--nodes 2", "-N2 # two", '-N "2"', "'-N' 2#", "-N 2-2"]
)
def test_forms_of_an_option(line: str) -> None:
    assert directives(line)["slurm"] == {"nodes": "2"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" -J 'a b' --comment=\"c # d\"", ["-J", "a b", "--comment=c # d"]),
        (" -J a#b -N2", ["-J", "a"]),
        (r" -J a\ b\"c", ["-J", 'a b"c']),
        (" --comment=''", ["--comment="]),
    ],
)
def test_words_of_a_line(text: str, words: list[str]) -> None:
    assert list(split_directive(text)) == words


def test_several_options_per_line_and_flags() -> None:
    made = directives("-p gpu -A rl --exclusive -HO --gres gpu:h100:8", "--mail-type=END,FAIL --nice=100 -W")
    assert directives("--part gpu --cpus-per-t=4")["slurm"] == {"partition": "gpu", "cpus_per_task": "4"}
    assert made["slurm"] == {
        **{"partition": "gpu", "account": "rl", "exclusive": "true", "hold": "true", "overcommit": "true"},
        **{"gres": "gpu:h100:8", "mail_type": "END,FAIL", "nice": "100", "wait": "true"},
    }


def test_the_last_one_counts() -> None:
    assert directives("-N 2", "-N 4")["slurm"] == {"nodes": "4"}


def test_lines_after_the_first_command_are_comments() -> None:
    script = (
        f"#!/bin/bash\n\n# hello\n#SBATCH -N 2\n##SBATCH -N 3\n #SBATCH -N 4\necho\n#SBATCH -N 5\n{TRAINER}\n"
    )
    assert fields(script)["slurm"] == {"nodes": "2"}
    assert looks(script) == [8]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["-J train"], {"name": "train"}),
        (["--signal=B:SIGUSR1@300"], {"stop": {"signal": "USR1", "lead": "300"}}),
        (["--signal=RB:int"], {"stop": {"signal": "INT"}}),
        (["--export=ALL,A=1,B"], {"env": {"A": "1", "B": None}}),
        (["--export=ALL,API_KEY=abc,P=http://me:abc@proxy"], {"env": {"API_KEY": None, "P": None}}),
        (["--export=A=,PATHS=a:b"], {"env": {"A": "", "PATHS": "a:b"}}),
        (["--export=ALL"], {}),
        (["-N 2 -n 2"], {"slurm": {"nodes": "2"}}),
        (["-N 2", "--gpus=a100:16"], {"slurm": {"nodes": "2", "gpus_per_node": "a100:8"}}),
        (["--ntasks-per-node=4 --gpus-per-task=2"], {"slurm": {"gpus_per_node": "8"}}),
        (["--tasks-per-node=4 --gpus-per-task=2"], {"slurm": {"gpus_per_node": "8"}}),
        (["-N 2 -n 16", "--gpus-per-task=1"], {"slurm": {"nodes": "2", "gpus_per_node": "8"}}),
        (["-N 2 -n 15", "--gpus-per-task=1"], {"slurm": {"nodes": "2"}}),
        (["--new-option=3 --new-flag=x"], {"slurm": {"extra": ["--new-option=3", "--new-flag=x"]}}),
        (["--mysiteflag", "--nodes=4"], {"slurm": {"extra": ["--mysiteflag"], "nodes": "4"}}),
        (["--mysiteflag --nodes=4"], {"slurm": {"extra": ["--mysiteflag"], "nodes": "4"}}),
        (["--ntasks=4", "--ntasks-per-node=1"], {"slurm": {"nodes": "4"}}),
        (["-n 16 --ntasks-per-node=8 --gpus-per-task=1"], {"slurm": {"nodes": "2", "gpus_per_node": "8"}}),
        (["--gres=gpu:8", "--gpus-per-node=8"], {"slurm": {"gpus_per_node": "8"}}),
        (
            ["--gres=gpu:8,nvme:1 --gpus-per-node=8"],
            {"slurm": {"gres": "gpu:8,nvme:1", "gpus_per_node": "8"}},
        ),
        (["--gres=gpu:h100:8", "--gpus-per-node=8"], {"slurm": {"gres": "gpu:h100:8"}}),
        (["-N 2 --gpus=16", "--gpus-per-node=8"], {"slurm": {"nodes": "2", "gpus_per_node": "8"}}),
        (["-n 16 --gpus-per-task=1"], {}),  # Slurm chooses the number of nodes
        (["-n 1 --gpus-per-task=8"], {"slurm": {"nodes": "1", "gpus_per_node": "8"}}),
        (["--mysiteflag -N 4"], {"slurm": {"extra": ["--mysiteflag"], "nodes": "4"}}),
        (
            ["-N 4 --mysiteflag", "--gres=gpu:8"],
            {"slurm": {"extra": ["--mysiteflag"], "nodes": "4", "gres": "gpu:8"}},
        ),
        (["-QN 4"], {"slurm": {"nodes": "4"}}),
        (
            ["--ntasks-per-n=1 --sig=B:USR1@60", "--nodes=2"],
            {"slurm": {"nodes": "2"}, "stop": {"signal": "USR1", "lead": "60"}},
        ),
        (
            ["--export=ALL,CUDA_VISIBLE_DEVICES=0,RANK=1,A=1"],
            {"env": {"A": "1"}, "ray": {"gpus_per_node": "1"}},
        ),
    ],
)
def test_options_that_are_other_fields(lines: list[str], expected: dict[str, Any]) -> None:
    made = directives(*lines)
    assert {name: value for name, value in made.items() if name not in ("run", "container")} == expected


@pytest.mark.parametrize(
    "line",
    [
        *(
            "-N 2-4",
            "-G 7 -N 2",
            "--chdir=/x",
            "--requeue",
            "--export=NONE",
            "--export=NIL",
            "--ntasks-per-node=8",
            "-p 'gpu",
        ),
        *("-p { partition }", "--signal=B:USR9@1", "--container=x", "--array", "--gpu-per-node=8"),
        *("-n 16", "--tim=5", "-N 2 --gpus=16 --gpus-per-node=4", "--ntasks-per-gpu=1 --gpus=8", "-Y"),
    ],
)
def test_what_only_the_user_can_judge(line: str) -> None:
    assert looks(f"#!/bin/bash\n#SBATCH {line}\n{TRAINER}\n") == [2]


def test_components_of_a_heterogeneous_job() -> None:
    script = f"#!/bin/bash\n#SBATCH -N 1\n#SBATCH hetjob\n#SBATCH -N 4\n{TRAINER}\n"
    assert fields(script)["slurm"] == {"nodes": "1"}
    assert looks(script) == [3, 4]


def test_containers_in_directives() -> None:
    made = directives("--container-image=docker://org/img:1", "--container-mounts=/data:/data")
    assert made["container"] == {"runtime": "pyxis", "image": "docker://org/img:1", "mounts": ["/data"]}
    assert "slurm" not in made
    made = directives("--no-container-mount-home --container-image=a/b:1 --container-remap-root --nodes=2")
    assert made["container"] == {
        "runtime": "pyxis",
        "image": "a/b:1",
        "step_args": ["--container-remap-root"],
    }
    assert made["slurm"] == {"nodes": "2"}


def test_slurm_s_variables_have_the_job_s_values(tmp_path: Path) -> None:
    script = (
        "#SBATCH --ntasks-per-node=1 --gpus-per-task=h100:8 -N 2 -c 7 -J x\n"
        "python train.py $SLURM_NNODES $SLURM_CPUS_PER_TASK $SLURM_GPUS_ON_NODE \\\n"
        "  $SLURM_GPUS_PER_TASK $SLURM_NTASKS\n"
    )
    assert started(script, tmp_path) == ["python train.py 2 7 8 8 2"]


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("--gres=gpu:h100:4", "4"),
        ("--gres=gpu", "1"),
        ("--gres=shard:4", None),
        ("--gres=gpu:x:y:z", None),
        ("-N 2 --gpus=16", "8"),
    ],
)
def test_the_gpus_of_a_node(line: str, gpus: str | None) -> None:
    """Ray's are the same, or those that only Ray knows."""
    made = fields(f"#SBATCH {line}\nray start --head --num-gpus {gpus or 2}\n{TRAINER}\n")
    assert made.get("ray") == (None if gpus else {"gpus_per_node": "2"})


def test_every_option_loads(tmp_path: Any) -> None:
    """What the directives become is a valid job spec."""
    script = (
        "#SBATCH -N2 -c4 -t 1:00:00 -p a,b -C 'x&y' --gpus-per-node=8 --mem 10G -d afterok:1 -o %x.out -s\n"
        "python x.py\n"
    )
    made = tmp_path / "job.yaml"
    made.write_text(import_text(script).text)
    spec = load_plan(made).spec
    assert dict(spec.slurm.given()) == {
        **{"constraint": "x&y", "cpus-per-task": "4", "dependency": "afterok:1", "gpus-per-node": "8"},
        **{"mem": "10G", "nodes": "2", "output": "%x.out", "oversubscribe": None, "partition": "a,b"},
        "time": "1:00:00",
    }
