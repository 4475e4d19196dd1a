"""Fixes for errors of real runtimes."""
# ruff: noqa: E501

import pytest

from slurmray.agent.fixes import error_line, fix_for

INSTALL = "install it on node1"
LOG_IN = "check container.image, and whether node1 has to log in"
FROM = "check FROM in Dockerfile, and whether node1 has to log in"
REACH = "node1 does not reach the registry"
TRUST = "let node1 trust it: /etc/docker/certs.d/REGISTRY/ca.crt"
IDS = "add alice:100000:65536 to /etc/subuid"
BUILD = "fix Dockerfile: /runs/1-0/logs/node1.log has"
BY_HAND = "run it on node1 by hand"
OWN_DISK = "put the images on node1's own disk: rootless_storage_path in ~/.config/containers/storage.conf"


def fix(verb: str, text: str, build_file: str = "") -> str:
    return fix_for(verb, text, "node1", "alice", "podman", build_file, "/runs/1-0/logs/node1.log")


# Output of `docker version` without a daemon: Docker 20.10.24+dfsg1 of Debian 12, and Docker 28.2.2.
NO_DAEMON = "Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?"
DENIED = (
    "permission denied while trying to connect to the Docker daemon socket at unix:///run/docker.sock: "
    'Get "http://%2Frun%2Fdocker.sock/v1.41/version": dial unix /run/docker.sock: connect: permission denied'
)


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        ("podman: not found; docker: not found", INSTALL),
        ("cannot execute podman: Permission denied", INSTALL),
        (NO_DAEMON, "start it on node1: systemctl start docker"),
        (DENIED, "as root on node1: usermod --append --groups docker alice"),
        ("permission denied while trying to connect to unix:///var/run/docker.sock", "usermod --append"),
        ("error during connect: dial tcp: lookup docker on 1.1.1.1:53: no such host", BY_HAND),
        (
            'invalid internal status, try resetting the pause process with "podman system migrate"',
            "on node1, as alice: podman system migrate",
        ),
        ("subuid", IDS),
        ("Error: 'overlay' is not supported over nfs at \"/home/a/.local/share/containers\"", OWN_DISK),
    ],
)
def test_a_runtime_that_does_not_work(why: str, expected: str) -> None:
    assert expected in fix("use", why)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Error response from daemon: docker.io/x/y:1: not found", LOG_IN),  # containerd's store
        ("Error: reading manifest 1 in docker.io/x/y: manifest unknown", LOG_IN),
        (
            "Error: initializing source docker://ghcr.io/x/y:1: reading manifest 1 in ghcr.io/x/y: denied",
            LOG_IN,
        ),
        ("Error: pinging container registry: invalid status code from registry 404 (Not Found)", LOG_IN),
        ("Error: unable to retrieve auth token: invalid username/password: unauthorized", LOG_IN),
        ("Error response from daemon: no basic auth credentials: authentication required", LOG_IN),
        ("Error: writing blob: mkdir /var/tmp/containers: permission denied", BY_HAND),
        ("Error: pinging container registry r: dial tcp: lookup r: no such host", REACH),
        ("Error response from daemon: Get https://r/v2/: net/http: TLS handshake timeout", REACH),
        ('Error: Get "https://r/v2/": x509: certificate signed by unknown authority', TRUST),
        (
            "Error: toomanyrequests: You have reached your pull rate limit",
            "log in to the registry on node1, or load",
        ),
        ("Error: writing blob: write /x: no space left on device", "free space where podman on node1 keeps"),
        (
            "Error: insufficient UIDs or GIDs available in user namespace (requested 0:42 for /etc/shadow): "
            'Check /etc/subuid if configured and run "podman system migrate": lchown /etc/shadow: invalid argument',
            IDS,
        ),
        ("Error: lchown /x: operation not permitted", OWN_DISK),
        ("Error: of an unknown kind", BY_HAND),
    ],
)
def test_a_pull_that_fails(text: str, expected: str) -> None:
    assert expected in fix("pull", text)


def test_a_failed_load_has_no_fix_for_a_registry() -> None:
    assert fix("load", "Error: open x.tar: not found") == BY_HAND


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'Error: building at STEP "RUN git clone --timeout 9": while running runtime: exit status 127',
            BUILD,
        ),
        (
            'ERROR: failed to solve: process "/bin/sh -c git" did not complete successfully: exit code: 127',
            BUILD,
        ),
        ("The command '/bin/sh -c git' returned a non-zero code: 127", BUILD),
        ('ERROR: failed to solve: failed to compute cache key: "/x": not found', BUILD),
        ('Error: building at STEP "COPY x /": checking on sources under "/c": "/x": no such file', BUILD),
        ("ERROR: failed to solve: x/y:1: failed to resolve source metadata for x/y:1: not found", FROM),
        (
            'Error: short-name "x" did not resolve to an alias and no unqualified-search registries are defined',
            "write FROM in Dockerfile with its registry",
        ),
    ],
)
def test_a_build_that_fails(text: str, expected: str) -> None:
    assert expected in fix("build", text, "Dockerfile")


def test_the_error_line_is_the_error() -> None:
    assert error_line("timeout: no answer\ngit: not found\nError: of an unknown kind\n\n") == (
        "Error: of an unknown kind"
    )


# Of Apptainer 1.4.5, whose TMPDIR had space for the image's files, but not for the squashfs.
SQUASHFS = "FATAL:   While performing build: while creating squashfs: /usr/bin/mksquashfs command failed: exit status 1: "
SQUASHFS += "Write failed because No space left on device"
AFTER = "Failed to write to output filesystem\nFATAL ERROR: Probably out of space on output filesystem\n"


@pytest.mark.parametrize(
    ("text", "is_full"),
    [
        (f"INFO:    Creating SIF file...\n{SQUASHFS}\n{AFTER}", True),
        ("INFO:    Converting\nError: write /x: disk quota exceeded\nexit status 1\n", True),
        # A limit on user namespaces, of Podman.
        ("x\nError: cannot re-exec process\nERROR: cannot clone: No space left on device\n", False),
    ],
)
def test_a_full_disk_is_the_cause_wherever_it_is_said(text: str, is_full: bool) -> None:
    line = error_line(text)
    assert line == text.splitlines()[1 if is_full else 2]
    assert ("or set TMPDIR in setup" in fix("build", line)) == is_full


def test_an_image_file_is_unpacked_in_the_temp_folder() -> None:
    text = (  # of Apptainer 1.4.5
        "FATAL:   while extracting /out/ok.sif: root filesystem extraction failed: failed to copy content in "
        "staging file: write /small/rootfs-3413524170/archive-2648990019: no space left on device"
    )
    assert fix("exec", text) == "free space on node1, or set ray.temp_dir"


def test_colors_are_removed() -> None:
    assert error_line("INFO: x\n\x1b[91mERROR  : no such thing\n\x1b[0m\n") == "ERROR  : no such thing"
    assert error_line("") == ""
    assert error_line("Copying 10 %\rCopying 20 %\rError: no such thing\r\n") == "Error: no such thing"
