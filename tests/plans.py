"""Plans of job specs that tests make, without the checks of `slurmray.loading`."""

from __future__ import annotations

from slurmray.plan import Plan
from slurmray.presets import advise
from slurmray.spec.job_spec import JobSpec


def plan_of(spec: JobSpec) -> Plan:
    return Plan(spec, advise(spec))
