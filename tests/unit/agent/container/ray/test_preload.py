"""What both starts of Ray do."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from slurmray.agent.container import ports
from slurmray.agent.container.ray import preload


def test_each_start_of_a_process_is_changed_and_followed() -> None:
    did: list[object] = []

    def start(command: list[str], process_type: str, **options: str) -> str:
        did.append((command, process_type, options))
        return "started"

    services = SimpleNamespace(start_ray_process=start)
    preload.patch_start_process(services, lambda command, kind: [*command, kind], did.append)
    assert services.start_ray_process(command=["a"], process_type="raylet", fate_share="yes") == "started"
    assert did == [(["a", "raylet"], "raylet", {"fate_share": "yes"}), "raylet"]


@pytest.mark.attack("another user listens on a port of the job", inputs=1)
def test_ray_start_ends_before_it_sends_the_token_to_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [set(), {os.geteuid()}, {os.geteuid() + 1}]
    monkeypatch.setattr(ports, "listener_users", lambda _: answers.pop(0))
    preload.wait_for_own_gcs(20001)
    with pytest.raises(SystemExit, match="another user's process listens on port 20001"):
        preload.wait_for_own_gcs(20001)
