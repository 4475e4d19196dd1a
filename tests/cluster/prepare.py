"""Builds what most cluster tests need, with progress to be seen: `python -m tests.cluster.prepare`.

The tests would build it, too, but pytest shows nothing of a test that passes.
"""

from __future__ import annotations

from functools import partial

from slurmray.rehearsal import machine
from slurmray.rehearsal.images import ray_image, stores
from slurmray.spec.container import DEFAULT_IMAGE

from . import bare, test_native


def main() -> None:
    say = partial(print, flush=True)
    cache = machine.cache_folder()
    archive = ray_image.archive(cache, DEFAULT_IMAGE, say)
    stores.podman_store(cache, archive, say)
    stores.docker_root(cache, archive, say)
    stores.podman_store(cache, ray_image.archive(cache, test_native.IMAGE, say), say)
    bare.packages()


if __name__ == "__main__":
    main()
