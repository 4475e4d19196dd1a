"""The trainer: the command of the job spec, which runs on the head once the cluster is whole."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys

import children
import ray_environment
from give_up import GiveUp


class TrainerProcess:
    """The trainer of the job. member: who has the records, the children, Ray, and a way to say something."""

    def __init__(self, member):
        self.member = member
        self.streams = {}  # out, err -> descriptor of the FIFO to the batch script

    def is_job(self):
        """Whether it is submitted to the job API of Ray."""
        return self.member.one("launch") == "ray-job"

    def check(self):
        """GiveUp where there is not what the job API of Ray needs."""
        wanted = ("aiohttp", "aiohttp_cors")  # of ray[default] alone
        if self.is_job() and not all(map(importlib.util.find_spec, wanted)):
            raise GiveUp("image", "launch: ray-job needs ray[default]: install it, or use exec")

    def name(self):
        """What Ray calls it."""
        return "slurmray-" + self.member.one("job")

    def shown(self):
        """The command for the log of the job, shortened."""
        name = [f"{self.name()}:"] if self.is_job() else []
        command = " ".join(name + self.member.conf.get("run", ["the built-in check"]))[:200]
        return "".join(letter if letter.isprintable() else " " for letter in command)

    def start(self):
        """Starts it once somebody reads its output; False while nobody does."""
        if not self.is_read():
            return False
        member = self.member
        words = member.conf.get("run") or [sys.executable, os.path.join(member.temp_dir, "check.py")]
        if member.attempt() != "0":
            words = words + member.conf.get("resume", [])
        head = member.ray.address, member.ray.ports
        nodes = len(member.conf["nodes"])
        env = ray_environment.trainer_environment(member.ray.env, head, nodes, member.one("gpus"))
        env.update(member.ray.told, SLURMRAY_ATTEMPT=member.attempt())
        out, err = self.streams["out"], self.streams["err"]
        try:
            if self.is_job():
                self.submit(words, env, out, err)
            else:
                member.children.spawn("trainer", words, env, out, err)
        except OSError as error:
            # What a shell would say and return.
            os.write(err, f"slurmray: {words[0]}: {error.strerror}\n".encode())
            member.say("exit", 127 if isinstance(error, FileNotFoundError) else 126)
        os.close(out)
        os.close(err)
        return True

    def submit(self, words, env, out, err):
        """Starts the process that submits it to the job API of Ray and stands for it."""
        member = self.member
        given = member.one("runtime_env_file") or json.loads(member.one("runtime_env", "{}"))
        own = {name: value for name, value in env.items() if member.ray.env.get(name) != value}
        told = {"id": self.name(), "words": words, "env": own, "runtime_env": given}
        told["signals"] = ["SIG" + name for name in self.signals()]
        program = [sys.executable, os.path.join(member.temp_dir, "ray_job.py")]
        child = member.children.spawn("trainer", program, env, out, err, stdin=subprocess.PIPE)
        children.tell(child.stdin, json.dumps(told).encode())

    def ended(self, code):
        """Says how it ended; GiveUp where it could not be submitted."""
        refusal = os.path.join(self.member.temp_dir, "refused")
        with contextlib.suppress(FileNotFoundError), open(refusal) as file:
            raise GiveUp(*file.read().split(" ", 1))
        self.member.say("exit", code)

    def is_read(self):
        """Opens what is not open yet of the streams; each stays open, as its reader ends with its writer."""
        for name in ("out", "err"):
            if name not in self.streams:
                path = os.path.join(self.member.temp_dir, name)
                try:
                    stream = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                except OSError:  # ENXIO: no reader yet
                    return False
                os.set_blocking(stream, True)
                self.streams[name] = stream
        return True

    def signals(self):
        """What asks it to end: near the time limit, and at scancel."""
        stop = self.member.one("stop_signal", "TERM")
        return stop, self.member.one("cancel_signal", stop)

    def send(self, name):
        """Sends that signal (TERM, for one) to the trainer and its children; False where none runs."""
        trainer = self.member.children.pid_of("trainer")
        if trainer:
            os.killpg(trainer, getattr(signal, "SIG" + name))
        return bool(trainer)
