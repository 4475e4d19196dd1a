"""The fields of a job spec as keyword arguments, for type checkers and editors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from slurmray.spec.container import Container
    from slurmray.spec.prepare_and_services import Prepare, Service
    from slurmray.spec.preset import Preset
    from slurmray.spec.ray_section import Ray
    from slurmray.spec.slurm_section import SlurmOptions
    from slurmray.spec.small_sections import Checks, Network, Notify, Requeue, Restart, Stop, Watch

Section = Mapping[str, Any]


class JobFields(TypedDict, total=False):
    """Arguments of JobSpec and load(), which document and check them. A section may be a dict."""

    name: str | None
    preset: Preset | Section | str | None
    slurm: SlurmOptions | Section | None
    setup: str | None
    run_dir: str | None
    template: str | None
    container: Container | Section | None
    env: Mapping[str, str | float | None] | None
    env_file: str | None
    node_env: str | None
    network: Network | Section | None
    ray: Ray | Section | None
    checks: Checks | Section | None
    preflight: str | None
    prepare: Sequence[Prepare | Section] | None
    services: Sequence[Service | Section] | None
    run: Sequence[str | float] | str | None
    sweep: Mapping[str, Sequence[str | float]] | None
    launch: str | None
    stop: Stop | Section | None
    spares: int | None
    restart: Restart | Section | None
    on_node_loss: str | None
    heartbeat_timeout: int | None
    requeue: Requeue | Section | None
    watch: Watch | Section | None
    notify: Notify | Section | None
    sync: Sequence[str] | None
    include: Sequence[str] | str | None
