"""What the head alone does: from the GCS that answers to the trainer that starts."""

import os
import subprocess
import sys

import children
import network
import preflight
import probe
import ray_command
import ray_start
from give_up import GiveUp


class Head:
    """The way of the head to the trainer. member: the node that it is."""

    def __init__(self, member):
        self.member = member
        self.waiting = None  # what to look for at each turn: gcs | dashboard | reader
        self.input = None  # where the waiting probe is told the address of the GCS

    def look(self):
        """One turn of waiting; see `waiting`."""
        member = self.member
        if self.waiting == "gcs":
            ray, ports = member.ray, member.ray.ports
            if network.is_open(ray.address, ports[ray_start.GCS]) and not ray.watch.is_disturbed():
                text = f"{ray.place()}, dashboard at port {ports[ray_start.DASHBOARD]} of it"
                member.say("phase ray head at", text)
                member.say("versions", preflight.versions(member.version_text))
                self.waiting = None
                self.probe()
        elif self.waiting == "dashboard" and member.ray.watch.is_started():
            self.be_whole()
        elif self.waiting == "reader" and member.trainer.start():
            self.waiting = None

    def prepare(self):
        """Starts the readiness check, which imports Ray; its messages go straight to the batch script."""
        member = self.member
        words = [sys.executable, os.path.join(member.temp_dir, "probe.py"), member.node]
        words += [member.one("gpus"), member.one("ready_timeout"), *member.conf["nodes"]]
        env = member.ray.env
        self.input = member.children.spawn("probe", words, env, sys.stdout, stdin=subprocess.PIPE).stdin

    def probe(self):
        """Has the readiness check begin."""
        children.tell(self.input, self.member.ray.place().encode())

    def probed(self, code):
        """The readiness check has ended with that code."""
        if code:
            if code == probe.NOT_IN_TIME:
                raise GiveUp("probe", "the cluster is not whole")
            # Before it has begun, it can only have failed to import Ray.
            raise GiveUp("ray" if self.waiting == "gcs" else "probe", f"the probe ended with {code}")
        # Who finds the dashboard through Ray is made to wait by Ray; who has its number may not wait.
        if self.member.one("dashboard_port", "auto") == "auto" or self.member.ray.watch.is_started():
            self.be_whole()
        else:
            self.member.say("phase ray", "waiting for its dashboard, as ray.dashboard_port is set")
            self.waiting = "dashboard"

    def be_whole(self):
        """The cluster is whole: every node is told."""
        self.waiting = None
        self.let_in()
        self.member.say("whole")

    def let_in(self):
        """Says how to ask Ray from outside; to the log only, as nothing happens."""
        member = self.member
        path = os.path.join(member.temp_dir, "ray")
        ray_command.write(path, {**member.ray.env, "RAY_ADDRESS": member.ray.place()})
        command = ray_command.call(member.one("job"), member.node, member.one("enter"), path)
        what = "job list" if member.trainer.is_job() else "status"
        sys.stdout.write(f"to look in: {command} {what}\n")
        sys.stdout.flush()

    def train(self):
        """Starts the trainer when all that it waits for is there."""
        member = self.member
        if member.is_head() and member.is_whole and (not member.stages or member.stages.are_done()):
            member.say("trainer", member.trainer.shown())
            self.waiting = "reader"
