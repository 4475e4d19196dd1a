"""What slurmray sees of a job that runs: samples of GPUs, and a trainer that hangs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from slurmray.slurm.submitted_job import Job
from tests import nvidia_smi

from . import bare
from .jobs import Jobs, path_with_slurm, wait_until
from .test_verbs import slurmray

HOSTS = ("node1", "node2")
# In the format of nvidia-smi 580.159.04 (recorded): an H200 that works until /run/idle is there.
NVIDIA_SMI = f"""#!/bin/bash
use="97, 99824, 660.32, 1755, 61"
[[ ! -e /run/idle ]] || use="0, 99824, 118.10, 345, 33"
case $1 in
"") echo "the usual table of GPUs" ;;
*utilization*) echo "GPU-$SLURMD_NODENAME, $use, 143771, 700.00, 0x0000000000000000, 0, 0, 16" ;;
esac
{nvidia_smi.script(nvidia_smi.gpu("GPU-$SLURMD_NODENAME"))}
"""
# A task on the second node gets stuck, and the trainer waits for it.
TRAINER = """
import os, threading, time, ray
ray.init(log_to_driver=False)  # a raylet may print something on a busy machine
print("step 1", flush=True)
while not os.path.exists("hang"):
    time.sleep(0.1)
def all_reduce():
    threading.Event().wait()
print("step 2", flush=True)
ray.get(ray.remote(num_gpus=1)(all_reduce).remote())
"""


@pytest.fixture(scope="module")
def cluster(none_layout: Layout) -> Iterator[SlurmCluster]:
    with SlurmCluster(ClusterConfig(gres=(Gres("gpu", "", 1),)), none_layout) as cluster:
        for host in HOSTS:
            assert cluster.run(["touch", "/dev/nvidiactl"], host=host).returncode == 0
        yield cluster


@pytest.mark.full
def test_a_trainer_that_hangs(
    cluster: SlurmCluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its GPUs are in `status`; once they are idle, each node shows what it does, and the job ends."""
    monkeypatch.setenv("PATH", path_with_slurm(cluster, tmp_path / "commands"))
    monkeypatch.chdir(folder)
    program = folder / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    (folder / "train.py").write_text(TRAINER)
    spec = {
        "slurm": {"nodes": 2, "gpus_per_node": 1, "cpus_per_task": 2, "mem": "1G"},
        "setup": f"{bare.setup()}:{program.parent} SLURMRAY_ACCELERATOR=",
        "container": {"runtime": "none", "accelerator": "nvidia"},
        "ray": {"metrics": True},
        "preflight": "none",  # there is no library of the driver
        "watch": {"interval": 5, "stall": "25s", "action": "end"},
    }
    jobs = Jobs(cluster, folder)
    number = jobs.submit(yaml.safe_dump(spec), ["python3", "train.py"])
    jobs.wait_for(number, "\nstep 1\n")
    usage = folder / f"slurmray-runs/{number}-0/usage.json"
    wait_until(
        lambda: usage.exists() and len(json.loads(usage.read_text())["nodes"]) == 2, lambda: jobs.log(number)
    )
    shown = slurmray("status", str(number)).stdout
    assert "\n  GPUs 97 % busy; their memory 69 % full; 660 W each" in shown, shown
    assert " ago: step 1\n" in shown
    metrics = usage.parent / "metrics"
    wait_until((metrics / "ray.json").exists, lambda: jobs.log(number))
    assert len(json.loads((metrics / "ray.json").read_text())[0]["targets"]) >= 2
    line = f'slurmray_gpu_utilization_percent{{job="{number}",name="slurmray",node="node2"}} 97\n'
    assert line in (metrics / "slurmray.prom").read_text()
    for host in HOSTS:
        assert cluster.run(["touch", "/run/idle"], host=host).returncode == 0
    (folder / "hang").touch()
    job = jobs.wait_end(number)
    assert (job.state, job.code) == ("FAILED", "74:0"), job.log
    (stall,) = [event for event in job.events if event["event"] == "stall"]
    evidence = {host: (job.run / f"logs/stall-1/{host}.txt").read_text() for host in HOSTS}
    place = r"\S+ on node\d is in all_reduce \(train.py:8\)"
    text = rf"no output for 25 s; GPUs of node1, node2: idle; {place}; the trainer exited with 1"
    assert re.fullmatch(rf"failed \(74 stalled\): {text}", job.last_line), (job.log, evidence)
    for text in evidence.values():
        assert text.startswith("== nvidia-smi\nthe usual table of GPUs\n"), text
    assert "all_reduce (train.py:8)" in "".join(evidence.values()), evidence
    assert "Node status" in evidence["node1"], evidence["node1"]
    assert stall["folder"] == str(job.run / "logs/stall-1")
    header, *samples = [
        json.loads(line) for line in (job.run / "logs/node2.samples.jsonl").read_text().splitlines()
    ]
    utilization = [sample["gpus"][0][header["columns"].index("utilization")] for sample in samples]
    assert (utilization[0], utilization[-1]) == (97, 0)
    account = Job(number).account()
    assert account
    assert account.queue is not None
    assert account.bring_up > 0
    assert account.idle is not None
    assert 0 < account.idle < account.idle + account.training
    assert account.total == pytest.approx(account.bring_up + account.idle + account.training)
