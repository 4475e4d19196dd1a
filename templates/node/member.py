"""What one node of the cluster does, told by records, children that end, and the clock."""

import time

import children
import head
import network
import preflight
import ray_process
import reach
import trainer_process
from records import Records


class Member(Records):
    """One node of the cluster, driven by records, child processes that end, and the clock."""

    def __init__(self, temp_dir, node):
        super().__init__(node)
        self.temp_dir = temp_dir
        self.children = children.Children(self.ended)
        self.ray = ray_process.RayProcess(self)
        self.trainer = trainer_process.TrainerProcess(self)
        self.head = head.Head(self)
        self.is_signalled = False  # whether this process has got a signal
        self.is_whole = False  # whether the cluster is
        self.stages = None  # what else is done before the trainer starts
        self.deadline = None  # when to stop waiting for a trainer that was asked to end
        self.orders = {  # records that make something happen, each with its value
            "go": self.start,
            "reach": self.knock,
            "versions": self.compare,
            "cluster": self.enter,
            "whole": self.be_whole,
            "done": lambda value: self.told("done", value),
            "ended": lambda value: self.told("ended", value),
            "look": self.answer,
            "warn": lambda value: self.stop(value, warned=True),
            "stop": self.stop,
        }

    def record(self, text):
        """Takes one record."""
        key, _, value = text.partition("=")
        if key in self.orders:
            self.orders[key](value)
        else:
            self.conf.setdefault(key, []).append(value)

    # -- the way up ------------------------------------------------------------------------------------

    def start(self, _):
        """All is told: the head starts Ray, a worker has it ready and waits to hear of the head."""
        self.version_text, self.version = preflight.version_of_ray(self.one("auth"))
        preflight.enter_workdir(self.one("workdir"))
        self.trainer.check()
        if not preflight.is_fit(self):
            return
        if self.conf.keys() & {"preparation", "service"}:
            import stages  # only such jobs have it

            self.stages = stages.Stages(self)
        self.ray.make_environment()
        if self.stages:
            self.stages.begin()
        self.ray.prepare()
        if self.is_head():
            self.head.prepare()
            self.ray.start(self.choose_address(self.one("family", "auto")))
            self.head.waiting = "gcs"

    def compare(self, versions):
        """A worker compares its versions with those on the head."""
        if not self.is_head():
            preflight.compare_versions(self, versions)

    def enter(self, cluster):
        """Starts Ray on a worker. cluster: `host:port` of the GCS."""
        if not self.is_head():
            self.ray.start(self.choose_address(network.family_of(network.parts_of(cluster)[0])), cluster)

    def knock(self, place):
        """The head looks whether it reaches a worker. place: its name, address and port."""
        if self.is_head():
            node, address, port = place.split(" ")
            reach.knock(node, address, int(port), self.find_fault)

    def be_whole(self, _):
        """The cluster is whole."""
        self.is_whole = True
        self.ray.watch.release_ports()
        if self.stages:
            self.stages.begin()
        self.head.train()

    def told(self, key, value):
        """Another node, or the task of this one, has done its part."""
        self.stages.told(key, *value.split(" "))
        self.head.train()

    def choose_address(self, family):
        """The address of this node, the interface and family told."""
        return network.choose_address(
            self.conf.get("candidate", []), network.local_addresses(), family, self.one("interface")
        )

    # -- children --------------------------------------------------------------------------------------

    def ended(self, role, code):
        """A child has ended with that code (128 + n for signal n)."""
        if role == "probe":
            self.head.probed(code)
        elif role == "trainer":
            self.trainer.ended(code)
        elif role == "ray":
            self.ray.ended(code)
        elif self.stages and " " in role:
            self.stages.ended(role, code)

    def stop(self, grace="", warned=False):
        """The job ends: what it runs gets a signal, and so many seconds. warned: of the time limit."""
        now, grace = time.monotonic(), float(grace or self.one("grace", "10"))
        if self.deadline:  # the second time it can only be sooner
            self.deadline = min(self.deadline, now + grace)
            return
        name, is_head = self.trainer.signals()[not warned], self.is_head()
        asked = self.trainer.send(name) or (self.stages and self.stages.send(name))
        if not asked and is_head:
            raise SystemExit(0)
        # A worker outlives the grace of the head a little: Ray must not vanish under a checkpoint.
        self.deadline = now + grace + (0 if is_head else 2)

    def answer(self, _):
        """The trainer has failed: says whether that can be no fault of this node."""
        if not self.deadline and self.ray.watch.is_well():
            self.say("well")

    def pause(self):
        """Seconds until the next turn of the loop is due, whatever happens; None: no turn is."""
        if self.head.waiting or self.deadline:
            return 0.05
        return 1.0 if self.ray.watch.looks or (self.stages and self.stages.progress.doing()) else None

    def tick(self):
        """Once a turn of the loop."""
        if self.is_signalled:
            self.is_signalled = False
            self.say("signal")
            self.stop()
        self.ray.watch.mind()
        if self.stages:
            self.stages.progress.mind()
        if self.head.waiting:
            self.head.look()
        if self.deadline and time.monotonic() > self.deadline and not self.trainer.send("KILL"):
            raise SystemExit(0)

    def end(self):
        """Before everything here is killed: what is to end in order does."""
        self.trainer.send("KILL")
        if self.stages:
            self.stages.services.stop()
