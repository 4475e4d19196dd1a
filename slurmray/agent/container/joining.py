"""A spare node joins Ray in place of a lost one, while the trainer runs."""

from .part import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from .node_context import NodeContext
    from .ray.start import RayProcess
    from .stages import Stages


class Joining(Part):
    """From the message `replace` until Ray runs on this node and its stages are done.

    Actors of the trainer may come as soon as Ray runs here. So prepare steps and services that do not need
    Ray come first. No other node waits for those of this one. start_ray: starts Ray. use_ray: called once
    it runs.
    """

    def __init__(
        self,
        context: "NodeContext",
        ray: "RayProcess",
        own_stages: "Optional[Stages]",
        start_ray: "Callable[[], None]",
        use_ray: "Callable[[], None]",
    ) -> None:
        self.context = context
        self.ray = ray
        self.stages = own_stages
        self._start_ray = start_ray
        self._use_ray = use_ray
        self._has_begun = False
        ray.preload()
        if own_stages:
            own_stages.begin()
        self.tick()

    @property
    def is_busy(self) -> bool:
        return self._has_begun and not self.context.is_ready

    def tick(self) -> None:
        """Go on if what comes before is done."""
        context = self.context
        if context.deadline is not None:
            return
        if self.stages:
            self.stages.count_own_as_all()
        if not self._has_begun and (not self.stages or self.stages.may_join_ray()):
            self._has_begun = True
            self._start_ray()
        if self.is_busy and self.ray.watch.is_raylet_running():
            self._use_ray()
