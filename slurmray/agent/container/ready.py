"""Waits until a service can be used.

Role `ready`, with the argument JSON: `ready` of the job spec. Exit code 0: it can; NOT_READY: not in time,
and standard error has what was last seen.
"""

import json
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

NOT_READY = 3
PAUSE = 0.5  # seconds between two checks
CHECK_TIMEOUT = 10.0  # seconds for one check
REPORT_INTERVAL = 60.0  # seconds


def check(ready: "Dict[str, Any]") -> None:
    """Raise an error whose text tells what is wrong, unless the service can be used."""
    if ready.get("run") is not None:
        import subprocess

        subprocess.run(ready["run"], check=True, stdin=subprocess.DEVNULL, timeout=CHECK_TIMEOUT)
    elif ready.get("tcp") is not None:
        import socket

        host, _, port = ready["tcp"].rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), CHECK_TIMEOUT).close()
    else:
        import urllib.request

        body = ready["post"].encode() if ready.get("post") is not None else None
        headers = {"Content-Type": "application/json"} if body is not None else {}
        request = urllib.request.Request(  # noqa: S310 - the job spec takes http and https
            ready["http"], body, headers
        )
        # A service of this node is never behind a proxy.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(request, timeout=CHECK_TIMEOUT).close()


def main(argv: "List[str]") -> int:
    """Check again and again until the service is ready or time is up."""
    import http.client
    import subprocess

    ready = json.loads(argv[0])
    report_due = time.monotonic() + REPORT_INTERVAL
    deadline = time.monotonic() + ready["timeout"]
    while True:
        try:
            check(ready)
            return 0
        except (OSError, ValueError, http.client.HTTPException, subprocess.SubprocessError) as error:
            seen = str(error)
        if time.monotonic() > deadline:
            sys.stderr.write("not ready: %s\n" % seen)
            return NOT_READY
        if time.monotonic() > report_due:
            sys.stderr.write("not ready yet: %s\n" % seen)
            sys.stderr.flush()
            report_due += REPORT_INTERVAL
        time.sleep(PAUSE)
