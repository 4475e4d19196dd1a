"""Builds what most cluster tests need, with progress to be seen: `python -m tests.cluster.prepare`.

The tests would build it, too, but pytest shows nothing of a test that passes.
"""

from __future__ import annotations

from functools import partial

from slurmray.container_options import DEFAULT_IMAGE
from slurmray.rehearsal import images, machine, stores

from . import bare, test_native


def main() -> None:
    say = partial(print, flush=True)
    cache = machine.cache_folder()
    archive = images.archive(cache, DEFAULT_IMAGE, say)
    stores.podman_store(cache, archive, say)
    stores.docker_root(cache, archive, say)
    stores.podman_store(cache, images.archive(cache, test_native.IMAGE, say), say)
    bare.packages()


if __name__ == "__main__":
    main()
