"""Ray's session logs of one node, which the job's folder holds, in an archive in the run directory."""

import os

from . import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Tuple

    from .wire.settings import Settings

FOLDER = "ray-logs"  # in the job's folder
MAX_FILE = 1 << 20  # bytes of the end of each file
MAX_ALL = 20 << 20  # bytes, of the files that were written to last; an archive has about a tenth of that


def are_kept(settings: "Settings", has_succeeded: bool) -> bool:
    """Whether the job spec wants the logs. has_succeeded: the trainer exited with 0."""
    wanted = settings["ray"]["keep_logs"]
    return wanted == "always" or (wanted == "on_failure" and not has_succeeded)


def set_aside(folder: str) -> None:
    """Move the logs of the last session to FOLDER, where the node agent may read and remove them.

    In the container, where they may have another owner. folder: the job's folder.
    """
    logs = os.path.join(folder, "session_latest", "logs")
    if not os.path.isdir(logs):
        return
    target = os.path.join(folder, FOLDER)
    os.rename(os.path.realpath(logs), target)
    for place, _, names in os.walk(target):
        os.chmod(place, 0o777)  # noqa: S103 - others cannot enter the folder around the job's folder
        for name in names:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                os.chmod(path, 0o644)


def archive(folder: str, path: str) -> bool:
    """Write the logs to a new .tar.gz file. Return False where there are none. OSError where that fails.

    Only the submitter can read it: Ray logs runtime environments with the values of their variables.
    folder: the job's folder, as the node agent sees it. path: of the archive.
    """
    import io
    import tarfile

    files = list(_newest(_files(folder)))
    if not files:
        return False
    part = path + ".part"
    try:
        with open(part, "wb", opener=paths.private_file) as out, tarfile.open(
            fileobj=out, mode="w:gz", compresslevel=1
        ) as tar:
            for name, time, data in files:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime = len(data), int(time)
                tar.addfile(entry, io.BytesIO(data))
        os.rename(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)
    return True


def _files(folder: str) -> "List[Tuple[float, str, str]]":
    """(time of the last change, path, name in the archive) of all logs; symbolic links are left out."""
    files = []
    # Where the container was killed, nothing has been set aside.
    for root in (os.path.join(folder, FOLDER), os.path.join(folder, "session_latest", "logs")):
        for place, _, names in os.walk(root):
            for name in names:
                path = os.path.join(place, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    files.append((os.stat(path).st_mtime, path, os.path.relpath(path, root)))
    return files


def _newest(files: "List[Tuple[float, str, str]]") -> "Iterator[Tuple[str, float, bytes]]":
    """(name, time, last bytes) of the files that were written to last, MAX_ALL bytes at most."""
    left = MAX_ALL
    for time, path, name in sorted(files, reverse=True):
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - min(MAX_FILE, left)))
                data = file.read(min(MAX_FILE, left))
        except OSError:  # not readable for the submitter
            continue
        left -= len(data)
        if data:
            yield name, time, data
