"""The trainer in a job of RayExecutor: runs the function, and writes its result where submitit looks for it.

`python3 -m slurmray.native.driver FOLDER PYTHON CLOUDPICKLE`: the folder of the executor, and the versions
that wrote the function. It runs on the head, with the Python that Ray has there, maybe in a container. Until
the versions are known to fit, any Python since 3.8 can run it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

# The script, with this as `requeue.exit_code`, has Slurm start the job anew. submitit's own code for it.
REQUEUE_EXIT_CODE = 144
# submitit reads them: this is the only task of the job, whatever step it is in.
ONE_TASK = {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
STOP_SIGNAL = "USR2"  # the job's stop.signal; submitit's default, which a variable of the user's may change


def mismatch(python: str, cloudpickle: str) -> str:
    """What keeps this Python from reading what another one wrote, as one line; empty: nothing.

    python: as `3.11`; the byte code of functions differs between minor versions. cloudpickle: its version;
    its pickles are for the same one only (README of cloudpickle).
    """
    here = "{}.{}".format(*sys.version_info)
    if here != python:
        remedy = f"take an image with Python {python}, or submit from Python {here}"
        return f"the function comes from Python {python}, {sys.executable} of the job is {here}: {remedy}"
    import cloudpickle as found

    if found.__version__ != cloudpickle:
        remedy = f"take {found.__file__} out of PYTHONPATH"
        return f"the function comes from cloudpickle {cloudpickle}, the job has {found.__version__}: {remedy}"
    return ""


def ask_for_requeue(_environment: object, countdown: int) -> NoReturn:
    """Ends the driver so that its job starts anew; there is no scontrol in a container."""
    print(f"asks to be requeued, {countdown} time limits may still come", file=sys.stderr)
    raise SystemExit(REQUEUE_EXIT_CODE)


def minds_cancel(handle: Callable[..., None], begun: float) -> Callable[..., None]:
    """Wraps the method that sets submitit's handlers, one of which ignores TERM: here it is scancel's.

    begun: when the job did; by the time since then submitit tells a time limit from a preemption.
    """

    def and_ends(*given: object) -> None:
        handle(*given)
        handler = signal.getsignal(getattr(signal, f"SIG{STOP_SIGNAL}"))
        handler.__self__._start_time = begun  # type: ignore[union-attr]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    return and_ends


def begun(folder: str) -> float:
    """When this attempt of the job began: Ray may have taken long. Seconds since the epoch."""
    from submitit.core.utils import JobPaths

    runs = JobPaths.get_first_id_independent_folder(folder) / "slurmray-runs"
    attempt = f"{os.environ['SLURM_JOB_ID']}-{os.environ['SLURMRAY_ATTEMPT']}"
    return (runs / attempt / "mark").stat().st_mtime


def main(folder: str, python: str, cloudpickle: str) -> None:
    """Runs the function of this job; SystemExit(2) where it cannot be read here."""
    # Until submitit minds it: what is not begun needs no checkpoint.
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
        # Of an attempt that was killed while it wrote; submitit would not write again.
        path.with_suffix(".pkl.save_tmp").unlink(missing_ok=True)
    # process_job finds its environment by name: there is no other door to it.
    SlurmJobEnvironment._requeue = ask_for_requeue  # type: ignore[assignment, method-assign]
    handlers = minds_cancel(SlurmJobEnvironment._handle_signals, begun(folder))
    SlurmJobEnvironment._handle_signals = handlers  # type: ignore[method-assign]
    submission.process_job(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
