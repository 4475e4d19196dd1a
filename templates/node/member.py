"""What one node of the cluster does: starts Ray, and on the head the probe and the trainer."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import children
import network
import preflight
import ray_start


class GiveUp(Exception):
    """(kind, text): the batch script ends the job with the exit code of that kind."""


class Member:
    """One node of the cluster, driven by records, child processes that end, and the clock."""

    def __init__(self, temp_dir):
        self.temp_dir = temp_dir
        self.conf = {}  # key -> list of values
        self.children = children.Children(self.ended)
        self.lease = None
        self.tries = 0
        self.head = None  # (address, ports) once this node is the head of a running GCS
        self.cluster = None  # host:port, on a worker, once the head has published it
        self.address = self.ray_env = None
        self.ray_input = None  # where the waiting `ray start` is told its words
        self.waiting = None  # what to look for at each turn: gcs | reader
        self.deadline = None  # when to stop waiting for a trainer that was asked to end

    # -- records ---------------------------------------------------------------------------------------

    def one(self, key, default=""):
        """The last value of a key."""
        return self.conf.get(key, [default])[-1]

    def say(self, verb, *text):
        """One message to the batch script."""
        print("slurmray", self.one("node"), verb, *text, flush=True)

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
        elif key == "prepare":
            if not is_head:
                self.join(value)
        elif key == "cluster":
            if not is_head:
                self.cluster = value
                self.address = self.choose_address(network.family_of(value.rsplit(":", 1)[0]))
                self.tell_ray()
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
        preflight.raise_limits()
        for row in preflight.limits():
            self.find("warn", *row)
        if self.one("rank") == "0":
            self.start_ray()
            self.address = self.choose_address(self.one("family", "auto"))
            self.tell_ray()
            self.waiting = "gcs"

    def join(self, wanted):
        """Gets Ray ready on a worker. wanted: the versions on the head."""
        mine = preflight.versions(self.version_text)
        if mine != wanted:
            remedy = "use one image on all nodes, by digest"
            self.find_fault("versions", mine, f"{wanted}, as on the head", remedy)
            if self.one("preflight") != "warn":
                return
        self.start_ray()

    def choose_address(self, family):
        """The address of this node, the interface and family told."""
        return network.choose_address(
            self.conf.get("candidate", []), network.local_addresses(), family, self.one("interface")
        )

    def start_ray(self):
        """Starts the process that becomes `ray start`, with the token where this Ray knows tokens."""
        token = None
        if ray_start.wants_token(self.one("auth", "auto"), self.version):
            token = os.path.join(self.temp_dir, "token")
            write_private(token, self.one("token"))
        elif self.one("rank") == "0":
            danger = "runs without a token: every user who reaches it can run code"
            self.say("phase ray", f"Ray {self.version_text} {danger}")
        env = {"USER": self.one("user"), "LOGNAME": self.one("user")}
        if not os.access(os.environ.get("HOME", ""), os.W_OK):
            env["HOME"] = self.temp_dir
        env.update(pair.split("=", 1) for pair in self.conf.get("env", []))
        self.ray_env = ray_start.environment(self.temp_dir, env, token)
        words = [sys.executable, "-c", ray_start.WAITING_RAY]
        ray = self.children.spawn("ray", words, self.ray_env, sys.stderr, stdin=subprocess.PIPE)
        self.ray_input = ray.stdin

    def tell_ray(self):
        """Leases ports, and tells the waiting process how to start Ray."""
        if self.lease:
            self.lease.close()
        self.lease, ports = network.lease_ports(self.one("job"), self.tries)
        is_head = self.cluster is None
        if is_head:
            for key, place in (("port", ray_start.GCS), ("dashboard_port", ray_start.DASHBOARD)):
                if self.one(key, "auto") != "auto":
                    port = ports[place] = int(self.one(key))
                    if not network.is_free(port):
                        raise GiveUp("bring_up", f"ray.{key}: {port} is taken on this node; set it to auto")
            self.head = (self.address, ports)
        elif self.tries == 0 and self.one("preflight") != "none":
            door = ports[preflight.DOOR]
            preflight.open_door(self.address, door)
            preflight.reaches_head(self.cluster, self.find_fault)
            self.say("reach", self.one("node"), self.address, door)
        self.ray_env.setdefault("VLLM_HOST_IP", self.address)
        extra = self.conf.get("ray_arg", []) + self.conf.get("head_arg" if is_head else "worker_arg", [])
        words = ray_start.command(
            self.one("node"), self.address, ports, self.cluster, self.version, self.temp_dir,
            self.one("cpus"), self.one("gpus"), extra,
        )  # fmt: skip
        print(" ".join(words), file=sys.stderr, flush=True)
        told = [words, {"VLLM_HOST_IP": self.ray_env["VLLM_HOST_IP"]}]
        with contextlib.suppress(BrokenPipeError), self.ray_input:  # that it has ended is seen elsewhere
            self.ray_input.write(json.dumps(told).encode())

    def look(self):
        """One turn of waiting; see `waiting`."""
        if self.waiting == "gcs" and network.is_open(self.address, self.head[1][ray_start.GCS]):
            address, ports = self.head
            cluster = network.host_port(address, ports[ray_start.GCS])
            self.say("phase ray head at", f"{cluster}, dashboard at port {ports[ray_start.DASHBOARD]} of it")
            self.say("prepare", preflight.versions(self.version_text))
            self.waiting = None
            self.probe()
        elif self.waiting == "reader" and self.trainer():
            self.waiting = None

    def probe(self):
        """Starts the readiness check; its messages go straight to the batch script."""
        words = [sys.executable, os.path.join(self.temp_dir, "probe.py"), self.one("node")]
        words += [network.host_port(self.head[0], self.head[1][ray_start.GCS])]
        words += [self.one("gpus"), self.one("ready_timeout"), *self.conf["nodes"]]
        self.children.spawn("probe", words, self.ray_env, sys.stdout)

    def trainer(self):
        """Starts the entrypoint once somebody reads its output; False while nobody does."""
        streams = []
        for name in ("out", "err"):
            try:
                streams.append(os.open(os.path.join(self.temp_dir, name), os.O_WRONLY | os.O_NONBLOCK))
            except OSError:  # ENXIO: no reader yet
                for stream in streams:
                    os.close(stream)
                return False
        for stream in streams:
            os.set_blocking(stream, True)
        words = self.conf.get("run") or [sys.executable, os.path.join(self.temp_dir, "check.py")]
        nodes = len(self.conf["nodes"])
        env = ray_start.trainer_environment(self.ray_env, self.head, nodes, self.one("gpus"))
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
        elif role == "ray" and self.waiting == "gcs" and self.tries < 2 and self.one("port") == "auto":
            self.tries += 1  # a port may have been taken between the check and its use
            self.start_ray()
            self.tell_ray()
        elif role == "ray":
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

    def tick(self):
        """Once a turn of the loop."""
        if self.waiting:
            self.look()
        if self.deadline and time.monotonic() > self.deadline:
            trainer = self.children.pid_of("trainer")
            if not trainer:
                raise SystemExit(0)
            os.killpg(trainer, signal.SIGKILL)


def write_private(path, text):
    """Writes a file that only its owner can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
