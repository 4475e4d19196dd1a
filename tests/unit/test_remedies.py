"""What the script says to do about what a runtime has said: texts of real runtimes."""

from pathlib import Path

import pytest

from slurmray.rendering import render
from slurmray.spec import JobSpec
from tests.script import run_instead

FACTS = """
RUNTIME=podman NODE=node1 RUN=/runs/1-0 IMAGE=image TEMP=$PWD
id() { echo alice; }
"""
INSTALL = "install it on node1"
LOG_IN = "check container.image, and whether node1 has to log in"
FROM = "check FROM in Dockerfile, and whether node1 has to log in"
REACH = "node1 does not reach the registry"
TRUST = "let node1 trust it: /etc/docker/certs.d/REGISTRY/ca.crt"
IDS = "add alice:100000:65536 to /etc/subuid"
MEND = "mend Dockerfile: /runs/1-0/logs/node1.log has"


def bash(call: str, folder: Path, *words: str, **spec: object) -> str:
    """What the function says."""
    done = run_instead(render(JobSpec.model_validate(spec)), FACTS + call, folder, *words)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("podman: not found; docker: not found", INSTALL),
        ("timeout: failed to run command 'podman': Permission denied", INSTALL),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?",
            "systemctl start",
        ),
        ("permission denied while trying to connect to unix:///var/run/docker.sock", "usermod --append"),
        (
            "error during connect: dial tcp: lookup docker on 1.1.1.1:53: no such host",
            "run it on node1 by hand",
        ),
        (
            'invalid internal status, try resetting the pause process with "podman system migrate"',
            "on node1, as alice: podman system migrate",
        ),
    ],
)
def test_a_runtime_that_does_not_work(why: str, remedy: str, tmp_path: Path) -> None:
    assert remedy in bash('remedy use "$1"', tmp_path, why)


# What `docker version`, and `docker info --format` with a field of the server's, say where no daemon answers:
# Debian 12's 20.10.24+dfsg1-1+deb12u1+b6, and Docker's own 28.2.2.
AWAY = "Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?"
DENIED = (
    "permission denied while trying to connect to the Docker daemon socket at unix:///run/docker.sock: "
    'Get "http://%2Frun%2Fdocker.sock/v1.41/version": dial unix /run/docker.sock: connect: permission denied'
)
NO_FIELD = (
    '\ntemplate: :1:2: executing "" at <.ServerVersion>: '
    "reflect: indirection through nil pointer to embedded struct field Info"
)


@pytest.mark.parametrize(
    ("why", "info", "remedy"),
    [
        pytest.param(AWAY, NO_FIELD, "start it on node1: systemctl start docker", id="20.10-away"),
        pytest.param(DENIED, NO_FIELD, "usermod --append --groups docker alice", id="20.10-denied"),
        pytest.param(AWAY, AWAY, "start it on node1: systemctl start docker", id="28.2-away"),
        pytest.param(DENIED, DENIED, "usermod --append --groups docker alice", id="28.2-denied"),
    ],
)
def test_a_docker_that_no_daemon_answers(why: str, info: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "version").write_text(why)
    (tmp_path / "info").write_text(info)
    client = tmp_path / "bin/docker"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\ncat "{tmp_path}/$1" >&2\nexit 1\n')
    client.chmod(0o755)
    call = f'PATH={client.parent}:$PATH\ndocker_works 2>/dev/null || echo "$WHY; $(remedy use "$WHY")"'
    found = bash(call, tmp_path, container={"runtime": "docker"})
    assert found.startswith(f"{why}; ")
    assert remedy in found


PULLS = [
    ("Error response from daemon: docker.io/x/y:1: not found", LOG_IN),  # containerd's store
    ("Error: reading manifest 1 in docker.io/x/y: manifest unknown", LOG_IN),
    ("Error: initializing source docker://ghcr.io/x/y:1: reading manifest 1 in ghcr.io/x/y: denied", LOG_IN),
    ("Error: pinging container registry: invalid status code from registry 404 (Not Found)", LOG_IN),
    ("Error: unable to retrieve auth token: invalid username/password: unauthorized", LOG_IN),
    ("Error response from daemon: no basic auth credentials: authentication required", LOG_IN),
    ("Error: writing blob: mkdir /var/tmp/containers: permission denied", "run it on node1 by hand"),
    ("Error: pinging container registry r: dial tcp: lookup r: no such host", REACH),
    ("Error response from daemon: Get https://r/v2/: net/http: TLS handshake timeout", REACH),
    ('Error: Get "https://r/v2/": x509: certificate signed by unknown authority', TRUST),
    ("Error: toomanyrequests: You have reached your pull rate limit", "log in to the registry on node1"),
    (
        "Error: insufficient UIDs or GIDs available in user namespace (requested 0:42 for /etc/shadow): Check"
        ' /etc/subuid if configured and run "podman system migrate": lchown /etc/shadow: invalid argument',
        IDS,
    ),
]


@pytest.mark.parametrize(("said", "remedy"), PULLS)
def test_a_pull_that_fails(said: str, remedy: str, tmp_path: Path) -> None:
    assert remedy in bash('remedy pull "$1"', tmp_path, said)


BUILDS = [
    ('Error: building at STEP "RUN git clone --timeout 9": while running runtime: exit status 127', MEND),
    ('ERROR: failed to solve: process "/bin/sh -c git" did not complete successfully: exit code: 127', MEND),
    ("The command '/bin/sh -c git' returned a non-zero code: 127", MEND),
    ('ERROR: failed to solve: failed to compute cache key: "/x": not found', MEND),
    ('Error: building at STEP "COPY x /": checking on sources under "/c": "/x": no such file', MEND),
    ("ERROR: failed to solve: x/y:1: failed to resolve source metadata for x/y:1: not found", FROM),
    (
        'Error: short-name "x" did not resolve to an alias and no unqualified-search registries are defined',
        "write FROM in Dockerfile with its registry",
    ),
]


@pytest.mark.parametrize(("said", "remedy"), BUILDS)
def test_a_build_that_fails(said: str, remedy: str, tmp_path: Path) -> None:
    container = {"build": {"file": "Dockerfile"}, "image": "localhost/x:1"}
    assert remedy in bash('remedy build "$1"', tmp_path, said, container=container)


def test_only_the_last_line_is_the_runtime_s(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("timeout: no answer\ngit: not found\nError: what nobody knows\n\n")
    said = bash('finding() { echo "$3; $5"; }\nnot_there pull', tmp_path)
    assert said == "Error: what nobody knows; run it on node1 by hand\n"


def test_a_long_finding_keeps_its_cause(tmp_path: Path) -> None:
    told = bash('say() { echo "$2"; }\nfinding image x "$1" y z', tmp_path, "first " + "x" * 500 + " cause")
    kind, check, found, *_ = told.split("|")
    assert (kind, check, len(found)) == ("image", "x", 250)
    assert found.startswith("first xx")
    assert found.endswith("xx cause")
    assert " ... " in found
