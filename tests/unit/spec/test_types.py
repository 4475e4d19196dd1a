"""Limits and forms that fields have in common: whole values, visible text, and numbers with a bound."""

from typing import Any

import pytest

from slurmray.errors import SpecError
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.types import INVISIBLE, MAX_FILE_NAME, MAX_INTEGER, MAX_NAME, MAX_PATH

SERVICE = {"name": "a", "run": "x"}


def section(path: str, value: Any) -> dict[str, Any]:
    """Return the fields of a job spec with a value at a dotted path."""
    first, _, rest = path.partition(".")
    if first == "ready":
        return {"services": [{**SERVICE, "ready": {rest: value}}]}
    return {first: section(rest, value) if rest else value}


def problems(fields: dict[str, Any]) -> list[str]:
    """Return what is wrong with the fields of a job spec."""
    try:
        JobSpec.model_validate(fields)
    except SpecError as error:
        return [found.text for found in error.problems]
    return []


def problem(path: str, value: Any) -> str:
    """Return what is wrong with a value of a field; "" if nothing is."""
    found = problems(section(path, value))
    assert len(found) < 2
    return "".join(found).rpartition(f"{path.rpartition('.')[2]}: ")[2]


LINES = [
    *("name", "run_dir", "template", "env_file", "network.interface", "checks.same_commit", "watch.progress"),
    *("container.archive", "container.python", "slurm.partition", "slurm.comment"),
    *("preset.config", "ray.runtime_env"),
]
PATHS = ["run_dir", "template", "env_file", "checks.same_commit", "watch.progress", "container.archive"]


@pytest.mark.attack("invisible text in a job spec", inputs=6)
@pytest.mark.parametrize("path", [*LINES, "container.workdir", "ray.temp_dir"])
def test_a_line_has_only_visible_text(path: str) -> None:
    begin = "/a" if path in ("container.workdir", "ray.temp_dir", "container.python") else "a"
    for character in ("\x1b", "\r", "\t", "\x85", "\u202e", "\u2028"):
        wrong = problem_of(path, f"{begin}{character}x")
        assert wrong.endswith(f"has the invisible character {character!a}; leave it out"), wrong
        assert not INVISIBLE.search(wrong)
    assert problem_of(path, f"{begin}\n") == "has a newline; write it on one line"


def problem_of(path: str, value: str) -> str:
    """Return the first problem with a text."""
    fields = section(path, value)
    fields.setdefault("preset", {"name": "roll"}).setdefault("name", "roll")
    fields.setdefault("launch", "ray-job")
    return problems(fields)[0].removeprefix(f"{path}: ")


@pytest.mark.parametrize("text", ["é", "名前", "a b", "it's $(id)", "\U0001f600"])
def test_visible_text_of_any_language(text: str) -> None:
    assert problem("name", text) == ""
    assert problem("run_dir", text) == ""


def test_a_name_has_at_most_what_slurm_takes() -> None:
    assert problem("name", "é" * (MAX_NAME // 2)) == ""
    assert (
        problem("name", "é" * (MAX_NAME // 2) + "x")
        == "has 1025 bytes, and Slurm takes at most 1024; shorten it"
    )


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_no_file_can_have(path: str) -> None:
    part = "é" * (MAX_FILE_NAME // 2) + "x"
    assert len(part.encode()) == MAX_FILE_NAME
    longest = f"{part}/" * (MAX_PATH // (MAX_FILE_NAME + 1)) + part
    assert len(longest.encode()) == MAX_PATH
    assert problem(path, longest) == ""
    assert problem(path, f"x/{part}x/x").startswith(
        "has 260 bytes, and a path has at most 4095, and each name"
    )
    assert problem(path, f"{longest[:-1]}/x").startswith("has 4096 bytes")


def test_paths_of_mounts_and_folders_in_the_container() -> None:
    part = "x" * MAX_FILE_NAME
    for right in ([f"/{part}"], [f"/{part}:/{part}:ro"]):
        assert problem("container.mounts", right) == ""
    for wrong in ([f"/{part}x"], [f"/{part}:/{part}x"], ["/a\t"], ["/a:/b\n"]):
        assert problem("container.mounts", wrong) != ""
    assert problem("container.workdir", f"/{part}") == ""
    assert problem("container.workdir", f"/{part}x").startswith("has 257 bytes")


INTEGERS = {
    **dict.fromkeys(("stop.grace", "requeue.max", "restart.window", "restart.grace", "watch.interval"), 0),
    **dict.fromkeys(("watch.stall", "checks.burn_in"), 0),
    **dict.fromkeys(("restart.max", "container.setup_timeout", "ray.ready_timeout", "ready.timeout"), 1),
    **dict.fromkeys(("ray.gpus_per_node", "slurm.cpus_per_task"), 1),
    **{"spares": 0, "heartbeat_timeout": 10},
}


@pytest.mark.attack("a number that is far too large", inputs=3)
@pytest.mark.parametrize(("path", "least"), INTEGERS.items())
def test_every_number_has_a_bound(path: str, least: int) -> None:
    def wrong(value: object) -> str:
        given = section(path, value)
        if path.startswith("ready."):
            given["services"][0]["ready"]["tcp"] = "a:1"
        return next(iter(problems(given)), "")

    assert [wrong(least), wrong(str(MAX_INTEGER))] == ["", ""]
    assert f"expected {least} or more, got" in wrong(least - 1)
    for value in (MAX_INTEGER + 1, "999999999999", 10**30):
        assert f"expected {MAX_INTEGER} or less, got" in wrong(value), value


@pytest.mark.parametrize(
    ("path", "most"), [("stop.lead", 65535), ("requeue.exit_code", 255), ("slurm.nodes", 65536)]
)
def test_numbers_with_a_bound_of_their_own(path: str, most: int) -> None:
    fix = {"slurm": {"time": "UNLIMITED"}}
    for value, expected in ((most, ""), (most + 1, f"expected {most} or less, got '{most + 1}'")):
        found = next(iter(problems({**fix, **section(path, value)})), "")
        assert found.partition(": ")[2] == expected


def test_times_with_a_unit() -> None:
    assert JobSpec(watch={"stall": "2h"}).watch.stall == 7200
    assert JobSpec(checks={"burn_in": "10s"}).checks.burn_in == 10
    assert problem("watch.stall", "27777h") == ""
    assert problem("watch.stall", "27778h") == f"expected {MAX_INTEGER} or less, got '100000800'"
    for text in ("1d", "1 h", "h", "2h\n", "1.5h", ""):
        assert problem("watch.stall", text).startswith("expected seconds, or a time"), text


@pytest.mark.parametrize(
    "address",
    ["localhost:1", "127.0.0.1:8000", "[::1]:8000", "[fd00::3%25ib0]:65535", "gpu-1.example:080", "a_b:99"],
)
def test_tcp(address: str) -> None:
    assert problem("ready.tcp", address) == ""


@pytest.mark.attack("an address that is none", inputs=1)
@pytest.mark.parametrize(
    "address",
    [
        *(
            "::1",
            "::1:8000",
            "[::1]",
            "[::1:80",
            "a",
            "a:",
            ":80",
            "a:0",
            "a:65536",
            "a:b:80",
            "a:\uff18\uff10",
            "a:-1",
        ),
        *("a:80/x", "a/b:80", "a:80?x", "a?:80", "a#:80", "me@a:80", "a b:80", "a:80 ", "a:080000"),
    ],
)
def test_no_tcp(address: str) -> None:
    assert problem("ready.tcp", address).startswith(
        "expected HOST:PORT, e.g. 127.0.0.1:8000 or [::1]:8000, got"
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "https://a:65535/b?c=d#e",
        "http://[::1]:8000/health",
        "http://127.0.0.1:1/",
        "http://a_b:/",
    ],
)
def test_http(url: str) -> None:
    assert problem("ready.http", url) == ""


@pytest.mark.attack("an address that is none", inputs=1)
@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://[",
            "http://",
            "http:///x",
            "http://:80/",
            "http:a",
            "a:80",
            "ftp://a/",
            "file:///etc/hosts",
        ),
        *("http://a:b/", "http://a:0/", "http://a:65536/", "http://me:x@a/", "http://a/b c", "http://é/"),
        *("http://[::1/", "http://a]/", " http://a"),
    ],
)
def test_no_http(url: str) -> None:
    assert problem("ready.http", url).startswith("expected a URL, e.g. http://127.0.0.1:8000/health, got")


@pytest.mark.attack("an argument that is another host for rsync", inputs=3)
def test_rsync_takes_no_file_for_a_host() -> None:
    for path in ("a:b", "rsync://a/b", "a:/b"):
        assert f"rsync takes what is before the colon for a host; write ./{path}" in problem("sync", [path])
    assert problem("sync", ["./a:b", "a/b:c"]) == ""
