"""Packages shipped with the pickled function: a zip, and the folders of the caller's own modules."""

from __future__ import annotations

import hashlib
import io
import sys
import sysconfig
import uuid
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from slurmray import files
from slurmray.errors import UsageError

# {package: folder in the zip}, all pure Python: what reading submitit's pickles and importing slurmray.native
# needs. The folder `last` comes at the end of sys.path, because Ray and the trainer may need a newer version.
_PACKAGES = {"slurmray": "", "submitit": "", "cloudpickle": "", "typing_extensions": "last"}
_DATE = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same content gives the same file


def pack(folder: Path) -> Path:
    """Return a zip of the packages for PYTHONPATH. It is written to the folder unless it is already there.

    UsageError if its name is taken by a link, or by another user's file.
    """
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(_find_files()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), file.read_bytes(), zipfile.ZIP_DEFLATED)
    content = memory.getvalue()
    target = folder / f"slurmray-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    try:
        is_there = files.read_own(target) == content
    except FileNotFoundError:
        is_there = False
    except OSError as error:
        raise UsageError(f"{target}: {error.strerror}: remove it") from None
    if not is_there:
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{uuid.uuid4().hex}")
        part.write_bytes(content)
        part.replace(target)
    return target


def _find_files() -> Iterator[tuple[str, Path]]:
    """Yield (name in the zip, file), without the tests that submitit has among its modules."""
    for package, folder in _PACKAGES.items():
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{package} is not installed: pip install {package}")
        origin = Path(spec.origin)
        if not spec.submodule_search_locations:
            yield str(Path(folder) / origin.name), origin
            continue
        for file in origin.parent.rglob("*.py"):
            if not file.name.startswith("test_"):
                yield str(Path(folder) / package / file.relative_to(origin.parent)), file


def find_code_folders() -> list[Path]:
    """Return the folders of the caller's modules: those in sys.path outside any Python installation."""
    paths = sysconfig.get_paths()
    installed = [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    bin_folders = {Path(paths["scripts"]).resolve(), Path(sys.executable).parent.resolve(), Path("/usr/bin")}
    packed = Path(__file__).resolve().parents[2]
    folders = []
    for position, entry in enumerate(sys.path):
        folder = Path(entry or ".").resolve()
        if not folder.is_dir() or folder == Path("/") or (folder == packed and position):
            continue
        if folder.name in ("site-packages", "dist-packages") or folder in bin_folders:  # user site, Debian
            continue
        if not any(folder.is_relative_to(part) for part in installed):
            folders.append(folder)
    return list(dict.fromkeys(folders))
