"""The driver of a submitted job: its log, its signals, its exit code."""

import contextlib
import os
import signal
import sys
import threading
import time

from give_up import GiveUp
from ray.job_submission import JobStatus

FOLDER = os.path.dirname(os.path.abspath(__file__))
PID = os.path.join(FOLDER, "driver.pid")  # the number of its process, which that writes there
TURN = 0.2  # seconds
PATIENCE = 120.0  # seconds without an answer of the dashboard and without a trainer


class Driver:
    """A job of Ray, submitted, as far as this process knows. turns: since Ray last said something of it."""

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
                raise GiveUp("config", f"Ray did not start the trainer, see ray.runtime_env: {why}")
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
                raise GiveUp("ray", f"the dashboard of Ray has not answered for {PATIENCE:.0f} s")
