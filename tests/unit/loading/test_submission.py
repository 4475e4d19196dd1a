"""What is known of a job before it is submitted. Slurm's scontrol is a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmray.errors import UsageError
from slurmray.loading.submission import check_submission, chosen_clusters, queue_options
from slurmray.slurm.host import HERE, get_host
from slurmray.spec.job_spec import JobSpec
from tests.unit import ssh
from tests.unit.cli.command_line import main
from tests.unit.programs import install

# Of Slurm 22.05, shortened.
PARTITIONS = """\
PartitionName=debug AllowGroups=ALL Default=YES MaxNodes=UNLIMITED MaxTime=UNLIMITED State=UP TotalNodes=2 \
Nodes=node[1-2]
PartitionName=gpu AllowGroups=ALL Default=NO MaxNodes=3 MaxTime=1-00:00:00 TotalNodes=4 Nodes=gpu[1-4]
PartitionName=empty AllowGroups=ALL Default=NO TotalNodes=0 Nodes=(null)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, from which jobs are submitted."""
    scontrol = f'[ "$*" = "--all --oneliner show partition" ] && cat <<E\n{PARTITIONS}E'
    sbatch = f"echo sbatch >>{tmp_path}/calls; echo 42"
    programs = install(tmp_path / "bin", scontrol=scontrol, sbatch=sbatch)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr("slurmray.loading.submission._OF_ONE_HOST", ())  # tests run in /tmp
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def check(folder: Path, **fields: Any) -> list[str]:
    return check_submission(JobSpec(**fields), HERE, folder)


def refusal(folder: Path, **fields: Any) -> list[str]:
    with pytest.raises(UsageError) as caught:
        check(folder, **fields)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"slurm": {"nodes": 5}}, "5 nodes, but no partition has more than 4"),
        ({"slurm": {"nodes": 3, "partition": "debug"}}, "3 nodes, but the partition debug has 2"),
        (
            {"slurm": {"nodes": 2, "partition": "debug"}, "spares": 1, "on_node_loss": "restart"},
            "3 nodes with spare nodes, but the partition debug has 2",
        ),
        ({"slurm": {"nodes": 5, "partition": "debug,gpu"}}, "5 nodes, but the partition debug,gpu has 4"),
    ],
)
def test_more_nodes_than_a_partition_has(folder: Path, fields: dict[str, Any], text: str) -> None:
    assert refusal(folder, **fields) == [f"slurm.nodes: {text}"]


@pytest.mark.parametrize(
    "slurm",
    [
        {"nodes": 3},  # not in the default partition, but a plugin of the site may choose another
        {"nodes": 3, "partition": "gpu", "time": "1-0"},
        {"nodes": 4, "partition": "debug,gpu", "time": "9-0"},
        *({"nodes": 9, "partition": name} for name in ("none", "debug,none")),  # Slurm refuses those
        {"nodes": 9, "clusters": "other"},
    ],
)
def test_what_may_be_right(folder: Path, slurm: dict[str, Any]) -> None:
    assert check(folder, slurm=slurm) == []


@pytest.mark.parametrize(
    ("total", "nodes", "most"),
    [(" TotalNodes=8", 9, "8"), ("", 9, ""), (" TotalNodes=2K", 9, "")],
)
def test_a_number_of_nodes_that_is_not_known(folder: Path, total: str, nodes: int, most: str) -> None:
    partitions = f"echo PartitionName=a TotalNodes=4; echo PartitionName=b{total}"
    install(folder.parent / "bin", scontrol=partitions)
    for slurm in ({"nodes": nodes}, {"nodes": nodes, "partition": "b"}):
        if most:
            assert refusal(folder, slurm=slurm)[0].endswith(f" {most}")
        else:
            assert check(folder, slurm=slurm) == []


def test_limits_of_a_partition(folder: Path) -> None:
    nodes, time = check(folder, slurm={"nodes": 4, "partition": "gpu", "time": "24:00:01"})
    assert nodes.startswith("slurm.nodes: a job in gpu can have 3 (MaxNodes): the job waits, unless its QOS")
    assert time.startswith(
        "slurm.time: 24:00:01 is longer than a job in gpu can run (MaxTime): the job waits"
    )


def test_limits_of_the_default_partition(folder: Path) -> None:
    text = PARTITIONS.replace("MaxTime=UNLIMITED", "MaxTime=30:00")
    install(folder.parent / "bin", scontrol=f"cat <<E\n{text}E")
    (line,) = check(folder, slurm={"time": "1:00:00"})
    assert line.startswith(
        "slurm.time: 1:00:00 is longer than a job in the default partition can run (MaxTime)"
    )
    install(folder.parent / "bin", scontrol=f"cat <<E\n{text.replace('=YES', '=NO')}E")
    assert check(folder, slurm={"time": "1:00:00"}) == []


def test_variables_of_sbatch_win(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "gpu")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "30")
    assert check(folder, slurm={"nodes": 3, "partition": "debug", "time": "9-0"}) == []
    monkeypatch.setenv("SBATCH_CLUSTERS", "other")
    assert check(folder, slurm={"nodes": 9}) == []


def test_variables_of_sbatch_are_those_of_this_host(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of the host that gets the script: there is the script's partition, time limit and cluster."""
    scontrol = (folder.parent / "bin/scontrol").read_text()
    (tmp_path / "laptop").mkdir()
    home = ssh.install(tmp_path / "laptop", monkeypatch)
    install(tmp_path / "laptop/there", scontrol=scontrol.partition("\n")[2])
    for name, value in {"PARTITION": "debug", "TIMELIMIT": "9-0", "CLUSTERS": "other"}.items():
        monkeypatch.setenv(f"SBATCH_{name}", value)
    login, spec = get_host("login"), JobSpec(slurm={"nodes": 3, "partition": "gpu", "time": "1-0"})
    assert queue_options(spec, spec.slurm.components[0], login) == ("gpu", "1-0")
    assert queue_options(spec, spec.slurm.components[0], HERE) == ("debug", "9-0")
    assert (chosen_clusters(spec, login), chosen_clusters(spec, HERE)) == (None, "other")
    assert check_submission(spec, login, home) == []
    assert check_submission(JobSpec(slurm={"nodes": 3}), login, home) == [], "the default partition"
    with pytest.raises(UsageError, match="5 nodes, but the partition gpu has 4"):
        check_submission(JobSpec(slurm={"nodes": 5, "partition": "gpu"}), login, home)


@pytest.mark.parametrize(
    ("slurm", "texts"),
    [
        ({"nodes": 3, "partition": "gpu", "time": "1-00:00:00"}, []),  # exactly what is permitted
        ({"nodes": 3, "partition": "gpu", "time": "1-00:00:01"}, ["slurm.time"]),
        ({"nodes": 4, "partition": "gpu"}, ["slurm.nodes"]),
        ({"nodes": 2, "partition": "gpu,small", "time": "12:00:00"}, []),
        ({"nodes": 3, "partition": "small"}, ["slurm.nodes"]),
        ({"nodes": 1, "partition": "small", "time": "UNLIMITED"}, []),
        ({"nodes": 1, "partition": "small,debug", "time": "9-0"}, []),
        ({"nodes": 2, "partition": "debug", "time": "99-0"}, []),  # UNLIMITED
        ({"nodes": 3, "partition": "gpu", "time": "0"}, []),
    ],
)
def test_limits_are_inclusive_and_the_highest_of_the_partitions_counts(
    folder: Path, slurm: dict[str, Any], texts: list[str]
) -> None:
    more = "PartitionName=small MaxNodes=1 MaxTime=1:00:00 TotalNodes=4"
    install(folder.parent / "bin", scontrol=f"cat <<E\n{PARTITIONS}{more}\nE")
    assert [line.partition(":")[0] for line in check(folder, slurm=slurm)] == texts


def test_without_an_answer_of_slurm(folder: Path) -> None:
    install(folder.parent / "bin", scontrol="exit 1")
    assert check(folder, slurm={"nodes": 9}) == []


def test_a_folder_of_one_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurmray.loading.submission._OF_ONE_HOST", (str(folder.parent), "/other"))
    (line,) = check(folder)
    assert line.startswith(f"{folder}: each node has its own {folder.parent}, where this job's log would be;")
    for total, remarks in (("1", 0), ("2", 1)):  # of one node: it may be this host
        install(folder.parent / "bin", scontrol=f"echo PartitionName=a TotalNodes={total}")
        assert len(check(folder)) == remarks


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "slurmray-runs"),
        ({"run_dir": "runs/mine"}, "runs"),
        ({"run_dir": "$SCRATCH/runs", "slurm": {"output": "logs/a/%j.out"}}, "logs"),
        # Those of another file system may be on the nodes only.
        ({"run_dir": "/no/such/runs", "slurm": {"output": "/no/such/%j.out"}}, ""),
        ({"run_dir": "~/runs", "slurm": {"output": "%j/%j.out"}}, ""),
    ],
)
def test_a_folder_that_cannot_be_written(folder: Path, fields: dict[str, Any], name: str) -> None:
    """A file in its place cannot be written by root either."""
    (folder / (name or "slurmray-runs")).touch()
    text = "is no folder that you can write, and the job's log and run directory go there"
    if name:
        assert refusal(folder, **fields) == [f"{folder}/{name}: {text}; submit from another folder"]
    else:
        assert check(folder, **fields) == []


@pytest.mark.parametrize("verb", [["check"], ["submit"], ["submit", "--test-only"], ["up"]])
def test_nothing_is_submitted(folder: Path, verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "slurmray-runs").touch()
    code, _, err = main([*verb, "--nodes=5", "--mem=2G"], capsys)
    assert (code, len(err.splitlines())) == (2, 2), err
    assert err.startswith(f"{folder}/slurmray-runs: is no folder")
    assert err.endswith("slurm.nodes: 5 nodes, but no partition has more than 4\n")
    assert not (folder.parent / "calls").exists()


@pytest.mark.usefixtures("folder")
def test_the_confirmation(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--nodes=2", "--partition=gpu", "--time=12:00:00", "--gpus-per-node=8", "--cpus-per-task=4"]
    spares = ["--set=spares=1", "--set=on_node_loss=restart"]
    code, out, err = main(["submit", *options, *spares, "--", "true"], capsys)
    summary = "2 nodes, 1 spare node, 8 GPUs each, partition gpu, time limit 12:00:00, your command\n"
    assert (code, out) == (0, f"submitted job 42, slurmray: {summary}"), err


def test_without_variables_the_script_s_options_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PARTITION", "TIMELIMIT", "CLUSTERS"):
        monkeypatch.delenv(f"SBATCH_{name}", raising=False)
    spec = JobSpec(slurm={"partition": "debug", "clusters": "c1"})
    (component,) = spec.slurm.components
    assert queue_options(spec, component, HERE) == ("debug", None)
    assert chosen_clusters(spec, HERE) == "c1"
    monkeypatch.setenv("SBATCH_PARTITION", "")
    assert queue_options(spec, component, HERE)[0] == "debug", "an empty one is none for sbatch"


def test_the_longest_limit_of_several_partitions_counts(folder: Path) -> None:
    """Slurm starts the job where it fits."""
    lines = (
        "PartitionName=a MaxNodes=2 MaxTime=1:00:00 TotalNodes=8",
        "PartitionName=b MaxNodes=4 MaxTime=10:00",
    )
    install(folder.parent / "bin", scontrol=f"echo '{lines[0]}'; echo '{lines[1]} TotalNodes=4'")
    assert check(folder, slurm={"nodes": 4, "partition": "a,b", "time": "30:00"}) == []
    nodes, time = check(folder, slurm={"nodes": 5, "partition": "a,b", "time": "2:00:00"})
    assert "a job in a,b can have 4 (MaxNodes)" in nodes
    assert "2:00:00 is longer than a job in a,b can run (MaxTime)" in time
    assert refusal(folder, slurm={"nodes": 9, "partition": "a,b"}) == [
        "slurm.nodes: 9 nodes, but the partition a,b has 8"
    ]


def test_all_reasons_are_named_and_no_remark_beside_them(folder: Path) -> None:
    (folder / "slurmray-runs").touch()
    lines = refusal(folder, slurm={"nodes": 9, "partition": "gpu", "time": "9-0"})
    assert [line.split()[0] for line in lines] == [f"{folder}/slurmray-runs:", "slurm.nodes:"]
