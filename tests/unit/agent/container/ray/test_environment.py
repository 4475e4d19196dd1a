"""Environment of Ray and the trainer; tests/cluster shows that Ray accepts it."""

from __future__ import annotations

import os

import pytest

from slurmray.agent.container.ray import environment as ray_environment
from slurmray.agent.container.ray import ports as port_places

from .test_command import NEW, OLD, PORTS, start_argv


def test_when_a_token_is_used() -> None:
    assert ray_environment.uses_token("auto", NEW)
    assert not ray_environment.uses_token("auto", OLD)
    assert not ray_environment.uses_token("none", NEW)


def test_user_s_environment_wins_except_for_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_IMAGE", "image")
    user = {
        "RAY_TMPDIR": "/mine",
        "OF_THE_IMAGE": "mine",
        "RAY_AUTH_MODE": "disabled",
        "RAY_AUTH_TOKEN_PATH": "/x",
    }
    env = ray_environment.ray_environment("/tmp/r", user, "/tmp/r/token", NEW, False)
    assert (env["RAY_TMPDIR"], env["OF_THE_IMAGE"]) == ("/mine", "mine")
    assert (env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == ("token", "/tmp/r/token")
    assert ray_environment.ray_environment("/tmp/r", {}, None, OLD, False)["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_MODE" not in os.environ


@pytest.mark.attack("a variable of another Ray", inputs=2)
@pytest.mark.parametrize("name", ray_environment.FOREIGN)
def test_variables_of_another_ray(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the image or the shell, and of env_file or node_env."""
    monkeypatch.setenv(name, "x")
    assert name not in ray_environment.ray_environment("/tmp/r", {}, "/tmp/r/token", NEW, False)
    monkeypatch.delenv(name)
    assert name not in ray_environment.ray_environment("/tmp/r", {name: "x"}, "/tmp/r/token", NEW, False)


def test_timeouts_of_ray_are_longer_than_the_probe_s() -> None:
    found = ray_environment.start_timeouts(600)
    assert found == {
        "RAY_raylet_start_wait_time_s": "660",
        "RAY_agent_register_timeout_ms": "660000",
        "RAY_gcs_rpc_server_connect_timeout_s": "660",
        "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "660",
    }


def test_metrics_are_exported_only_if_enabled() -> None:
    off = ray_environment.ray_environment("/tmp/r", {}, None, NEW, False)
    assert off["RAY_enable_metrics_collection"] == "0"
    on = ray_environment.ray_environment("/tmp/r", {}, None, NEW, True)
    names = {"RAY_enable_metrics_collection", "DASHBOARD_METRIC_PORT", "AUTOSCALER_METRIC_PORT"}
    assert not names & on.keys()
    late = ray_environment.metrics_environment({"DASHBOARD_METRIC_PORT": "9000"}, PORTS)
    assert late["DASHBOARD_METRIC_PORT"] == "9000"
    given = {option.rpartition("=")[2] for option in start_argv(None) if "-port=" in option}
    assert int(late["AUTOSCALER_METRIC_PORT"]) in PORTS
    assert late["AUTOSCALER_METRIC_PORT"] not in given


def test_amd_s_old_mask_goes_where_ray_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/kfd")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0,1")
    new = ray_environment.ray_environment("/tmp/r", {}, None, NEW, False)
    assert "ROCR_VISIBLE_DEVICES" not in new
    assert new["HIP_VISIBLE_DEVICES"] == "0,1", "or there would be no mask at all"
    assert ray_environment.ray_environment("/tmp/r", {}, None, OLD, False)["ROCR_VISIBLE_DEVICES"] == "0,1"
    user = {"ROCR_VISIBLE_DEVICES": "1"}
    assert ray_environment.ray_environment("/tmp/r", user, None, NEW, False)["ROCR_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize("version", [NEW, OLD])
def test_amd_s_mask_goes_on_nodes_without_amd_s_driver(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]
) -> None:
    """Slurm sets all masks alike. verl's workers fail with more than one."""
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    found = ray_environment.ray_environment("/tmp/r", {}, None, version, False)
    assert {name for name in found if "VISIBLE_DEVICES" in name} == {"CUDA_VISIBLE_DEVICES"}


def test_trainer_environment() -> None:
    facts = {"NNODES": "2", "NODE_RANK": "0"}
    env = ray_environment.trainer_environment({"A": "1"}, facts, "fd00::5", PORTS)
    assert env == {
        "A": "1",
        "RAY_ADDRESS": f"[fd00::5]:{PORTS[port_places.GCS]}",
        "NNODES": "2",
        "NODE_RANK": "0",
        "MASTER_ADDR": "fd00::5",
        "MASTER_PORT": str(PORTS[port_places.MASTER]),
    }
