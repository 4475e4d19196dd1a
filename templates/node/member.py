"""What one node of the cluster does: starts Ray, and on the head the probe and the trainer."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time

import network
import ray_start

FILES_WANTED = 65535  # soft limit of open files; Ray opens several for each worker process


class GiveUp(Exception):
    """(kind, text): the batch script ends the job with the exit code of that kind."""


class Member:
    """One node of the cluster, driven by records, child processes that end, and the clock."""

    def __init__(self, temp_dir):
        self.temp_dir = temp_dir
        self.conf = {}  # key -> list of values
        self.children = {}  # pid -> role: ray | probe | trainer
        self.processes = []  # keeps Popen objects alive; this loop does the waiting
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

    def record(self, text):
        """Takes one record; `go`, `prepare`, `cluster` and `stop` make something happen."""
        key, _, value = text.partition("=")
        self.conf.setdefault(key, []).append(value)
        if key == "go":
            self.start()
        elif key == "prepare" and self.one("rank") != "0":
            self.start_ray()
        elif key == "cluster" and self.one("rank") != "0":
            self.cluster = value
            self.address = self.choose_address(network.family_of(value.rsplit(":", 1)[0]))
            self.tell_ray()
        elif key == "stop":
            self.stop()

    # -- the way up ------------------------------------------------------------------------------------

    def start(self):
        """All is told: the head starts Ray, a worker waits to hear of the head."""
        version = ray_start.ray_version()
        if version is None:
            raise GiveUp("image", f"{sys.executable} of the image has no Ray: install ray[default] in it")
        self.version_text, self.version = version
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        if self.one("rank") == "0":
            self.start_ray()
            self.address = self.choose_address(self.one("family", "auto"))
            self.tell_ray()
            self.waiting = "gcs"

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
        self.ray_input = self.spawn("ray", words, self.ray_env, sys.stderr, stdin=subprocess.PIPE).stdin

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
            self.say("prepare")
            self.waiting = None
            self.probe()
        elif self.waiting == "reader" and self.trainer():
            self.waiting = None

    def probe(self):
        """Starts the readiness check; its messages go straight to the batch script."""
        words = [sys.executable, os.path.join(self.temp_dir, "probe.py"), self.one("node")]
        words += [network.host_port(self.head[0], self.head[1][ray_start.GCS])]
        words += [self.one("gpus"), self.one("ready_timeout"), *self.conf["nodes"]]
        self.spawn("probe", words, self.ray_env, sys.stdout)

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
        try:
            self.spawn("trainer", words, env, *streams, cwd=self.one("workdir"))
        except OSError as error:
            # What a shell would say and return.
            os.write(streams[1], f"slurmray: {words[0]}: {error.strerror}\n".encode())
            self.say("exit", 127 if isinstance(error, FileNotFoundError) else 126)
        for stream in streams:
            os.close(stream)
        return True

    # -- children --------------------------------------------------------------------------------------

    def spawn(self, role, words, env, out, err=None, cwd=None, stdin=subprocess.DEVNULL):
        """Starts a child in a session of its own, so that a signal to its group reaches all of it."""
        process = subprocess.Popen(
            words, env=env, stdin=stdin, stdout=out, stderr=err or sys.stderr,
            start_new_session=True, cwd=cwd or None,
        )  # fmt: skip
        self.processes.append(process)
        self.children[process.pid] = role
        return process

    def pid_of(self, role):
        """The process of that role, or None."""
        return next((pid for pid, known in self.children.items() if known == role), None)

    def reap(self):
        """Waits for everything that has ended, orphans included: this is process 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            role = self.children.pop(pid, None)
            if role:
                signalled = os.WIFSIGNALED(status)
                self.ended(role, os.WTERMSIG(status) + 128 if signalled else os.WEXITSTATUS(status))

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

    def stop(self):
        """The job is being ended: the trainer gets the signal of the spec, and its grace."""
        if self.deadline:
            return
        trainer = self.pid_of("trainer")
        if trainer:
            os.killpg(trainer, getattr(signal, "SIG" + self.one("stop_signal", "TERM")))
        elif self.one("rank") == "0":
            raise SystemExit(0)
        # A worker outlives the grace of the trainer a little: Ray must not vanish under a checkpoint.
        self.deadline = time.monotonic() + float(self.one("grace", "10")) + (0 if trainer else 2)

    def tick(self):
        """Once a turn of the loop."""
        if self.waiting:
            self.look()
        if self.deadline and time.monotonic() > self.deadline:
            trainer = self.pid_of("trainer")
            if not trainer:
                raise SystemExit(0)
            os.killpg(trainer, signal.SIGKILL)


def write_private(path, text):
    """Writes a file that only its owner can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
