"""What has to be done before the trainer starts, besides Ray, and in which order.

Every node has the same stages, and says `done STAGE` when it has nothing left to do in one; the batch script
tells that to all nodes. A stage begins on a node when all nodes have done those that it waits for.
"""

import json
import os
import signal
import sys

import preparation
import progress
import services
from give_up import GiveUp

PREPARE, SERVICES, PREPARE_WITH_RAY = "prepare", "services", "prepare-with-ray"


class Stages:
    """The stages on this node. member: who has the records, the children and a way to say something."""

    def __init__(self, member):
        self.member = member
        commands = [json.loads(text) for text in member.conf.get("preparation", [])]
        early = [item for item in commands if not item["needs_ray"]]
        late = [item for item in commands if item["needs_ray"]]
        self.beside = [json.loads(text) for text in member.conf.get("service", [])]
        self.services = services.Services(self, list(filter(self.is_mine, self.beside)))
        # Stage -> what this node does in it; stages in which no node has anything to do are left out.
        self.work = {}
        if early:
            self.work[PREPARE] = preparation.Preparation(self, PREPARE, list(filter(self.is_mine, early)))
        if self.beside:
            self.work[SERVICES] = self.services
        if late:
            mine = list(filter(self.is_mine, late))
            self.work[PREPARE_WITH_RAY] = preparation.Preparation(self, PREPARE_WITH_RAY, mine)
        self.progress = progress.Progress(member, self.work)

    def is_mine(self, item):
        """Whether this node has to do it."""
        return item["where"] == "all" or self.member.is_head()

    def env(self):
        """What the commands inherit: the environment of Ray, and where in the job they are."""
        return {**self.member.ray.env, **self.facts()}

    def facts(self):
        """Variables that say where in the job this node is."""
        member = self.member
        facts = {
            "NNODES": str(len(member.conf["nodes"])),
            "NODE_RANK": str(member.number()),
            "GPUS_PER_NODE": member.one("gpus"),
            "SLURMRAY_ATTEMPT": member.attempt(),
        }
        if member.is_whole:
            facts["RAY_ADDRESS"] = member.ray.place()
        return facts

    def spawn(self, role, words, env):
        """Starts a child of a stage; its words go into the log of the node."""
        print(role, "runs", " ".join(words), file=sys.stderr, flush=True)
        try:
            self.member.children.spawn(role, words, env, sys.stderr)
        except OSError as error:
            stage, _, name = role.partition(" ")
            kind = "service" if stage in services.ROLES else "prepare"
            raise GiveUp(kind, f"{name}: {words[0]}: {error.strerror}") from error

    def begin(self):
        """Begins all stages whose turn it is, unless the job is being ended."""
        for stage in self.work if not self.member.deadline else ():
            if stage not in self.progress.begun and self.may_begin(stage):
                self.progress.begin(stage)
                self.work[stage].begin()

    def may_begin(self, stage):
        """Whether the stages before that one are done on all nodes."""
        if stage == PREPARE:
            return True
        return self.progress.is_done(PREPARE) and (stage == SERVICES or self.member.is_whole)

    def are_done(self):
        """Whether the trainer can start."""
        return not self.member.deadline and all(map(self.progress.is_done, self.work))

    def is_preparing(self):
        """Whether a command of `prepare` runs on some node."""
        commands = (PREPARE, PREPARE_WITH_RAY)
        return any(stage in self.progress.begun and not self.progress.is_done(stage) for stage in commands)

    def say_done(self, stage):
        """This node has done its part."""
        self.member.say("done", self.member.node, stage)

    def told(self, key, name, what):
        """Takes a record: a node has done a stage, or a service outside of this container has ended."""
        if key == "ended":
            self.services.ended(services.SERVICE, name, int(what))
        else:
            self.record(name, what)

    def record(self, node, stage):
        """A node has done its part."""
        self.progress.record(node, stage)
        if self.member.deadline and not self.is_preparing():  # nobody needs the rest of the grace
            raise SystemExit(0)
        self.begin()

    def mask(self):
        """What keeps Ray and the trainer off the GPUs of services."""
        gpus = any(item["gpus"] for item in self.beside)
        return services.devices(0, int(self.member.one("gpus"))) if gpus else {}

    def send(self, name):
        """Sends that signal to the commands of `prepare` here; False where none runs on any node."""
        for pid, role in self.member.children.roles.items():
            if role.partition(" ")[0] in (PREPARE, PREPARE_WITH_RAY):
                os.killpg(pid, getattr(signal, "SIG" + name))
        return self.is_preparing()

    def ended(self, role, code):
        """A child of a stage has ended."""
        stage, _, name = role.partition(" ")
        if stage in services.ROLES:
            self.services.ended(stage, name, code)
        else:
            self.work[stage].ended(name, code)
