"""The commands of `prepare` on one node, one after another."""

from give_up import GiveUp

NAME = "name"


class Preparation:
    """Those of one stage. items: dicts as the job spec has them, only those of this node."""

    def __init__(self, stages, stage, items):
        self.stages, self.stage = stages, stage
        self.items = list(items)

    def begin(self):
        """Starts the first one."""
        self.next()

    def next(self):
        """Starts the next one that was not done in an earlier attempt of the job."""
        member = self.stages.member
        while self.items and self.mark(self.items[0]) in member.conf.get("skip", []):
            member.say("phase", "prepare", f"{self.items.pop(0)[NAME]} was done in an earlier attempt")
        if not self.items:
            self.stages.say_done(self.stage)
            return
        item = self.items[0]
        member.say("phase", "prepare", f"{item[NAME]} begins")
        self.stages.spawn(f"{self.stage} {item[NAME]}", item["run"], self.stages.env())

    def ended(self, name, code):
        """A command has ended with that code; where the job is being ended, nothing follows it."""
        is_last = self.stages.member.deadline
        if code and not is_last:
            raise GiveUp("prepare", f"{name} ended with {code}")
        item = self.items.pop(0)
        if item["once"] and not code:
            self.stages.member.say("prepared", self.mark(item))
        if is_last:
            self.items.clear()
        self.next()

    def mark(self, item):
        """What says that it is done: for the whole job, or for this node."""
        node = self.stages.member.node
        return item[NAME] if item["where"] == "head" else f"{item[NAME]}@{node}"
