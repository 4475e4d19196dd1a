"""Scripts with an edited story, a site's template, another Python, or `ray.start: standard`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.spec.container import DEFAULT_IMAGE

from .jobs import Jobs

NODES = ("node1", "node2")
TWO = "slurm: {nodes: 2, cpus_per_task: 2, mem: 1G}\n"

SITE = """\
{% extends "job.sbatch.j2" %}
{% block directives %}
{{ super() -}}
#SBATCH --comment=ours
{% endblock %}
{% block site_prologue %}
export SITE="in the $SLURM_JOB_PARTITION"
{% endblock %}
{% block site_epilogue %}
	echo "$1 $2 $SITE" >epilogue
{% endblock %}
"""

# Appended to Ray's module in the image: a function with a different signature.
OTHER_SIGNATURE = """
_original_del = _internal_kv_del


def _internal_kv_del(*args, **options):
    return _original_del(*args, **options)
"""


@pytest.fixture
def jobs(podman_cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(podman_cluster, folder)


def test_an_edited_story_runs_on_all_nodes(jobs: Jobs) -> None:
    prepare = [{"name": "show", "run": "echo EDITED is $EDITED", "where": "all"}]
    script = jobs.script(TWO + yaml.safe_dump({"prepare": prepare}), ["true"])
    before, podman, text = script.read_text().partition("\nrun_with_podman() {\n")
    command = 'exec "$program" run --rm '
    assert command in text.partition("\n}\n")[0]
    script.write_text(before + podman + text.replace(command, f"{command}--env=EDITED=yes ", 1))
    job = jobs.wait_end(jobs.cluster.sbatch(script, jobs.user, folder=jobs.folder))
    assert job.code == "0:0", job.log
    for node in NODES:
        assert "\nEDITED is yes\n" in (job.run / f"logs/{node}.log").read_text()


@pytest.mark.full
def test_a_template_of_a_site(jobs: Jobs) -> None:
    template = jobs.folder / "site.sbatch.j2"
    template.write_text(SITE)
    setup = 'echo "$SITE" >"site-$SLURMD_NODENAME"'
    spec = TWO + yaml.safe_dump({"template": str(template), "setup": setup})
    job = jobs.run(spec, ["bash", "-c", "exit 3"])
    assert job.code == "3:0", job.log
    info = jobs.cluster.job(job.id)
    assert "\n   Comment=ours" in jobs.cluster.run(["scontrol", "show", "job", str(job.id)]).stdout
    site = f"in the {info['Partition']}"
    for node in NODES:
        assert (jobs.folder / f"site-{node}").read_text() == f"{site}\n"
    assert (jobs.folder / "epilogue").read_text() == f"{job.run} 3 {site}\n"


@contextmanager
def old_python(jobs: Jobs, *nodes: str) -> Iterator[None]:
    """Make the system's python3 of nodes one that is too old: it refuses the agent's question."""
    program = jobs.folder / "old-python"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    mounted = []
    try:
        for node in nodes:
            path = jobs.cluster.run(["readlink", "-f", "/usr/bin/python3"], host=node).stdout.strip()
            assert jobs.cluster.run(["mount", "--bind", str(program), path], host=node).returncode == 0
            mounted.append((node, path))
        yield
    finally:
        for node, path in mounted:
            assert jobs.cluster.run(["umount", path], host=node).returncode == 0


def test_python_that_setup_provides(jobs: Jobs) -> None:
    """`setup` runs before the search for Python if necessary, but only once on each node."""
    new = jobs.folder / "new/python3"
    assert jobs.cluster.run(["install", "-D", "/usr/bin/python3", str(new)], host="node1").returncode == 0
    setup = f'export PATH={new.parent}:$PATH\necho once >>"setup-$SLURMD_NODENAME"'
    with old_python(jobs, *NODES):
        job = jobs.run(TWO + yaml.safe_dump({"setup": setup}), ["true"])
    assert job.code == "0:0", job.log
    for node in NODES:
        assert (jobs.folder / f"setup-{node}").read_text() == "once\n"


def test_a_node_without_python(jobs: Jobs) -> None:
    with old_python(jobs, "node2"):
        job = jobs.run(TWO, ["true"])
    assert (job.state, job.code) == ("FAILED", "65:0"), job.log
    text = "no Python 3.6 or later. Load one in the job spec, e.g. setup: module load python"
    assert job.last_line == f"failed (65 preflight): node2: {text} (without exit)", job.log


def count_nodes(jobs: Jobs, spec: str) -> str:
    """Run a job whose driver prints the number of nodes and the dashboard's address; return the log."""
    driver = (
        "import ray; url = ray.init(logging_level='error').dashboard_url; "
        "print(len(ray.nodes()), 'nodes', url)"
    )
    job = jobs.run(TWO + spec, ["python3", "-c", driver])
    assert job.code == "0:0", job.log
    port = job.log.partition("dashboard on port ")[2].split()[0]
    assert f"\n2 nodes 127.0.0.1:{port}\n" in job.log
    return job.log


@pytest.mark.full
def test_fast_start(jobs: Jobs) -> None:
    assert "Ray's own start" not in count_nodes(jobs, "")


TASKS = """
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init(logging_level="error")
@ray.remote
def task(name):
    print("line of", name)
places = {row["NodeName"]: NodeAffinitySchedulingStrategy(row["NodeID"], soft=False) for row in ray.nodes()}
ray.get([task.options(scheduling_strategy=place).remote(name) for name, place in places.items()])
"""


def test_no_line_of_a_task_is_lost(jobs: Jobs) -> None:
    """Log monitors start when the cluster is ready, and this trainer ends as soon as it can."""
    job = jobs.run(f"{TWO}env: {{RAY_DEDUP_LOGS: '0'}}", ["python3", "-c", TASKS])
    assert sorted(re.findall(r" line of (\w+)$", job.log, re.MULTILINE)) == [*NODES], job.log


@pytest.mark.full
def test_the_standard_start(jobs: Jobs) -> None:
    log = count_nodes(jobs, "ray: {start: standard}")
    assert log.count("] ray: using Ray's own start: ray.start is standard\n") == 1, log


@pytest.mark.full
def test_a_ray_with_other_internals(jobs: Jobs) -> None:
    show = "import ray.experimental.internal_kv as m; print(m.__file__, m.__cached__, sep='\\n'); "
    show += "print(open(m.__file__).read())"
    run = ["podman", "run", "--rm", "--network=host", "--log-driver=none", "--entrypoint=python3"]
    done = jobs.cluster.run([*run, DEFAULT_IMAGE, "-c", show], host="node1")
    assert done.returncode == 0, done.stderr
    path, compiled, text = done.stdout.split("\n", 2)
    (jobs.folder / "internal_kv.py").write_text(text + OTHER_SIGNATURE)
    # The image has an unchecked .pyc file, which Python would use instead of the changed source.
    (jobs.folder / "empty").touch()
    mounts = [f"internal_kv.py:{path}:ro", f"empty:{compiled}:ro"]
    spec = yaml.safe_dump({"container": {"mounts": mounts}})
    name = "ray.experimental.internal_kv._internal_kv_del"
    log = count_nodes(jobs, spec)
    assert log.count(f"] ray: using Ray's own start: {name} takes other arguments in this Ray\n") == 1, log
