"""The trainer as a job of Ray (`launch: ray-job`): submits it, follows it to its end, has its exit code.

Told on its standard input, in JSON: `id` of the job; `words` of the trainer, which runs on this node; `env`,
for it alone; `runtime_env`, a mapping, or the path of a YAML file; `signals`, names of those to pass on.
What the trainer says goes to standard output. Exit code: that of the trainer, 128 + n for signal n; 143 where
somebody stopped the job through Ray; 1 where Ray knows none. Where there was no trainer, the file `refused`
beside this one has a kind of error and a text.
"""

import json
import os
import shlex
import signal
import sys
import time

import surroundings
import yaml
from give_up import GiveUp
from ray.job_submission import JobSubmissionClient
from ray_driver import FOLDER, PATIENCE, PID, TURN, Driver

START = os.path.join(FOLDER, "driver.sh")  # what the shell does that becomes the trainer


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
        raise GiveUp("config", f"ray.runtime_env, in {os.getcwd()} of the container: {error}") from error
    if not isinstance(found, dict):
        raise GiveUp("config", f"ray.runtime_env: {given} holds no mapping")
    return found


def connect():
    """A client, once the dashboard answers; RAY_ADDRESS leads to the GCS, which knows where it is."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return JobSubmissionClient()
        except Exception as error:  # what is raised differs from Ray to Ray
            if time.monotonic() > deadline:
                raise GiveUp("bring_up", f"the dashboard of Ray does not answer: {error}") from error
        time.sleep(TURN)


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
        raise GiveUp("config", f"Ray does not take the job, see ray.runtime_env: {error}") from error
    driver = Driver(client, told["id"])
    for each in signals:
        signal.signal(each, lambda number, _: driver.send(number))
    if caught:
        driver.send(caught[0])
    return driver.follow()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GiveUp as reason:
        with open(os.path.join(FOLDER, "refused"), "wb") as refusal:
            refusal.write(os.fsencode(" ".join(" ".join(reason.args).split())[:500]))
        sys.exit(1)
