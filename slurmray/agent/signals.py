"""Signals that Slurm sends because somebody asks for it. docs/guides/requeue.md has a table of them."""

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

# Passed on to the trainer. Slurm itself sends none of them: it sends CONT and TERM at scancel, TSTP, STOP and
# CONT at suspend and resume. Nor does the kernel for a fault of the process itself.
PASSED_ON = (
    *("HUP", "INT", "QUIT", "ABRT", "USR1", "USR2", "ALRM"),
    *("XCPU", "VTALRM", "PROF", "WINCH", "IO", "PWR"),
)
# The warning before the time limit and at preemption, see directives.py. Nothing happens to a process that
# does not expect it, e.g. bash before it becomes the controller; and nobody asks for a checkpoint with it.
WARNING = signal.SIGURG
# Their default stops a process.
_IGNORED = ("TSTP", "TTIN", "TTOU")
# For `trap` in bash.
NAMES = " ".join(PASSED_ON + _IGNORED)


def catch(handle: "Callable[[str], None]") -> None:
    """Call `handle` with the name of each signal that may be passed on; ignore those that stop a process.

    Handlers, not SIG_IGN: child processes would inherit that, and a shell among them could set no trap.
    """

    def caught(number: int, _frame: object) -> None:
        name = signal.Signals(number).name[3:]
        if name in PASSED_ON:
            handle(name)

    for name in PASSED_ON + _IGNORED:
        signal.signal(getattr(signal, "SIG" + name), caught)


def ignore() -> None:
    """Ignore them in the last moments of a process, which starts no other one any more.

    Python itself sets handlers back to the default at its end, and a signal would then replace the exit code.
    """
    for name in ("TERM", *PASSED_ON, *_IGNORED):
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
