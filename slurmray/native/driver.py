"""The trainer in a job of RayExecutor: runs the function, and writes its result where submitit expects it.

Usage: python3 -m slurmray.native.driver FOLDER PYTHON CLOUDPICKLE. FOLDER: the executor's. PYTHON,
CLOUDPICKLE: the versions that pickled the function. The driver runs on the head node with the Python that has
Ray, maybe in a container. Up to the check of the versions, the code works with Python 3.8.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

# The job's requeue.exit_code: a driver that exits with it is requeued. The number is submitit's.
REQUEUE_EXIT_CODE = 144
# Read by submitit. The driver is the only task of the job, but its step may have other values.
ONE_TASK = {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
# The job's stop.signal, and submitit's default; the user's environment does not change it.
STOP_SIGNAL = "USR2"
RUN_DIR = "slurmray-runs"  # the job's run_dir, in the executor's folder


def find_mismatch(python: str, cloudpickle: str) -> str:
    """Return why this Python cannot read a pickled function, as one line; "" if it can.

    python: e.g. `3.11`; byte code differs between minor versions. cloudpickle: only the same version can read
    its pickles (README of cloudpickle).
    """
    here = "{}.{}".format(*sys.version_info)
    if here != python:
        fix = f"use an image with Python {python}, or submit from Python {here}"
        return f"the function comes from Python {python}, {sys.executable} in the job is {here}: {fix}"
    import cloudpickle as module

    if module.__version__ != cloudpickle:
        fix = f"remove {module.__file__} from PYTHONPATH"
        return f"the function comes from cloudpickle {cloudpickle}, the job has {module.__version__}: {fix}"
    return ""


def ask_for_requeue(_environment: object, countdown: int) -> NoReturn:
    """Exit with the code that requeues the job. submitit would call scontrol, which containers lack."""
    print(f"requests a requeue; {countdown} more timeouts are allowed", file=sys.stderr)
    raise SystemExit(REQUEUE_EXIT_CODE)


def exit_on_sigterm(handle: Callable[..., None], start: float) -> Callable[..., None]:
    """Wrap the method that sets submitit's signal handlers, so that SIGTERM, which scancel sends, exits.

    submitit would ignore SIGTERM. start: when the attempt began, as Unix time; submitit uses it to
    distinguish a time limit from a preemption.
    """

    def handle_and_exit(*args: object) -> None:
        handle(*args)
        handler = signal.getsignal(getattr(signal, f"SIG{STOP_SIGNAL}"))
        handler.__self__._start_time = start  # type: ignore[union-attr]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    return handle_and_exit


def main(folder: str, python: str, cloudpickle: str) -> None:
    """Run the function of this job; SystemExit(2) if this Python cannot read it."""
    # Until submitit sets its handler: a function that did not start needs no checkpoint.
    signal.signal(getattr(signal, f"SIG{STOP_SIGNAL}"), lambda *_: sys.exit(REQUEUE_EXIT_CODE))
    os.environ.update(
        ONE_TASK, SUBMITIT_EXECUTOR="slurm", SUBMITIT_FOLDER=folder, SUBMITIT_PREEMPT_SIGNAL=STOP_SIGNAL
    )
    why = find_mismatch(python, cloudpickle)
    if why:
        print(f"slurmray: {why}", file=sys.stderr, flush=True)

    from submitit.core import submission
    from submitit.slurm.slurm import SlurmJobEnvironment

    paths = SlurmJobEnvironment().paths
    if why:
        paths.result_pickle.write_bytes(pickle.dumps(("error", why)))
        raise SystemExit(2)
    for path in (paths.submitted_pickle, paths.result_pickle):
        # Left by an attempt that was killed while writing; with it submitit would not write.
        path.with_suffix(".pkl.save_tmp").unlink(missing_ok=True)
    # Patch the class: process_job looks up its environment by name.
    SlurmJobEnvironment._requeue = ask_for_requeue  # type: ignore[assignment, method-assign]
    began = Path(os.environ["SLURMRAY_RUN_DIR"], "mark").stat().st_mtime  # before Ray started
    handlers = exit_on_sigterm(SlurmJobEnvironment._handle_signals, began)
    SlurmJobEnvironment._handle_signals = handlers  # type: ignore[method-assign]
    submission.process_job(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
