"""Waits until a service can be used: `ready.py JSON`, as `ready` of the job spec.

Exit code 0: it can; 3: not in time, and standard error says what was last seen.
"""

import http.client
import json
import socket
import subprocess
import sys
import time
import urllib.request

NOT_IN_TIME = 3
PAUSE = 0.5  # seconds between two looks
PATIENCE = 10.0  # seconds for one look
SAY_EVERY = 60.0  # seconds


def look(ready):
    """Raises an OSError, whose text says what is wrong, unless the service can be used."""
    if "run" in ready:
        subprocess.run(ready["run"], check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    elif "tcp" in ready:
        host, _, port = ready["tcp"].rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    else:
        body = ready["post"].encode() if "post" in ready else None
        headers = {"Content-Type": "application/json"} if body is not None else {}
        request = urllib.request.Request(  # noqa: S310 - the job spec takes http and https
            ready["http"], body, headers
        )
        # A service of this node is never behind a proxy.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(request, timeout=PATIENCE).close()


def main():
    """See the text of the module."""
    ready = json.loads(sys.argv[1])
    say_at = time.monotonic() + SAY_EVERY
    deadline = time.monotonic() + ready["timeout"]
    while True:
        try:
            look(ready)
            return 0
        except (OSError, ValueError, http.client.HTTPException, subprocess.SubprocessError) as error:
            seen = error
        if time.monotonic() > deadline:
            print(f"not ready: {seen}", file=sys.stderr)
            return NOT_IN_TIME
        if time.monotonic() > say_at:
            print(f"not ready yet: {seen}", file=sys.stderr, flush=True)
            say_at += SAY_EVERY
        time.sleep(PAUSE)


if __name__ == "__main__":
    sys.exit(main())
