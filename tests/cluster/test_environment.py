"""Jobs of alice that inherit variables which are wrong where they run."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmray.agent.inherited import GPU_MASKS
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import USERS, ClusterConfig, Gres
from slurmray.rehearsal.images import suites

from . import bare, rootless
from .faults.rows import OTHER_SUITE
from .jobs import Jobs, wait_until

TWO = "slurm: {nodes: 2, cpus_per_task: 2, mem: 1G}\n"
# Variables of a login session. On the hosts /run/user exists and is root's.
LOGIN_SESSION = {
    "XDG_RUNTIME_DIR": "/run/user/2000",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/2000/bus",
}


@pytest.fixture(scope="module", params=["own", pytest.param("other", marks=pytest.mark.full)])
def cluster(request: pytest.FixtureRequest, podman_layout: Layout, archive: Path) -> Iterator[SlurmCluster]:
    """Hosts with the Slurm and Podman of this machine, or of another suite."""
    if request.param == "own":
        yield request.getfixturevalue("podman_cluster")
        return
    root = suites.hosts_root(machine.cache_folder(), OTHER_SUITE, print)
    layout = dataclasses.replace(podman_layout, root=root)
    with SlurmCluster(ClusterConfig(gres=(Gres("gpu", "", 8),)), layout) as cluster:
        rootless.load_for_user(cluster, archive, USERS[0], print)
        yield cluster


@pytest.fixture
def jobs(cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(cluster, folder, "alice")


def exported(variables: dict[str, str]) -> list[str]:
    """The option of sbatch that exports these variables."""
    return ["--export=" + ",".join(["ALL", *(f"{name}={value}" for name, value in variables.items())])]


@pytest.mark.full
def test_variables_of_a_login_session_on_another_host(jobs: Jobs) -> None:
    wait = "echo started; until [[ -e go ]]; do sleep 0.1; done; cat from-host"
    services = [
        {"name": "host", "host": True, "run": "echo host: ${XDG_RUNTIME_DIR-unset} >from-host; sleep 1000"}
    ]
    job = jobs.submit(
        TWO + yaml.safe_dump({"services": services}), ["bash", "-c", wait], exported(LOGIN_SESSION)
    )
    jobs.wait_for(job, "\nstarted\n")
    (line,) = [line for line in jobs.log(job).splitlines() if "] attach: " in line]
    variables = [f"{name}={value}" for name, value in LOGIN_SESSION.items()]
    attach = ["env", *variables, "bash", "-c", line.partition("] attach: ")[2]]
    # The status is empty in the first seconds.
    wait_until(
        lambda: "Autoscaler status" in jobs.cluster.run(attach, "alice").stdout, lambda: jobs.log(job), 60
    )
    (jobs.folder / "go").touch()
    ended = jobs.wait_end(job)
    assert ended.code == "0:0", ended.log
    assert "\nhost: unset\n" in ended.log


# Options of another allocation, in which this job is submitted.
OTHER_ALLOCATION = {
    "SLURM_ACCOUNT": "other",
    "SLURM_CPUS_PER_TASK": "64",
    "SLURM_DISTRIBUTION": "cyclic",
    "SLURM_EXACT": "1",
    "SLURM_GPU_BIND": "single:1",
    "SLURM_GPUS_PER_TASK": "1",
    "SLURM_GRES": "gpu:1",
    "SLURM_HINT": "nomultithread",
    "SLURM_MEM_PER_CPU": "100",
    "SLURM_NTASKS_PER_GPU": "1",
    "SLURM_RESERVATION": "other",
    "SLURM_RESTART_COUNT": "3",
    "SLURM_STEP_GRES": "none",
    "SLURM_THREADS_PER_CORE": "1",
    "SLURM_TIMELIMIT": "1",
}


@pytest.mark.parametrize("memory", ["mem: 1G", "mem_per_cpu: 512M"])
@pytest.mark.full
def test_variables_of_another_allocation(jobs: Jobs, memory: str) -> None:
    foreign = OTHER_ALLOCATION | {"SLURM_MEM_PER_NODE": "300"}
    del foreign["SLURM_MEM_PER_NODE" if memory == "mem: 1G" else "SLURM_MEM_PER_CPU"]
    look = "import ray; ray.init(); print(sorted(node['Resources']['memory'] for node in ray.nodes()))"
    spec = f"""
slurm: {{nodes: 2, gpus_per_node: 4, cpus_per_task: 2, {memory}}}
requeue: {{max: 2}}
setup: echo "$SLURM_GPUS_ON_NODE GPUs" >"gpus-$SLURMD_NODENAME"
"""
    job = jobs.run(spec, ["python3", "-c", look], exported(foreign))
    assert job.code == "0:0", job.log
    assert "restarted" not in job.log
    free = float(2**30 - 2**30 * 3 // 10)  # without the object store
    assert f"\n[{free}, {free}]\n" in job.log
    for node in ("node1", "node2"):
        assert (jobs.folder / f"gpus-{node}").read_text() == "4 GPUs\n"


@pytest.mark.full
def test_in_salloc(jobs: Jobs) -> None:
    """Where the shell runs on the login host, and in an interactive step on a node."""
    script = jobs.script(TWO, ["true"])
    salloc = ["salloc", "--nodes=1", "--ntasks=1", "--mem=100M"]
    run = ["bash", "-c", f"bash {script}; echo exited with $?"]
    text = f"slurmray: this runs only as a batch script, inside salloc too. Submit it: sbatch {script}\n"
    for step in ([], ["srun", "--interactive", "--preserve-env"]):
        done = jobs.cluster.run([*salloc, *step, *run], "alice")
        assert text in done.stderr, done
        assert done.stdout == "exited with 64\n", done
    done = jobs.cluster.run([*salloc, "sbatch", "--wait", f"--chdir={jobs.folder}", str(script)], "alice")
    assert done.returncode == 0, (done, [log.read_text() for log in jobs.folder.glob("*.out")])


# Follows podman_hpc.py of podman-hpc 1.1.4: Podman's commands, no global options of Podman, and options of a
# site's modules, e.g. --gpu.
PODMAN_HPC = """#!/bin/bash
[[ $1 != -* ]] || { echo "Error: No such option: $1" >&2; exit 2; }
echo "$1" >>"${0%/*}/calls"
for word in "$@"; do
    shift
    [[ $word == --gpu ]] || set -- "$@" "$word"
done
exec podman "$@"
"""


@pytest.mark.full
def test_a_wrapper_of_podman(jobs: Jobs) -> None:
    bin_folder = jobs.folder / "bin"
    bin_folder.mkdir(mode=0o777)
    bin_folder.chmod(0o777)
    (bin_folder / "podman-hpc").write_text(PODMAN_HPC)
    (bin_folder / "podman-hpc").chmod(0o755)
    container = {"runtime": "podman", "command": "podman-hpc", "accelerator": "none", "args": ["--gpu"]}
    spec = {"setup": f"PATH={bin_folder}:$PATH", "container": container}
    job = jobs.run(TWO + yaml.safe_dump(spec))
    assert job.code == "0:0", job.log
    assert "container: podman-hpc run docker.io/" in job.log
    assert " podman-hpc exec slurmray-" in job.log
    calls = (bin_folder / "calls").read_text().split()
    assert calls.count("run") == 2
    assert "ps" in calls


# What a submitter's shell may have, all at once. {folder}: with HOSTILE_FILES.
HOSTILE = {
    "PATH": "{folder}/bin:/usr/local/bin:/usr/bin:/bin",
    "LD_PRELOAD": "/no/such/library.so",
    "LD_LIBRARY_PATH": "/no/such/lib",
    "BASH_ENV": "{folder}/startup.sh",
    "ENV": "{folder}/startup.sh",
    "CDPATH": "/tmp",
    "GREP_OPTIONS": "--color=always",
    "PYTHONHOME": "/no/such",
    "PYTHONSTARTUP": "{folder}/startup.sh",
    "CUDA_VISIBLE_DEVICES": "5",
    "HIP_VISIBLE_DEVICES": "5",
    "ROCR_VISIBLE_DEVICES": "5",
    "GPU_DEVICE_ORDINAL": "5",
    "ZE_AFFINITY_MASK": "5",
    "RAY_ADDRESS": "192.0.2.1:6379",
    "RAY_API_SERVER_ADDRESS": "http://192.0.2.1:8265",
    "RAY_AUTH_MODE": "disabled",
    "RAY_AUTH_TOKEN": "of-another-ray",
    "RAY_AUTH_TOKEN_PATH": "/no/such/token",
    "RAY_JOB_HEADERS": "x",
    "RAY_OVERRIDE_RESOURCES": '{{"GPU": 64}}',
    "RAY_TMPDIR": "/no/such/tmp",
    "NCCL_DEBUG": "INFO",
    "SLURM_CLUSTERS": "other",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_LABELIO": "1",
    "SRUN_EXPORT_ENV": "NONE",
    "SBATCH_PARTITION": "other",
    "SQUEUE_STATES": "PENDING",
    "SQUEUE_FORMAT": "%i",
    "SCANCEL_STATE": "PENDING",
    "SCONTROL_ALL": "1",
    "LC_ALL": "xx_XX.UTF-8",
    "LANG": "xx_XX.UTF-8",
    "TMPDIR": "/no/such/tmp",
}
# Rows of the documentation that are not variables, or that a rehearsal has no value for.
NOT_HOSTILE = {"HOME", "USER", "LOGNAME", "SHELL", "SHELLOPTS", "RAY_CLIENT_MODE"}
HOSTILE_FILES = {
    "startup.sh": "echo startup; echo startup >&2\n",
    "bin/python3": "\x7fELF of another processor",
}
# Soft limits and umask of the submitter's shell; -f and -v in KiB.
LIMITED = 'umask 0007; ulimit -S -n 256 -u 3000 -f 200 -v 9000000 -t 9000; exec "$@"'
LOOK = """
import json, os, resource, sys
def look():
    umask = os.umask(0)
    os.umask(umask)
    names = ("AS", "CPU", "FSIZE", "NPROC", "NOFILE")
    limits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in names}
    return {"env": dict(os.environ), "umask": umask, "limits": limits}
import ray
ray.init()
seen = {"trainer": look(), "task": ray.get(ray.remote(look).remote())}
seen["gpus"] = ray.cluster_resources().get("GPU")
print("\\nseen: " + json.dumps(seen))
"""


def run_in_a_hostile_shell(jobs: Jobs, spec: str) -> dict[str, Any]:
    """Run a job that shows environment, limits and umask of the trainer and of a task of Ray."""
    (jobs.folder / "bin").mkdir()
    for name, text in HOSTILE_FILES.items():
        (jobs.folder / name).write_text(text)
        (jobs.folder / name).chmod(0o755)
    (jobs.folder / "look.py").write_text(LOOK)
    script = jobs.script(spec, ["python3", "look.py"])
    variables = exported({name: value.format(folder=jobs.folder) for name, value in HOSTILE.items()})
    sbatch = ["sbatch", "--parsable", *variables, str(script)]
    done = jobs.cluster.run(["bash", "-c", LIMITED, "bash", *sbatch], "alice", folder=jobs.folder)
    assert done.returncode == 0, done.stderr
    job = jobs.wait_end(int(done.stdout))
    assert job.code == "0:0", job.log
    assert "] start: job 1 on 2 nodes, " in job.log.replace(f"job {job.id} ", "job 1 ")
    seen: dict[str, Any] = json.loads(job.log.partition("\nseen: ")[2].partition("\n")[0])
    assert seen["gpus"] is None
    for place in (seen["trainer"], seen["task"]):
        assert place["umask"] == 0o007
        assert place["env"]["USER"] == "alice"
        for name in ("RAY_AUTH_TOKEN", "RAY_API_SERVER_ADDRESS", "RAY_JOB_HEADERS", "RAY_OVERRIDE_RESOURCES"):
            assert name not in place["env"]
        assert place["env"]["RAY_AUTH_MODE"] == "token"
        for kind, (soft, hard) in place["limits"].items():
            assert soft == (min(hard, 65535) if kind == "NOFILE" and hard > 0 else hard), kind
    return seen


def test_the_documentation_has_all_of_it() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/environment.md").read_text()
    table = page.partition("\n## Your shell's environment\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    patterns = {name for cell in cells for name in re.findall("`([A-Z_*]+)`", cell)}
    tried = {pattern: [name for name in HOSTILE if fnmatch(name, pattern)] for pattern in patterns}
    assert {pattern for pattern, names in tried.items() if not names} == NOT_HOSTILE
    assert set(HOSTILE) == {name for names in tried.values() for name in names}


@pytest.mark.attack("the submitter's environment", inputs=len(HOSTILE) + 6)
def test_a_hostile_environment_and_containers(jobs: Jobs) -> None:
    """Nothing of it is in the container but limits and umask."""
    env = run_in_a_hostile_shell(jobs, TWO)["trainer"]["env"]
    of_container = (
        "PATH",
        "LANG",
        "LC_ALL",
        "RAY_TMPDIR",
        "RAY_AUTH_MODE",
        "RAY_AUTH_TOKEN_PATH",
        "RAY_ADDRESS",
    )
    for name in HOSTILE:
        assert name in of_container or name not in env, name


TOPOLOGY = """
SwitchName=leaf1 Nodes=node1
SwitchName=leaf2 Nodes=node2
SwitchName=spine Switches=leaf[1-2]
"""


@pytest.fixture(scope="module")
def none_cluster(none_layout: Layout) -> Iterator[SlurmCluster]:
    options = {"TaskProlog": "/bin/true", "TopologyPlugin": "topology/tree"}
    config = ClusterConfig(gres=(Gres("gpu", "", 8),), options=options, topology=TOPOLOGY)
    with SlurmCluster(config, none_layout) as cluster:
        yield cluster


@pytest.mark.parametrize(("auth", "mode"), [("auto", "token"), ("none", "disabled")])
def test_a_home_with_ray_s_token_file(none_cluster: SlurmCluster, folder: Path, auth: str, mode: str) -> None:
    """As `ray.init()` of Ray 2.60 leaves it. With it, `ray start --head` alone asks for that token."""
    jobs = Jobs(none_cluster, folder, "alice")
    token = "umask 077; mkdir -p ~/.ray; printf %064d 7 >~/.ray/auth_token"
    assert jobs.cluster.run(["bash", "-c", token], "alice").returncode == 0
    service = {"name": "asks", "needs_ray": True, "run": "ray status >status 2>&1; sleep 1000"}
    run = (
        "python3 -c 'import ray; ray.init(); print(len(ray.nodes()), \"nodes\")'; echo mode $RAY_AUTH_MODE; "
        "until [[ -e go ]]; do sleep 0.1; done; cat status"
    )
    spec = bare_spec(ray={"auth": auth}, services=[service])
    job = jobs.submit(spec, ["bash", "-c", run])
    jobs.wait_for(job, f"\nmode {mode}\n")
    assert "\n2 nodes\n" in jobs.log(job)
    (line,) = [line for line in jobs.log(job).splitlines() if "] attach: " in line]
    attach = ["bash", "-c", line.partition("] attach: ")[2]]
    # The status is empty in the first seconds.
    wait_until(
        lambda: "Autoscaler status" in jobs.cluster.run(attach, "alice").stdout, lambda: jobs.log(job), 60
    )
    (folder / "go").touch()
    ended = jobs.wait_end(job)
    assert ended.code == "0:0", ended.log
    assert "InvalidAuthToken" not in ended.log
    shown = ended.log.partition(f"\nmode {mode}\n")[2]
    assert "cluster status" in shown or "Autoscaler status" in shown, ended.log
    assert jobs.cluster.run(["bash", "-c", "rm -r ~/.ray"], "alice").returncode == 0


@pytest.mark.full
def test_tasks_on_the_nodes_of_a_switch(none_cluster: SlurmCluster, folder: Path) -> None:
    """The user's own labels are there, too."""
    (folder / "train.py").write_text("""
import ray
ray.init(log_to_driver=False)
names = {row["NodeID"]: row["NodeName"] for row in ray.nodes()}
@ray.remote
def node():
    return names[ray.get_runtime_context().get_node_id()]
for row in ray.nodes():
    wanted = {key: value for key, value in row["Labels"].items() if not key.startswith("ray.io/")}
    print("found", *sorted(wanted.values()), ray.get(node.options(label_selector=wanted).remote()))
""")
    spec = bare_spec(ray={"args": ["--labels=zone=a"]})
    job = Jobs(none_cluster, folder, "alice").run(spec, ["python3", "train.py"])
    found = re.findall("^found (.*)$", job.log, re.MULTILINE)
    assert sorted(found) == ["a leaf1 node1", "a leaf2 node2"], job.log


def bare_spec(**more: Any) -> str:
    slurm = {"nodes": 2, "cpus_per_task": 2, "mem": "1G"}
    return yaml.safe_dump({"slurm": slurm, "setup": bare.setup(), "container": {"runtime": "none"}, **more})


@pytest.mark.attack("the submitter's environment", inputs=len(HOSTILE) + 6)
def test_a_hostile_environment_without_containers(none_cluster: SlurmCluster, folder: Path) -> None:
    """The trainer sees it as in a batch script of its own, but for what is of another Ray or other GPUs."""
    # Without what a Python of the trainer's own obeys, too.
    setup = f"unset PYTHONHOME; PATH=${{PATH#*:}}; {bare.setup()}"
    seen = run_in_a_hostile_shell(Jobs(none_cluster, folder, "alice"), bare_spec(setup=setup))
    removed = {name for name in HOSTILE if name.startswith(("RAY_", "SRUN_", "SLURM_"))}
    removed |= {*GPU_MASKS, "PATH", "PYTHONHOME", "TMPDIR"}
    for place in (seen["trainer"], seen["task"]):
        env = place["env"]
        for name in HOSTILE.keys() - removed:
            assert env[name] == HOSTILE[name].format(folder=folder), name
        assert {name: env[name] for name in GPU_MASKS if name in env} == {"CUDA_VISIBLE_DEVICES": ""}
        assert env["SLURM_JOB_ID"]
        assert env["TMPDIR"].startswith("/tmp/ray-")


@pytest.mark.attack("sbatch --export", inputs=1)
@pytest.mark.parametrize("export", ["NIL", pytest.param("SITE=x", marks=pytest.mark.full)])
def test_a_job_without_the_submitter_s_environment(
    none_cluster: SlurmCluster, folder: Path, export: str
) -> None:
    """Without a TaskProlog that sets any; paths have the user's account."""
    spec = bare_spec(run_dir="$HOME/runs-of-$USER", env={"A": "b"})
    show = "import json, os; print('\\nseen: ' + json.dumps(dict(os.environ)))"
    jobs = Jobs(none_cluster, folder, "alice")
    job = jobs.run(spec, ["python3", "-c", show], [f"--export={export}"])
    assert job.code == "0:0", job.log
    env = json.loads(job.log.partition("\nseen: ")[2].partition("\n")[0])
    assert (env["HOME"], env["USER"], env["LOGNAME"], env["A"]) == ("/home/alice", "alice", "alice", "b")
    assert {"/usr/bin", "/bin"} <= set(env["PATH"].split(":"))
    assert f"/home/alice/runs-of-alice/{job.id}-0/logs" in job.log


@pytest.mark.attack("GPU masks of an image or a shell")
@pytest.mark.parametrize(
    ("more", "mask"),
    [
        pytest.param({"slurm": {"gpus_per_node": 2}}, "0,1", id="of Slurm"),
        pytest.param(
            {"ray": {"gpus_per_node": 2}}, "unset", id="not counted by Slurm", marks=pytest.mark.full
        ),
    ],
)
def test_gpu_masks_of_the_shell(
    none_cluster: SlurmCluster, folder: Path, more: dict[str, dict[str, int]], mask: str
) -> None:
    slurm = {"nodes": 1, "cpus_per_task": 2, "mem": "1G", **more.pop("slurm", {})}
    setup = f"export SLURMRAY_ACCELERATOR=none; {bare.setup()}"
    show = "echo mask ${CUDA_VISIBLE_DEVICES-unset} ${HIP_VISIBLE_DEVICES-} ${ROCR_VISIBLE_DEVICES-}."
    foreign = exported(dict.fromkeys(GPU_MASKS, "7"))
    job = Jobs(none_cluster, folder, "alice").run(
        bare_spec(slurm=slurm, setup=setup, **more), ["bash", "-c", show], foreign
    )
    assert job.code == "0:0", job.log
    assert f"\nmask {mask} .\n" in job.log


PATHS = """
slurm: {nodes: 2, cpus_per_task: 2, mem: 1G}
run_dir: $SITE_RUNS/of-${USER}
setup: export SCRATCH=/srv/s-$SLURMD_NODENAME
ray: {temp_dir: $SCRATCH}
container: {mounts: ["$SLURM_SUBMIT_DIR/$SLURM_JOB_ID:/data:ro"], workdir: $SITE_RUNS}
checks: {paths: ["$SITE_RUNS/a$$b"]}
run: [bash, -c, 'cat /data/file; pwd; echo "temp $RAY_TMPDIR"']
"""


@pytest.mark.full
def test_variables_in_paths(jobs: Jobs) -> None:
    """`setup` may set them, to another value on each node."""
    runs = jobs.folder / "runs"
    (runs / "a$b").mkdir(parents=True)
    runs.chmod(0o777)
    for node in jobs.cluster.config.nodes:
        done = jobs.cluster.run(["install", "-d", "-o", "alice", f"/srv/s-{node}"], host=node)
        assert done.returncode == 0, done.stderr
    number = jobs.submit(PATHS, args=[*exported({"SITE_RUNS": str(runs)}), "--hold"])
    (jobs.folder / str(number)).mkdir()
    (jobs.folder / f"{number}/file").write_text("data\n")
    jobs.cluster.run(["scontrol", "release", str(number)])
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    assert f"\ndata\n{runs}\ntemp /srv/s-node1/ray-{number}-0-" in job.log
    assert (runs / f"of-alice/{number}-0/events.jsonl").exists()
    for node in jobs.cluster.config.nodes:
        done = jobs.cluster.run(["rmdir", f"/srv/s-{node}"], host=node)  # fails if anything is in it
        assert done.returncode == 0, done.stderr


def test_a_variable_in_a_path_that_is_not_set(jobs: Jobs) -> None:
    job = jobs.run(TWO + "container: {mounts: [$SCRATCH/data]}\nray: {temp_dir: $SCRATCH}", ["true"])
    assert job.code == "65:0", job.log
    row = "$SCRATCH is not set | a variable of this node | set it in setup, or write the path"
    fields = ("container.mounts", "ray.temp_dir")
    assert job.findings == {(node, field): row for node in ("node1", "node2") for field in fields}


def test_a_variable_in_run_dir_that_is_not_set(jobs: Jobs) -> None:
    job = jobs.run(TWO + "run_dir: $SCRATCH/runs", ["true"])
    assert job.code == "64:0", job.log
    text = (
        "failed (64 config): run_dir: $SCRATCH is not set in the batch script. Set it where you run sbatch,"
    )
    assert job.last_line.startswith(text), job.log
    assert not (jobs.folder / "$SCRATCH").exists()


def write_keys(jobs: Jobs, mode: str) -> None:
    """Write a file of alice's with a secret."""
    write = (
        f"umask 077; printf '# keys\\nMY_KEY=a=secret value\\nCARD=none\\n' >keys.env; chmod {mode} keys.env"
    )
    done = jobs.cluster.run(["bash", "-c", write], "alice", folder=jobs.folder)
    assert done.returncode == 0, done.stderr


def test_variables_that_only_the_nodes_know(jobs: Jobs) -> None:
    write_keys(jobs, "600")
    spec = {
        "env_file": "keys.env",
        "node_env": "export CARD=card-of-$SLURMD_NODENAME; echo looked for cards",
        "prepare": [{"name": "look", "where": "all", "run": 'echo "$NODE_RANK $CARD" >card-$NODE_RANK'}],
        "services": [
            {"name": "web", "host": True, "where": "head", "run": "echo $CARD $MY_KEY >web; sleep 600"}
        ],
    }
    look = (
        "import os, pathlib, ray; ray.init(); task = ray.remote(lambda: os.environ['MY_KEY']);"
        "assert ray.get(task.remote()) == os.environ['MY_KEY']; assert len(os.environ['MY_KEY']) == 14"
    )
    wait = 'until [[ -s web ]]; do sleep 0.1; done; cat card-0 card-1; python3 -c "$0"'
    job = jobs.run(TWO + yaml.safe_dump(spec), ["bash", "-ec", wait, look])
    assert job.code == "0:0", job.log
    assert "\n0 card-of-node1\n1 card-of-node2\n" in job.log
    assert (jobs.folder / "web").read_text() == "card-of-node1 a=secret value\n"
    assert "looked for cards" in (job.run / "logs/node2.log").read_text()
    for path in [*job.run.rglob("*"), *jobs.folder.glob("*.out"), jobs.folder / "generated.sh"]:
        assert not path.is_file() or b"secret value" not in path.read_bytes(), path


def test_an_env_file_that_others_can_read(jobs: Jobs) -> None:
    write_keys(jobs, "640")
    job = jobs.run(TWO + "env_file: keys.env", ["true"])
    assert job.code == "65:0", job.log
    assert job.findings[("node2", "env_file")].endswith(f"| chmod 600 {jobs.folder}/keys.env"), job.log
