"""How far the nodes are with the stages, and what the log of the job hears of it."""

import time

ALIVE_EVERY = 5.0  # seconds; without such a word the batch script waits for ray.ready_timeout only
NAMED = 4  # nodes that a line of the log names; there may be hundreds


class Progress:
    """Which nodes have done which stages. member: the node that keeps count; the head says it."""

    def __init__(self, member, stages):
        self.member = member
        self.done = {stage: set() for stage in stages}  # stage -> nodes
        self.begun = {}  # stage -> when
        self.minutes = {}  # stage -> how many of them the log has told of
        self.alive_at = 0.0  # when to say next that this node gets on

    def begin(self, stage):
        """That stage begins on this node."""
        self.begun[stage] = time.monotonic()

    def record(self, node, stage):
        """A node has done its part."""
        self.done[stage].add(node)
        self.say(stage)

    def is_done(self, stage):
        """Whether all nodes have done that stage."""
        return stage not in self.done or self.done[stage] == set(self.member.conf["nodes"])

    def doing(self):
        """What keeps this node busy, in a word or two; nothing: the empty text."""
        return next((stage for stage in self.begun if not self.is_done(stage)), "")

    def mind(self):
        """Says every now and then what keeps this node busy, and once a minute how far all nodes are."""
        stage, now = self.doing(), time.monotonic()
        if not stage or now < self.alive_at:
            return
        self.alive_at = now + ALIVE_EVERY
        self.member.say("alive", stage)
        minutes = int(now - self.begun[stage]) // 60
        if minutes > self.minutes.get(stage, 0):
            self.minutes[stage] = minutes
            self.say(stage, f" after {minutes} min")

    def say(self, stage, after=""):
        """The head says how many nodes have done it, and which have not."""
        if not self.member.is_head():
            return
        nodes = self.member.conf["nodes"]
        waiting = [node for node in nodes if node not in self.done[stage]]
        more = f" and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
        text = ", waiting for " + ", ".join(waiting[:NAMED]) + more if waiting else ""
        count = f"{len(self.done[stage])}/{len(nodes)} nodes"
        self.member.say("phase", stage.partition("-")[0], count + after + text)
