"""Who wins where two layers set the same variable, as the programs of a job see it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.containers import RAY, TIMEOUT, cluster, group, job, settings

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
    "PYTHONUNBUFFERED", "USER", "IN_FILE",
) | {"HOME": "/no/such/folder"}  # fmt: skip
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
SERVICE_ENV = of_layer("service", "SLURM_JOB_NAME", "ON_NODE")


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
     everywhere("ray", "trainer", "ray-job", "prepare", "attach", "setup", value="node_env")),
    ("node_env", "GPUs of services", "CUDA_VISIBLE_DEVICES",
     everywhere("ray", "attach", "prepare", "prepare-with-ray", "trainer", "ray-job", value="0,1")
     | {"early": "2", "ready": "2", "outside": "", "setup": "node_env"}),
    ("GPUs of services", "env of a service", "CUDA_VISIBLE_DEVICES", {"masked": "service"}),
    ("node_env", "no other Ray", "RAY_JOB_HEADERS",
     everywhere(*IN_CONTAINER, value=None) | {"setup": "node_env", "outside": "node_env"}),
    ("node_env", "token", "RAY_AUTH_MODE", everywhere(*IN_CONTAINER, value="token") | {"setup": "node_env"}),
    ("node_env", "no_proxy", "no_proxy", everywhere("ray", "attach", "trainer", value="NO_PROXY")),
    ("no_proxy", "preset", "NO_PROXY", everywhere("ray", "attach", "trainer", "ray-job", value="0")),
    ("token", "preset", "RAY_AUTH_TOKEN_PATH", everywhere("ray", "attach", "trainer", value="127.0.0.1")),
    ("env_file", "preset", "P", everywhere("ray", "attach", "trainer", "prepare-with-ray", value="0")),
    ("node_env", "preset", "Q", everywhere("ray", "attach", "trainer", "prepare-with-ray", value="1")),
    ("node_env", "facts about the job", "NODE_RANK", everywhere(*OF_JOB, value="0") | {"ray": "node_env"}),
    ("node_env", "facts about the job", "GPUS_PER_NODE", everywhere(*OF_JOB, value="2")),
    ("preset", "facts about the job", "NNODES", everywhere("prepare-with-ray", value="7")),
    ("facts about the job", "preset", "NNODES", everywhere("trainer", "ray-job", value="1")),
    ("facts about the job", "env of a service", "SLURM_JOB_NAME",
     everywhere("masked", "outside", value="service") | {"trainer": "my job"}),
    ("node_env", "env of a service", "ON_NODE", everywhere("masked", "outside", value="service")),
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

    def argv(program: str, then: str = "") -> list[str]:
        return ["bash", "-c", dump(program) + then]

    step = {"where": "head", "once": False}
    service = {"where": "all", "host": False, "needs_ray": False, "env": {}, "gpus": 0, "restarts": 0}
    service |= {"on_end": "fail"}
    wait = "; exec sleep 600"
    spec = settings(
        groups=[group(1, 3)],
        container={"setup": dump("setup")},
        ray={"metrics": True},
        env=ENV,
        preset_env=PRESET,
        prepare=[
            {"name": "a", "run": argv("prepare"), "needs_ray": False, **step},
            {"name": "b", "run": argv("prepare-with-ray"), "needs_ray": True, **step},
        ],
        services=[
            {**service, "name": "early", "gpus": 1, "run": argv("early", wait)},
            {**service, "name": "masked", "run": argv("masked", wait)},
            {**service, "name": "late", "needs_ray": True, "run": argv("late", wait)},
            {**service, "name": "outside", "image": "x", "run": argv("outside"), "env": SERVICE_ENV},
        ],
        trainer={"nnodes": 7, "launch": launch, "runtime_env": {}, "command": argv("trainer")},
    )
    spec["services"][0]["ready"] = {"run": argv("ready"), "timeout": 60}
    spec["services"][1]["env"] = {**SERVICE_ENV, "CUDA_VISIBLE_DEVICES": "service"}
    with cluster(folder, ray__scripts__scripts=RAY_THAT_DUMPS) as made:
        made.env |= {**IMAGE, "DUMPS": str(dumps)}
        of_node = {"env_file": ENV_FILE, "node_env": NODE_ENV, "gpu_masks": {}}
        if launch == "ray-job":
            write_client(folder / "lib")
            made.env["HOW"] = ""
            spec["container"]["workdir"] = str(folder / "job-gpu-1")
        made.start(spec, job(env=OF_SUBMITTER), variables={"gpu-1": of_node})
        assert made.run_until("exit")["code"] == 0
        inside = made.head.folder
        script = ["/bin/sh", str(inside / "begin-outside"), "/"]
        empty = {"PATH": os.environ["PATH"]}
        with subprocess.Popen(script, stdin=subprocess.PIPE, start_new_session=True, env=empty) as outside:
            assert outside.wait(TIMEOUT) == 0
        subprocess.run([inside / "attach", *argv("attach")], env=empty, check=True)
        programs = [
            "setup",
            "ray",
            "attach",
            "prepare",
            "prepare-with-ray",
            "early",
            "masked",
            "late",
            "ready",
        ]
        programs += ["outside", "trainer"]
        deadline = time.monotonic() + TIMEOUT
        while not all((dumps / program).exists() for program in programs):
            assert time.monotonic() < deadline, [path.name for path in dumps.iterdir()]
            time.sleep(0.05)
        if launch == "ray-job":
            programs.append("ray-job")
            command = f". {inside}/ray-job.sh >{os.devnull}; {dump('ray-job')}"
            subprocess.run(["bash", "-c", command], env=read(dumps / "ray"), check=True)
        found = {program: read(dumps / program) for program in programs}
        gcs = next(each["text"] for each in made.head.received if each.get("text", "").startswith("head at"))
    found["known"] = {"FOLDER": str(inside), "GCS": gcs.split()[2].rstrip(",")}
    found["known"]["NO_PROXY"] = "node_env,localhost,127.0.0.1,::1,gpu-1"
    return found


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
