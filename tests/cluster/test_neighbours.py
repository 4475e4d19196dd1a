"""Jobs of several users on the same nodes."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.container.ray import fast_start
from slurmray.rehearsal.cluster import slurm_conf
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rendering.output import seal
from slurmray.rendering.verification import verify
from slurmray.spec.container import DEFAULT_IMAGE

from . import rootless
from .jobs import HANG, Jobs, wait_until

NODES = ("node1", "node2")
SECRET = "s3cr3t-of-the-submitter"
HALF = """
slurm: {nodes: 2, cpus_per_task: 2, mem: 1G, gpus_per_node: 4}
env: {SECRET: null}
"""
CLIENT_PORT = 10001
RAY_CLIENT = f"ray: {{head_args: [--ray-client-server-port={CLIENT_PORT}]}}"
ADMIN = Path(__file__).parents[2] / "examples/admin"
PORT_CLIENT = Path(__file__).with_name("port_client.py")

# Uses all GPUs of the job on both nodes, waits for the file `go`, and uses them again.
TRAINER = """
import os, time, ray
with open(os.open("token", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
    file.write(open(os.environ["RAY_AUTH_TOKEN_PATH"]).read())
ray.init(log_to_driver=False)
kept = ray.put(os.environ["SECRET"] * 100000)
@ray.remote(num_gpus=4)
class Half:
    def node(self):
        return ray.get_runtime_context().get_node_id()
halves = [Half.remote() for _ in range(2)]
print("up on", len(set(ray.get([half.node.remote() for half in halves]))), "nodes", flush=True)
while not os.path.exists("go"):
    time.sleep(0.1)
print("still on", len(set(ray.get([half.node.remote() for half in halves]))), "nodes", flush=True)
"""

# Requests that Ray 2.60 answers without a token: health checks, authentication mode, connections.
PUBLIC = {
    "GET /", "GET /-/healthz", "GET /api/authentication_mode", "GET /api/gcs_healthz", "GET /api/healthz",
    "GET /api/local_raylet_healthz",
}  # fmt: skip
PUBLIC_SERVICES = ("/grpc.health.", "/grpc.reflection.", "/grpc.channelz.")

# Runs as root on a node: lists the processes in a job's container, and all listening sockets.
LISTENERS = r"""
first=$(pgrep -fx "python3 -I /tmp/ray-$1-[0-9a-f]*/agent container .*")
for process in /proc/[0-9]*; do
	[[ $(readlink "$process/ns/mnt") != "$(readlink "/proc/$first/ns/mnt")" ]] || echo "${process#/proc/}"
done
ss -Hlntup
"""

# Runs as the job's user on a node: lists its folder, processes and container.
LEFTOVERS = r"""
ls -d "/tmp/ray-$1-"*
pgrep -af "[r]ay-$1-[0-9a-f]*/"
"$2" container inspect --format '{{.Name}}' "slurmray-$1-$3"
"""

# Runs as another user on a node: lists readable files that contain a line of standard input.
SEARCH = r"""
folder=$1 job=$2
ls "/tmp/ray-$job-"*/ && echo "the folder of the job can be read"
for pid in $(pgrep -u alice); do
	[[ ! -e /proc/$pid/root/tmp ]] || echo "the files of process $pid can be read"
	head -c 1 "/proc/$pid/environ" && echo "the environment of process $pid can be read"
done
ps -eo args >"$HOME/seen"
scontrol show job --details "${job%-*}" >>"$HOME/seen"
scontrol write batch_script "${job%-*}" - >>"$HOME/seen"
podman ps --all --external >>"$HOME/seen"
folders=(/tmp /run /var/tmp /var/log /var/spool /dev/shm "$folder")
timeout 60 grep -rslFf - -D skip "$HOME/seen" "${folders[@]}" /proc/[0-9]*/cmdline
true
"""

# Runs as root on a node: ends a job's controller and node agent, while its container process hangs.
CRASH = r"""
pkill -STOP -f "^[^ ]*python3 -I /tmp/ray-$1-0-[0-9a-f]*/agent container " || exit
mapfile -t pids < <(
	for pid in $(pgrep -f '^[^ ]*python3 -I -S -c '); do
		! grep -qzx "SLURM_JOB_ID=$1" "/proc/$pid/environ" || echo "$pid"
	done
)
kill -STOP "${pids[@]}" && kill -KILL "${pids[@]}"
"""

# Runs as another user on a node: makes folder, link and container in the name of a job.
DECOYS = r"""
mkdir "/tmp/ray-$1-0-abcdef" && touch "/tmp/ray-$1-0-abcdef/file" && ln -s "$2" "/tmp/ray-$1-0-fedcba" &&
	podman create --name decoy --label "slurmray.job=$1" --label slurmray.user=alice "$3" true
"""


@dataclass
class Running:
    """A job whose trainer runs."""

    jobs: Jobs
    number: int
    runtime: str

    @property
    def name(self) -> str:
        """JOBID-ATTEMPT, which is part of the names of the job's folders and containers."""
        return f"{self.number}-0"

    @property
    def token(self) -> str:
        """The job's token, from a file that the trainer has written."""
        return (self.jobs.folder / "token").read_text()

    def listeners(self, node: str) -> list[tuple[str, int]]:
        """(address, port) of the listening sockets of the job's container."""
        done = self.jobs.cluster.run(["bash", "-c", LISTENERS, "listeners", self.name], host=node)
        pids = set(re.findall(r"^\d+$", done.stdout, re.MULTILINE))
        found = []
        for line in done.stdout.splitlines():
            if pids & set(re.findall(r"pid=(\d+)", line)):
                address, _, port = line.split()[4].rpartition(":")
                found.append((address, int(port)))
        assert found, done
        return found

    def leftovers(self) -> str:
        """Its folders, processes and containers on the nodes."""
        argv = ["bash", "-c", LEFTOVERS, "leftovers", self.name, self.runtime]
        return "".join(
            self.jobs.cluster.run([*argv, node], self.jobs.user, node).stdout.strip() for node in NODES
        )


@pytest.fixture
def podman_users(podman_cluster: SlurmCluster, archive: Path) -> SlurmCluster:
    """Hosts on which bob has the image, too."""
    rootless.load_for_user(podman_cluster, archive, slurm_conf.USERS[1], print)
    return podman_cluster


@pytest.fixture
def alice(podman_users: SlurmCluster, folder: Path) -> Iterator[Running]:
    """A running job of alice, with Ray Client."""
    job = submit(podman_users, "podman", "alice", folder, "alice", RAY_CLIENT)
    wait_until_training(job)
    yield job
    podman_users.run(["scancel", str(job.number)])
    job.jobs.wait_end(job.number)


def submit(
    cluster: SlurmCluster, runtime: str, user: str, parent: Path, name: str, more: str = ""
) -> Running:
    folder = parent / name
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "trainer.py").write_text(TRAINER)
    jobs = Jobs(cluster, folder, user)
    args = [f"--export=ALL,SECRET={SECRET}", "--nodelist=node[1-2]"]
    return Running(jobs, jobs.submit(HALF + more, ["python3", "trainer.py"], args), runtime)


def wait_until_training(job: Running) -> None:
    job.jobs.wait_for(job.number, "\nup on 2 nodes\n")


@pytest.mark.parametrize(
    ("runtime", "users", "end"),
    [
        ("podman", ("alice", "bob"), "scancel"),
        ("docker", ("alice", "bob"), "exit"),
        ("podman", ("root", "root"), "exit"),
        ("podman", ("alice", "alice"), "scancel"),
        ("docker", ("alice", "alice"), "scancel"),
    ],
)
@pytest.mark.full
def test_two_jobs_share_only_nodes(
    request: pytest.FixtureRequest, folder: Path, runtime: str, users: tuple[str, str], end: str
) -> None:
    cluster: SlurmCluster = request.getfixturevalue(
        "podman_users" if runtime == "podman" else "docker_cluster"
    )
    pair = [submit(cluster, runtime, user, folder, f"job-{index}") for index, user in enumerate(users)]
    for job in pair:
        wait_until_training(job)
    first, second = pair
    for node in NODES:
        mine, theirs = ({port for _, port in job.listeners(node)} for job in pair)
        assert not mine & theirs
    assert first.token != second.token
    assert first.leftovers()
    if end == "scancel":
        cluster.run(["scancel", str(first.number)])
    else:
        (first.jobs.folder / "go").touch()
    state, _ = cluster.wait(first.number, 60)
    assert state == {"scancel": "CANCELLED", "exit": "COMPLETED"}[end], first.jobs.log(first.number)
    wait_until(lambda: not first.leftovers(), first.leftovers, 15)
    (second.jobs.folder / "go").touch()
    ended = second.jobs.wait_end(second.number)
    assert ended.code == "0:0", ended.log
    assert "still on 2 nodes" in ended.log


@pytest.mark.attack("another user calls every procedure of Ray on every port, without the token")
@pytest.mark.parametrize("host", [pytest.param("login", marks=pytest.mark.full), "node1"])
def test_ports_reject_clients_without_the_token(alice: Running, host: str) -> None:
    ports_to_try = [
        (slurm_conf.addresses(alice.jobs.cluster.config, node)[0], port)
        for node in NODES
        for _, port in alice.listeners(node)
    ]
    local = [("127.0.0.1", port) for _, port in alice.listeners("node1")]
    for token in (None, "0" * 64):
        answer = send_requests(alice, host, ports_to_try + local * (host == "node1"), token)
        assert answer["rejected"] > 250, answer  # one worker process of each raylet has started
        assert [one for one in answer["answered"] if not is_public(one[1])] == []
        assert answer["client"] != "connected"
    # The same requests are answered with the token, so they are valid.
    _, dashboard = gcs_and_dashboard_ports(alice)
    for _ in range(3):  # on a busy machine the Ray Client server may exit during a connection
        answer = send_requests(alice, "node1", [("127.0.0.1", dashboard)], alice.token)
        if answer["client"] == "connected":
            break
    assert answer["client"] == "connected", answer
    assert [dashboard, "GET /api/jobs/", "200"] in answer["answered"]
    (alice.jobs.folder / "go").touch()
    ended = alice.jobs.wait_end(alice.number)
    assert (ended.code, "still on 2 nodes" in ended.log) == ("0:0", True), ended.log


def is_public(request: str) -> bool:
    return request in PUBLIC or request.startswith(PUBLIC_SERVICES)


def gcs_and_dashboard_ports(job: Running) -> tuple[int, int]:
    found = re.search(r"head at .*:(\d+), dashboard on port (\d+)", job.jobs.log(job.number))
    assert found
    return int(found[1]), int(found[2])


def send_requests(
    job: Running, host: str, ports_to_try: list[tuple[str, int]], token: str | None
) -> dict[str, Any]:
    """Run port_client.py as bob on a host; return its output. With the right token it calls no procedures."""
    folder = job.jobs.folder
    shutil.copy(PORT_CLIENT, folder)
    run = ["podman", "run", "--rm", "--interactive", "--network=host", f"--volume={folder}:{folder}:ro"]
    run += ["--log-driver=none", "--entrypoint=python3", DEFAULT_IMAGE, f"{folder}/{PORT_CLIENT.name}"]
    head = slurm_conf.addresses(job.jobs.cluster.config, "node1")[0]
    request = {"ports": ports_to_try, "token": token, "procedures": token != job.token}
    request["client"] = f"{head}:{CLIENT_PORT}"
    done = job.jobs.cluster.run(run, "bob", host, text=json.dumps(request), timeout=HANG)
    assert done.returncode == 0, done
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.attack("processes and files of another user's job")
@pytest.mark.parametrize("runtime", ["podman", pytest.param("docker", marks=pytest.mark.full)])
def test_another_user_of_the_node_cannot_read_secrets(
    request: pytest.FixtureRequest, folder: Path, runtime: str
) -> None:
    cluster: SlurmCluster = request.getfixturevalue(
        "podman_users" if runtime == "podman" else "docker_cluster"
    )
    job = submit(cluster, runtime, "alice", folder, "alice")
    wait_until_training(job)
    secrets = f"{job.token}\n{SECRET}\n"
    for node in NODES:
        search = ["bash", "-c", SEARCH, "search", str(folder), job.name]
        done = cluster.run(search, "bob", node, text=secrets)
        assert "can be read" not in done.stdout, done.stdout
        assert [line for line in done.stdout.splitlines() if line.startswith("/")] == []
        # The search works: alice finds her own files.
        assert f"{job.jobs.folder}/token" in cluster.run(search, "alice", node, text=secrets).stdout
        inspect = cluster.run([runtime, "inspect", f"slurmray-{job.name}-{node}"], "alice", node).stdout
        assert f"slurmray-{job.name}-{node}" in inspect
        assert not {job.token, SECRET} & set(re.findall(r"[\w-]+", inspect))
    for command in (["scancel", f"{job.number}"], ["srun", f"--jobid={job.number}", "--overlap", "true"]):
        assert cluster.run(command, "bob").returncode != 0
    (job.jobs.folder / "go").touch()
    ended = job.jobs.wait_end(job.number)
    assert ended.code == "0:0", ended.log


@pytest.mark.full
def test_unauthenticated_request_crashes_ray_s_gcs(alice: Running) -> None:
    """Ray 2.60 reads the sender's node_id before it checks the token, and crashes if there is none.

    No setting of Ray prevents that; the job ends, and its log has the cause. If this test fails, Ray has been
    fixed: update docs/inside/script.md.
    """
    head = slurm_conf.addresses(alice.jobs.cluster.config, "node1")[0]
    port, _ = gcs_and_dashboard_ports(alice)
    call = (
        f"import grpc; channel = grpc.insecure_channel('{head}:{port}')\n"
        "channel.unary_unary('/ray.rpc.syncer.RaySyncer/StartSync')(b'', timeout=10)"
    )
    started = ["bash", "-c", f"test -e /tmp/ray-{alice.name}-*/inside/{fast_start.STARTED}"]
    # Only after that file exists, `ray start` itself notices the end of the GCS.
    wait_until(lambda: alice.jobs.cluster.run(started, host="node1").returncode == 0, alice.leftovers)
    run = ["podman", "run", "--rm", "--network=host", "--log-driver=none", "--entrypoint=python3"]
    alice.jobs.cluster.run([*run, DEFAULT_IMAGE, "-c", call], "bob")
    ended = alice.jobs.wait_end(alice.number)
    assert ended.code == "71:0", ended.log
    assert ended.last_line.startswith("failed (71 node lost): node1: ray start exited with "), ended.log


@pytest.fixture
def administered(podman_users: SlurmCluster) -> Iterator[SlurmCluster]:
    """Hosts with the Prolog, the Epilog and the job_submit plugin of examples/admin."""
    conf = podman_users.run(["cat", "/etc/slurm/slurm.conf"]).stdout
    for file in ADMIN.iterdir():
        install = f"cat >/etc/slurm/{file.name} && chmod 755 /etc/slurm/{file.name}"
        assert podman_users.run(["bash", "-c", install], text=file.read_text()).returncode == 0
    more = "Prolog=/etc/slurm/prolog.sh\nEpilog=/etc/slurm/epilog.sh\nJobSubmitPlugins=lua\n"
    reconfigure(podman_users, conf + more)
    yield podman_users
    reconfigure(podman_users, conf)


def reconfigure(cluster: SlurmCluster, conf: str) -> None:
    done = cluster.run(["bash", "-c", "cat >/etc/slurm/slurm.conf && scontrol reconfigure"], text=conf)
    assert done.returncode == 0, done


@contextlib.contextmanager
def decoys(cluster: SlurmCluster, job: int, target: Path) -> Iterator[str]:
    """Folder, link and container of bob, and a link of alice, in the name of alice's job.

    target: of the links. Yields the container's id.
    """
    argv = ["bash", "-c", DECOYS, "decoys", str(job), str(target), DEFAULT_IMAGE]
    try:
        made = cluster.run(argv, "bob", "node1")
        assert made.returncode == 0, made
        link = cluster.run(["ln", "-s", str(target), f"/tmp/ray-{job}-0-aaaaaa"], "alice", "node1")
        assert link.returncode == 0, link
        yield made.stdout.strip()
    finally:
        cluster.run(["bash", "-c", f"rm -r /tmp/ray-{job}-0-*"], host="node1")
        cluster.run(["podman", "rm", "decoy"], "bob", "node1")


@pytest.mark.attack("folders, links and containers in the name of a dead job, for root's Epilog")
def test_the_epilog_removes_what_a_dead_job_left(administered: SlurmCluster, folder: Path) -> None:
    """Nothing of another job of the same user, and nothing of another user."""
    cluster = administered
    spec = "slurm: {nodes: 1, cpus_per_task: 1, mem: 1G}\ncontainer: {runtime: podman}"
    trainer = ["bash", "-c", "echo started; until [[ -e go ]]; do sleep 0.1; done"]
    pair = []
    for name in ("dead", "other"):
        (folder / name).mkdir()
        (folder / name).chmod(0o1777)
        jobs = Jobs(cluster, folder / name, "alice")
        pair.append((jobs, jobs.submit(spec, trainer, ["--nodelist=node1"])))
    for jobs, number in pair:
        jobs.wait_for(number, "\nstarted\n")
    (_, dead), (other, number) = pair
    names = f"/tmp/ray-{dead}-0-"
    listed = f"ls -d {names}*; podman ps --all --quiet --no-trunc --filter label=slurmray.job={dead}"
    with decoys(cluster, dead, other.folder) as container:
        crashed = cluster.run(["bash", "-c", CRASH, "crash", str(dead)], host="node1")
        assert crashed.returncode == 0, crashed
        assert cluster.wait(dead, HANG)[0] == "FAILED"  # once the Epilog has ended
        links = [names + end for end in ("aaaaaa", "abcdef", "fedcba")]
        assert cluster.run(["bash", "-c", listed], "alice", "node1").stdout.split() == links
        kept = cluster.run(["bash", "-c", f"ls {links[1]}; {listed}"], "bob", "node1").stdout.split()
        assert kept == ["file", *links, container]
    store = cluster.run(["stat", "--format=%U %a", "/var/lib/user-containers/1001"], host="node1")
    assert store.stdout == "alice 700\n"
    (other.folder / "go").touch()
    ended = other.wait_end(number)
    assert ended.code == "0:0", ended.log


def test_an_administrator_checks_submitted_scripts(administered: SlurmCluster, folder: Path) -> None:
    jobs = Jobs(administered, folder, "alice")
    for auth in ("none", "token"):
        file = jobs.script(f"ray: {{auth: {auth}}}")
        file.write_text(seal(file.read_text()))
        done = administered.run(["sbatch", "--parsable", "--hold", str(file)], "alice", folder=folder)
        assert (done.returncode == 0) == (auth == "token"), done
        assert ("ray.auth: 'none' is not allowed here: " in done.stderr) == (auth == "none"), done
    copy, number = folder / "copy.sh", done.stdout.strip()
    assert administered.run(["scontrol", "write", "batch_script", number, str(copy)]).returncode == 0
    verdict = verify(copy.read_text())
    assert verdict
    assert verdict.code == 0, verdict
    administered.run(["scancel", number])
    jobs.wait_end(int(number))
