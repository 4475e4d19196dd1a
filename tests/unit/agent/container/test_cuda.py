"""The check that opens each GPU, with a stand-in for the driver's library: no test has a real GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import job_errors
from slurmray.agent.container import cuda, node_context
from slurmray.rendering.part_files import PARTS
from slurmray.rendering.script import agent_text
from tests.unit.agent import containers
from tests.unit.agent.containers import Cluster, cluster, settings
from tests.unit.agent.wire_types import TO_CONTROLLER, checked

# CUDA's driver API (docs.nvidia.com/cuda/cuda-driver-api): functions, CUresult numbers and their texts. FAULT
# is a letter and a number: i100 cuInit returns 100; c999 making a context of GPU 1; b the copy; s a crash; h
# no answer; n2 the number of GPUs; m3 their compute mode.
LIBRARY = r"""
extern char *getenv(const char *); extern int atoi(const char *); extern void abort(void);
extern unsigned sleep(unsigned); extern void *malloc(unsigned long);
extern void *memcpy(void *, const void *, unsigned long);
static char kind(void) { return getenv("FAULT") ? getenv("FAULT")[0] : 0; }
static int number(void) { return atoi(getenv("FAULT") + 1); }
static void put(char *to, const char *text) { while ((*to++ = *text++)) ; }
int cuInit(unsigned f) { if (kind() == 'h') sleep(600); return kind() == 'i' ? number() : 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGetCount(int *n) { *n = kind() == 'n' ? number() : 2; return 0; }
int cuGetErrorString(int code, const char **text) {
  *text = code == 100 ? "no CUDA-capable device is detected"
        : code == 803 ? "system has unsupported display driver / cuda driver combination"
        : code == 2 ? "out of memory" : code == 999 ? "unknown error" : 0;
  return *text ? 0 : 1; }
int cuDeviceGetPCIBusId(char *to, int size, int d) { put(to, d ? "0000:07:00.0" : "0000:06:00.0"); return 0; }
int cuDeviceGetName(char *to, int size, int d) { put(to, "NVIDIA H200"); return 0; }
int cuDeviceTotalMem_v2(unsigned long *bytes, int d) { *bytes = 143771UL << 20; return 0; }
int cuDeviceGetAttribute(int *v, int which, int d) {
  *v = kind() == 'm' && which == 20 ? number() : 0; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) {
  if (kind() == 's' && d) abort();
  return kind() == 'm' ? 46 : kind() == 'c' && d ? number() : 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuMemAlloc_v2(void **p, unsigned long n) { *p = malloc(n); return 0; }
int cuMemcpyHtoD_v2(void *to, void *from, unsigned long n) { memcpy(to, from, n); return 0; }
int cuMemcpyDtoH_v2(void *to, void *from, unsigned long n) {
  if (kind() != 'b') memcpy(to, from, n); return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
"""
OPENED = "GPUs opened: 2 x NVIDIA H200, 140 GiB; driver"
REPAIR = "ask the site to repair it on gpu-1; until then, leave the node out: slurm.exclude"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in for libcuda.so.1."""
    folder = tmp_path_factory.mktemp("cuda")
    source = folder / "cuda.c"
    source.write_text(LIBRARY)
    argv = ["cc", "-w", "-shared", "-fPIC", "-nostdlib", "-o", str(folder / "libcuda.so.1"), str(source)]
    subprocess.run(argv, check=True)
    return folder


def check(folder: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], **more: Any) -> Any:
    """Run the check of a node with two GPUs to its end. Return (messages, whether the start goes on)."""
    sent: list[dict[str, Any]] = []
    codes: list[int] = []
    monkeypatch.setattr(cuda, "DEVICE", "/dev/null")

    def send(_: object, message: Any) -> None:
        sent.append(checked(TO_CONTROLLER, message))

    monkeypatch.setattr(node_context.NodeContext, "send", send)
    containers.write_agent(folder)
    context = node_context.NodeContext(str(folder), "gpu-1", lambda _, code: codes.append(code))
    settings_of_job: Any = settings(container={"accelerators": ["nvidia"]}, **more)
    context.settings, context.rank, context.node_env = settings_of_job, 0, env
    context.job = containers.job()  # type: ignore[assignment]
    check = cuda.GpuCheck(context, lambda: None)
    check.on_start_ray()
    try:
        while check.is_busy:
            context.children.reap()
            if codes:
                check.child_ended(cuda.ROLE, codes[0])
            check.tick()
    except job_errors.Unfit:
        return sent, None
    return sent, check.is_open


@pytest.mark.parametrize("fault", ["", "n8", "m3"])
def test_gpus_that_work(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Also more than the job has, and those that only one process may use: no context is made then."""
    sent, is_open = check(tmp_path, monkeypatch, {"LD_LIBRARY_PATH": str(library), "FAULT": fault})
    assert is_open
    (message,) = sent
    assert message["text"].startswith(OPENED)
    assert message["text"].endswith("(CUDA 13.0)")


@pytest.mark.parametrize(
    ("fault", "found", "fix"),
    [
        ("i100", "cuInit: no CUDA-capable device is detected (100)", REPAIR),
        (
            "i803",
            "cuInit: system has unsupported display driver / cuda driver combination (803)",
            cuda.DRIVER_FIX.format(node="gpu-1"),
        ),
        ("i802", "cuInit: error (802)", cuda.FIXES[802].format(node="gpu-1")),
        ("n1", "CUDA sees 1", REPAIR),
        ("c999", "GPU 1 at 0000:07:00.0: cuDevicePrimaryCtxRetain: unknown error (999)", REPAIR),
        ("b", "GPU 0 at 0000:06:00.0: its memory returned other bytes than were written", REPAIR),
        ("s", "GPU 1 at 0000:07:00.0: exited with 134", REPAIR),
        ("h", "cuInit: no end after 1 s", REPAIR),
    ],
)
def test_gpus_that_do_not_work(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, found: str, fix: str
) -> None:
    monkeypatch.setattr(cuda, "TIMEOUT", 1.0 if fault == "h" else 60.0)
    env = {"LD_LIBRARY_PATH": str(library), "FAULT": fault}
    sent, is_open = check(tmp_path, monkeypatch, env)
    assert is_open is None
    row = {"check": "CUDA", "found": found, "wanted": "2 GPUs that it can open", "fix": fix}
    assert sent[0] == {"type": "finding", "kind": "preflight", **row}
    assert len(sent) == 1 + (fault == "b")  # which both GPUs have
    sent, is_open = check(tmp_path, monkeypatch, env, preflight="warn")
    assert (sent[0]["kind"], is_open) == ("warn", True)


def test_a_container_without_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device file alone is not enough, e.g. in a sandbox without Apptainer's environment files."""
    sent, is_open = check(tmp_path, monkeypatch, {"LD_LIBRARY_PATH": "/nowhere"})
    assert is_open is None
    text = "libcuda.so.1: cannot open shared object file: No such file or directory"
    assert (sent[0]["found"], sent[0]["fix"]) == (text, cuda.LIBRARY_FIX)


def test_gpu_memory_in_use_is_a_warning(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service of the job may already use it."""
    sent, is_open = check(tmp_path, monkeypatch, {"LD_LIBRARY_PATH": str(library), "FAULT": "c2"})
    assert is_open
    found = "GPU 1 at 0000:07:00.0: cuDevicePrimaryCtxRetain: out of memory (2)"
    assert (sent[0]["kind"], sent[0]["found"]) == ("warn", found)


@pytest.mark.parametrize("more", [{"preflight": "none"}, {"groups": [containers.group(1, 0)]}])
def test_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
    assert check(tmp_path, monkeypatch, {"LD_LIBRARY_PATH": "/nowhere"}, **more) == ([], True)


def start(made: Cluster, library: Path, fault: str) -> None:
    env = {"LD_LIBRARY_PATH": str(library), "FAULT": fault}
    command = [sys.executable, "-c", "print('trained')"]
    made.start(settings(container={"accelerators": ["nvidia"]}, env=env, trainer={"command": command}))


def with_device(monkeypatch: pytest.MonkeyPatch, timeout: str = "") -> None:
    changed = agent_text(PARTS).replace('"/dev/nvidiactl"', '"/dev/null"')
    monkeypatch.setattr(
        containers, "agent_text", lambda _: changed.replace("TIMEOUT = 60.0", timeout or "TIMEOUT = 60.0")
    )


def test_the_trainer_starts_with_opened_gpus(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_device(monkeypatch)
    with cluster(tmp_path, "gpu-1", "gpu-2") as made:
        start(made, library, "")
        assert made.run_until("exit")["code"] == 0
        for node in made.nodes:
            texts = [message.get("text", "") for message in node.received]
            assert sum(text.startswith(OPENED) for text in texts) == 1, texts


def test_no_trainer_starts_without_gpus(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the cluster is ready before the driver has failed."""
    with_device(monkeypatch, "TIMEOUT = 4.0")
    with cluster(tmp_path, "gpu-1") as made:
        start(made, library, "h")
        made.run_until("unfit")
        assert "ready" in made.head.kinds()
        assert "trainer" not in made.head.kinds()
        made.send("ready")
        made.send("check_health")
        made.run_until("healthy")
        assert "trainer" not in made.head.kinds()
