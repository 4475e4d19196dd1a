"""Who wins where two layers set the same variable, as the programs of a job see it; and single layers.

tests/cluster shows that Ray accepts them.
"""

from __future__ import annotations

import ipaddress
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.container import node_context, ports, variables
from slurmray.agent.container.ray import start
from slurmray.agent.inherited import FOREIGN
from slurmray.errors import SpecError
from slurmray.spec.job_spec import JobSpec
from tests.unit.agent.containers import RAY, TIMEOUT, cluster, group, job, prepare, service, settings

from ..waiting import wait_until
from .ray.test_command import NEW, OLD, PORTS, start_argv
from .test_ray_job import write_client

DUMP_RAY = """
import os
def dump():
    path = os.environ["DUMPS"] + "/ray"
    with open(path + ".new", "wb") as file:
        file.write(b"\\0".join(name + b"=" + value for name, value in os.environb.items()))
    os.rename(path + ".new", path)
"""
RAY_THAT_DUMPS = DUMP_RAY + RAY["ray/scripts/scripts.py"].replace(
    "\ndef main():\n", "\ndef main():\n    dump()\n"
)


def of_layer(layer: str, *names: str) -> dict[str, str]:
    """Variables whose value is the name of the layer that sets them."""
    return dict.fromkeys(names, layer)


IMAGE = of_layer(
    "image",
    "SERVICE_EARLY_HOSTS", "RAY_gcs_rpc_server_connect_timeout_s", "VLLM_HOST_IP", "DASHBOARD_METRIC_PORT",
    "PYTHONUNBUFFERED", "USER", "IN_FILE", "ZE_AFFINITY_MASK", "HIP_VISIBLE_DEVICES",
) | {"HOME": "/no/such/folder"}  # fmt: skip
GPU_MASKS = {"ZE_AFFINITY_MASK": "Slurm", "ROCR_VISIBLE_DEVICES": "4,5,6"}
ENV_FILE = of_layer("env_file", "IN_FILE", "IN_ENV", "LOGNAME", "RAY_USAGE_STATS_ENABLED", "P")
ENV = of_layer("env", "IN_ENV", "OF_SUBMITTER") | {"http_proxy": "http://proxy", "RAY_TMPDIR": "/of/env"}
OF_SUBMITTER = of_layer("submitter", "OF_SUBMITTER", "ON_NODE")
NODE_ENV = of_layer(
    "node_env",
    "ON_NODE", "CUDA_VISIBLE_DEVICES", "RAY_JOB_HEADERS", "RAY_ADDRESS", "RAY_AUTH_MODE", "no_proxy",
    "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "SLURM_JOB_NAME", "Q",
)  # fmt: skip
PRESET = {"P": "rank", "Q": "nodes", "NO_PROXY": "rank", "NNODES": "nodes", "MASTER_PORT": "rank",
          "RAY_AUTH_TOKEN_PATH": "head"}  # fmt: skip
SERVICE_ENV = of_layer("service", "SLURM_JOB_NAME", "MASTER_ADDR")


def everywhere(*programs: str, value: str | None) -> dict[str, str | None]:
    return dict.fromkeys(programs, value)


IN_CONTAINER = (
    "ray",
    "attach",
    "prepare",
    "prepare-with-ray",
    "early",
    "ready",
    "masked",
    "trainer",
    "ray-job",
)
OF_JOB = ("prepare", "prepare-with-ray", "early", "ready", "trainer", "ray-job", "outside")
# The layers, the lower one first; a variable that both set, or the higher one removes; its value.
WINNERS: list[tuple[str, str, str, dict[str, str | None]]] = [
    ("addresses of services", "image", "SERVICE_EARLY_HOSTS",
     everywhere("trainer", "ray-job", value="image")),
    ("timeouts of `ray start`", "image", "RAY_gcs_rpc_server_connect_timeout_s", {"ray": "image"}),
    ("network", "image", "VLLM_HOST_IP", everywhere("ray", "trainer", value="image")),
    ("ports of metrics", "image", "DASHBOARD_METRIC_PORT", everywhere("ray", "trainer", value="image")),
    ("image", "defaults for Ray", "PYTHONUNBUFFERED",
     everywhere(*IN_CONTAINER, value="1") | {"setup": "image"}),
    ("image", "Slurm's GPU masks", "ZE_AFFINITY_MASK", everywhere(*IN_CONTAINER, "setup", value="Slurm")),
    ("image", "Slurm's GPU masks", "HIP_VISIBLE_DEVICES", everywhere(*IN_CONTAINER, "setup", value=None)),
    ("Slurm's GPU masks", "a mask for NVIDIA's GPUs", "ROCR_VISIBLE_DEVICES",
     everywhere(*IN_CONTAINER, value=None) | {"setup": "4,5,6"}),
    ("image", "user", "USER", everywhere(*IN_CONTAINER, "setup", value="alice")),
    ("image", "home", "HOME", everywhere(*IN_CONTAINER, "setup", value="FOLDER")),
    ("image", "env_file", "IN_FILE", everywhere(*IN_CONTAINER, "setup", value="env_file")),
    ("defaults for Ray", "env_file", "RAY_USAGE_STATS_ENABLED", everywhere(*IN_CONTAINER, value="env_file")),
    ("user", "env_file", "LOGNAME", everywhere(*IN_CONTAINER, "setup", value="env_file")),
    ("env_file", "env", "IN_ENV", everywhere(*IN_CONTAINER, "setup", "outside", value="env")),
    ("defaults for Ray", "env", "RAY_TMPDIR", everywhere(*IN_CONTAINER, value="/of/env")),
    ("env", "the submitter's", "OF_SUBMITTER",
     everywhere(*IN_CONTAINER, "setup", "outside", value="submitter")),
    ("the submitter's", "node_env", "ON_NODE",
     everywhere(*IN_CONTAINER, "setup", "outside", value="node_env")),
    ("node_env", "GPUs of services", "CUDA_VISIBLE_DEVICES",
     everywhere("ray", "attach", "prepare", "prepare-with-ray", "trainer", "ray-job", value="4,5")
     | {"early": "6", "ready": "6", "outside": "", "setup": "node_env"}),
    ("GPUs of services", "env of a service", "CUDA_VISIBLE_DEVICES", {"masked": "service"}),
    ("node_env", "no other Ray", "RAY_JOB_HEADERS",
     everywhere(*IN_CONTAINER, "outside", value=None) | {"setup": "node_env"}),
    ("node_env", "token", "RAY_AUTH_MODE", everywhere(*IN_CONTAINER, value="token") | {"setup": "node_env"}),
    ("node_env", "no_proxy", "no_proxy", everywhere("ray", "attach", "trainer", value="NO_PROXY")),
    ("no_proxy", "preset", "NO_PROXY", everywhere("ray", "attach", "trainer", "ray-job", value="0")),
    ("token", "preset", "RAY_AUTH_TOKEN_PATH", everywhere("ray", "attach", "trainer", value="127.0.0.1")),
    ("env_file", "preset", "P", everywhere("ray", "attach", "trainer", "prepare-with-ray", value="0")),
    ("node_env", "preset", "Q", everywhere("ray", "attach", "trainer", "prepare-with-ray", value="1")),
    ("node_env", "facts about the job", "NODE_RANK", everywhere(*OF_JOB, value="0") | {"ray": "node_env"}),
    ("node_env", "facts about the job", "GPUS_PER_NODE", everywhere(*OF_JOB, value="2")),
    ("preset", "facts about the job", "NNODES", everywhere("prepare-with-ray", "late", value="7")),
    ("facts about the job", "preset", "NNODES", everywhere("trainer", "ray-job", value="1")),
    ("facts about the job", "env of a service", "SLURM_JOB_NAME",
     everywhere("masked", "outside", value="service") | {"trainer": "my job"}),
    ("node_env", "env of a service", "MASTER_ADDR", everywhere("masked", "outside", value="service")),
    ("no other Ray", "the cluster's address", "RAY_ADDRESS",
     everywhere("trainer", "ray-job", "prepare-with-ray", "late", "attach", value="GCS")
     | everywhere("ray", "prepare", "early", value=None)),
    ("node_env", "addresses of the head node", "MASTER_ADDR",
     everywhere("trainer", "ray-job", value="127.0.0.1")
     | {"ray": "node_env", "prepare-with-ray": "node_env"}),
    ("addresses of the head node", "preset", "MASTER_PORT", everywhere("trainer", "ray-job", value="0")),
]  # fmt: skip


def read(path: Path) -> dict[str, str]:
    pairs = path.read_text().rstrip("\0").split("\0")
    return dict(pair.partition("=")[::2] for pair in pairs)


def run_job(folder: Path, launch: str) -> dict[str, dict[str, str]]:
    """Run a job with programs of each kind. Return the environment of each."""
    dumps = folder / "dumps"
    dumps.mkdir()

    def dump(program: str) -> str:
        return f"env -0 >{dumps}/{program}.new; mv {dumps}/{program}.new {dumps}/{program}"

    def argv(program: str) -> list[str]:
        return ["bash", "-c", dump(program)]

    wait = "; exec sleep 600"
    spec = settings(
        groups=[group(1, 3)],
        container={"setup": dump("setup")},
        ray={"metrics": True},
        env=ENV,
        preset_env=PRESET,
        prepare=[
            prepare("a", dump("prepare")),
            prepare("b", dump("prepare-with-ray"), needs_ray=True),
        ],
        services=[
            service("early", dump("early") + wait, gpus=1, ready={"run": argv("ready")}),
            service("masked", dump("masked") + wait, env={**SERVICE_ENV, "CUDA_VISIBLE_DEVICES": "service"}),
            service("late", dump("late") + wait, needs_ray=True),
            service("outside", dump("outside"), image="x", env=SERVICE_ENV),
        ],
        trainer={"nnodes": 7, "launch": launch, "runtime_env": {}, "command": argv("trainer")},
    )
    with cluster(folder, ray__scripts__scripts=RAY_THAT_DUMPS) as made:
        made.env |= {**IMAGE, "DUMPS": str(dumps)}
        of_node = {"env_file": ENV_FILE, "node_env": NODE_ENV, "gpu_masks": GPU_MASKS}
        if launch == "ray-job":
            write_client(folder / "lib")
            made.env["HOW"] = ""
            spec["container"]["workdir"] = str(folder / "job-gpu-1")
        assert made.exit_code(spec, job(env=OF_SUBMITTER), variables={"gpu-1": of_node}) == 0
        inside = made.head.folder
        script = ["/bin/sh", str(inside / "begin-outside"), "/"]
        empty = {"PATH": os.environ["PATH"]}
        with subprocess.Popen(script, stdin=subprocess.PIPE, start_new_session=True, env=empty) as outside:
            assert outside.wait(TIMEOUT) == 0
        subprocess.run([inside / "attach", *argv("attach")], env=empty, check=True)
        programs = [*{*IN_CONTAINER, "setup", "late", "outside"} - {"ray-job"}]
        wait_until(
            lambda: all((dumps / program).exists() for program in programs), lambda: [*dumps.iterdir()]
        )
        if launch == "ray-job":
            programs.append("ray-job")
            command = f". {inside}/ray-job.sh >{os.devnull}; {dump('ray-job')}"
            subprocess.run(["bash", "-c", command], env=read(dumps / "ray"), check=True)
        environments = {program: read(dumps / program) for program in programs}
        gcs = next(
            message["text"] for message in made.head.received if message.get("text", "").startswith("head at")
        )
    environments["known"] = {"FOLDER": str(inside), "GCS": gcs.split()[2].rstrip(",")}
    environments["known"]["NO_PROXY"] = "node_env,localhost,127.0.0.1,::1,gpu-1"
    return environments


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """The environment of each program by its name, of jobs with both ways to start a trainer."""
    by_ray = run_job(tmp_path_factory.mktemp("by-ray"), "ray-job")
    yield {
        **run_job(tmp_path_factory.mktemp("job"), "exec"),
        "ray-job": by_ray["ray-job"],
        "of-ray": by_ray["known"],
    }


@pytest.mark.parametrize(("lower", "higher", "name", "expected"), WINNERS)
def test_who_wins(
    seen: dict[str, dict[str, str]], lower: str, higher: str, name: str, expected: dict[str, str | None]
) -> None:
    known = {program: seen["of-ray" if program == "ray-job" else "known"] for program in expected}
    wanted = {program: known[program].get(value or "", value) for program, value in expected.items()}
    assert {program: seen[program].get(name) for program in expected} == wanted, f"{lower} below {higher}"


def test_what_is_known_late(seen: dict[str, dict[str, Any]]) -> None:
    """Variables that nobody else sets, with the node's address; before it is chosen they are not there."""
    for program in ("ray", "attach", "prepare-with-ray", "trainer", "late"):
        assert seen[program]["GLOO_SOCKET_IFNAME"] == "lo", program
        assert int(seen[program]["AUTOSCALER_METRIC_PORT"]) > 0, program
    for program in ("setup", "prepare", "outside"):
        assert (
            not {"GLOO_SOCKET_IFNAME", "AUTOSCALER_METRIC_PORT", "Q"} & seen[program].keys() - NODE_ENV.keys()
        )
    assert seen["ray"]["RAY_agent_register_timeout_ms"] == "90000"
    assert "RAY_agent_register_timeout_ms" not in seen["trainer"]
    assert seen["trainer"]["SERVICE_LATE_HOSTS"] == "gpu-1"
    assert not any(name.startswith("SERVICE_") for name in seen["ray"].keys() - IMAGE.keys())


LOCAL = [
    (name, ipaddress.ip_address(address))
    for name, address in (("lo", "127.0.0.1"), ("eth0", "10.9.0.5"), ("eth1", "10.1.0.5"))
]


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A node with an address, and an image without variables."""
    monkeypatch.setattr(os, "environ", {})
    made = node_context.NodeContext("/tmp/r", "gpu-1", lambda *_: None)
    made.settings, made.job = settings(ray={"nodes": 2}), job(nodes=["gpu-1", "gpu-2"])  # type: ignore[assignment]
    made.rank, made.user, made.ray_version, made.token = 0, "alice", NEW, "/tmp/r/token"
    made.address, made.interfaces, made.ports, made.gcs = "10.1.0.5", LOCAL, PORTS, "10.1.0.4:6379"
    return made


def test_attempts_and_restarts(context: Any) -> None:
    """SLURMRAY_ATTEMPT goes on from the last start of the attempt before; SLURMRAY_RESTART begins again."""
    context.job.update(attempt=2, restarts_before=3, restart=1)
    values = variables.job(context)
    assert (values["SLURMRAY_ATTEMPT"], values["SLURMRAY_RESTART"]) == ("6", "1")


def test_env_cannot_set_facts_about_the_job(context: Any) -> None:
    context.job["name_for_commands"] = "7_1"
    for name in variables.job(context):
        with pytest.raises(SpecError, match=f"{name} is set by slurmray: "):
            JobSpec(env={name: "x"})


def test_the_home_folder(context: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    assert variables.user(context) == {"USER": "alice", "LOGNAME": "alice"}
    monkeypatch.setattr(os, "environ", {"HOME": "/no/such/home"})
    assert variables.user(context)["HOME"] == "/tmp/r"
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert variables.user(context)["HOME"] == "/tmp/r", "read-only in a container"
    context.runtime = "none"
    assert "HOME" not in variables.user(context), "the user's own, of a site with a read-only /home"


def test_libraries_use_the_interface_of_the_address(context: Any) -> None:
    expected = {"VLLM_HOST_IP": "10.1.0.5", "NCCL_SOCKET_IFNAME": "=eth1", "GLOO_SOCKET_IFNAME": "eth1"}
    assert variables.network(context) == expected
    context.env_file = {"NCCL_SOCKET_IFNAME": "^lo"}
    assert variables.collect(variables.RAY, context)["NCCL_SOCKET_IFNAME"] == "^lo"
    context.address = "10.9.9.9"
    assert variables.network(context) == {"VLLM_HOST_IP": "10.9.9.9"}


@pytest.mark.parametrize(
    ("names", "interface", "is_set"),
    [
        (["lo", "eth0"], "eth0", False),
        (["lo", "docker0", "eth0", "eth1"], "eth0", False),
        (["lo", "eth0", "eth1"], "eth1", True),
        (["lo", "eth0", "ib0"], "ib0", False),
        (["lo", "eth0", "ib0"], "eth0", False),
        (["lo", "docker0"], "docker0", True),
    ],
)
def test_nccl_chooses_where_it_finds_the_interface_or_infiniband(
    context: Any, names: list[str], interface: str, is_set: bool
) -> None:
    context.interfaces = [
        (name, ipaddress.ip_address(f"10.{number}.0.1")) for number, name in enumerate(names)
    ]
    context.address = f"10.{names.index(interface)}.0.1"
    values = variables.network(context)
    assert values.get("NCCL_SOCKET_IFNAME") == (f"={interface}" if is_set else None)
    assert values["GLOO_SOCKET_IFNAME"] == interface


@pytest.mark.parametrize(
    ("files", "is_set"),
    [
        ({}, False),
        ({"etc": "NCCL_DEBUG=WARN\n# NCCL_SOCKET_IFNAME=eth2\n"}, False),
        ({"etc": "NCCL_SOCKET_IFNAME=eth2\n"}, True),
        ({".nccl.conf": "NCCL_SOCKET_IFNAME=eth2\r\n"}, True),
        ({"other": "NCCL_SOCKET_IFNAME=eth2", ".nccl.conf": ""}, True),
        ({"other": "", ".nccl.conf": "NCCL_SOCKET_IFNAME=eth2\n"}, False),  # not read then
        ({"etc": "NCCL_SOCKET_IFNAME = eth2\n"}, False),
        ({".nccl.conf": " NCCL_SOCKET_IFNAME=eth2\n"}, False),
        ({".nccl.conf": "export NCCL_SOCKET_IFNAME=eth2\n"}, False),
        ({".nccl.conf": "NCCL_SOCKET_IFNAMES=eth2\nNCCL_SOCKET_IFNAME\n"}, False),
        ({".nccl.conf": "NCCL_SOCKET_IFNAME=\n", "etc": "NCCL_SOCKET_IFNAME=eth2\n"}, False),
        ({".nccl.conf": "NCCL_SOCKET_IFNAME=eth2\n", "etc": "NCCL_SOCKET_IFNAME=a\n"}, True),
        ({"etc": "NCCL_SOCKET_IFNAME=a\n"}, False),
    ],
)
def test_nccl_s_own_configuration_stays(
    context: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], is_set: bool
) -> None:
    """As seen with NCCL 2.32.3. `other` is that of NCCL_CONF_FILE."""
    for name, text in files.items():
        (tmp_path / name).write_bytes(text.encode())
    original = open
    conf = tmp_path / "etc"
    monkeypatch.setattr(
        "builtins.open", lambda path, *a, **k: original(conf if path == "/etc/nccl.conf" else path, *a, **k)
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    context.env_file = {"NCCL_CONF_FILE": str(tmp_path / "other") if "other" in files else ""}
    assert ("NCCL_SOCKET_IFNAME" not in variables.network(context)) == is_set


@pytest.mark.parametrize("proxy", ["http_proxy", "HTTPS_PROXY", "all_proxy"])
def test_nodes_are_reached_without_a_proxy(context: Any, proxy: str) -> None:
    context.node_env = {proxy: "http://proxy:3128", "NO_PROXY": "example.org,localhost"}
    values = variables.no_proxy(context)
    assert values["no_proxy"] == values["NO_PROXY"]
    assert values["no_proxy"] == "example.org,localhost,127.0.0.1,::1,10.1.0.5,10.1.0.4,gpu-1,gpu-2"
    context.node_env = {proxy: "http://proxy:3128", "no_proxy": "*"}
    assert variables.no_proxy(context)["no_proxy"] == "*"
    context.node_env = {proxy: ""}
    assert "no_proxy" not in variables.no_proxy(context)


def test_no_proxy_of_10000_nodes_fits_into_a_variable(context: Any) -> None:
    context.node_env = {"http_proxy": "x"}
    context.peers = [f"2001:db8::{number:x}" for number in range(10_000)]
    value = variables.no_proxy(context)["no_proxy"]
    assert value
    assert 99_000 < len(value) < 2**17
    own = {"10.1.0.5", "10.1.0.4", "gpu-1", "gpu-2", *variables.LOCAL_NAMES}
    assert set(value.split(",")) <= {*context.peers, *own}


def test_export_lines_for_a_shell() -> None:
    lines = variables.export_lines({"A": "it's\n$x", "B": ""}) + 'printf "%s|" "$A" "$B"'
    assert (
        subprocess.run(["sh", "-c", lines], capture_output=True, text=True, check=True).stdout == "it's\n$x||"
    )


SERVICES = [
    {"name": name, "where": "all", "gpus": count, "needs_ray": False, "env": {}}
    for name, count in (("a", 1), ("b", 2))
]


def test_gpus_of_ray_and_of_services(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    context.settings |= {"groups": [group(2, 4)], "services": SERVICES}
    assert variables.gpus_of_ray(context) == {"CUDA_VISIBLE_DEVICES": "0"}
    assert variables.gpus_of_service(context, SERVICES[1]) == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert "CUDA_VISIBLE_DEVICES" not in variables.collect(variables.GPU_CHECK, context)
    context.gpu_masks = {"CUDA_VISIBLE_DEVICES": "4,6,7,9"}
    assert variables.gpus_of_service(context, SERVICES[0]) == {"CUDA_VISIBLE_DEVICES": "6"}
    assert variables.collect(variables.GPU_CHECK, context)["CUDA_VISIBLE_DEVICES"] == "4,6,7,9"
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/kfd")
    context.gpu_masks = {}
    assert variables.gpus_of_ray(context) == {"HIP_VISIBLE_DEVICES": "0"}


@pytest.mark.parametrize(
    ("auth", "version", "is_used"), [("auto", NEW, True), ("auto", OLD, False), ("none", NEW, False)]
)
def test_when_a_token_is_used(
    context: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    auth: str,
    version: tuple[int, int],
    is_used: bool,
) -> None:
    monkeypatch.setattr(context, "send", lambda _: None)
    context.folder, context.ray_version, context.token = str(tmp_path), version, ""
    context.settings["ray"]["auth"] = auth
    start.RayProcess(context).write_token()
    assert (variables.collect(variables.RAY, context)["RAY_AUTH_MODE"] == "token") == is_used
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600] * is_used
    assert "RAY_AUTH_MODE" not in os.environ


def test_timeouts_of_ray_are_longer_than_the_probe_s(context: Any) -> None:
    context.settings["timeouts"]["ready"] = 600
    assert variables.start_timeouts(context).items() >= {
        ("RAY_raylet_start_wait_time_s", "660"),
        ("RAY_agent_register_timeout_ms", "660000"),
        ("RAY_gcs_rpc_server_connect_timeout_s", "660"),
        ("RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT", "660"),
    }


@pytest.mark.parametrize("heartbeat", [10, 25, 100])
def test_ray_s_health_checks_last_longer_than_heartbeat_timeout(context: Any, heartbeat: int) -> None:
    """Also where each of them fails at once, after which Ray waits 3 seconds."""
    context.settings["timeouts"]["heartbeat"] = heartbeat
    checks = variables.start_timeouts(context)["RAY_health_check_failure_threshold"]
    assert checks
    seconds = 3 * (int(checks) - 1)
    assert heartbeat + 6 < seconds < heartbeat + 12
    context.settings["on_node_loss"] = "continue"
    assert "RAY_health_check_failure_threshold" not in variables.start_timeouts(context)


@pytest.mark.attack("a variable of another Ray")
@pytest.mark.parametrize("name", FOREIGN)
def test_variables_of_another_ray(context: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the image or the shell, and of env_file or node_env."""
    monkeypatch.setattr(os, "environ", {name: "x"})
    assert name not in variables.collect(variables.RAY, context)
    monkeypatch.setattr(os, "environ", {})
    context.node_env = {name: "x"}
    assert name not in variables.collect(variables.RAY, context)
    service = {"env": {}, "gpus": 0, "needs_ray": True}
    assert name not in variables.collect(variables.OUTSIDE_SERVICE, context, service)


def test_metrics_are_exported_only_if_enabled(context: Any) -> None:
    off = variables.collect(variables.RAY, context)
    names = ("RAY_enable_metrics_collection", "DASHBOARD_METRIC_PORT", "AUTOSCALER_METRIC_PORT")
    assert [off[name] for name in names] == ["0", "65536", "65536"]
    context.settings["ray"]["metrics"] = True
    on = variables.collect(variables.RAY, context)
    assert names[0] not in on
    own = {int(on[name]) for name in names[1:]}
    given = {int(option.rpartition("=")[2]) for option in start_argv(None) if "-port=" in option}
    assert len(own) == 2
    assert own < set(PORTS) - given


def test_amd_s_old_mask_goes_where_ray_refuses_it(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/kfd")
    context.gpu_masks = {"ROCR_VISIBLE_DEVICES": "0,1"}
    new = variables.collect(variables.RAY, context)
    assert "ROCR_VISIBLE_DEVICES" not in new
    assert new["HIP_VISIBLE_DEVICES"] == "0,1", "or there would be no mask at all"
    context.ray_version = OLD
    assert variables.collect(variables.RAY, context)["ROCR_VISIBLE_DEVICES"] == "0,1"
    context.ray_version, context.node_env = NEW, {"ROCR_VISIBLE_DEVICES": "1"}
    assert variables.collect(variables.RAY, context)["ROCR_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize("version", [NEW, OLD])
def test_amd_s_mask_goes_on_nodes_without_amd_s_driver(
    context: Any, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]
) -> None:
    """Slurm sets all masks alike. verl's workers fail with more than one."""
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    context.ray_version = version
    context.gpu_masks = {"ROCR_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}
    values = variables.collect(variables.RAY, context)
    assert {name for name in values if "VISIBLE_DEVICES" in name} == {"CUDA_VISIBLE_DEVICES"}


@pytest.mark.attack("GPU masks of an image or a shell", inputs=1)
def test_masks_of_the_image_go(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": "7", "ZE_AFFINITY_MASK": "7"})
    for layers in (variables.SETUP, variables.RAY):
        assert not [name for name, value in variables.collect(layers, context).items() if value == "7"]


def test_addresses_in_the_trainer_s_environment(context: Any) -> None:
    context.is_ready, context.address, context.gcs = True, "fd00::5", f"[fd00::5]:{PORTS[ports.GCS]}"
    values = variables.collect((variables.ray_address, variables.master), context)
    assert values == {
        "RAY_ADDRESS": f"[fd00::5]:{PORTS[ports.GCS]}",
        "MASTER_ADDR": "fd00::5",
        "MASTER_PORT": str(PORTS[ports.MASTER]),
    }


@pytest.mark.parametrize(
    ("where", "url", "expected"),
    [
        ("head", "http://127.0.0.1:8000/x?a=127.0.0.1", ("n1", "http://n1:8000/x?a=127.0.0.1")),
        ("all", "https://localhost", ("n1,n2,n3", "https://n1")),
        ("workers", "http://[::1]:80", ("n2,n3", "http://n2:80")),
        ("workers", "http://localhost.example:80", ("n2,n3", "http://localhost.example:80")),
        ("head", None, ("n1", None)),
        (2, "http://localhost:80", ("n2,n3", "http://n2:80")),
    ],
)
def test_where_the_trainer_finds_a_service(
    context: Any, where: str | int, url: str | None, expected: tuple[str, str]
) -> None:
    item = {"name": "my-judge", "where": where, **({"ready": {"http": url, "timeout": 1}} if url else {})}
    context.settings |= {"services": [item]}
    context.settings["ray"]["nodes"], context.job["nodes"] = 3, ["n1", "n2", "n3"]
    values = dict(variables.service_addresses(context))
    assert (values.pop("SERVICE_MY_JUDGE_HOSTS"), values.pop("SERVICE_MY_JUDGE_URL", None)) == expected
    assert values == {}
