"""Samples of a node: what its GPUs do, by the programs' and the driver's own output, and a bounded file."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.node import gpu_samples, ray_targets, samples
from slurmray.agent.node.runtimes import limits

from ..fake_node import FakeNode

# Lines about an H200 under load, in the format of nvidia-smi 580.159.04 (recorded).
BUSY = "GPU-a, 100, 99824, 660.32, 1755, 61, 143771, 700.00, 0x0000000000000004, 0, 0, 16"
LOST = "Unable to determine the device handle for GPU0000:17:00.0: Unknown Error"
IDLE = "GPU-b, 0, 4, 80.11, 345, 33, 143771, 700.00, 0x0000000000000001, 0, 0, 16"


def make_node(folder: Path, nvidia_smi: str) -> FakeNode:
    node = FakeNode(folder, watch={"interval": 30}, ray={"nodes": 1, "metrics": True})
    node.gpus = ["GPU-a", "GPU-b"]
    node.program("nvidia-smi", f'echo "$1" >>"{folder}/queries"\n{nvidia_smi}')
    return node


def sample(node: FakeNode, number: int = 1) -> tuple[Any, list[dict[str, Any]]]:
    """Take samples; return the last one in short, and the file's lines."""
    sampler = samples.Sampler(node, has_own_shm=True)
    for _ in range(number):
        sampler.sample()
    lines = (node.root / "run/logs/node1.samples.jsonl").read_text().splitlines()
    return sampler.take_latest(), [*map(json.loads, lines)]


def test_gpus_of_nvidia(tmp_path: Path) -> None:
    use, (header, first, second) = sample(make_node(tmp_path, f'echo "{BUSY}"; echo "{IDLE}"'), 2)
    assert {name: use[name] for name in ("gpu", "lowest", "idlest", "gpu_memory", "power")} == {
        "gpu": 50,
        "lowest": 0,
        "idlest": 1,
        "gpu_memory": 35,
        "power": 370,
    }
    assert (use["gpus"], use["idle_gpus"], use["waiting_gpus"]) == (2, 1, 0)
    assert "slowed" not in use, "SwPowerCap is normal under load"
    assert (header["node"], header["uuids"]) == ("node1", ["GPU-a", "GPU-b"])
    rows = [dict(zip(header["columns"], row, strict=True)) for row in first["gpus"]]
    assert rows[0] == {"utilization": 100, "memory": 99824, "power": 660, "clock": 1755, "temperature": 61}
    assert [state["link_width"] for state in first["states"]] == [16, 16]
    assert "states" not in second, "nothing has changed"
    assert abs(first["time"] - time.time()) < 60


def test_a_gpu_that_waits_in_a_collective_operation(tmp_path: Path) -> None:
    waits = BUSY.replace("660.32", "152.00")
    assert sample(make_node(tmp_path, f'echo "{waits}"; echo "{IDLE}"'))[0]["waiting_gpus"] == 1
    unknown = waits.replace("700.00", "[N/A]")
    assert sample(make_node(tmp_path / "b", f'echo "{unknown}"; echo "{IDLE}"'))[0]["waiting_gpus"] == 0


def test_a_gpu_whose_hardware_lowers_its_clock(tmp_path: Path) -> None:
    hot = IDLE.replace("0x0000000000000001", "0x0000000000000048")
    use, (_, first) = sample(make_node(tmp_path, f'echo "{BUSY}"; echo "{hot}"'))
    assert use["slowed"] == 1
    assert [state["throttle"] for state in first["states"]] == [0, 0x48]


def test_fields_that_an_old_driver_does_not_know(tmp_path: Path) -> None:
    """It prints this about the first one, and exits with 2 (CoHDI/composable-resource-operator#37)."""
    node = make_node(
        tmp_path,
        """for field in clocks_event_reasons.active remapped_rows.uncorrectable; do
case $1 in *$field*) printf 'Field "%s" is not a valid field to query.\\n\\n' $field; exit 2 ;; esac
done
case $1 in *clocks_throttle_reasons.active*) echo "GPU-a, 7, 1, [N/A], 2, 3, 10, 20, 0x8, 0, 16" ;; esac
echo "GPU-b, [Unknown Error], 1, 5, 2, 3, 10, 20, 0x0, 0, 16\"""",
    )
    use, (_, first, _) = sample(node, 2)
    assert (use["gpu"], use["power"], use["slowed"]) == (7, 5, 0)
    assert first["states"][0] == {
        "memory_total": 10,
        "power_limit": 20,
        "throttle": 8,
        "ecc_errors": 0,
        "link_width": 16,
    }
    assert len((tmp_path / "queries").read_text().splitlines()) == 4, "asked once without them"


@pytest.mark.parametrize(
    ("nvidia_smi", "error"),
    [
        (  # github.com/NVIDIA/open-gpu-kernel-modules/issues/387
            f'echo "{BUSY}"; echo "{LOST}"; exit 15',
            LOST,
        ),
        ("exit 3", "nvidia-smi lists 0 of 2"),
        ("printf 'a\\033[31m\\n'; exit 9", "a [31m"),
        ("exec sleep 100", "nvidia-smi does not answer"),
        (f'echo "{BUSY}"', "nvidia-smi lists 1 of 2"),
    ],
)
def test_gpus_that_cannot_be_read(
    tmp_path: Path, nvidia_smi: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_samples, "TIMEOUT", 0.5)
    use, _ = sample(make_node(tmp_path, nvidia_smi))
    assert error in use["error"]
    assert use["error"].isprintable()
    assert use.get("gpu") == (100 if "GPU-a" in nvidia_smi else None)


def test_gpus_of_amd(tmp_path: Path) -> None:
    """Files of amdgpu, with units as in the kernel's Documentation/gpu/amdgpu."""
    node = FakeNode(tmp_path, watch={"interval": 30})
    node.gpus, node.render_nodes = [], ["renderD129"]
    device = tmp_path / "sys/class/drm/renderD129/device"
    hwmon = device / "hwmon/hwmon3"
    hwmon.mkdir(parents=True)
    for path, text in {
        device / "gpu_busy_percent": "93\n",
        device / "mem_info_vram_used": f"{8 << 30}\n",
        device / "mem_info_vram_total": f"{64 << 30}\n",
        hwmon / "power1_average": "213000000\n",
        hwmon / "power1_cap": "750000000\n",
        hwmon / "freq1_input": "1700000000\n",
    }.items():
        path.write_text(text)
    (gpu,), error = gpu_samples.reader(node, str(tmp_path))()
    expected = {
        "utilization": 93,
        "memory": 8192,
        "memory_total": 65536,
        "power": 213,
        "power_limit": 750,
        "clock": 1700,
    }
    assert (gpu, error) == ({**expected, "temperature": None}, "")


def test_addresses_of_ray_s_metrics(tmp_path: Path) -> None:
    """As Ray's file is now; not what a program of the job links to."""
    node = make_node(tmp_path, "exit 1")
    node.make_folder()
    sampler = samples.Sampler(node, has_own_shm=True)
    sampler.sample()
    targets, copy = Path(node.inside, ray_targets.FILE), tmp_path / "run/metrics/ray.json"
    assert not copy.exists(), "Ray has not written it"
    for text in ("[1]", "[1, 2]"):
        targets.write_text(text)
        sampler.sample()
        assert copy.read_text() == text
    in_session = Path(node.inside, "session_2026-11-27_10-00-00_000000_1", ray_targets.FILE)
    in_session.parent.mkdir()
    in_session.write_text("[1, 2, 3]")
    targets.unlink()
    targets.symlink_to(in_session)  # as Ray 2.60 does
    sampler.sample()
    assert copy.read_text() == "[1, 2, 3]"
    in_session.unlink()
    (tmp_path / "secret").write_text("secret")
    targets.unlink()
    targets.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic link"):
        sampler.sample()
    assert copy.read_text() == "[1, 2, 3]"


def test_samples_after_one_that_fails(
    tmp_path: Path, thread_errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it raises, e.g. as a driver's new version prints something else."""
    node = make_node(tmp_path, "exit 1")
    sampler = samples.Sampler(node, has_own_shm=True)
    is_over = threading.Event()
    answers: list[Any] = [KeyError("utilization"), ValueError("x"), KeyError("power"), ([], "")]

    def read() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        node.mail.is_stopped = True
        is_over.set()
        return answer

    monkeypatch.setattr(sampler._gpus, "_read", read)
    monkeypatch.setattr(sampler, "_interval", 0)
    sampler.start()
    assert is_over.wait(30)
    assert [line.split(": ")[1] for line in thread_errors] == ["KeyError", "ValueError"]


def test_a_node_without_gpus(tmp_path: Path) -> None:
    node = make_node(tmp_path, "exit 1")
    node.gpus = []
    use, (_, first) = sample(node)
    assert use.keys() <= {"cores", "memory"}
    assert "gpus" not in first
    assert not (tmp_path / "queries").exists()


def test_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MAX_SIZE", 10_000)
    file = samples.SampleFile(str(tmp_path / "x"), {"columns": []})
    for number in range(3000):
        rare: Any = {1001: {"states": [number]}, 1002: {"processes": []}}.get(number, {})
        file.add({"time": number, **rare})
        assert (tmp_path / "x").stat().st_size < 10_100
    header, *lines = [json.loads(line) for line in (tmp_path / "x").read_text().splitlines()]
    times = [line["time"] for line in lines]
    assert header == {"columns": []}
    assert times == sorted(times)
    assert times[0] < 100
    assert times[-1] > 2900
    assert {1001, 1002} < {*times}, "a change of states is kept, and a list of processes"
    for number in range(3000, 9000):
        file.add({"time": number, "states": [number]})
        assert (tmp_path / "x").stat().st_size < 10_100


def test_cpus_and_memory_of_the_job(tmp_path: Path) -> None:
    """By the job's cgroup, with all its steps: kernel, admin-guide/cgroup-v2.rst and cgroup-v1."""
    (tmp_path / "proc/self").mkdir(parents=True)
    cgroup = tmp_path / "proc/self/cgroup"
    cgroup.write_text("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n")
    v2 = tmp_path / "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7"
    v2.mkdir(parents=True)
    (v2 / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n")
    (v2 / "memory.current").write_text("5000\n")
    (v2 / "memory.stat").write_text("anon 3000\nfile 2000\ninactive_file 1500\n")
    assert (limits.cpu_seconds(str(tmp_path)), limits.memory_used(str(tmp_path))) == (2.5, 3500)
    cgroup.write_text(
        "5:memory:/slurm/uid_0/job_7/step_0/task_0\n4:cpu,cpuacct:/slurm/uid_0/job_7/step_0\n0::/\n"
    )
    for controller, files in {
        "cpuacct": {"cpuacct.usage": "3000000000\n"},
        "memory": {"memory.usage_in_bytes": "7000\n", "memory.stat": "cache 9\ntotal_inactive_file 1000\n"},
    }.items():
        folder = tmp_path / "sys/fs/cgroup" / controller / "slurm/uid_0/job_7"
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    assert (limits.cpu_seconds(str(tmp_path)), limits.memory_used(str(tmp_path))) == (3.0, 6000)
    cgroup.write_text("0::/user.slice\n")
    assert (limits.cpu_seconds(str(tmp_path)), limits.memory_used(str(tmp_path))) == (None, None)
