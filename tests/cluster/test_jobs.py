"""Complete jobs with Podman: a real Slurm, real containers, a real Ray."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import jsonschema
import pytest
import yaml

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .faults.case import RAY_START
from .hostile import ENVIRONMENT, STRINGS, WRITER, WRITTEN
from .jobs import Job, Jobs, wait_clean, wait_until

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/reference/events.schema.json").read_text())
TWO = "slurm: {nodes: 2, cpus_per_task: 2, mem: 1G}\n"
ONE = "slurm: {nodes: 1, cpus_per_task: 2, mem: 1G}\n"


@pytest.fixture
def jobs(podman_cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(podman_cluster, folder)


@pytest.fixture
def alice(podman_cluster: SlurmCluster, folder: Path) -> Jobs:
    """Jobs of alice, with rootless Podman."""
    return Jobs(podman_cluster, folder, "alice")


def test_built_in_check(jobs: Jobs) -> None:
    job = jobs.run((ROOT / "examples/hello.yaml").read_text().replace("nodes: 2", "nodes: 3"))
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert "3 nodes, 24 GPUs, 12 CPUs" in job.log
    assert "SLURMRAY_ACCELERATOR=none" in job.log
    assert "cpu binding" not in job.log
    for node in ("node1", "node2", "node3"):
        assert f"{node}: a task ran on {node}, 4 CPUs, 8 GPUs" in job.log
    assert job.last_line == "done: trainer exited with 0"
    assert re.search(r"head at 10\.77\.\d+\.\d+:\d+", job.log)
    names = list(dict.fromkeys(event["event"] for event in job.events if event["event"] != "dashboard"))
    assert names == ["start", "nodes", "phase", "attach", "trainer", "end"]
    phases = list(dict.fromkeys(event["phase"] for event in job.events if event["event"] == "phase"))
    assert phases == ["container", "ray", "probe"]
    for event in job.events:
        jsonschema.validate(event, SCHEMA)


@pytest.mark.parametrize(
    ("command", "code"), [("kill -KILL $$", 137), ("kill -TERM $$", 143), ("exec /no/such/program", 127)]
)
@pytest.mark.full
def test_trainer_ends_by_a_signal_or_is_missing(jobs: Jobs, command: str, code: int) -> None:
    job = jobs.run(ONE, ["bash", "-c", command])
    assert job.code == f"{code}:0", job.log


@pytest.mark.parametrize("codes", [(64, 125), (1, 255)])
@pytest.mark.full
def test_trainer_exit_codes_that_slurmray_or_podman_use_too(jobs: Jobs, codes: tuple[int, ...]) -> None:
    """64 is also an exit code of slurmray, 125 of Podman's client: the trainer's are passed on unchanged."""
    ended = jobs.run_concurrently(*[(ONE, ["bash", "-c", f"exit {code}"]) for code in codes])
    for job, code in zip(ended, codes, strict=True):
        assert (job.state, job.code) == ("FAILED", f"{code}:0"), job.log
        assert job.last_line == f"done: trainer exited with {code}"


def test_a_program_that_is_not_in_the_image(jobs: Jobs) -> None:
    job = jobs.run(ONE, ["/no/such/program"])
    assert job.code == "127:0"
    assert "slurmray: /no/such/program: No such file or directory" in job.log


@pytest.mark.parametrize("user", [pytest.param("root", marks=pytest.mark.full), "alice"])
def test_values_reach_slurm_and_the_trainer_unchanged(
    podman_cluster: SlurmCluster, folder: Path, user: str
) -> None:
    check_values_arrive(Jobs(podman_cluster, folder, user))


def check_values_arrive(jobs: Jobs) -> None:
    """Check that values arrive unchanged, and that the trainer's files belong to the submitter."""
    comment = r"""a "quoted" \ back\\slash 'single' $HOME `id` #x; end\ """
    slurm = {"comment": comment, "nodes": 2, "gpus_per_node": 4, "cpus_per_task": 2}
    spec = {"name": 'na"me \\', "slurm": slurm, "env": {**ENVIRONMENT, "SECRET": None}}
    number = jobs.submit(
        yaml.safe_dump(spec, allow_unicode=True),
        [*WRITER, *STRINGS],
        ["--export=ALL,SECRET=not-to-be-seen"],
    )
    listed = jobs.cluster.run(["squeue", "--noheader", f"--jobs={number}", "--format=%j|%k"]).stdout
    job = jobs.wait_end(number)
    assert listed == f'na"me \\|{comment}\n'
    assert job.code == "0:0", job.log
    written = jobs.folder / WRITTEN
    seen = json.loads(written.read_text(encoding="utf-8"))
    assert seen["argv"] == STRINGS
    expected = {**ENVIRONMENT, "SECRET": "not-to-be-seen"}
    expected |= {
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_NAME": str(spec["name"]),
        "SLURMRAY_RUN_DIR": str(job.run),
    }
    assert {name: seen["environment"].get(name) for name in expected} == expected
    of_slurm = {name for name in seen["environment"] if name.startswith(("SLURM_", "SLURMD_"))}
    own = of_slurm - ENVIRONMENT.keys()
    assert own == {"SLURM_JOB_ID", "SLURM_JOB_NAME"}, "render has remarks on the others"
    check_cluster_variables(seen["environment"], job.log)
    uid = {"root": 0, "alice": 1001}[jobs.user]
    assert (written.stat().st_uid, written.stat().st_gid) == (uid, uid)


def check_cluster_variables(seen: dict[str, str], log: str) -> None:
    """Check address and size of the cluster in the trainer's environment."""
    address, port = seen["RAY_ADDRESS"].rsplit(":", 1)
    assert f"head at {address}:{port}," in log
    assert (seen["NNODES"], seen["NODE_RANK"], seen["GPUS_PER_NODE"]) == ("2", "0", "4")
    assert seen["MASTER_ADDR"] == address
    assert seen["MASTER_PORT"] not in {"", port}
    assert not {"RANK", "WORLD_SIZE", "RAY_AUTH_TOKEN"} & seen.keys()


def test_token_and_secrets_cannot_be_read(podman_cluster: SlurmCluster, jobs: Jobs) -> None:
    secret = "s3cr3t-of-the-submitter"
    command = "cat $RAY_AUTH_TOKEN_PATH >token; echo up; until [[ -e go ]]; do sleep 0.1; done"
    number = jobs.submit(
        TWO + "env: {SECRET: null}", ["bash", "-c", command], [f"--export=ALL,SECRET={secret}"]
    )
    jobs.wait_for(number, "\nup\n")
    token = (jobs.folder / "token").read_text()
    assert re.fullmatch("[0-9a-f]{64}", token)
    (jobs.folder / "token").unlink()
    for host in ("node1", "node2"):
        show = f"podman inspect slurmray-{number}-0-{host}; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
        public = podman_cluster.run(["bash", "-c", show], host=host).stdout
        assert f"slurmray-{number}-0-{host}" in public
        assert token not in public
        assert secret not in public
        mode = podman_cluster.run(["bash", "-c", f"stat -c %a /tmp/ray-{number}-0-*"], host=host).stdout
        assert mode.strip() == "700"
    (jobs.folder / "go").touch()
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    for file in [path for path in jobs.folder.rglob("*") if path.is_file()]:
        text = file.read_text(errors="replace")
        assert token not in text, file
        assert secret not in text, file


# Prints its port, then each request: path and body.
WEBHOOK = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(200)
        self.end_headers()
        print(self.path, body, flush=True)
server = http.server.HTTPServer(("", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def test_notices(podman_cluster: SlurmCluster, jobs: Jobs, tmp_path: Path) -> None:
    """They reach a server on another host; nobody else learns the URL."""
    secret = "T0-secret-of-the-webhook"
    # This machine's Python, in the network namespace of the host.
    enter = ["nsenter", "-t", str(podman_cluster.pids["login"]), "-n", "setpriv", "--pdeathsig=KILL"]
    received = tmp_path / "received"
    with (
        received.open("w") as out,
        subprocess.Popen([*enter, sys.executable, "-c", WEBHOOK], stdout=out) as hook,
    ):
        try:
            wait_until(lambda: "\n" in received.read_text(), received.read_text)
            url = f"http://login:{received.read_text().strip()}/{secret}"
            command = "env; echo up; until [[ -e go ]]; do sleep 0.1; done; exit 3"
            spec = TWO + "name: verl\nnotify: {url: env:HOOK}\nsetup: env >setup-$SLURMD_NODENAME\n"
            number = jobs.submit(spec, ["bash", "-c", command], [f"--export=ALL,HOOK={url}"])
            jobs.wait_for(number, "\nup\n")
            for host in ("node1", "node2"):
                processes = podman_cluster.run(["ps", "-eo", "args"], host=host).stdout
                assert "ray" in processes
                assert secret not in processes
            (jobs.folder / "go").touch()
            job = jobs.wait_end(number)
        finally:
            hook.kill()
    assert job.code == "3:0", job.log
    _, *posts = received.read_text().splitlines()
    paths, notices = zip(*(post.split(" ", 1) for post in posts), strict=True)
    assert set(paths) == {f"/{secret}"}
    first, last = map(json.loads, notices)
    assert first["text"] == f"job {number} verl: the trainer starts on 2 nodes, node[1-2]"
    assert (last["event"], last["exit_code"], last["job"]) == ("end", 3, str(number))
    files = [path for path in jobs.folder.rglob("*") if path.is_file()]
    assert {"events.jsonl", "generated.sh", "setup-node2"} <= {path.name for path in files}
    assert [path for path in files if secret in path.read_text(errors="replace")] == []


@pytest.mark.full
def test_client_without_the_token_is_rejected(jobs: Jobs) -> None:
    look = "python3 -c 'import ray; ray.init(logging_level=40); print(6 * 7, len(ray.nodes()))'"
    job = jobs.run(ONE, ["bash", "-c", f"{look}; RAY_AUTH_MODE=disabled timeout 8 {look}; echo second: $?"])
    assert job.log.count("42 1\n") == 1, job.log
    assert "InvalidAuthToken" in job.log
    assert re.search("second: (1|124)", job.log)


@pytest.mark.full
def test_a_worker_that_never_comes_up(jobs: Jobs) -> None:
    job = jobs.run("""
slurm: {nodes: 3, cpus_per_task: 1}
ray: {ready_timeout: 8}
setup: |
  if [[ $SLURMD_NODENAME == node3 && -n ${SLURM_STEP_ID:-} ]]; then echo stuck on purpose; sleep 600; fi
run: [echo, trainer was started]
""")
    assert (job.state, job.code) == ("FAILED", "68:0"), job.log
    assert "preflight: waiting for node3\n" in job.log
    assert "not ready: node3 has not been checked: its setup still runs\n" in job.log
    assert "stuck on purpose" in job.log
    assert "trainer: " not in job.log
    text = "failed (68 probe): node1: cluster not ready, and no progress on any node for 23 s"
    assert job.last_line == text + "; setup still runs on node3"


@pytest.mark.full
def test_a_worker_whose_ray_hangs(podman_cluster: SlurmCluster, jobs: Jobs) -> None:
    number = jobs.submit(TWO + "ray: {ready_timeout: 20}", ["echo", "trained"])
    stop = f'until pkill -STOP -f "{RAY_START}"; do sleep 0.1; done'
    assert (
        podman_cluster.run(["bash", "-c", stop], host="node2").returncode == 0
    )  # it is waiting for the head node
    job = jobs.wait_end(number)
    assert (job.state, job.code) == ("FAILED", "68:0"), job.log
    text = "failed (68 probe): node1: cluster not ready after 20 s: 1 of 2 nodes joined, missing node2. "
    assert job.last_line.startswith(text), job.log
    assert job.log.count("not ready: ") == job.log.count("not ready: node2 has not joined\n") == 1, job.log
    _, _, shown = job.log.partition(f"last lines of {job.run}/logs/node2.log:\n")
    assert "ray start --block --node-name=node2 " in shown, job.log
    assert "trained" not in job.log


@pytest.mark.full
def test_local_image_is_preferred_for_a_short_name(podman_cluster: SlurmCluster, jobs: Jobs) -> None:
    for host in ("node1", "node2", "node3"):
        podman_cluster.run(
            ["podman", "tag", "docker.io/rayproject/ray:2.60.0-py311", "localhost/mine:1"], host=host
        )
    job = jobs.run(ONE + "container: {image: 'mine:1'}", ["true"])
    assert job.code == "0:0", job.log
    job = jobs.run(ONE + "container: {image: 'other:1'}", ["true"])
    assert "podman pull docker.io/library/other:1" in job.log
    assert job.code == "66:0"


def test_missing_mount_source(jobs: Jobs) -> None:
    job = jobs.run(ONE + "container: {mounts: ['/no/such/folder:/data']}", ["true"])
    assert job.code == "65:0"
    assert "node1: mount: /no/such/folder: no such file or directory; create it" in job.last_line


def test_mounts_workdir_and_limits_reach_the_container(jobs: Jobs) -> None:
    (jobs.folder / 'da,t"a').mkdir()
    (jobs.folder / 'da,t"a' / "file").write_text("inside")
    spec = ONE + yaml.safe_dump(
        {
            "container": {
                "mounts": ['da,t"a:/data:ro'],
                "workdir": "/data",
                "shm_size": "64m",
                "ulimits": ["nofile=4096:5000", "nproc=30000:30000"],
                "args": ["--env", "HANDED=it's $HOME  through"],
            }
        }
    )
    look = (
        "echo $(cat file), $(df --output=size /dev/shm | tail -n 1) KiB, $(ulimit -Hn) files, $(touch x 2>&1)"
        '; echo "$HANDED"'
    )
    job = jobs.run(spec, ["bash", "-c", look])
    assert "\nit's $HOME  through\n" in job.log, job.log
    assert "inside, 65536 KiB, 5000 files, touch: cannot touch 'x': Read-only file system" in job.log, job.log


def test_port_is_taken(jobs: Jobs) -> None:
    job = jobs.run(ONE + "ray: {port: 6818}", ["true"])  # slurmd's own
    assert job.code == "67:0"
    text = "port 6818 is taken on this node. Set ray.port to auto or to another port"
    assert job.last_line == f"failed (67 bring up): node1: {text}"


@pytest.mark.parametrize(
    "moment",
    ["container: ", *(pytest.param(each, marks=pytest.mark.full) for each in ("probe: ", "\nstarted\n"))],
)
def test_scancel(podman_cluster: SlurmCluster, jobs: Jobs, moment: str) -> None:
    trainer = (
        "trap 'echo saving; sleep 1; echo saved; exit 3' TERM; echo started; while :; do sleep 0.1; done"
    )
    number = jobs.submit(TWO, ["bash", "-c", trainer])
    jobs.wait_for(number, moment)
    podman_cluster.run(["scancel", str(number)])
    job = jobs.wait_end(number)
    assert job.state == "CANCELLED"
    assert ("saved" in job.log.split("started\n")[-1]) == (moment == "\nstarted\n"), job.log


def ray_logs(job: Job) -> dict[str, list[str]]:
    """Names of Ray's logs in the run directory, by node."""
    found = {}
    for path in sorted(job.run.glob("logs/*.tar.gz")):
        assert path.stat().st_mode & 0o777 == 0o600
        with tarfile.open(path) as archive:
            found[path.name.removesuffix("-ray.tar.gz")] = archive.getnames()
    return found


def test_ray_s_logs_after_a_failure(jobs: Jobs) -> None:
    job = jobs.run(TWO, ["bash", "-c", "exit 3"])
    assert job.code == "3:0", job.log
    logs = ray_logs(job)
    assert list(logs) == ["node1", "node2"], job.log
    assert {"gcs_server.out", "raylet.out"} <= set(logs["node1"])
    assert "raylet.out" in logs["node2"]
    assert f"end: Ray's logs of each node are in {job.run}/logs\n" in job.log
    assert job.last_line == "done: trainer exited with 3"


@pytest.mark.full
def test_ray_s_logs_after_success(jobs: Jobs) -> None:
    job = jobs.run(TWO, ["true"])
    assert job.code == "0:0", job.log
    assert ray_logs(job) == {}
    job = jobs.run(TWO + "ray: {keep_logs: always}", ["true"])
    assert list(ray_logs(job)) == ["node1", "node2"], job.log
    job = jobs.run(TWO + "ray: {keep_logs: never}", ["false"])
    assert ray_logs(job) == {}


@pytest.mark.full
def test_ray_s_logs_after_scancel(jobs: Jobs) -> None:
    number = jobs.submit(TWO, ["bash", "-c", "echo started; sleep 600"])
    jobs.wait_for(number, "\nstarted\n")
    jobs.cluster.run(["scancel", str(number)])
    job = jobs.wait_end(number)
    assert list(ray_logs(job)) == ["node1", "node2"], job.log


def test_an_array(jobs: Jobs) -> None:
    """Each task has its own cluster, run directory and end."""
    trainer = "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID >task-$SLURM_JOB_ID; "
    trainer += "exit $((SLURM_ARRAY_TASK_ID * 5))"
    spec = "slurm: {nodes: 1, cpus_per_task: 1, mem: 500M, array: 0-1%2}\n"
    array = jobs.submit(spec, ["bash", "-c", trainer])
    logs = [jobs.folder / f"slurm-{array}_{task}.out" for task in range(2)]
    ends = ["done: trainer exited with 0", "done: trainer exited with 5"]

    def text() -> str:
        return "".join(log.read_text() for log in logs if log.exists())

    wait_until(lambda: text().count("] done: ") == 2, text)
    wait_clean(jobs.cluster)
    assert [log.read_text().splitlines()[-1].split("] ", 1)[-1] for log in logs] == ends
    tasks = [path.read_text() for path in jobs.folder.glob("task-*")]
    assert sorted(tasks) == [f"{array} {task}\n" for task in range(2)]
    assert len(list((jobs.folder / "slurmray-runs").iterdir())) == 2


SETUP = """
container:
  setup: |
    echo "installs as $(id -un) on $NODE"
    mkdir -p "$(python3 -m site --user-site)"
    cp mine.py "$(python3 -m site --user-site)"
    mkdir "$HOME/other"
    ln -s "$(command -v python3)" "$HOME/other/python3"
    export PATH=$HOME/other:$PATH
node_env: export NODE=$SLURMD_NODENAME
"""


def test_setup_in_the_container(jobs: Jobs) -> None:
    (jobs.folder / "mine.py").write_text("NUMBER = 42\n")
    look = (
        "import mine, ray, sys; ray.init(); own = sys.executable; "
        "task = ray.remote(lambda: (__import__('mine').NUMBER, __import__('sys').executable == own)); "
        "place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy; "
        "nodes = [place(node['NodeID'], soft=False) for node in ray.nodes()]; "
        "print(ray.get([task.options(scheduling_strategy=node).remote() for node in nodes]), own)"
    )
    job = jobs.run(TWO + SETUP, ["bash", "-c", 'cd /; python3 -c "$0"', look])
    assert job.code == "0:0", job.log
    assert re.search(r"\n\[\(42, True\), \(42, True\)\] /\S+/other/python3\n", job.log), job.log
    for node in ("node1", "node2"):
        assert f" on {node}\n" in (job.run / f"logs/{node}.log").read_text()


@pytest.mark.parametrize(
    ("setup", "text"),
    [
        (
            "{setup: 'echo No matching distribution >&2; exit 1'}",
            "exited with 1: No matching distribution | exit code 0 | correct it; the node's log has its "
            "output",
        ),
        pytest.param(
            "{setup: sleep 600, setup_timeout: 1}",
            "no end after 1 s | exit code 0 | raise container.setup_timeout",
            marks=pytest.mark.full,
        ),
    ],
    ids=["exit code", "timeout"],
)
def test_a_setup_in_the_container_that_fails(jobs: Jobs, setup: str, text: str) -> None:
    job = jobs.run(TWO + f"container: {setup}", ["true"])
    assert job.code == "65:0", job.log
    assert job.findings == {(node, "container.setup"): text for node in ("node1", "node2")}, job.log
