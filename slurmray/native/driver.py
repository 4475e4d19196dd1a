"""The trainer in a job of RayExecutor: runs the function, and writes its result where submitit expects it.

`python3 -m slurmray.native.driver FOLDER PYTHON CLOUDPICKLE`: the folder of the executor, and the versions
that pickled the function. It runs on the head node with Ray's Python, maybe in a container. Any Python since
3.8 can run it up to the check of these versions.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

# `requeue.exit_code` of the job: Slurm starts it again. The number is submitit's.
REQUEUE_EXIT_CODE = 144
# submitit reads them: this is the only task of the job, whatever step it is in.
ONE_TASK = {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
STOP_SIGNAL = "USR2"  # the job's stop.signal; submitit's default, which the user's environment may change
RUN_DIR = "slurmray-runs"  # the job's run_dir, in the executor's folder


def mismatch(python: str, cloudpickle: str) -> str:
    """Why this Python cannot read a pickled function, as one line; empty: it can.

    python: for example `3.11`; the byte code of functions differs between minor versions. cloudpickle: its
    version; only the same one can read its pickles (README of cloudpickle).
    """
    here = "{}.{}".format(*sys.version_info)
    if here != python:
        fix = f"use an image with Python {python}, or submit from Python {here}"
        return f"the function comes from Python {python}, {sys.executable} of the job is {here}: {fix}"
    import cloudpickle as found

    if found.__version__ != cloudpickle:
        fix = f"remove {found.__file__} from PYTHONPATH"
        return f"the function comes from cloudpickle {cloudpickle}, the job has {found.__version__}: {fix}"
    return ""


def ask_for_requeue(_environment: object, countdown: int) -> NoReturn:
    """Exit so that Slurm starts the job again; there is no scontrol in a container."""
    print(f"requests a requeue; {countdown} more time limits are allowed", file=sys.stderr)
    raise SystemExit(REQUEUE_EXIT_CODE)


def exits_at_cancel(handle: Callable[..., None], begun: float) -> Callable[..., None]:
    """Wrap the method that sets submitit's signal handlers: it ignores TERM, which here is sent at scancel.

    begun: when the attempt began, seconds since 1970; submitit tells a time limit from a preemption by it.
    """

    def handle_and_exit(*given: object) -> None:
        handle(*given)
        handler = signal.getsignal(getattr(signal, f"SIG{STOP_SIGNAL}"))
        handler.__self__._start_time = begun  # type: ignore[union-attr]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    return handle_and_exit


def begun(folder: str) -> float:
    """When this attempt began, before Ray started; seconds since 1970."""
    from submitit.core.utils import JobPaths

    runs = JobPaths.get_first_id_independent_folder(folder) / RUN_DIR
    attempt = f"{os.environ['SLURM_JOB_ID']}-{os.environ['SLURMRAY_ATTEMPT']}"
    return (runs / attempt / "mark").stat().st_mtime


def main(folder: str, python: str, cloudpickle: str) -> None:
    """Run the function of this job; SystemExit(2) where it cannot be read here."""
    # Until submitit handles it: a function that has not begun needs no checkpoint.
    signal.signal(getattr(signal, f"SIG{STOP_SIGNAL}"), lambda *_: sys.exit(REQUEUE_EXIT_CODE))
    os.environ.update(
        ONE_TASK, SUBMITIT_EXECUTOR="slurm", SUBMITIT_FOLDER=folder, SUBMITIT_PREEMPT_SIGNAL=STOP_SIGNAL
    )
    why = mismatch(python, cloudpickle)
    if why:
        print(f"slurmray: {why}", file=sys.stderr, flush=True)

    from submitit.core import submission
    from submitit.slurm.slurm import SlurmJobEnvironment

    paths = SlurmJobEnvironment().paths
    if why:
        paths.result_pickle.write_bytes(pickle.dumps(("error", why)))
        raise SystemExit(2)
    for path in (paths.submitted_pickle, paths.result_pickle):
        # From an attempt that was killed while it wrote; submitit would not write again.
        path.with_suffix(".pkl.save_tmp").unlink(missing_ok=True)
    # process_job looks its environment up by name, so the class itself is changed.
    SlurmJobEnvironment._requeue = ask_for_requeue  # type: ignore[assignment, method-assign]
    handlers = exits_at_cancel(SlurmJobEnvironment._handle_signals, begun(folder))
    SlurmJobEnvironment._handle_signals = handlers  # type: ignore[method-assign]
    submission.process_job(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
