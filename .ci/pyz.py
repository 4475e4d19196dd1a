"""Builds slurmray.pyz: slurmray and what it depends on in one file, for every Python and machine below.

usage: pyz.py FILE. Packages come from PyPI; with the same versions, the same commit gives the same bytes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
MACHINES = ("x86_64", "aarch64")
# PyYAML and MarkupSafe work without their compiled modules, pydantic does not.
COMPILED = "pydantic_core/_pydantic_core.*.so"
# What pip writes about an installation.
OF_PIP = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def pip(*argv: str | Path) -> None:
    """Run pip."""
    subprocess.run([sys.executable, "-m", "pip", *argv, "--quiet", "--disable-pip-version-check"], check=True)


def install(folder: Path, python: str, machine: str, *packages: str | Path) -> None:
    """Install packages for another Python and machine into a folder."""
    target = ("--only-binary=:all:", "--python-version", python, "--platform", f"manylinux2014_{machine}")
    pip("install", "--target", folder, "--no-compile", *target, *packages)


def collect(scratch: Path) -> dict[str, bytes]:
    """Return the files of the archive by name."""
    pip("wheel", "--no-deps", "--wheel-dir", scratch, ROOT)
    (wheel,) = scratch.glob("*.whl")
    tree = scratch / "tree"
    install(tree, PYTHONS[0], MACHINES[0], wheel)
    (core,) = (path.name.removesuffix(".dist-info") for path in tree.glob("pydantic_core-*.dist-info"))
    files = {
        str(path.relative_to(tree)): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file() and path.suffix != ".so" and path.name not in OF_PIP and path.parent != tree / "bin"
    }
    for python in PYTHONS:
        for machine in MACHINES:
            folder = scratch / f"{python}-{machine}"
            install(folder, python, machine, "--no-deps", core.replace("-", "=="))
            (compiled,) = folder.glob(COMPILED)
            files[str(compiled.relative_to(folder))] = compiled.read_bytes()
    files["__main__.py"] = Path(__file__).with_name("pyz_start.py").read_bytes()
    return files


def main() -> None:
    """Write the archive, as zipapp does, but with the same order and dates each time."""
    target = Path(sys.argv[1])
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        files = collect(Path(scratch))
    with target.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(files):
                archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)
    target.chmod(0o755)
    print(f"{target}: {target.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    main()
