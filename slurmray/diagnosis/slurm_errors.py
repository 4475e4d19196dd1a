"""Messages of Slurm's commands, which say the cause themselves, and lines of slurmstepd. No I/O."""

import re

from slurmray.diagnosis.entries import Message

# Message -> fix. Between the bars: what is looked for.
_ERRNO = {
    "|Access/permission denied|": "the job is another user's",
    "|Invalid account| or account/partition combination specified": (
        "`sacctmgr show associations user=$USER` lists values for slurm.account"
    ),
    "|Invalid feature| specification": "`sinfo --format='%P %f'` lists values for slurm.constraint",
    "|Invalid generic resource| (gres) specification": (
        "`sinfo --format='%P %G'` lists values for slurm.gres and gpus_per_node; "
        "if it lists no GPUs, use ray.gpus_per_node"
    ),
    "|Invalid node name| specified": "`sinfo --Node` lists values for slurm.nodelist",
    "|Invalid qos| specification": "`sacctmgr show associations user=$USER` lists values for slurm.qos",
    "|Pathname of a file, directory or other parameter too long|": (
        "the script is larger than the site allows (max_script_size in SchedulerParameters, by default 4 MB)"
    ),
    "Requested |node configuration is not available|": (
        "`sinfo --Node --format='%N %c %m %G'` lists CPUs, MiB and GPUs (type and number) of each node; "
        "ask for what one has"
    ),
    "Requested |time limit| is invalid (missing or exceeds some limit)": (
        "`sinfo --format='%P %l'` lists the maximum of slurm.time"
    ),
    "|Unable to contact slurm controller| (connect failure)": (
        "try again when `scontrol ping` shows that it is up"
    ),
}
_COMMANDS = {
    "|Could not establish a configuration source|": "this host is not set up for Slurm: use a login node",
    "option '--res=x' |is ambiguous; possibilities|: '--reservation' '--resv-ports'": (
        "write the option in full: a newer Slurm has others that begin so"
    ),
    "|invalid partition| specified: x": "`sinfo --format=%P` lists values for slurm.partition",
}
SLURM_ERRORS = tuple(
    Message("", example.replace("|", ""), source, example.split("|")[1], "", fix)
    for source, errors in (("Slurm: src/common/slurm_errno.c", _ERRNO), ("Slurm 22.05, recorded", _COMMANDS))
    for example, fix in errors.items()
)

# Of slurmstepd, about a step or a job that Slurm ends.
# Slurm 22.05 and 24.11: `slurmstepd-node1: error: `; 26.05: `[2026-11-29T06:34:47.034] error: `.
LINE = r"(?:slurmstepd\S{0,256}:|\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?\]) error: "
# src/slurmd/slurmstepd/req.c. After scancel the reason is missing; in 26.05 it is DUE to SIGNAL NAME.
JOB_CANCELLED = re.compile(
    rf"^{LINE}\*\*\* JOB \d{{1,10}} .{{0,300}}?CANCELLED AT (\S{{1,64}})(?: DUE to SIGNAL .{{0,64}}| (.{{0,200}}))? \*\*\*",
    re.MULTILINE,
)
