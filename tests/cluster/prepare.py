"""Builds the images and packages of most cluster tests: `python -m tests.cluster.prepare`.

Tests would also build them, but pytest does not show the progress of passing tests.
"""

from __future__ import annotations

from functools import partial

from slurmray.rehearsal import machine
from slurmray.rehearsal.images import ray_image, stores
from slurmray.spec.container import DEFAULT_IMAGE

from . import bare, test_native


def main() -> None:
    log = partial(print, flush=True)
    cache = machine.cache_folder()
    archive = ray_image.archive(cache, DEFAULT_IMAGE, log)
    stores.load("podman", cache, archive, log)
    stores.load("docker", cache, archive, log)
    stores.load("podman", cache, ray_image.archive(cache, test_native.IMAGE, log), log)
    bare.packages()


if __name__ == "__main__":
    main()
