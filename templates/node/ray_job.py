"""The trainer as a job of Ray (`launch: ray-job`): submits it, follows it to its end, has its exit code.

Told on its standard input, in JSON: `id` of the job; `words` of the trainer, which runs on this node; `env`,
for it alone; `runtime_env`, a mapping, or the path of a YAML file; `signals`, names of those to pass on.
What the trainer says goes to standard output. Exit code: that of the trainer, 128 + n for signal n; 143 where
somebody stopped the job through Ray; 1 where Ray knows none. Where there was no trainer, the file `refused`
beside this one has a kind of error and a text.
"""

import contextlib
import json
import os
import shlex
import signal
import sys
import threading
import time

import surroundings
import yaml
from ray.job_submission import JobStatus, JobSubmissionClient

FOLDER = os.path.dirname(os.path.abspath(__file__))
START = os.path.join(FOLDER, "driver.sh")  # what the shell does that becomes the trainer
PID = os.path.join(FOLDER, "driver.pid")  # its number, which it writes there
TURN = 0.2  # seconds
PATIENCE = 120.0  # seconds without an answer of the dashboard and without a trainer


class Refused(Exception):
    """(kind, text): there is no trainer that could have an exit code."""


def entrypoint(words, env):
    """The shell command of the job. env is not in its runtime environment, which all its workers have."""
    with open(START, "wb") as file:
        file.write(os.fsencode(f"echo $$ >{shlex.quote(PID)}\n" + surroundings.exports(env)))
    return " ".join([".", shlex.quote(START) + ";", "exec", *map(shlex.quote, words)])


def read_runtime_env(given):
    """The runtime environment as a mapping. given: that, the path of a YAML file, or None."""
    if not isinstance(given, str):
        return given or {}
    try:
        with open(given, encoding="utf-8") as file:
            found = yaml.safe_load(file) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise Refused("config", f"ray.runtime_env, in {os.getcwd()} of the container: {error}") from error
    if not isinstance(found, dict):
        raise Refused("config", f"ray.runtime_env: {given} holds no mapping")
    return found


def connect():
    """A client, once the dashboard answers; RAY_ADDRESS leads to the GCS, which knows where it is."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return JobSubmissionClient()
        except Exception as error:  # what is raised differs from Ray to Ray
            if time.monotonic() > deadline:
                raise Refused("bring_up", f"the dashboard of Ray does not answer: {error}") from error
        time.sleep(TURN)


class Job:
    """A job that was submitted, as far as this process knows. turns: since Ray last said something of it."""

    def __init__(self, client, name):
        self.client, self.name = client, name
        self.info, self.turns = None, 0
        self.log = os.path.join(FOLDER, "session_latest", "logs", f"job-driver-{name}.log")
        self.place = 0
        threading.Thread(target=self.ask, daemon=True).start()

    def ask(self):
        """Asks Ray again and again, in a thread of its own: the dashboard may be busy for minutes."""
        while True:
            with contextlib.suppress(Exception):
                self.info = self.client.get_job_info(self.name)
                self.turns = 0
            time.sleep(1)

    def copy_log(self):
        """Copies some of what is new; False where nothing was.

        From the file, since the API for it cuts long lines, and ends with the dashboard.
        """
        try:
            with open(self.log, "rb") as file:
                file.seek(self.place)
                data = file.read(2**20)
        except FileNotFoundError:  # nobody has written anything
            return False
        self.place += len(data)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return bool(data)

    def trainer(self):
        """Number of the process, which leads its group; None where it does not run."""
        with contextlib.suppress(OSError, ValueError), open(PID) as file:
            number = int(file.read())
            os.kill(number, 0)
            return number
        return None

    def send(self, number):
        """Passes a signal on. Ray would allow for two signals only, kill soon, and forget the exit code."""
        trainer = self.trainer()
        if trainer:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(trainer, number)
        else:
            threading.Thread(target=self.client.stop_job, args=(self.name,), daemon=True).start()

    def exit_code(self):
        """The exit code for the job of Slurm; None while the job goes on."""
        info = self.info
        if info is None or not info.status.is_terminal():
            return None
        if info.status == JobStatus.STOPPED:
            return 128 + signal.SIGTERM
        if info.driver_exit_code is None:
            print(info.message, file=sys.stderr, flush=True)
            if not os.path.exists(PID):
                why = (info.message or "").strip().rpartition("\n")[2]
                raise Refused("config", f"Ray did not start the trainer, see ray.runtime_env: {why}")
            return 1
        return info.driver_exit_code if info.driver_exit_code >= 0 else 128 - info.driver_exit_code

    def follow(self):
        """Until the end of the job; returns the exit code."""
        while True:
            code = self.exit_code()  # first, as nothing is written after it
            if not self.copy_log():
                if code is not None:
                    return code
                self.turns += 1
                time.sleep(TURN)
            if self.turns * TURN > PATIENCE and self.trainer() is None:
                raise Refused("ray", f"the dashboard of Ray has not answered for {PATIENCE:.0f} s")


def main():
    """See the text of the module."""
    told = json.load(sys.stdin)
    caught = []
    signals = [getattr(signal, name) for name in told["signals"]]
    for each in signals:
        signal.signal(each, lambda number, _: caught.append(number))
    runtime_env = read_runtime_env(told["runtime_env"])
    client = connect()
    command = entrypoint(told["words"], told["env"])
    if caught:
        return 128 + caught[0]
    try:
        client.submit_job(entrypoint=command, submission_id=told["id"], runtime_env=runtime_env)
    except Exception as error:  # of many kinds: files that are too large, fields that are unknown
        raise Refused("config", f"Ray does not take the job, see ray.runtime_env: {error}") from error
    job = Job(client, told["id"])
    for each in signals:
        signal.signal(each, lambda number, _: job.send(number))
    if caught:
        job.send(caught[0])
    return job.follow()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as reason:
        with open(os.path.join(FOLDER, "refused"), "wb") as refusal:
            refusal.write(os.fsencode(" ".join(" ".join(reason.args).split())[:500]))
        sys.exit(1)
