"""Profiles: defaults of a site or a user for job specs, in configuration files.

profile: gpu                # the one that is used without --profile
profiles:
  gpu:                      # fields of a job spec, forbid, require, host and folder
    slurm: {account: vision, partition: h100}
    forbid: {slurm.mem: nodes are not shared here}
    require: {container.runtime: [podman, apptainer]}
  laptop:
    host: login.example     # jobs are submitted there, through ssh
    folder: runs/vision     # from this folder of it
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from slurmray import files, yaml_source
from slurmray.errors import Problem, SpecError
from slurmray.loading.demands import Demand, find_field, parse_allowed, take_demands
from slurmray.loading.places import place_problem
from slurmray.slurm.host import Host, get_host
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.slurm_section import Model
from slurmray.spec.types import Line, check_items
from slurmray.spec.validation_errors import list_problems
from slurmray.yaml_source import Source

NONE = "none"  # in place of a name: no profile
SITE = Path("/etc/slurmray/config.yaml")


class Profile(NamedTuple):
    """A profile."""

    name: str
    source: Source  # fields of a job spec
    demands: Sequence[Demand] = ()  # on the fields of every job spec with it
    host: str | None = None  # with Slurm, a name for ssh; None is this host
    # Of the jobs there, below the home folder; None is `slurmray/` and the current folder's name.
    folder: str | None = None

    def submit_folder(self) -> str:
        """Return the folder on the host from which a job is submitted."""
        return self.folder or f"slurmray/{Path.cwd().name}"

    def refusals(self, spec: JobSpec) -> Iterator[Problem]:
        """Yield a problem for each demand that a job spec does not meet, and for missing files of `sync`."""
        for number, name in enumerate(spec.sync if self.host else ()):
            if not files.may_exist(Path(name)):  # rsync names what it cannot read
                yield Problem("", f"sync, item {number + 1}: no such file: {name}", ("sync", number))
        for demand in self.demands:
            yield from demand.problems(spec)


def choose_host(profile: Profile | None) -> Host:
    """Return the host on which jobs with a profile are submitted."""
    return get_host(profile.host if profile else None)


def choose_folder(profile: Profile | None) -> Path:
    """Return the folder from which jobs with a profile are submitted; see Profile.submit_folder."""
    return Path(profile.submit_folder()) if profile and profile.host else Path.cwd()


_FieldName = Annotated[Line, AfterValidator(lambda name: find_field(name) and name)]


class _Fields(Model):
    """A profile in a file. The fields of job specs are checked with those of a job."""

    model_config = ConfigDict(extra="allow")

    forbid: dict[_FieldName, Line] = Field(default={})
    require: dict[_FieldName, Any] = Field(default={})
    host: Line | None = None
    folder: Line | None = None

    @field_validator("host")
    @classmethod
    def _check_host(cls, value: str | None) -> str | None:
        if value and re.search(r"^-|\s", value):
            raise ValueError("expected a host as for ssh, e.g. login.example or me@login.example")
        return value

    @field_validator("require")
    @classmethod
    def _check_require(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_items(lambda item: parse_allowed(*item), (("", item) for item in value.items()))
        return value

    @model_validator(mode="after")
    def _check_include(self) -> _Fields:
        if "include" in (self.model_extra or {}):
            raise ValueError("include is not for profiles; include it in job specs")
        return self


class _Config(Model):
    """A configuration file."""

    profile: Line | None = None
    profiles: dict[Line, _Fields | None] = Field(default={})


def list_files() -> list[Path]:
    """Return the configuration files that exist; the first one has priority.

    $SLURMRAY_CONFIG alone ("": none). Without it ~/.config/slurmray/config.yaml ($XDG_CONFIG_HOME instead of
    ~/.config), and SITE. SpecError if $SLURMRAY_CONFIG does not exist.
    """
    own = os.environ.get("SLURMRAY_CONFIG")
    if own is None:
        home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        return [path for path in (home / "slurmray/config.yaml", SITE) if files.may_exist(path)]
    if own and not files.may_exist(Path(own)):
        raise SpecError([Problem("SLURMRAY_CONFIG", f"{own}: no such file; correct it, or unset it")])
    return [Path(own)] if own else []


def list_names() -> list[str]:
    """Return the names of all profiles. SpecError for mistakes in the files."""
    return list(dict.fromkeys(name for path in list_files() for name in _read(path).data["profiles"]))


def choose(name: str | None) -> Profile | None:
    """Return a profile; None for NONE, or if no profile is named.

    name: None is $SLURMRAY_PROFILE, or else `profile` of the files. Where several files have the profile, the
    first one's fields have priority. SpecError for an unknown name, and for mistakes in the files.
    """
    sources = [_read(path) for path in list_files()]
    where = "--profile"
    if name is None and (variable := os.environ.get("SLURMRAY_PROFILE")):
        name, where = variable, "SLURMRAY_PROFILE"
    for source in sources:
        if name is None and (given := source.data.get("profile")) is not None:
            name, where = given, source.where(source.values["profile",])
    if name is None or name == NONE:
        return None
    parts = [source.part(("profiles", name)) for source in sources if name in source.data["profiles"]]
    if not parts:
        places = f"~/.config/slurmray/config.yaml, {SITE}, or the file that SLURMRAY_CONFIG names"
        hint = f"known are {', '.join(list_names())}" if list_names() else f"define it in {places}"
        other = "; sbatch's --profile is --set slurm.profile" if where == "--profile" else ""
        raise SpecError([Problem(where, f"unknown profile {name!r}; {hint}{other}")])
    demands = [demand for part in parts for demand in take_demands(part)]
    place: dict[str, str] = {}
    for part in reversed(parts):
        place |= {key: value for key in ("host", "folder") if (value := part.data.pop(key, None))}
    first, *others = parts
    for part in others:
        first.fill(part)
    return Profile(name, first, demands, place.get("host"), place.get("folder"))


def _read(path: Path) -> Source:
    """Read a configuration file. SpecError for its mistakes, except for those in fields of job specs."""
    try:
        source = yaml_source.read(str(path), yaml_source.decode(str(path), files.read(path)))
    except OSError as error:
        raise SpecError([Problem(str(path), f"cannot be read: {error.strerror}")]) from None
    source.data = {} if source.data is None else source.data
    problems = [problem for _, problem in source.problems]
    try:
        _Config.model_validate(source.data)
    except ValidationError as error:
        problems += [place_problem(source, [], problem)[1] for problem in list_problems(error, _Config)]
    if problems:
        raise SpecError(problems)
    profiles = source.data.get("profiles") or {}
    source.data["profiles"] = {name: fields or {} for name, fields in profiles.items()}
    return source
