"""When Slurm ends the job: SLURMRAY_END_TIME, and the file that follows `scontrol update`."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import yaml

from slurmray.agent.controller.job_run import END_TIME_INTERVAL
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.spec.container import DEFAULT_IMAGE

from .jobs import Jobs, wait_clean, wait_until

ONE = {"nodes": 1, "cpus_per_task": 2, "mem": "1G"}


@pytest.fixture(params=["podman", "trixie"])
def jobs(request: pytest.FixtureRequest, folder: Path) -> Jobs:
    """Of this machine's Slurm, and of 24.11."""
    return Jobs(request.getfixturevalue(f"{request.param}_cluster"), folder, "root")


def end_of(cluster: SlurmCluster, job: int) -> str:
    """The job's end as squeue prints it, in seconds since 1970."""
    shown = cluster.run(["squeue", "--noheader", f"--jobs={job}", "--format=%e"]).stdout.strip()
    return str(round(time.mktime(time.strptime(shown, "%Y-%m-%dT%H:%M:%S"))))


def submit_quick(jobs: Jobs, spec: str, run: str) -> int:
    """Submit a job that asks Slurm more often, in another time zone than the tests."""
    script = jobs.script(spec, ["bash", "-c", run])
    text = script.read_text()
    line = f"END_TIME_INTERVAL = {END_TIME_INTERVAL} "
    assert line in text
    script.write_text(text.replace(line, "END_TIME_INTERVAL = 1.0 "))
    args = ["--export=ALL,TZ=Asia/Tokyo,SLURM_TIME_FORMAT=relative"]
    return jobs.cluster.sbatch(script, jobs.user, args, folder=jobs.folder)


def test_all_programs_have_it_and_a_file_follows(jobs: Jobs) -> None:
    show = "echo $SLURMRAY_END_TIME >{}; sleep 1000"
    services = [
        {"name": "beside-ray", "run": show.format("beside-ray")},
        {"name": "on-host", "host": True, "run": show.format("on-host")},
        {"name": "own-image", "image": DEFAULT_IMAGE, "run": show.format("own-image")},
    ]
    prepare = [{"name": "data", "run": "echo $SLURMRAY_END_TIME >data"}]
    spec = {"slurm": {**ONE, "time": "30"}, "prepare": prepare, "services": services}
    run = """echo started $SLURMRAY_END_TIME
seen=
until [[ -e go ]]; do
    now=$(<$RAY_TMPDIR/end_time)
    [[ $now = "$seen" ]] || echo "file <$now>"
    seen=$now
    sleep 0.1
done
"""
    job = submit_quick(jobs, yaml.safe_dump(spec), run)
    cluster = jobs.cluster
    jobs.wait_for(job, "\nstarted ")
    end = end_of(cluster, job)
    jobs.wait_for(job, f"\nstarted {end}\nfile <{end}>\n")
    files = [jobs.folder / name for name in ("data", "beside-ray", "on-host", "own-image")]
    wait_until(
        lambda: all(file.exists() and file.read_text() == f"{end}\n" for file in files),
        lambda: jobs.log(job),
    )
    later = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(int(end) + 1234))
    for change in ("TimeLimit=45", f"EndTime={later}"):
        assert cluster.run(["scontrol", "update", f"JobId={job}", change]).returncode == 0
        assert end_of(cluster, job) != end
        end = end_of(cluster, job)
        jobs.wait_for(job, f"\nfile <{end}>\n")
    assert cluster.run(["scontrol", "update", f"JobId={job}", "TimeLimit=UNLIMITED"]).returncode == 0
    jobs.wait_for(job, "\nfile <>\n")
    (jobs.folder / "go").touch()
    assert jobs.wait_end(job).code == "0:0"


@pytest.mark.parametrize("limit", [{"time": "UNLIMITED"}, {}])
def test_a_job_without_a_limit(jobs: Jobs, limit: dict[str, str]) -> None:
    run = 'echo "variable <$SLURMRAY_END_TIME> file <$(<$RAY_TMPDIR/end_time)>"'
    job = jobs.run(yaml.safe_dump({"slurm": ONE | limit}), ["bash", "-c", run])
    assert "\nvariable <> file <>\n" in job.log


def test_another_start_and_another_attempt(jobs: Jobs) -> None:
    run = """echo "attempt $SLURMRAY_ATTEMPT $SLURMRAY_END_TIME"
case $SLURMRAY_ATTEMPT in
0) until [[ $(<$RAY_TMPDIR/end_time) != $SLURMRAY_END_TIME ]]; do sleep 0.1; done; exit 9 ;;
1) exit 75 ;;
esac
"""
    spec = {
        "slurm": {**ONE, "time": "30"},
        "restart": {"exit_codes": [9]},
        "requeue": {"exit_code": 75},
    }
    cluster = jobs.cluster
    job = submit_quick(jobs, yaml.safe_dump(spec), run)
    jobs.wait_for(job, "\nattempt 0 ")
    first = end_of(cluster, job)
    assert cluster.run(["scontrol", "update", f"JobId={job}", "TimeLimit=45"]).returncode == 0
    second = end_of(cluster, job)
    jobs.wait_for(job, "\nattempt 1 ")

    def has_restarted() -> bool:
        # Slurm's backfill, which starts these jobs, runs only when something in the cluster has changed.
        cluster.run(["scontrol", "update", "NodeName=node1", f"Comment={time.time()}"])
        time.sleep(1)
        return "\nattempt 2 " in jobs.log(job)

    wait_until(has_restarted, lambda: jobs.log(job))
    assert cluster.wait(job, 60) == ("COMPLETED", "0:0")
    ends = re.findall(r"^attempt [012] (\d+)$", jobs.log(job), re.MULTILINE)
    assert ends[:2] == [first, second]
    assert abs(int(ends[2]) - time.time() - 45 * 60) < 120
    wait_clean(cluster)
