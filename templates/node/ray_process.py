"""The `ray start` of one node: told late what to do, and started anew where somebody took a leased port."""

import json
import os
import subprocess
import sys

import children
import network
import ports
import ray_environment
import ray_start
import ray_watch
import reach
import surroundings
from give_up import GiveUp

TRIES = 3


class RayProcess:
    """Ray on this node. member: who has the records, the children and a way to say something."""

    def __init__(self, member):
        self.member = member
        self.tries = 0
        self.lease = None
        self.address = self.cluster = None  # cluster: host:port of the GCS, on a worker
        self.ports = self.env = None
        self.told = {}  # what a preset wants to be told of this node, by the names of variables
        self.input = None  # where the waiting `ray start` is told its words
        self.watch = ray_watch.RayWatch(self)

    def make_environment(self):
        """Once stages are known, which may hold GPUs back."""
        self.env = ray_environment.of_node(self.member)

    def prepare(self):
        """Starts the process that becomes `ray start`."""
        words = [sys.executable, os.path.join(self.member.temp_dir, "waiting_ray.py")]
        env = {**ray_environment.deadlines(int(self.member.one("ready_timeout"))), **self.env}
        self.input = self.member.children.spawn("ray", words, env, sys.stderr, stdin=subprocess.PIPE).stdin

    def start(self, address, cluster=None):
        """Leases ports, and tells the waiting process how to start Ray. cluster: None on the head."""
        member = self.member
        self.address, self.cluster = address, cluster
        if self.lease:
            self.lease.close()
        self.lease, self.ports = ports.lease_ports(member.one("job"), self.tries)
        if cluster is None:
            self.take_fixed_ports()
        elif self.tries == 0 and member.one("preflight") != "none":
            door = self.ports[reach.DOOR]
            reach.open_door(address, door)
            reach.knock("the head", *network.parts_of(cluster), member.find_fault)
            member.say("reach", member.node, address, door)
        head, port = network.parts_of(self.place())
        addresses = " ".join(member.conf.get("peer", [])).split()
        peers, local = [head, *member.conf["nodes"], *addresses], network.local_addresses()
        more = surroundings.network_environment(self.env, address, peers, local)
        facts = {
            "rank": member.number(), "nodes": len(member.conf["nodes"]), "head": head, "ray_port": port,
            "interface": network.interface_of(address, local),
        }  # fmt: skip
        asked = (pair.split("=") for pair in member.conf.get("node_env", []))
        self.told = {name: str(facts[fact]) for name, fact in asked}
        more.update(self.told)
        if member.one("metrics") == "true":
            more.update(ray_environment.metrics_environment(self.env, self.ports))
        self.env.update(more)
        extra = member.conf.get("ray_arg", []) + member.conf.get("worker_arg" if cluster else "head_arg", [])
        store = surroundings.object_store(int(member.one("memory", "0")))
        words = ray_start.command(
            member.node, address, self.ports, cluster, member.version, member.temp_dir,
            member.one("cpus"), member.one("gpus"), store, extra,
        )  # fmt: skip
        print(" ".join(words), file=sys.stderr, flush=True)
        children.tell(self.input, json.dumps([words, more]).encode())
        self.watch.begin()

    def place(self):
        """`host:port` of the GCS."""
        return self.cluster or network.host_port(self.address, self.ports[ray_start.GCS])

    def take_fixed_ports(self):
        """Ports that the job spec names, in the places of leased ones."""
        for key, place in (("port", ray_start.GCS), ("dashboard_port", ray_start.DASHBOARD)):
            if self.member.one(key, "auto") != "auto":
                port = self.ports[place] = int(self.member.one(key))
                if not ports.is_free(port):
                    raise GiveUp("bring_up", f"ray.{key}: {port} is taken on this node; set it to auto")

    def ended(self, code):
        """`ray start` has ended with that code, which is its end unless somebody took a port of it."""
        if not self.watch.is_disturbed():
            ray_watch.show_last_words(self.member.temp_dir)
            raise GiveUp("ray", f"ray start ended with {code}")
        self.tries += 1
        if self.tries == TRIES:
            raise GiveUp("bring_up", f"its ports were taken after they had been chosen, {TRIES} times")
        self.make_environment()
        self.prepare()
        self.start(self.address, self.cluster)
