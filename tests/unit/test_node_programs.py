"""What ray_start.py and probe.py decide; that Ray takes it is seen on the real Slurm."""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from slurmray.render import template_root

# They have no package: in the container they lie side by side in one folder.
sys.path.insert(0, str(template_root() / "node"))
ray_start: Any = importlib.import_module("ray_start")
probe: Any = importlib.import_module("probe")
sys.path.pop(0)

# -- ray_start -------------------------------------------------------------------------------------

PORTS = list(range(20001, 20016))
OLD, NEW = (2, 44), (2, 60)


def command(cluster: str | None, version: tuple[int, int] = NEW, extra: tuple[str, ...] = ()) -> list[str]:
    words = ray_start.command("gpu-1", "10.0.0.5", PORTS, cluster, version, "/tmp/r", "4", "8", list(extra))
    assert isinstance(words, list)
    return words


def test_the_head_has_what_workers_must_not_have() -> None:
    head, worker = command(None), command("10.0.0.4:20001")
    assert "--head" in head
    assert f"--port={PORTS[ray_start.GCS]}" in head
    assert "--head" not in worker
    assert "--address=10.0.0.4:20001" in worker
    only_head = ("--port", "--dashboard-port", "--ray-client-server-port")
    assert not [word for word in worker if word.startswith(only_head)]
    for words in (head, worker):
        assert {
            "--block",
            "--node-name=gpu-1",
            "--node-ip-address=10.0.0.5",
            "--num-cpus=4",
            "--num-gpus=8",
        } <= set(words)


def test_no_port_is_given_twice() -> None:
    given = [word.rpartition("=")[2] for word in command(None) if "-port=" in word]
    fixed = [port for port in given if port != "0"]
    assert len(fixed) == len(set(fixed)) >= 7
    assert str(PORTS[ray_start.MASTER]) not in fixed


def test_a_worker_gets_a_temp_folder_where_ray_allows_it() -> None:
    assert "--temp-dir=/tmp/r" in command(None, OLD)
    assert "--temp-dir=/tmp/r" in command("h:1", NEW)
    assert "--temp-dir=/tmp/r" not in command("h:1", OLD)


def test_the_users_options_come_last() -> None:
    assert command(None, extra=("--num-cpus=1", "--x"))[-2:] == ["--num-cpus=1", "--x"]


def test_when_a_token_is_asked_for() -> None:
    assert ray_start.wants_token("auto", NEW)
    assert not ray_start.wants_token("auto", OLD)
    assert not ray_start.wants_token("none", NEW)


def test_the_users_environment_wins_but_not_over_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_IMAGE", "image")
    user = {
        "RAY_TMPDIR": "/mine",
        "OF_THE_IMAGE": "mine",
        "RAY_AUTH_MODE": "disabled",
        "RAY_AUTH_TOKEN_PATH": "/x",
    }
    env = ray_start.environment("/tmp/r", user, "/tmp/r/token")
    assert (env["RAY_TMPDIR"], env["OF_THE_IMAGE"]) == ("/mine", "mine")
    assert (env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == ("token", "/tmp/r/token")
    assert ray_start.environment("/tmp/r", {}, None)["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_MODE" not in os.environ


def test_what_a_trainer_is_told() -> None:
    env = ray_start.trainer_environment({"A": "1"}, ("fd00::5", PORTS), 2, "8")
    assert env == {
        "A": "1",
        "RAY_ADDRESS": f"[fd00::5]:{PORTS[ray_start.GCS]}",
        "NNODES": "2",
        "NODE_RANK": "0",
        "GPUS_PER_NODE": "8",
        "MASTER_ADDR": "fd00::5",
        "MASTER_PORT": str(PORTS[ray_start.MASTER]),
    }


def test_a_python_without_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert ray_start.ray_version() is None
    (tmp_path / "ray-2.60.0.dist-info").mkdir()
    (tmp_path / "ray-2.60.0.dist-info" / "METADATA").write_text("Name: ray\nVersion: 2.60.0\n")
    importlib.invalidate_caches()
    assert ray_start.ray_version() == ("2.60.0", (2, 60))


# -- probe -----------------------------------------------------------------------------------------


def row(name: str, gpus: int = 8, alive: bool = True) -> dict[str, Any]:
    """What `ray.nodes()` says of a node, as far as it is read; a node without GPUs has no such key."""
    resources = {"CPU": 4.0, **({"GPU": float(gpus)} if gpus else {})}
    return {"Alive": alive, "NodeName": name, "Resources": resources}


NAMES = ["gpu-1", "gpu-2"]


@pytest.mark.parametrize(
    ("table", "gpus", "expected"),
    [
        ([], 8, (0, 0, {"gpu-1": "has not joined", "gpu-2": "has not joined"})),
        ([row("gpu-1"), row("gpu-2")], 8, (2, 16, {})),
        ([row("gpu-1"), row("gpu-2", 7)], 8, (2, 15, {"gpu-2": "has 7 of 8 GPUs"})),
        ([row("gpu-1"), row("gpu-2", alive=False)], 8, (1, 8, {"gpu-2": "has not joined"})),
        ([row("gpu-1", alive=False), row("gpu-1"), row("gpu-2")], 8, (2, 16, {})),  # it came back
        ([row("gpu-1", 16), row("stranger")], 8, (1, 16, {"gpu-2": "has not joined"})),
        ([row("gpu-1", 0), row("gpu-2", 0)], 0, (2, 0, {})),
    ],
)
def test_verdict(table: list[Any], gpus: int, expected: tuple[int, int, dict[str, str]]) -> None:
    assert probe.verdict(table, NAMES, gpus) == expected


def test_progress() -> None:
    assert probe.progress(3, 24, {"gpu-2": "has not joined"}, ["a", "b", "c", "gpu-2"], 8) == (
        "3/4 nodes, 24/32 GPUs, waiting for gpu-2"
    )
    assert probe.progress(2, 16, {}, NAMES, 8) == "2/2 nodes, 16/16 GPUs"
    many = {f"n{number}": "" for number in range(9)}
    assert probe.progress(0, 0, many, list(many), 0).endswith("waiting for n0, n1, n2, n3 and 5 more")


def waited(tables: list[list[Any]], timeout: float) -> tuple[dict[str, str], list[str]]:
    """Result and messages of a probe that reads one table a second; the last one stays."""
    now, said = [0.0], []

    def pause(_: float) -> None:
        now[0] += 1

    wrong = probe.wait(
        lambda: tables[min(int(now[0]), len(tables) - 1)],
        NAMES,
        8,
        timeout,
        lambda *words: said.append(" ".join(words)),
        lambda: now[0],
        pause,
    )
    return wrong, said


def test_the_probe_says_each_step_once_and_ends_when_all_are_there() -> None:
    one, two = [row("gpu-1")], [row("gpu-1"), row("gpu-2")]
    assert waited([[], one, one, two], 600) == (
        {},
        [
            "phase probe 0/2 nodes, 0/16 GPUs, waiting for gpu-1, gpu-2",
            "phase probe 1/2 nodes, 8/16 GPUs, waiting for gpu-2",
            "phase probe 2/2 nodes, 16/16 GPUs",
        ],
    )


def test_the_probe_ends_at_its_deadline() -> None:
    wrong, said = waited([[row("gpu-1")]], 3)
    assert wrong == {"gpu-2": "has not joined"}
    assert len(said) == 1
