"""Lines of slurmstepd about a step or a job that Slurm ends. No I/O."""

import re

# Slurm 22.05 and 24.11: `slurmstepd-node1: error: `; 26.05: `[2026-11-29T06:34:47.034] error: `.
LINE = r"(?:slurmstepd\S{0,256}:|\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?\]) error: "
# src/slurmd/slurmstepd/req.c. After scancel the reason is missing; in 26.05 it is DUE to SIGNAL NAME.
JOB_CANCELLED = re.compile(
    rf"^{LINE}\*\*\* JOB \d{{1,10}} .{{0,300}}?CANCELLED AT (\S{{1,64}})(?: DUE to SIGNAL .{{0,64}}| (.{{0,200}}))? \*\*\*",
    re.MULTILINE,
)
