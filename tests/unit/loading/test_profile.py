"""Profiles of configuration files, as defaults of job specs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import slurmray
from slurmray.errors import SpecError
from slurmray.loading import profile
from slurmray.loading.load import load_plan

from ..cli.command_line import main, run

SITE = """
profile: cpu
profiles:
  cpu: {slurm: {partition: cpu, account: site}}
  gpu:
    slurm: {partition: gpu, account: site, time: "60"}
    container: {runtime: docker, mounts: [/site]}
    forbid: {mem: nodes are not shared, qos: one for all}
"""
USER = """
profiles:
  gpu:
    slurm: {account: mine}
    container: {mounts: [/mine]}
    forbid: {mem: only mem_per_gpu}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files of the site and of the user in it."""
    monkeypatch.delenv("SLURMRAY_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(profile, "SITE", tmp_path / "site.yaml")
    monkeypatch.chdir(tmp_path)
    profile.SITE.write_text(SITE)
    (tmp_path / "slurmray").mkdir()
    (tmp_path / "slurmray/config.yaml").write_text(USER)
    return tmp_path


def mistakes(name: str | None = None, settings: list[tuple[str, str]] | None = None) -> list[str]:
    with pytest.raises(SpecError) as error:
        load_plan(Path("job.yaml"), settings or [], profile=profile.choose(name))
    return str(error.value).splitlines()


def test_which_field_has_priority(folder: Path) -> None:
    """The command line, the job spec, what it includes, the user's profile, the site's."""
    (folder / "job.yaml").write_text("include: other.yaml\nslurm: {nodes: 2, qos: null}\n")
    (folder / "other.yaml").write_text("slurm: {nodes: 3, partition: other}\ncontainer: {image: x}\n")
    spec = slurmray.load("job.yaml", profile="gpu", slurm={"time": "9"})
    assert dict(spec.slurm.given()) == {
        "nodes": "2",
        "partition": "other",
        "account": "mine",
        "time": "9",
    }
    assert (spec.container.image, spec.container.runtime) == ("x", "docker")
    assert [mount.source for mount in spec.container.mounts] == ["/mine"]


def test_null_takes_a_field_of_the_profile_away(folder: Path) -> None:
    (folder / "job.yaml").write_text("slurm: {account: null}\n")
    assert dict(slurmray.load("job.yaml", profile="gpu").slurm.given())["partition"] == "gpu"
    assert "account" not in dict(slurmray.load("job.yaml", profile="gpu").slurm.given())
    (folder / "job.yaml").write_text("slurm: null\n")
    assert "partition" not in dict(slurmray.load("job.yaml", profile="gpu").slurm.given())


def test_which_profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(name: str | None = None) -> str | None:
        choice = profile.choose(name)
        return choice and choice.name

    assert profile.list_names() == ["gpu", "cpu"]
    assert chosen() == "cpu", "the site's"
    (folder / "slurmray/config.yaml").write_text(f"profile: gpu{USER}")
    assert chosen() == "gpu", "the user's"
    monkeypatch.setenv("SLURMRAY_PROFILE", "cpu")
    assert chosen() == "cpu"
    assert (chosen("gpu"), chosen("none")) == ("gpu", None)
    monkeypatch.setenv("SLURMRAY_PROFILE", "")
    assert chosen() == "gpu"
    (folder / "own.yaml").write_text("profiles: {own: }\n")
    monkeypatch.setenv("SLURMRAY_CONFIG", "own.yaml")
    assert (profile.list_names(), chosen()) == (["own"], None)
    monkeypatch.setenv("SLURMRAY_CONFIG", "")
    assert (profile.list_names(), chosen()) == ([], None)


def test_a_host_and_its_folder(folder: Path) -> None:
    """The user's values have priority, one by one."""
    (folder / "slurmray/config.yaml").write_text("profiles: {far: {host: me@login}}\n")
    (folder / "site.yaml").write_text(
        "profiles: {far: {host: login, folder: /scratch/me}, near: {host: login}}\n"
    )
    far, near = profile.choose("far"), profile.choose("near")
    assert far
    assert near
    assert (far.host, far.submit_folder()) == ("me@login", "/scratch/me")
    assert (near.host, near.submit_folder()) == ("login", f"slurmray/{folder.name}")
    (folder / "job.yaml").write_text("sync: [job.yaml, no.py]\n")
    assert mistakes("far") == ["job.yaml:1:18: sync, item 2: no such file: no.py"]
    assert load_plan(Path("job.yaml")).spec.sync == ["job.yaml", "no.py"]


@pytest.mark.parametrize("path", ["/data", "~/data", "a/../../b", "../a"])
def test_only_files_below_the_current_folder_are_copied(path: str, folder: Path) -> None:
    (folder / "job.yaml").write_text(f"sync: [{path}]\n")
    (line,) = mistakes()
    assert line.startswith(f"job.yaml:1:8: sync, item 1: {path} is not below the current folder")


def test_fields_that_a_profile_forbids(folder: Path) -> None:
    text = "slurm:\n  qos: high\n  groups:\n  - {name: a}\n  - {name: b, mem: 1G}\n"
    (folder / "job.yaml").write_text(text)
    assert mistakes("gpu", [("--mem", "2G")]) == [
        "job.yaml:2:8: slurm.qos: not allowed in the profile gpu: one for all",
        "job.yaml:5:20: slurm.groups, item 2, mem: not allowed in the profile gpu: only mem_per_gpu",
        "--mem: not allowed in the profile gpu: only mem_per_gpu",
    ]
    assert load_plan(Path("job.yaml"), [("--mem", "2G")], profile=profile.choose("cpu")).spec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "profiles: {gpu: {slurm: {time: 24h}}}",
            "USER:1:32: slurm.time: expected a time, e.g. 1-00:00:00, ",
        ),
        ("profiles: {gpu: {slrum: {}}}", "USER:1:18: slrum: unknown field, did you mean slurm"),
        ("slurm: {nodes: 2}", "USER:1:1: slurm: unknown field; known here: profile, profiles"),
        ("- gpu", "USER: expected `name: value` pairs, got a list"),
        ("profiles: [gpu]", "USER:1:11: profiles: expected `name: value` pairs, got a list"),
        ("profiles: {gpu: x}", "USER:1:17: profiles.gpu: expected `name: value` pairs, got 'x'"),
        ("profile: [gpu]", "USER:1:10: profile: expected text, got a list"),
        ("profile: hpu", "USER:1:10: unknown profile 'hpu'; known are cpu, gpu"),
        (
            "profiles: {gpu: {include: a}}",
            "USER:1:17: profiles.gpu: include is not for profiles; include it in",
        ),
        ("profiles: {x: {forbid: {memm: a}}}", "USER:1:24: profiles.x.forbid: memm: no field of slurm"),
        ("profiles: {x: {forbid: {mem: }}}", "USER:1:29: profiles.x.forbid.mem: expected text, got null"),
        (
            "profiles: {gpu: {host: -oProxyCommand=x}}",
            "USER:1:24: profiles.gpu.host: expected a host as for ssh",
        ),
        ("profiles: {a: {, }", "USER:1:16: "),
        ("a: \t\x01", "USER:1:5: the control character '\\x01'"),
    ],
)
def test_mistakes_in_a_file(text: str, expected: str, folder: Path) -> None:
    """Each is one line with its place."""
    (folder / "job.yaml").touch()
    (folder / "slurmray/config.yaml").write_text(text)
    (line,) = mistakes(None if "profile:" in text else "gpu")
    assert line.replace(f"{folder}/slurmray/config.yaml", "USER").startswith(expected)


def test_other_mistakes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "job.yaml").touch()
    hint = "known are gpu, cpu"
    sbatch = "; sbatch's --profile is --set slurm.profile"
    assert mistakes("task") == [f"--profile: unknown profile 'task'; {hint}{sbatch}"]
    monkeypatch.setenv("SLURMRAY_PROFILE", "x")
    assert mistakes() == [f"SLURMRAY_PROFILE: unknown profile 'x'; {hint}"]
    (folder / "slurmray/config.yaml").unlink()
    (folder / "slurmray/config.yaml").mkdir()
    assert mistakes("gpu") == [f"{folder}/slurmray/config.yaml: cannot be read: Is a directory"]
    monkeypatch.setenv("SLURMRAY_CONFIG", "/none.yaml")
    assert mistakes("gpu") == ["SLURMRAY_CONFIG: /none.yaml: no such file; correct it, or unset it"]
    monkeypatch.setenv("SLURMRAY_CONFIG", "")
    assert mistakes("gpu")[0].startswith(
        "--profile: unknown profile 'gpu'; define it in ~/.config/slurmray/config.yaml, "
    )


@pytest.mark.usefixtures("folder")
def test_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    code, script, _ = main(["render", "--profile", "gpu", "-o", "-"], capsys)
    assert code == 0
    assert "\n#SBATCH --account=mine\n" in script
    assert '\n  "render_again": "slurmray render --profile gpu",\n' in script
    assert "\n#SBATCH --partition=cpu\n" in main(["render", "-o", "-"], capsys)[1]
    assert "#SBATCH --partition" not in main(["render", "--profile=none", "-o", "-"], capsys)[1]
    code, _, err = main(["render", "--profile=gpu", "--target=dstack"], capsys)
    assert (code, err) == (2, "--profile: for jobs of Slurm; leave it out with --target dstack\n")
    assert main(["render", "--target=dstack", "-o", "-"], capsys)[0] == 0


def test_config(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user, site = folder / "slurmray/config.yaml", folder / "site.yaml"
    (folder / "job.yaml").write_text("slurm: {time: 5}\n")
    code, out, err = main(["config", "job.yaml", "--profile=gpu"], capsys)
    assert (code, err) == (0, f"profile gpu, of {user}, {site}\n")
    assert out.splitlines() == [
        'slurm.time         "5"        job.yaml:1:15',
        f'slurm.account      "mine"     {user}:4:22',
        f'slurm.partition    "gpu"      {site}:6:24',
        f'container.mounts   ["/mine"]  {user}:5:25',
        f'container.runtime  "docker"   {site}:7:26',
        "slurm.mem is not allowed: only mem_per_gpu",
        "slurm.qos is not allowed: one for all",
    ]
    code, out, _ = main(["config", "--json"], capsys)
    assert json.loads(out) == [
        {"field": "slurm.partition", "value": "cpu", "from": f"{site}:4:28"},
        {"field": "slurm.account", "value": "site", "from": f"{site}:4:42"},
    ]
    text = run("config", "-", "--json", stdin="name: x\n", SLURMRAY_CONFIG=str(site)).stdout
    assert json.loads(text)[0] == {"field": "name", "value": "x", "from": "stdin:1:7"}
    user.unlink()
    site.unlink()
    assert main(["config"], capsys) == (0, "", "no profile (no configuration file)\n")
