"""What slurmray doctor makes of the answers of Slurm 21.08.5, 22.05.8, 24.11.5 and 26.05.5."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray.errors import SlurmError
from slurmray.slurm import site
from slurmray.slurm.host import HERE
from slurmray.slurm.site import Row

from ..programs import install

CONFIG_22_05 = """\
Configuration data as of 2026-11-25T22:13:01
AccountingStorageEnforce = none
JobContainerType        = job_container/none
KillWait                = 30 sec
SLURM_VERSION           = 22.05.8
"""
CONFIG_21_08 = CONFIG_22_05.replace("22.05.8", "21.08.5")
CONFIG_24_11 = CONFIG_22_05.replace("22.05.8", "24.11.5").replace("job_container/none", "(null)")
CONFIG_26_05 = """\
KillWait                = 30 sec
NamespaceType           = (null)
SLURM_VERSION           = 26.05.5
"""


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        (CONFIG_21_08, [Row("Slurm", "21.08.5")]),
        (CONFIG_22_05, [Row("Slurm", "22.05.8")]),
        (CONFIG_24_11, [Row("Slurm", "24.11.5")]),
        (CONFIG_26_05, [Row("Slurm", "26.05.5")]),
        (
            "SLURM_VERSION           = 20.02.7\n",
            [Row("Slurm", "20.02.7", "slurmray needs 20.11 or later", is_wrong=True)],
        ),
        (
            CONFIG_24_11.replace("= 30 sec", "= 5 sec").replace("(null)", "job_container/tmpfs"),
            [
                Row("Slurm", "24.11.5"),
                Row("KillWait", "5 s", "stop.grace can be 0 s at most; jobs lower it"),
                Row(
                    "private /tmp",
                    "JobContainerType=job_container/tmpfs",
                    "with Docker, set ray.temp_dir to a folder outside /tmp on the nodes' own disks",
                ),
            ],
        ),
    ],
)
def test_the_configuration(config: str, rows: list[Row]) -> None:
    assert list(site.config_rows(site.parse_config(config), 25)) == rows


@pytest.mark.parametrize(
    ("timeout", "auth_info", "wait"),
    [
        (300, "(null)", 120),
        (60, "cred_expire=30", 30),
        (60, "socket=/x,cred_expire=30,ttl=9", 30),
        (0, "socket=/x", 120),
    ],
)
def test_times_of_a_requeue(timeout: int, auth_info: str, wait: int) -> None:
    config = f"AuthInfo                = {auth_info}\nSlurmdTimeout           = {timeout} sec\n"
    down, fix = f"counts a silent node as down after {timeout} s (SlurmdTimeout)", ""
    if not timeout:
        down = "never counts a silent node as down (SlurmdTimeout=0)"
        fix = "a job whose node lost power starts again only after an administrator has set the node down"
    found = f"Slurm {down}; a requeued job waits at least {wait} s (cred_expire)"
    _, row = site.config_rows(site.parse_config(CONFIG_24_11 + config), 25)
    assert row == Row("requeue", found, fix)


@pytest.mark.parametrize(
    ("timeout", "heartbeat", "noticed"),
    [(20, 25, 28), (28, 25, 28), (29, 25, 0), (300, 300, 303), (12, 10, 12), (0, 25, 0)],
)
def test_slurm_is_faster_than_heartbeats(timeout: int, heartbeat: int, noticed: int) -> None:
    config = f"{CONFIG_24_11}SlurmdTimeout           = {timeout} sec\n"
    rows = [
        row for row in site.config_rows(site.parse_config(config), heartbeat) if row.check == "lost nodes"
    ]
    if not noticed:
        assert not rows
        return
    (row,) = rows
    assert f"after {timeout} s (SlurmdTimeout)" in row.found
    assert f"after {noticed} s (heartbeat_timeout: {heartbeat})" in row.found
    assert f"set SlurmdTimeout to {2 * noticed} or more" in row.fix
    assert not row.is_wrong


@pytest.mark.parametrize(
    ("line", "found", "fix"),
    [
        (
            "batch*|up|infinite|0/2/0/2|4|1000000|gpu:8",
            "2 nodes, each 4 CPUs, 1000000 MB, 8 GPUs; time limit infinite",
            "a whole node: --cpus-per-task 4 --mem 1000000M --gpus-per-node 8",
        ),
        (
            "h100|up|2-00:00:00|10/2/4/16|96+|1000000+|gpu:h100:8(S:0-1),nic:4",
            "16 nodes (4 down or drained), each 96+ CPUs, 1000000+ MB, h100:8 GPUs; time limit 2-00:00:00",
            "a whole node: --partition h100 --cpus-per-task 96 --mem 1000000M --gpus-per-node h100:8",
        ),
        (
            "mixed|inact|1:00|0/1/0/1|4|1|gpu:1g.10gb:4,gpu:a100:1",
            "1 node, each 4 CPUs, 1 MB, 1g.10gb:4 and a100:1 GPUs; time limit 1:00",
            "it is inact: starts no jobs now",
        ),
    ],
)
def test_partitions(line: str, found: str, fix: str) -> None:
    name = line.partition("|")[0].removesuffix("*")
    assert next(site.partition_rows(line + "\n")) == Row(f"partition {name}", found, fix)


def test_a_cluster_without_gpus_in_slurm() -> None:
    rows = list(site.partition_rows("a*|up|infinite|0/2/0/2|4|100|(null)\nb|up|1:00|0/2/0/2|4|100|nic:2\n"))
    assert [row.check for row in rows] == ["partition a", "partition b", "GPUs"]
    assert "no GPUs" in rows[0].found
    assert "--gpus-per-node" not in rows[0].fix


def test_accounts_and_folders() -> None:
    assert site.account_row("vision\nnlp\nvision\n") == Row("account", "vision, nlp", "--account chooses one")
    assert site.account_row("vision\n") == Row("account", "vision")
    assert site.account_row("").is_wrong
    assert site.folder_row(Path("/home/x"), "nfs") == Row("this folder", "/home/x, on nfs")
    for kind in ("tmpfs", ""):
        assert "submit from a folder that all nodes share" in site.folder_row(Path("/tmp"), kind).fix


def test_a_survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounts where Slurm enforces them, pyxis, runtimes; the programs of this test answer."""
    answers = {
        "scontrol": CONFIG_22_05.replace("= none", "= associations,limits,qos"),
        "sinfo": "batch*|up|infinite|0/2/0/2|4|1000000|gpu:8",
        "sacctmgr": "vision\nnlp",
        "srun": "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH",
        "podman": "",
    }
    install(tmp_path, **{name: f"cat <<'END'\n{text}\nEND" for name, text in answers.items()})
    install(tmp_path, stat='[ "$*" = "-f -c %T -- ${0%/*}" ] && echo lustre')
    for name in ("bash", "cat", "dirname", "id"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path))
    rows = {row.check: row for row in site.survey(HERE, tmp_path / "not/yet", 25)}
    assert list(rows) == ["Slurm", "partition batch", "account", "pyxis", "runtimes here", "this folder"]
    assert rows["account"].found == "vision, nlp"
    assert rows["runtimes here"].found == "podman"
    assert rows["this folder"] == Row("this folder", f"{tmp_path}/not/yet, on lustre")
    install(tmp_path, sinfo="echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(SlurmError, match=r"sinfo: .*: try again when `scontrol ping` shows that it is up"):
        list(site.survey(HERE, Path("/shared"), 25))
