"""Another user of the cluster, bob, who is there before or beside alice's job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .jobs import HANG, Jobs

KEY, TEXT = "key-that-nobody-else-may-see", "text-of-the-setup"
ONE = """
slurm: {nodes: 1, cpus_per_task: 2, mem: 1G}
container: {runtime: none}
"""
# Run as bob in the submit folder. $1: the id of alice's next job.
PREMADE = {
    "folder": 'mkdir -p -m 777 slurmray-runs "slurmray-runs/$1-0/logs"; chmod -R 777 slurmray-runs',
    "link": 'mkdir -m 777 "theirs"; ln -s theirs slurmray-runs',
    "FIFO": 'mkdir -p "slurmray-runs/$1-0"; mkfifo "slurmray-runs/$1-0/mark"; chmod -R 777 slurmray-runs',
    "link inside": 'mkdir -p "slurmray-runs/$1-0/logs"; ln -s "$2" "slurmray-runs/$1-0/mark"',
}
SPEC = f"""
slurm: {{nodes: 1, cpus_per_task: 2, mem: 1G}}
env: {{WANDB_API_KEY: null}}
setup: sleep 1; true {TEXT}
node_env: sleep 1; true {TEXT}
container: {{setup: "sleep 1; true {TEXT}"}}
prepare: [{{name: data, run: "sleep 1; true {TEXT}"}}]
services: [{{name: web, run: "sleep 100; true {TEXT}", ready: {{run: "sleep 1; true {TEXT}"}}}}]
"""
# Runs as bob on a node until the job has ended: prints what processes and readable files show.
SEARCH = r"""
cd "$1"
cat >"$HOME/words"
while [[ ! -e done ]]; do
	ps -eo args
	grep -rlF -D skip -f "$HOME/words" slurmray-runs /tmp/ray-* 2>/dev/null |
		sed "s/^/$(sed q "$HOME/words") is in /"
	sleep 0.1
done | grep -F -f "$HOME/words"
true
"""


@pytest.mark.attack("run directories of another user", inputs=1)
@pytest.mark.parametrize("kind", PREMADE)
def test_a_run_directory_that_bob_has_made(podman_cluster: SlurmCluster, folder: Path, kind: str) -> None:
    own = folder / "own"
    own.write_text("of alice\n")
    own.chmod(0o600)
    jobs = Jobs(podman_cluster, folder, "alice")
    script = jobs.script(ONE, ["true"])
    number = podman_cluster.sbatch(script, "alice", ["--hold"], folder=folder)
    made = podman_cluster.run(
        ["bash", "-c", f"cd {folder} && {PREMADE[kind]}", "bob", str(number), str(own)], "bob"
    )
    assert made.returncode == 0, made
    podman_cluster.run(["scontrol", "release", str(number)])
    job = jobs.wait_end(number)
    assert job.code == "64:0", job.log
    assert "slurmray-runs belongs to bob" in job.last_line
    assert "Set run_dir" in job.last_line
    assert own.read_text() == "of alice\n"


@pytest.mark.attack("processes and files of another user's job", inputs=1)
def test_bob_looks_at_alice_s_job(podman_cluster: SlurmCluster, folder: Path) -> None:
    jobs = Jobs(podman_cluster, folder, "alice")
    search, words = ["bash", "-c", SEARCH, "search", str(folder)], f"{KEY}\n{TEXT}\n"
    with ThreadPoolExecutor() as pool:
        seen = pool.submit(podman_cluster.run, search, "bob", "node1", text=words, timeout=HANG)
        try:
            number = jobs.submit(SPEC, ["true"], ["--nodelist=node1", f"--export=ALL,WANDB_API_KEY={KEY}"])
            podman_cluster.wait(number, HANG)
        finally:
            (folder / "done").touch()
        found = seen.result().stdout
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    assert [line for line in found.splitlines() if "sbatch" not in line] == []  # the test's own
