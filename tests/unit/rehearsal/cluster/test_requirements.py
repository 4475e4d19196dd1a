"""A rehearsal's cluster, from the directives of a script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmray.rehearsal.cluster.requirements import options, read_requirements, split_directives
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from slurmray.slurm import syntax

LINE = st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]))


@given(LINE)
def test_rendered_directive_is_parsed_back(value: str) -> None:
    assert options(syntax.directive("comment", value)) == {"comment": value}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--a=b --c", ["--a=b", "--c"]),
        (r"--a='x \' \" y'", ["--a=x ' \" y"]),
        ("--a=b # comment", ["--a=b"]),
        (r"--a=b\ c\#d", ["--a=b c#d"]),
        ('--a=""', ["--a="]),
        ("   ", []),
    ],
)
def test_directives_are_split_like_sbatch_splits_them(line: str, expected: list[str]) -> None:
    assert split_directives(f"#!/bin/bash\n#SBATCH {line}\n# comment\n\necho\n#SBATCH --late=1\n") == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["nodes=3"], ClusterConfig(nodes=("node1", "node2", "node3"))),
        (["nodes=2", "nodelist=gpu7"], ClusterConfig(nodes=("gpu7", "node1"))),
        (["nodes=2", "exclude=node1"], ClusterConfig(nodes=("node2", "node3"), absent=("node1",))),
        (["gpus-per-node=h100:8"], ClusterConfig(nodes=("node1",), gres=(Gres("gpu", "h100", 8),))),
        (["gpus-per-node=0"], ClusterConfig(nodes=("node1",))),
        (["gres=gres/gpu:2"], ClusterConfig(nodes=("node1",), gres=(Gres("gpu", "", 2),))),
        (
            ["gres=nvme:2,gpu"],
            ClusterConfig(nodes=("node1",), gres=(Gres("gpu", "", 1), Gres("nvme", "", 2))),
        ),
        (
            ["cpus-per-task=28", "mem-per-cpu=64G"],
            ClusterConfig(nodes=("node1",), cpus=28, memory=28 * 65536),
        ),
        (
            ["gpus-per-node=2", "cpus-per-gpu=14", "mem-per-gpu=1T"],
            ClusterConfig(nodes=("node1",), cpus=28, memory=2 * 1024 * 1024, gres=(Gres("gpu", "", 2),)),
        ),
        (["mem=2T"], ClusterConfig(nodes=("node1",), memory=2 * 1024 * 1024)),
        (["partition=a,b"], ClusterConfig(nodes=("node1",), partitions=("a", "b"))),
        (["constraint=[rack1*2]&h100"], ClusterConfig(nodes=("node1",), features=("rack1", "h100"))),
        (["licenses=matlab:2"], ClusterConfig(nodes=("node1",), options={"Licenses": "matlab:2"})),
    ],
)
def test_cluster_has_what_the_directives_ask_for(lines: list[str], expected: ClusterConfig) -> None:
    assert read_requirements("".join(f"#SBATCH --{line}\n" for line in lines)).cluster == expected


def test_cluster_has_what_all_components_ask_for() -> None:
    script = """
#SBATCH --time=1:00
#SBATCH --nodes=1
#SBATCH --partition=cpu
#SBATCH --nodelist=big
#SBATCH --cpus-per-task=64
#SBATCH hetjob
#SBATCH --nodes=2
#SBATCH --partition=h100,a100
#SBATCH --gpus-per-node=8
#SBATCH --exclude=node1
#SBATCH hetjob
#SBATCH --nodes=1
#SBATCH --gpus-per-node=h100:8
#SBATCH --constraint=nvme
#SBATCH --mem=2T
"""
    assert read_requirements(script).cluster == ClusterConfig(
        nodes=("big", "node2", "node3", "node4"),
        absent=("node1",),
        cpus=64,
        memory=2 * 1024 * 1024,
        gres=(Gres("gpu", "h100", 8),),
        features=("nvme",),
        partitions=("cpu", "h100", "a100", "batch"),
    )


def test_options_that_are_not_imitated_are_listed() -> None:
    requirements = read_requirements(
        "#SBATCH --qos=high\n#SBATCH --begin=now+1hour\n#SBATCH --hold\n#SBATCH --reservation=a,b\n"
    )
    assert [remark.split(":")[0] for remark in requirements.remarks] == ["--qos=high", "--begin=now+1hour"]
    assert requirements.overrides == ("--begin=now",)
    assert requirements.held
    assert requirements.reservations == ("a", "b")


@pytest.mark.parametrize("indexes", ["3", "3-19%4", "3,5"])
def test_only_the_first_task_of_an_array_runs(indexes: str) -> None:
    requirements = read_requirements(f"#SBATCH --array={indexes}\n")
    assert requirements.overrides == ("--array=3",)
    assert requirements.remarks == (f"--array={indexes}: only the task 3 runs",)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-N 2", "--option=value"),
        ("--clusters=other", "accounting database"),
        ("--gpus-per-node=x:y", "expected a number"),
        ("--cpus-per-gpu=x", "--cpus-per-gpu: expected an integer, got 'x'"),
        ("--nodes=1k", "--nodes: expected an integer, got '1k'"),
        ("--nodelist=node[a-b]", r"node\[a-b\]: expected numbers in the brackets, for example node\[1-3,7\]"),
    ],
)
def test_directive_that_cannot_be_rehearsed_is_rejected(line: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        read_requirements(f"#SBATCH {line}\n")
