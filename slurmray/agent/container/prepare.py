"""The prepare steps of one node: commands that must succeed before the trainer starts."""

from ..job_errors import JobError
from . import variables
from .stage import Stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from .node_context import NodeContext
    from .stage import Item


class PrepareStage(Stage):
    """Runs the prepare steps of a stage on this node, one after another. items: this node's steps."""

    error_kind = "prepare"

    def __init__(self, context: "NodeContext", name: str, items: "List[Item]") -> None:
        super().__init__(context, name)
        self.items = list(items)

    def begin(self) -> None:
        """Start the next step that was not done in an earlier attempt."""
        context = self.context
        while self.items and self._done_name(self.items[0]) in context.job["done_before"]:
            name = self.items.pop(0)["name"]
            context.phase("prepare", "%s was done in an earlier attempt" % name)
        if not self.items:
            self.send_done()
            return
        item = self.items[0]
        context.phase("prepare", "%s begins" % item["name"])
        self.spawn(self.name, item["name"], item["run"], variables.collect(variables.PREPARE, context))

    def child_ended(self, kind: str, name: str, code: int) -> None:
        """Handle the end of the running step. No further step starts if the job is being ended."""
        del kind
        is_last = self.context.deadline is not None
        if code and not is_last:
            message = "prepare step %s exited with %d. The node's log has its output"
            raise JobError("prepare", message % (name, code))
        item = self.items.pop(0)
        if item["once"] and not code:
            self.context.send({"type": "prepared", "name": self._done_name(item)})
        if is_last:
            self.items.clear()
        self.begin()

    def _done_name(self, item: "Item") -> str:
        """Name under which a later attempt finds the step in `done_before`: of the job, or of this node."""
        name: str = item["name"]
        return name if item["where"] == "head" else "%s@%s" % (name, self.context.name)
