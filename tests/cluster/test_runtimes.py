"""Jobs without containers, and jobs in Apptainer. Their faults are in faults/."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import slurmray
from slurmray.loading.load import load_plan
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import USERS, ClusterConfig, Gres
from slurmray.slurm.states import FINAL

from . import bare, sandbox
from .faults.case import GUARD, NODE_AGENT
from .jobs import HANG, Job, Jobs, passing_for, wait_until

ROOT = Path(__file__).parents[2]
IMAGE_BUILD = 900  # seconds; bounds a hang: on a busy machine an image build takes minutes
STAND_IN = Path(__file__).with_name("stand_in.py")
KEY = "s3cr3t"
SLURM = {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 2, "mem": "1G"}
# A daemon of the trainer, in a new session and with an empty environment.
DAEMON = "setsid --fork env -i sleep 1000; echo started; exec sleep 1000"
# Guard, container process, node agent, and the shell that has started the guard.
GUARDS = f"{GUARD}|{NODE_AGENT}|^/bin/bash -p -c trap : TERM; echo "


@pytest.fixture(scope="module")
def none_cluster(none_layout: Layout) -> Iterator[SlurmCluster]:
    with SlurmCluster(ClusterConfig(gres=(Gres("gpu", "", 8),)), none_layout) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def apptainer_cluster(apptainer_layout: Layout) -> Iterator[SlurmCluster]:
    with SlurmCluster(ClusterConfig(gres=(Gres("gpu", "", 8),)), apptainer_layout) as cluster:
        yield cluster


@pytest.fixture
def jobs(none_cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(none_cluster, folder, "alice")


def bare_spec(**more: Any) -> str:
    spec = {"slurm": SLURM, "setup": bare.setup(), "container": {"runtime": "none"}, **more}
    return yaml.safe_dump(spec)


def run_example(
    jobs: Jobs, name: str, replaced: dict[str, str], args: Sequence[str] = (), *, timeout: float = HANG
) -> tuple[Job, dict[str, Any]]:
    """Run an example with a stand-in for its trainer; return the job and the output of the stand-in."""
    text = (ROOT / f"examples/{name}.yaml").read_text()
    for old, new in {"cpus_per_task: 32": "cpus_per_task: 2", "mem: 200G": "mem: 1G", **replaced}.items():
        assert old in text, f"{old} is not in the example any more"
        text = text.replace(old, new)
    (jobs.folder / "train.py").write_text(STAND_IN.read_text())
    job = jobs.run(text, args=args, timeout=timeout)
    assert job.code == "0:0", job.log
    _, mark, line = job.log.partition("\nseen: ")
    assert mark, job.log
    seen: dict[str, Any] = json.loads(line.partition("\n")[0])
    assert seen["argv"][1:] == (load_plan(jobs.folder / "job.yaml").spec.run or [])[2:]
    assert set(seen["nodes"]) == {"node1", "node2"}
    assert (seen["gpus"], seen["status"]) == (16, 0)
    for place in (seen, *seen["nodes"].values()):
        assert place["environment"]["WANDB_API_KEY"] == KEY
    return job, seen


def test_options_of_the_step_and_daemons_of_the_trainer(jobs: Jobs) -> None:
    """As for a plugin of srun. Daemons end, and with them the shared memory that nobody else has mapped."""
    prolog = jobs.folder / "prolog"
    prolog.write_text("#!/bin/sh\necho export BY_PROLOG=yes\n")
    prolog.chmod(0o755)
    option = f"--task-prolog={prolog}"
    spec = bare_spec(container={"runtime": "none", "step_args": [option]})
    leave = "umask 077; echo x >/dev/shm/psm_0123abcd; echo $BY_PROLOG; "
    job = jobs.run(spec, ["bash", "-c", leave + DAEMON.replace("exec sleep 1000", "exit 3")])
    assert job.code == "3:0", job.log
    assert "\nyes\n" in job.log
    assert f" -w node1 {option} /tmp/ray-" in job.log


def test_a_nearly_full_dev_shm(jobs: Jobs) -> None:
    """The file is of another job of node2, for example."""
    fill = (
        "mount -t tmpfs -o size=1100M tmpfs /dev/shm && chmod 1777 /dev/shm && fallocate -l 200M /dev/shm/x"
    )
    filled = jobs.cluster.run(["bash", "-c", fill], host="node2")
    assert filled.returncode == 0, filled.stderr
    try:
        number = jobs.submit(bare_spec(), ["true"])
        jobs.cluster.wait(number, HANG)
    finally:
        jobs.cluster.run(["umount", "--lazy", "/dev/shm"], host="node2")
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    fix = "remove what ended jobs have left in it: ls -l /dev/shm"
    assert (
        job.findings["node2", "/dev/shm"] == f"900 of 1100 MB free | 1000 MB, for Ray's object store | {fix}"
    )
    assert ("node1", "/dev/shm") not in job.findings


@pytest.mark.full
def test_the_example_without_containers(jobs: Jobs) -> None:
    replaced = {"  # module load cuda\n  . ~/venv/bin/activate": f"  {bare.setup()}", "~/venv": "/usr/bin"}
    _, seen = run_example(jobs, "bare", replaced, [f"--export=ALL,WANDB_API_KEY={KEY}"])
    assert seen["folder"] == str(jobs.folder)
    for place in (seen, *seen["nodes"].values()):
        assert place["environment"]["PYTHONPATH"].startswith(str(bare.packages()))
        assert place["environment"]["TMPDIR"].startswith("/tmp/ray-")


@pytest.mark.full
def test_ray_commands_from_outside_without_a_container(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.submit(bare_spec(), ["bash", "-c", "echo started; until [[ -e go ]]; do sleep 0.1; done"])
    jobs.wait_for(job, "\nstarted\n")
    (line,) = [line for line in jobs.log(job).splitlines() if "] attach: " in line]
    attach = ["bash", "-c", line.partition("] attach: ")[2]]
    # The status is empty in the first seconds.
    wait_until(
        lambda: "Autoscaler status" in jobs.cluster.run(attach, "alice").stdout, lambda: jobs.log(job), 60
    )
    nodes = ("node1", "node2")
    with passing_for(jobs.cluster, tmp_path / "commands", USERS[0]):
        found = slurmray.Job(job, folder=jobs.folder)
        attach_argv = {
            node: found.attach_argv(["sh", "-c", "hostname; ray status"], node=node) for node in nodes
        }
    for node, argv in attach_argv.items():
        done = jobs.cluster.run(argv, "alice")
        assert done.stdout.startswith(f"{node}\n"), done
        assert "Autoscaler status" in done.stdout
    (jobs.folder / "go").touch()
    assert jobs.wait_end(job).code == "0:0"


@pytest.mark.full
def test_stages_without_a_container(jobs: Jobs) -> None:
    services = [
        {"name": name, "run": f"echo $NODE_RANK >{name}-$NODE_RANK; sleep 1000", **place}
        for name, place in {"inside": {}, "outside": {"host": True}}.items()
    ]
    ready = (
        "for name in inside-0 inside-1 outside-0 outside-1; do until [[ -s $name ]]; do sleep 0.1; done; done"
    )
    prepare = [{"name": "data", "run": "touch data-$NODE_RANK", "where": "all"}]
    job = jobs.run(bare_spec(prepare=prepare, services=services), ["bash", "-c", f"{ready}; ls data-1"])
    assert job.code == "0:0", job.log


def test_a_python_without_ray_is_found_on_all_nodes(jobs: Jobs) -> None:
    job = jobs.run(bare_spec(setup="true"))
    assert job.code == "65:0", job.log
    fix = "activate its environment in setup, or set container.python"
    row = f"no Ray | Python 3.8 or later, and ray[default] in it | {fix}"
    found = {
        node for (node, check), rest in job.findings.items() if check.endswith("/python3") and rest == row
    }
    assert found == {"node1", "node2"}, job.log


@pytest.mark.full
def test_daemons_end_with_the_guards(jobs: Jobs) -> None:
    job = jobs.submit(bare_spec(), ["bash", "-c", DAEMON])
    jobs.wait_for(job, "\nstarted\n")
    kill(jobs, "node1", "--newest", "-f", GUARD)
    assert jobs.wait_end(job).code == "71:0"


@pytest.mark.full
def test_next_job_kills_leftover_processes(jobs: Jobs) -> None:
    """On one node, all processes that would end the trainer are killed at once."""
    job = jobs.submit(bare_spec(), ["bash", "-c", "echo started; exec sleep 1000"])
    jobs.wait_for(job, "\nstarted\n")
    kill(jobs, "node1", "-f", GUARDS)
    wait_until(lambda: jobs.cluster.job(job).get("JobState") in FINAL, lambda: jobs.log(job))
    assert jobs.run(bare_spec(), ["true"]).code == "0:0"


def kill(jobs: Jobs, host: str, *pgrep_args: str) -> None:
    pids = jobs.cluster.run(["pgrep", *pgrep_args], host=host).stdout.split()
    assert pids
    done = jobs.cluster.run(["kill", "-KILL", *pids], host=host)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_the_example_for_apptainer(apptainer_cluster: SlurmCluster, folder: Path, archive: Path) -> None:
    """One of two nodes converts a tar into an image file; the next job uses that file."""
    jobs = Jobs(apptainer_cluster, folder, "alice")
    shutil.copy(archive, folder / "ray.tar")
    (folder / "data").mkdir()
    replaced = {
        "# setup: module load apptainer": f"setup: export APPTAINER_CACHEDIR={folder}/cache",
        "  image: docker.io": "  archive: ray.tar\n  image: docker.io",
        "~/data:": "data:",
        "KEY: null": f"KEY: {KEY}",  # with --export and a name, Slurm 26.05 runs su(1) on the node
    }
    first, seen = run_example(jobs, "apptainer", replaced, timeout=IMAGE_BUILD)
    assert seen["folder"] == str(folder)
    for place in (seen, *seen["nodes"].values()):
        assert "PYTHONPATH" not in place["environment"]
    files = [path.name for path in (folder / "cache/slurmray").iterdir()]
    assert len([name for name in files if name.endswith(".sif")]) == 1
    assert first.log.count("image: apptainer build") == 1, first.log
    second, _ = run_example(jobs, "apptainer", replaced)
    assert "apptainer build" not in second.log


@pytest.mark.full
def test_no_image_for_apptainer(apptainer_cluster: SlurmCluster, folder: Path) -> None:
    job = in_apptainer(apptainer_cluster, folder, image="./none.sif")
    assert job.code == "66:0", job.log
    assert f"{folder}/none.sif" in job.last_line, job.log


@pytest.mark.full
def test_mounts_args_and_a_clean_environment(
    apptainer_cluster: SlurmCluster, folder: Path, archive: Path
) -> None:
    (folder / 'a b, "c"').mkdir()
    (folder / 'a b, "c"/file').write_text("mounted")
    target = "'/mnt/it s, x'"
    look = (
        # Output and errors may arrive in any order.
        f"cat {target}/file; touch {target}/new 2>/dev/null || echo no; echo HOME $(ls -A ~); id -un; "
        "echo $A; touch here"
    )
    mounts = [f'{folder}/a b, "c":/mnt/it s, x:ro']
    more: dict[str, Any] = {"mounts": mounts, "args": ["--env", "A=4,5"]}  # the comma is part of the value
    job = in_apptainer(apptainer_cluster, folder, look, image=str(sandbox.image(archive)), **more)
    assert job.code == "0:0", job.log
    assert "mountedno\nHOME\nalice\n4,5\n" in job.log
    assert (folder / "here").stat().st_uid == 1001


def in_apptainer(cluster: SlurmCluster, folder: Path, run: str = "true", **container: Any) -> Job:
    spec = {"slurm": SLURM, "container": {"runtime": "apptainer", **container}, "run": run}
    return Jobs(cluster, folder, "alice").run(yaml.safe_dump(spec))
