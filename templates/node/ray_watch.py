"""Whether the Ray of one node is well while it starts; Ray itself may need minutes to see what is wrong."""

import glob
import os
import sys
import time

import below
import ports
import waiting_ray
from give_up import GiveUp

LINES = 5  # of what a process of Ray said last


class RayWatch:
    """Looks once a second, until `ray start` does so itself. ray: the RayProcess of the node."""

    def __init__(self, ray):
        self.ray = ray
        self.looks = self.guards = False  # guards: whether it looks at the ports, too
        self.disturbed = False  # whether somebody took one
        self.look_at = 0.0
        self.ended = {}  # pid -> name of what had ended at the last look

    def begin(self):
        """Ray is being started."""
        self.looks, self.guards, self.disturbed, self.ended = True, True, False, {}
        self.look_at = time.monotonic() + 1

    def release_ports(self):
        """The cluster is whole: one of the ports is for the trainer."""
        self.guards = False

    def is_started(self):
        """Whether all of Ray is, so that `ray start` sees the end of a process in seconds."""
        return os.path.exists(waiting_ray.STARTED)

    def mind(self):
        """Once a turn of the loop."""
        if self.looks and time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + 1
            self.looks = self.guards or not self.is_started()
            if self.looks and not self.is_disturbed():
                self.find_ended()

    def wanted(self):
        """The names of the processes without which there is no Ray on this node."""
        return {"raylet"} if self.ray.cluster else {"raylet", "gcs_server"}

    def is_well(self):
        """Whether all of them run."""
        return self.wanted() <= set(below.names().values())

    def find_ended(self):
        """`ray start` looks at what it has started only when all is, and waits for that.

        It takes two looks: what somebody waits for, as for `raylet --help`, is there a moment after its end.
        """
        before, self.ended = self.ended, below.names(ended=True)
        for name in sorted(self.wanted() & {before.get(pid) for pid in self.ended}):
            show_last_words(self.ray.member.temp_dir)
            raise GiveUp("ray", f"{name} ended while Ray was starting")

    def is_disturbed(self):
        """Whether somebody took a port between the lease and its use; if so, Ray ends, to be started anew."""
        taken = self.guards and ports.taken(self.ray.ports)
        if taken and not self.disturbed:
            text = f"somebody else took port {taken[0]} of this node after it was chosen"
            if self.ray.cluster is None and self.ray.member.head.waiting != "gcs":  # others know of this Ray
                raise GiveUp("bring_up", f"{text}; submit the job again")
            print(f"{text}: Ray starts anew", file=sys.stderr, flush=True)
            self.disturbed = True
            self.ray.member.children.kill("ray")
        return self.disturbed


def show_last_words(temp_dir):
    """Shows in the log of the node what the processes of Ray said last; `ray start` does not."""
    for name in ("gcs_server", "raylet"):
        for path in sorted(glob.glob(os.path.join(temp_dir, "session_2*", "logs", f"{name}.err")))[-1:]:
            with open(path, errors="replace") as file:
                said, _, _ = file.read().partition("*** StackTrace")
            for line in said.splitlines()[-LINES:]:
                print(f"{name}: {line}", file=sys.stderr, flush=True)
