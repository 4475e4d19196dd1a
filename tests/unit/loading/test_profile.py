"""Profiles of configuration files, as defaults of job specs."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import slurmray
from slurmray.errors import SpecError
from slurmray.loading import profile
from slurmray.loading.load import load_plan
from slurmray.loading.remarks import remarks

from ..cli.command_line import main, run

SITE = """
profile: cpu
profiles:
  cpu: {slurm: {partition: cpu, account: site}}
  gpu:
    slurm: {partition: gpu, account: site, time: "60"}
    container: {runtime: docker, mounts: [/site]}
    forbid: {slurm.mem: nodes are not shared, slurm.qos: one for all}
    require: {ray.auth: [token, none]}
    ray: {auth: token}
"""
USER = """
profiles:
  gpu:
    slurm: {account: mine}
    container: {mounts: [/mine]}
    forbid: {slurm.mem: only mem_per_gpu}
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
    """What both files forbid is forbidden, each with its reason."""
    text = "slurm:\n  qos: high\n  groups:\n  - {name: a}\n  - {name: b, mem: 1G}\n"
    (folder / "job.yaml").write_text(text)
    user, site = f"({folder}/slurmray/config.yaml:6:14)", f"({folder}/site.yaml:8:14)"
    item = "job.yaml:5:20: slurm.groups, item 2, mem: '1G' is not allowed:"
    assert mistakes("gpu", [("--mem", "2G")]) == [
        f"job.yaml:2:8: slurm.qos: 'high' is not allowed: one for all ({folder}/site.yaml:8:47)",
        f"{item} only mem_per_gpu {user}",
        f"{item} nodes are not shared {site}",
        f"--mem: '2G' is not allowed: only mem_per_gpu {user}",
        f"--mem: '2G' is not allowed: nodes are not shared {site}",
    ]
    assert load_plan(Path("job.yaml"), [("--mem", "2G")], profile=profile.choose("cpu")).spec


def demanding(folder: Path, demands: str) -> Callable[..., list[str]]:
    """A profile `strict`; a function that returns the mistakes of job specs with it, without its place."""
    profile.SITE.write_text(f"profiles: {{strict: {{{demands}}}}}\n")

    def find(text: str = "", *settings: tuple[str, str]) -> list[str]:
        (folder / "job.yaml").write_text(text)
        try:
            load_plan(Path("job.yaml"), settings, profile=profile.choose("strict"))
        except SpecError as error:
            return [re.sub(r" \(\S*site\.yaml:1:\d+\)$", " (SITE)", line) for line in str(error).splitlines()]
        return []

    return find


def test_any_field_can_be_forbidden(folder: Path) -> None:
    find = demanding(
        folder, "forbid: {container.args: ask us, services.image: no, requeue: no, ray.metrics: no}"
    )
    assert find() == []
    assert find("services: [{name: a, run: x}]\nray: {metrics: false}\nrequeue: null\n") == []
    services = "services: [{name: a, run: x}, {name: b, run: x, image: y}]\n"
    assert find(
        f"container: {{args: [--privileged]}}\n{services}ray: {{metrics: true}}", ("requeue.max", "2")
    ) == [
        "job.yaml:1:19: container.args: a list is not allowed: ask us (SITE)",
        "job.yaml:2:56: services, item 2, image: 'y' is not allowed: no (SITE)",
        "job.yaml:3:16: ray.metrics: true is not allowed: no (SITE)",
        "--set requeue.max: requeue: a mapping is not allowed: no (SITE)",
    ]


def test_an_option_in_extra_is_that_field(folder: Path) -> None:
    find = demanding(folder, "forbid: {slurm.exclusive: shared}, require: {slurm.qos: normal}")
    assert find("slurm: {extra: [--qos=normal]}") == []
    assert find("slurm: {extra: [--qos=high, --exclusive]}") == [
        "job.yaml:1:8: slurm.exclusive: true is not allowed: shared (SITE)",
        "job.yaml:1:8: slurm.qos: 'high' is not allowed: expected 'normal' (SITE)",
    ]


def test_a_template_other_than_the_site_s_can_be_forbidden(folder: Path) -> None:
    """It could write the directives that other rules forbid."""
    find = demanding(folder, "forbid: {template: any directive}")
    assert find() == []
    text = "template: 'a.j2' is not allowed: any directive (SITE)"
    assert find("template: a.j2") == [f"job.yaml:1:11: {text}"]
    assert find("", ("--template", "a.j2")) == [f"--template: {text.removeprefix('template: ')}"]
    find = demanding(folder, "template: /etc/own.j2, require: {template: /etc/own.j2}")
    assert find() == []
    assert find("template: a.j2") == [
        "job.yaml:1:11: template: 'a.j2' is not allowed: expected '/etc/own.j2' (SITE)"
    ]


def test_required_values(folder: Path) -> None:
    """Of defaults, too. Written in any form that the field accepts."""
    runtime = "container.runtime: [podman, apptainer]"
    demands = f"ray.auth: token, {runtime}, watch.stall: [1m, 90], slurm.qos: [null, low]"
    find = demanding(folder, f"require: {{{demands}}}, watch: {{stall: 60}}, container: {{runtime: podman}}")
    assert find() == ["job.yaml: ray.auth: 'auto' is not allowed: expected 'token' (SITE)"]
    assert find("ray: {auth: token}\ncontainer: {runtime: apptainer, image: a.sif}") == []
    assert find("ray: {auth: none}\nslurm: {qos: high}", ("--runtime", "docker"), ("watch.stall", "2m")) == [
        "job.yaml:1:13: ray.auth: 'none' is not allowed: expected 'token' (SITE)",
        "job.yaml:2:14: slurm.qos: 'high' is not allowed: expected null or 'low' (SITE)",
        "--runtime: 'docker' is not allowed: expected 'podman' or 'apptainer' (SITE)",
        "--set watch.stall: '120' is not allowed: expected '60' or '90' (SITE)",
    ]


def test_a_required_value_of_groups(folder: Path) -> None:
    """Each group has it, by itself or from the section."""
    find = demanding(folder, "require: {slurm.partition: gpu}")
    assert find("slurm: {groups: [{name: a, partition: gpu}, {name: b, partition: gpu}]}") == []
    assert find("slurm: {partition: gpu, groups: [{name: a}, {name: b}]}") == []
    assert find("slurm: {partition: gpu, groups: [{name: a}, {name: b, partition: cpu}]}") == [
        "job.yaml:1:66: slurm.groups, item 2, partition: 'cpu' is not allowed: expected 'gpu' (SITE)"
    ]
    assert find("slurm: {groups: [{name: a}, {name: b}]}") == [
        "job.yaml:1:8: slurm.partition: null is not allowed: expected 'gpu' (SITE)"
    ]


def test_no_file_loosens_a_requirement_of_the_other(folder: Path) -> None:
    find = demanding(folder, "require: {ray.auth: token}")
    user = folder / "slurmray/config.yaml"
    user.write_text("profiles: {strict: {require: {ray.auth: [none, token]}, ray: {auth: none}}}\n")
    assert find() == [f"{user}:1:69: ray.auth: 'none' is not allowed: expected 'token' (SITE)"]
    user.write_text("profiles: {strict: {ray: {auth: token}}}\n")
    assert find() == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ["check", "render", "submit", "up", "rehearse"])
def test_every_command_that_takes_a_job_spec(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    profile.SITE.write_text("profile: strict\nprofiles: {strict: {require: {ray.auth: token}}}\n")
    expected = f"ray.auth: 'auto' is not allowed: expected 'token' ({profile.SITE}:2:31)\n"
    code, _, err = main([command, "--nodes=1"], capsys)
    assert (code, err) == (2, expected)


def test_the_functions_of_the_package(folder: Path) -> None:
    profile.SITE.write_text("profile: strict\nprofiles: {strict: {require: {ray.auth: token}}}\n")
    (folder / "job.yaml").touch()
    for function in (slurmray.load, slurmray.render, slurmray.submit):
        with pytest.raises(SpecError, match="expected 'token'"):
            function("job.yaml")
    assert slurmray.load("job.yaml", profile="none").ray.auth == "auto"


def mistake_in(folder: Path, text: str) -> str:
    """The one line about the user's file with this text; it begins with its place."""
    (folder / "job.yaml").touch()
    (folder / "slurmray/config.yaml").write_text(text)
    (line,) = mistakes(None if "profile:" in text else "gpu")
    return line.replace(f"{folder}/slurmray/config.yaml", "USER")


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
        (
            "profiles: {gpu: {host: -oProxyCommand=x}}",
            "USER:1:24: profiles.gpu.host: expected a host as for ssh",
        ),
        ("profiles: {a: {, }", "USER:1:16: "),
        ("a: \t\x01", "USER:1:5: the control character '\\x01'"),
    ],
)
def test_mistakes_in_a_file(text: str, expected: str, folder: Path) -> None:
    assert mistake_in(folder, text).startswith(expected)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("forbid: {slurm.memm: a}", "25: profiles.x.forbid.slurm.memm: unknown field, did you mean mem?"),
        ("forbid: {mem: a}", "25: profiles.x.forbid.mem: unknown field, did you mean slurm.mem?"),
        ("forbid: {name.x: a}", "25: profiles.x.forbid.name.x: name has no fields"),
        ("forbid: {slurm.mem: }", "35: profiles.x.forbid.slurm.mem: expected text, got null"),
        ("require: {ray.aut: token}", "26: profiles.x.require.ray.aut: unknown field, did you mean auth?"),
        ("require: {ray.auth: [token, yes]}", "25: profiles.x.require: ray.auth: expected "),
        (
            "require: {watch.stall: soon}",
            "25: profiles.x.require: watch.stall: expected seconds, or a time such as 30m",
        ),
        (
            "require: {slurm.qos: []}",
            "25: profiles.x.require: slurm.qos: expected a value, or a list of values",
        ),
    ],
)
def test_mistakes_in_rules(rules: str, expected: str, folder: Path) -> None:
    assert mistake_in(folder, f"profiles: {{x: {{{rules}}}}}").startswith(f"USER:1:{expected}")


def test_folders_that_the_user_may_not_enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config file of others, after `su` without -, or an administrator's umask; and other files."""
    (folder / "job.yaml").touch()
    closed = folder / "closed"

    def deny(path: Path) -> bool:
        if closed in path.parents or closed == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return os.path.exists(path)  # noqa: PTH110

    for name in ("exists", "is_file", "is_dir"):
        monkeypatch.setattr(Path, name, deny)
    monkeypatch.setattr(profile, "SITE", closed / "config.yaml")
    assert mistakes()[0].startswith(f"{closed}/config.yaml: cannot be read: ")
    monkeypatch.setenv("SLURMRAY_CONFIG", "")
    (folder / "job.yaml").write_text(f"include: {closed}/base.yaml\n")
    assert mistakes() == [f"job.yaml:1:10: include: {closed}/base.yaml: cannot be read: Permission denied"]
    (folder / "job.yaml").write_text(f"slurm: {{output: {closed}/%j.out}}\n")
    assert remarks(load_plan(Path("job.yaml"))) == []


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
    monkeypatch.setenv("SLURMRAY_CONFIG", "x" * 300)
    assert mistakes("gpu") == [f"SLURMRAY_CONFIG: {'x' * 300}: no such file; correct it, or unset it"]
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
        f'ray.auth           "token"    {site}:10:17',
        f"slurm.mem is not allowed: only mem_per_gpu ({user}:6:14)",
        f"slurm.mem is not allowed: nodes are not shared ({site}:8:14)",
        f"slurm.qos is not allowed: one for all ({site}:8:47)",
        f"ray.auth must be 'token' or 'none' ({site}:9:15)",
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
