"""Trains with an actor on each node, saves each step, and goes on from the last one when it starts again.

usage: python3 resume.py STEPS

A real trainer saves weights and the state of its optimizer, in a folder that all nodes share, and not in each
step. It reads them in the same way: not by SLURMRAY_RESTART, but by what is there.
"""

import json
import os
import platform
import sys
import time
from pathlib import Path

import ray

# All starts and attempts of a job have its id. Another job starts from step 0.
CHECKPOINT = Path(f"checkpoint-{os.environ['SLURM_JOB_ID']}.json")


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Worker:
    """A part of the trainer."""

    def step(self, number):
        """Compute for a second, and return the node and a loss."""
        time.sleep(1)
        return platform.node(), 1 / (1 + number)


def read_checkpoint():
    """Return the number of steps that are done."""
    try:
        return json.loads(CHECKPOINT.read_text())["steps"]
    except FileNotFoundError:
        return 0


def save_checkpoint(steps):
    """Replace the checkpoint as a whole: the job can end at any moment."""
    new = CHECKPOINT.with_suffix(".new")
    new.write_text(json.dumps({"steps": steps}))
    new.replace(CHECKPOINT)


def main():
    """Train up to the last step."""
    ray.init()
    workers = [Worker.remote() for _ in range(int(os.environ["NNODES"]))]
    first = read_checkpoint()
    print(f"start {os.environ['SLURMRAY_ATTEMPT']}: from step {first}", flush=True)
    for number in range(first, int(sys.argv[1])):
        results = dict(ray.get([worker.step.remote(number) for worker in workers]))
        save_checkpoint(number + 1)
        print(f"step {number} on {', '.join(sorted(results))}: loss {max(results.values()):.3f}", flush=True)


if __name__ == "__main__":
    main()
