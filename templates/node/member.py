"""What one node of the cluster does: starts Ray, and on the head the probe and the trainer."""

import os
import signal
import sys
import time

import children
import network
import preflight
import ray_process
import ray_start
from ray_process import GiveUp


class Member:
    """One node of the cluster, driven by records, child processes that end, and the clock."""

    def __init__(self, temp_dir):
        self.temp_dir = temp_dir
        self.conf = {}  # key -> list of values
        self.children = children.Children(self.ended)
        self.ray = ray_process.RayProcess(self)
        self.waiting = None  # what to look for at each turn: gcs | reader
        self.streams = {}  # name -> descriptor of the FIFOs that take the output of the trainer
        self.signals = []  # those that this process has got
        self.deadline = None  # when to stop waiting for a trainer that was asked to end

    # -- records ---------------------------------------------------------------------------------------

    def one(self, key, default=""):
        """The last value of a key."""
        return self.conf.get(key, [default])[-1]

    def say(self, verb, *text):
        """One message to the batch script."""
        # In one piece, as the task of the node writes to the same pipe.
        sys.stdout.write(" ".join(map(str, ["slurmray", self.one("node"), verb, *text])) + "\n")
        sys.stdout.flush()

    def find(self, kind, *row):
        """A finding for the table in the log: check, found, wanted, remedy. kind `warn`: only that."""
        level = self.one("preflight", "fail")
        if level != "none":
            kind = "warn" if level == "warn" else kind
            fields = (str(field).replace("|", "/").replace("\n", " ") for field in row)
            self.say("finding", "|".join([kind, *fields]))

    def find_fault(self, *row):
        """A finding that ends the job, unless the job spec says otherwise."""
        self.find("preflight", *row)

    def record(self, text):
        """Takes one record; some of them make something happen."""
        key, _, value = text.partition("=")
        is_head = self.one("rank") == "0"
        if key == "stop":
            self.stop(float(value or self.one("grace", "10")))
        elif key == "reach":
            if is_head:
                preflight.reaches_worker(value, self.find_fault)
        elif key == "whole":
            self.ray.minded = False
        elif key == "prepare":
            if not is_head:
                self.join(value)
        elif key == "cluster":
            if not is_head:
                self.ray.start(self.choose_address(network.family_of(value.rsplit(":", 1)[0])), value)
        else:
            self.conf.setdefault(key, []).append(value)
        if key == "go":
            self.start()

    # -- the way up ------------------------------------------------------------------------------------

    def start(self):
        """All is told: the head starts Ray, a worker waits to hear of the head."""
        version = ray_start.ray_version()
        if version is None:
            raise GiveUp("image", f"{sys.executable} of the image has no Ray: install ray[default] in it")
        self.version_text, self.version = version
        if self.one("auth") == "token" and self.version < ray_start.TOKEN_SINCE:
            remedy = "take an image with 2.52 or later, or set ray.auth to auto or none"
            raise GiveUp("config", f"ray.auth: Ray {self.version_text} of the image has no tokens; {remedy}")
        preflight.raise_limits()
        for row in preflight.limits():
            self.find("warn", *row)
        if self.one("rank") == "0":
            self.ray.prepare()
            self.ray.start(self.choose_address(self.one("family", "auto")))
            self.waiting = "gcs"

    def join(self, wanted):
        """Gets Ray ready on a worker. wanted: the versions on the head."""
        mine = preflight.versions(self.version_text)
        if mine != wanted:
            remedy = "use one image on all nodes, by digest"
            self.find_fault("versions", mine, f"{wanted}, as on the head", remedy)
            if self.one("preflight", "fail") == "fail":
                return
        self.ray.prepare()

    def choose_address(self, family):
        """The address of this node, the interface and family told."""
        return network.choose_address(
            self.conf.get("candidate", []), network.local_addresses(), family, self.one("interface")
        )

    def look(self):
        """One turn of waiting; see `waiting`."""
        if self.waiting == "gcs":
            address, ports = self.ray.address, self.ray.ports
            if network.is_open(address, ports[ray_start.GCS]) and not self.ray.is_disturbed():
                cluster = network.host_port(address, ports[ray_start.GCS])
                self.say(
                    "phase ray head at", f"{cluster}, dashboard at port {ports[ray_start.DASHBOARD]} of it"
                )
                self.say("prepare", preflight.versions(self.version_text))
                self.waiting = None
                self.probe(cluster)
        elif self.waiting == "reader" and self.trainer():
            self.waiting = None

    def probe(self, cluster):
        """Starts the readiness check; its messages go straight to the batch script."""
        words = [sys.executable, os.path.join(self.temp_dir, "probe.py"), self.one("node"), cluster]
        words += [self.one("gpus"), self.one("ready_timeout"), *self.conf["nodes"]]
        self.children.spawn("probe", words, self.ray.env, sys.stdout)

    def trainer(self):
        """Starts the entrypoint once somebody reads its output; False while nobody does."""
        for name in ("out", "err"):
            try:
                if (
                    name not in self.streams
                ):  # kept until the other one is open too: a reader ends with its writer
                    path = os.path.join(self.temp_dir, name)
                    self.streams[name] = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # ENXIO: no reader yet
                return False
        streams = [self.streams["out"], self.streams["err"]]
        for stream in streams:
            os.set_blocking(stream, True)
        words = self.conf.get("run") or [sys.executable, os.path.join(self.temp_dir, "check.py")]
        nodes = len(self.conf["nodes"])
        head = self.ray.address, self.ray.ports
        env = ray_start.trainer_environment(self.ray.env, head, nodes, self.one("gpus"))
        env["SLURMRAY_ATTEMPT"] = self.one("job").rpartition("-")[2]
        try:
            self.children.spawn("trainer", words, env, *streams, cwd=self.one("workdir"))
        except OSError as error:
            # What a shell would say and return.
            os.write(streams[1], f"slurmray: {words[0]}: {error.strerror}\n".encode())
            self.say("exit", 127 if isinstance(error, FileNotFoundError) else 126)
        for stream in streams:
            os.close(stream)
        return True

    # -- children --------------------------------------------------------------------------------------

    def ended(self, role, code):
        """A child has ended with that code (128 + n for signal n)."""
        if role == "probe" and code == 0:
            command = " ".join(self.conf.get("run", ["the built-in check"]))[:200]
            self.say("trainer", "".join(letter if letter.isprintable() else " " for letter in command))
            self.waiting = "reader"
        elif role == "probe":
            raise GiveUp("probe", "the cluster is not whole" if code == 1 else f"the probe ended with {code}")
        elif role == "trainer":
            self.say("exit", code)
        elif role == "ray" and not self.ray.started_again():
            raise GiveUp("ray", f"ray start ended with {code}")

    def stop(self, grace):
        """The job is being ended: the trainer gets the signal of the spec, and `grace` seconds."""
        now = time.monotonic()
        if self.deadline:  # the second time it can only be sooner
            self.deadline = min(self.deadline, now + grace)
            return
        trainer = self.children.pid_of("trainer")
        if trainer:
            os.killpg(trainer, getattr(signal, "SIG" + self.one("stop_signal", "TERM")))
        elif self.one("rank") == "0":
            raise SystemExit(0)
        # A worker outlives the grace of the trainer a little: Ray must not vanish under a checkpoint.
        self.deadline = now + grace + (0 if trainer else 2)

    def pause(self):
        """Seconds until the next turn of the loop is due, whatever happens; None: no turn is."""
        if self.waiting or self.deadline:
            return 0.05
        return 1.0 if self.ray.minded else None

    def tick(self):
        """Once a turn of the loop."""
        if self.signals:
            self.say("signal", self.signals.pop())
            self.stop(float(self.one("grace", "10")))
        self.ray.mind()
        if self.waiting:
            self.look()
        if self.deadline and time.monotonic() > self.deadline:
            trainer = self.children.pid_of("trainer")
            if not trainer:
                raise SystemExit(0)
            os.killpg(trainer, signal.SIGKILL)
