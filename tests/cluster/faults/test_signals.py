"""Signals that Slurm sends because somebody asks for them, e.g. for a checkpoint."""

from __future__ import annotations

import pytest

from .case import Fault

# Prints each signal that it gets, once for each time, after those that it inherited as ignored.
TRAINER = """
import signal, sys, time
print("ignored:", *[item.name for item in signal.Signals if signal.getsignal(item) is signal.SIG_IGN])
print("blocked:", *signal.pthread_sigmask(signal.SIG_BLOCK, []))
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGCHLD}:
    signal.signal(number, lambda number, _: print("got", signal.Signals(number).name, flush=True))
print("started", flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.mark.fault("a signal while it trains", "podman", "none")
def test_while_it_trains(fault: Fault) -> None:
    fault.start_trainer(["python3", "-c", TRAINER])
    job = str(fault.job)
    for signal, *options in (
        ("USR1",),
        ("HUP", "--batch"),
        ("USR2", "--full"),
        ("INT",),
        ("QUIT", "--batch"),
        ("TSTP", "--full"),
        ("ALRM",),
    ):
        fault.inject(["scancel", f"--signal={signal}", *options, job])
        if signal != "TSTP":
            fault.wait_for_log(f"got SIG{signal}\n")
    fault.inject(["scancel", job])
    log = fault.wait_end().log
    got = [line for line in log.splitlines() if line.startswith("got ")]
    assert got == [f"got SIG{name}" for name in ("USR1", "HUP", "USR2", "INT", "QUIT", "ALRM")], log
    # Python itself ignores these.
    assert "ignored: SIGPIPE SIGXFSZ\nblocked:\n" in log, log
