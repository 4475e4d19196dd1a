"""The services of one node: processes beside Ray."""

import json
import os
import signal
import sys
import time

import outside
from give_up import GiveUp

SERVICE, READY = ROLES = ("service", "ready")
RESTARTS = "restarts"
NOT_IN_TIME = 3  # exit code of ready.py
STOP_EACH = 1.0  # seconds until the next one is told to end, too
STOP_ALL = 2.0  # seconds for all; fit_grace of the script leaves so many


class Services:
    """Starts them, waits until each is ready, starts one again that ends, and stops them in order.

    items: dicts as the job spec has them, only those of this node.
    """

    def __init__(self, stages, items):
        self.stages = stages
        self.items = {item["name"]: item for item in items}
        self.again = dict.fromkeys(self.items, 0)  # how often each was started again
        self.waiting = set()  # names of those that are not ready yet

    def begin(self):
        """Starts all of them."""
        self.waiting = set(self.items)
        for name in self.items:
            self.start(name)
        self.look()

    def start(self, name):
        """Starts a service, and what looks whether it is ready."""
        item = self.items[name]
        own = {**self.mask(name), **item["env"]}
        env = {**self.stages.env(), **own}
        self.stages.member.say("phase", "services", f"{name} starts")
        if item["host"] or "image" in item:
            outside.hand_out(self.stages.member, item, {**self.stages.facts(), **own})
        else:
            self.stages.spawn(f"{SERVICE} {name}", item["run"], env)
        if name not in self.waiting:  # it was ready before
            return
        if "ready" not in item:
            self.waiting.discard(name)
        elif self.stages.member.children.pid_of(f"{READY} {name}") is None:
            program = os.path.join(self.stages.member.temp_dir, "ready.py")
            words = [sys.executable, program, json.dumps(item["ready"])]
            self.stages.spawn(f"{READY} {name}", words, env)

    def mask(self, name):
        """The GPUs of a service: after those of Ray, in the order of the job spec."""
        first = int(self.stages.member.one("gpus"))
        for other, item in self.items.items():
            if other == name:
                break
            first += item["gpus"]
        return devices(first, self.items[name]["gpus"])

    def look(self):
        """Says so when all are ready."""
        if not self.waiting:
            self.stages.say_done("services")

    def ended(self, role, name, code):
        """A service has ended, or the wait for one."""
        if role == READY and code == NOT_IN_TIME:
            timeout = self.items[name]["ready"]["timeout"]
            raise GiveUp("service", f"{name} is not ready after {timeout} s")
        if role == READY and code:
            raise GiveUp("service", f"what looks whether {name} is ready ended with {code}")
        if role == READY:
            self.waiting.discard(name)
            self.look()
        else:
            self.lost(name, code)

    def lost(self, name, code):
        """A service has ended."""
        item, member = self.items[name], self.stages.member
        text, node = f"{name} ended with {code}", member.node
        if self.again[name] < item["restarts"]:
            self.again[name] += 1
            count = f"{self.again[name]} of {item[RESTARTS]}"
            member.say("phase", "services", f"{text} on {node} and starts again, {count}")
            self.start(name)
        elif item["on_end"] == "fail" or name in self.waiting:
            raise GiveUp("service", text)
        else:
            member.say("phase", "services", f"{text} on {node}; the job goes on")

    def stop(self):
        """Ends them, the last one first, each when its successors had time to."""
        children = self.stages.member.children
        children.ended = lambda *_: None
        end = time.monotonic() + STOP_ALL
        for name in reversed(list(self.items)):
            due = min(end, time.monotonic() + STOP_EACH)
            pid = children.pid_of(f"{SERVICE} {name}")
            if pid:
                os.killpg(pid, signal.SIGTERM)
            while children.pid_of(f"{SERVICE} {name}") and time.monotonic() < due:
                time.sleep(0.05)
                children.reap()


def devices(first, count):
    """The environment in which a process sees only so many GPUs of this node."""
    name = "HIP_VISIBLE_DEVICES" if os.path.exists("/dev/kfd") else "CUDA_VISIBLE_DEVICES"
    # Where no container holds other GPUs back, the mask of Slurm does.
    known = os.environ.get(name) or os.environ.get("ROCR_VISIBLE_DEVICES", "")
    mine = known.split(",") if known else list(map(str, range(first + count)))
    return {name: ",".join(mine[first : first + count])}
