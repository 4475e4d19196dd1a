"""The first process of the container on every node: starts Ray, and on the head the probe and the trainer.

Standard input is the tether: NUL-terminated `key=value` records from the supervisor of the node, and when it
ends, whatever the cause, everything in this container ends. Standard output is for the messages to the batch
script, one `slurmray NODE VERB TEXT` a line. Standard error is the log of the node. On a node without a
container guard.py goes before it.

Runs on the Python of the image, 3.8 or later, with nothing but the standard library.
"""

import contextlib
import os
import select
import shutil
import signal
import sys

import below
import network
from give_up import GiveUp
from member import Member


def loop(member):
    """Records, ended children and the clock, until the tether ends."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT):  # from `podman stop`: process 1 has no default action
        signal.signal(number, lambda *_: setattr(member, "is_signalled", True))
    pending = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [], member.pause())
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *records, pending = (pending + data).split(b"\0")
            for text in records:
                member.record(os.fsdecode(text))
        member.children.reap()
        member.tick()


def main():
    """Runs the node until its tether ends, and leaves nothing in the temp folder."""
    member = Member(os.path.dirname(os.path.abspath(__file__)), sys.argv[1])
    os.umask(0o022)
    below.hold(member.temp_dir)
    below.adopt()
    try:
        loop(member)
        member.say("untied")
    except GiveUp as reason:
        member.say("fail", *reason.args)
    except network.NetworkError as error:
        member.say("fail", "preflight", error)
    except SystemExit:
        pass
    finally:
        member.end()
        below.kill()
        for name in os.listdir(member.temp_dir):
            path = os.path.join(member.temp_dir, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)


if __name__ == "__main__":
    main()
