"""How long a rehearsal waits for its job, with a simulated clock and answers of slurmctld."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from slurmray.errors import RehearsalError
from slurmray.rehearsal import session
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig


class Pending(SlurmCluster):
    """A cluster whose job waits for some seconds. clock: the present time."""

    def __init__(self, clock: list[float], seconds: int, restarts: str, folder: Any) -> None:
        super().__init__(ClusterConfig(), Layout(folder))
        self.clock, self.seconds, self.restarts = clock, seconds, restarts

    def poll(self, job: int) -> Iterator[dict[str, str]]:
        del job
        for _ in range(self.seconds):
            self.clock[0] += 1
            yield {"JobState": "PENDING", "Restarts": self.restarts, "Reason": "BeginTime"}
        yield {"JobState": "COMPLETED", "Restarts": self.restarts}


@pytest.mark.parametrize(
    ("restarts", "seconds", "is_started"),
    [("0", 15, True), ("0", 40, False), ("1", 130, True), ("1", 200, False)],
)
def test_a_requeued_job_may_wait_for_slurms_two_minutes(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, restarts: str, seconds: int, is_started: bool
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    cluster = Pending(clock, seconds, restarts, tmp_path)
    if is_started:
        assert session.follow(cluster, 7).state == "COMPLETED"
    else:
        with pytest.raises(RehearsalError, match=r"has not started the job within .*BeginTime"):
            session.follow(cluster, 7)
