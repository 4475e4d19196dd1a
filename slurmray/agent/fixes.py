"""Fixes for errors of container runtimes, by patterns of their output."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

BY_HAND = "run it on {node} by hand"
# For container.runtime: none.
PYTHON_WANTED = "Python 3.8 or later, and ray[default] in it"
PYTHON_FIX = "activate its environment in setup, or set container.python"

# Errors of a command in the build file, not of the runtime.
BUILD_STEP = (
    r"^build .*(while running runtime|did not complete|non-zero code|cache key|COPY failed|ADD failed"
    r"|checking on sources)"
)

# A full disk, or a quota. A limit on namespaces has the same text.
FULL_DISK = r"^(?!.*(?:cannot clone|user namespace)).*(?:[Nn]o space left|[Qq]uota exceeded)"

# (pattern of "VERB TEXT", fix): the first that matches counts. VERB `use`: the runtime does not work at all.
FIXES: "List[Tuple[str, str]]" = [
    (r"^build .*short-name", "write FROM in {build_file} with its registry, e.g. docker.io/library/"),
    (r"permission denied.*\.sock", "as root on {node}: usermod --append --groups docker {user}"),
    (r"[Cc]annot connect to the Docker daemon|docker API", "start it on {node}: systemctl start docker"),
    (
        r"^use .*(: not found|cannot execute )",
        "install it on {node}, load its module in setup, or set container.runtime",
    ),
    (
        r"subuid|subgid|insufficient UIDs|invalid argument$",
        "add {user}:100000:65536 to /etc/subuid and /etc/subgid of {node}",
    ),
    (r"podman system migrate", "on {node}, as {user}: podman system migrate"),
    (
        r"not supported over|network file system|unsupported for this graph driver|lchown",
        "put the images on {node}'s own disk: rootless_storage_path in ~/.config/containers/storage.conf",
    ),
    # Apptainer unpacks an image file in the job's folder.
    (r"^exec .*(?:[Nn]o space left|[Qq]uota exceeded)", "free space on {node}, or set ray.temp_dir"),
    (
        FULL_DISK,
        "free space where {runtime} on {node} keeps images, or in its TMPDIR, or set TMPDIR in setup",
    ),
    (r"any of the supported image formats", "gunzip it: Podman 4.3 loads no compressed archive"),
    (r"^(use|load) ", BY_HAND),
    (
        r"toomanyrequests|rate limit",
        "log in to the registry on {node}, or load the image there beforehand",
    ),
    (
        r"x509",
        "fix the registry's certificate, or let {node} trust it: /etc/docker/certs.d/REGISTRY/ca.crt",
    ),
    (
        r"[Uu]nauthorized|authentication required|[^n] denied|t unknown|not known|[Nn]ot [Ff]ound",
        "check {image_source}, and whether {node} has to log in to the registry",
    ),
    (
        r"dial tcp|lookup|[Tt]imeout|no answer|refused",
        "{node} does not reach the registry: load the image there beforehand",
    ),
]

# Errors of a pull for which another try is worthwhile.
TRANSIENT = r"reset by peer|TLS handshake|unexpected EOF|[Tt]imeout|toomanyrequests| 429| 50[0-4]"

# Errors of a connection that was not made, of Go's package net. Another try of a pull is not worthwhile.
UNREACHABLE = (
    r"dial tcp[^\n]*(?:i/o timeout|timed out|refused|no route to host|network is unreachable|no such host)"
    r"|waiting for connection"
)


def fix_for(
    verb: str, output: str, node: str, user: str, runtime: str = "", build_file: str = "", log_path: str = ""
) -> str:
    """Return the fix for an error.

    verb: the runtime's command, e.g. pull; `use` where the runtime does not work at all. output: its own.
    build_file: as in the job spec; "" where no image is built.
    """
    import re

    error = "%s %s" % (verb, output)
    if build_file and re.search(BUILD_STEP, error, re.DOTALL):
        return "fix %s: %s has the complete output" % (build_file, log_path)
    facts = {
        "node": node,
        "user": user,
        "runtime": runtime,
        "build_file": build_file,
        "image_source": "FROM in %s" % build_file if build_file else "container.image",
    }
    for pattern, fix in FIXES:
        if re.search(pattern, error, re.DOTALL):
            return fix.format(**facts)
    return BY_HAND.format(**facts)


def error_line(text: str) -> str:
    """The line with the error, without colours: the last, as earlier ones may be of other programs.

    But the one about a full disk, if there is one: mksquashfs, for example, says after it what it was doing.
    """
    import re

    lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if line.strip()]
    return ([line for line in lines if re.search(FULL_DISK, line)] or lines or [""])[-1]
