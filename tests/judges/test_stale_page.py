"""docs/reference/stale-flags.md lists exactly the options that the tests here use."""

from __future__ import annotations

from pathlib import Path

from slurmray.presets import advise
from slurmray.spec.job_spec import JobSpec
from tests.judges import stale

PAGE = Path(__file__).parents[2] / "docs/reference/stale-flags.md"


def test_page_has_exactly_these_rows() -> None:
    cells = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `")
    ]
    rows = [*stale.VERL, *stale.OPENRLHF, *stale.OPENRLHF_0_11_2, *stale.RLINF]
    assert cells == [[row.refused, row.since, row.instead or "nothing"] for row in rows]


def test_openrlhf_s_preset_refuses_each_of_its_rows() -> None:
    flags = [row.refused for row in (*stale.OPENRLHF, *stale.OPENRLHF_0_11_2)]
    spec = {
        "preset": {"name": "openrlhf", "version": "0.11.2"},
        "slurm": {"gpus_per_node": 8},
        "run": ["python3", "-m", "openrlhf.cli.train_ppo_ray", *flags],
    }
    refused = {finding.text.partition(":")[0] for finding in advise(JobSpec.model_validate(spec)).problems}
    assert refused >= set(flags)
