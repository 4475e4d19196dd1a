"""The readiness check of a service.

Role `ready`, with the argument PATH of a file with `ready` of the job spec as JSON. Exit code 0: ready.
NOT_READY: not ready in time; the last error is on standard error.
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
LOG_INTERVAL = 60.0  # seconds


def check(ready: "Dict[str, Any]") -> None:
    """Raise an error unless the service is ready."""
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
        # Services of this node are never behind a proxy.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(request, timeout=CHECK_TIMEOUT).close()


def main(argv: "List[str]") -> int:
    """Repeat the check until the service is ready or the timeout is over."""
    import http.client
    import subprocess

    with open(argv[0]) as file:
        ready = json.load(file)
    if ready.get("run") is not None:
        from .stage import move_text_to_file

        ready["run"] = move_text_to_file(ready["run"], argv[0] + "-run")
    log_due = time.monotonic() + LOG_INTERVAL
    deadline = time.monotonic() + ready["timeout"]
    while True:
        try:
            check(ready)
            return 0
        except (OSError, ValueError, http.client.HTTPException, subprocess.SubprocessError) as error:
            last_error = str(error)
        if time.monotonic() > deadline:
            sys.stderr.write("not ready: %s\n" % last_error)
            return NOT_READY
        if time.monotonic() > log_due:
            sys.stderr.write("not ready yet: %s\n" % last_error)
            sys.stderr.flush()
            log_due += LOG_INTERVAL
        time.sleep(PAUSE)
