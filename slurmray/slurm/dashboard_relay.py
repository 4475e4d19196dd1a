"""Forwards connections to Ray's dashboard: each one through a step of the job, so that no ssh is needed."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

COOKIE = "slurmray-dashboard"  # who has it may connect
_RAYS_COOKIE = "ray-authentication-token"  # of Ray's dashboard since 2.52, for the cluster's token
_LONGEST_HEAD = 65536  # bytes
_CHUNK = 65536  # bytes
_PATIENCE = 5.0  # seconds for the end of a step whose connection is closed
_HEAD_SECONDS = 10.0  # for the headers of a connection's first request
_END = b"\r\n\r\n"  # of headers
_OWN_HOST = r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?"
_MOST_UNKNOWN = 64  # connections whose headers are not complete

# Runs in the head node's container: copies standard input to the dashboard, and its answers back.
#
# The requests have the cluster's token, and another user of the node may listen on the port. So nothing is
# sent before the kernel shows that the socket at the other end is this user's. That has an inode once it is
# accepted (get_tcp4_sock() in net/ipv4/tcp_ipv4.c of Linux); until then its user is not known.
_RELAY = r"""
import os, socket, struct, sys, threading, time
def fail(text):
    text = "Ray's dashboard: " + text
    head = "HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    os.write(1, (head + text + "\n").encode())
    sys.exit(text)
def end(address, port, *_):  # as in /proc/net/tcp, and at the end of a mapped address in tcp6
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    words = struct.unpack("=%dI" % (len(packed) // 4), packed)
    return "".join("%08X" % word for word in words) + ":%04X" % port
def users():
    here, there = end(*dashboard.getsockname()), end(*dashboard.getpeername())
    found = set()
    for table in "/proc/net/tcp", "/proc/net/tcp6":
        if os.path.exists(table):
            for row in map(str.split, open(table)):
                if row[1].endswith(there) and row[2].endswith(here) and row[9] != "0":
                    found.add(row[7])
    return found
until = time.monotonic() + 60
while True:
    try:
        dashboard = socket.create_connection((sys.argv[1], int(sys.argv[2])))
        break
    except OSError as error:  # Ray starts it after the nodes
        if time.monotonic() > until:
            fail(str(error))
        time.sleep(0.2)
while not (found := users()):
    if time.monotonic() > until:
        fail("no process accepts connections on port " + sys.argv[2])
    time.sleep(0.02)
if found != {str(os.geteuid())}:
    fail("another user's process listens on port " + sys.argv[2] + ". It got nothing; see the job's log")
def send():
    while data := os.read(0, 65536):
        dashboard.sendall(data)
    dashboard.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := dashboard.recv(65536):
    while data:
        data = data[os.write(1, data):]
"""
# Otherwise srun keeps what has no newline at its end.
VARIABLES = {"SLURM_UNBUFFEREDIO": "1"}
_REFUSAL = b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
_FOREIGN = b"only processes of the user who runs slurmray dashboard, on the same host, get an answer\n"
_HINT = b"open the address that slurmray dashboard prints\n"


def relay(address: str, port: int) -> list[str]:
    """Return a command for the head node's container: its input and output are those of the dashboard."""
    return ["python3", "-c", _RELAY, address, str(port)]


class Forwarder(socketserver.ThreadingTCPServer):
    """Listens on this host's loopback, for processes of this user that have `url`.

    Others of this host could run code as the user. A browser sends them its cookies where they listen on
    another port of 127.0.0.1, and a process list may show them `url`, so on Linux the user is checked, too.

    port: on which it listens. url: to open in a browser; it has a key, and signs in to Ray. unknown:
    connections whose headers are not complete, the oldest first.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], token: str, port: int) -> None:
        """Listen on a port (0: any). OSError if it is taken.

        start: starts a process whose standard input and output are a connection to the dashboard. token: of
        the cluster, or "".
        """
        self.steps: set[subprocess.Popen[bytes]] = set()
        self.unknown: dict[socket.socket, None] = {}
        super().__init__(("127.0.0.1", port), _Connection)
        self.start = start
        self.port: int = self.server_address[1]
        self.key = secrets.token_urlsafe()
        # A browser sends a cookie to every port of 127.0.0.1: whoever listens on one must not get the token.
        self.token = token
        self.stand_in = secrets.token_hex((len(token) + 1) // 2)[: len(token)]
        self.path = f"/?key={self.key}"
        # Not localhost: another user of this host may listen on its address ::1, and would get the key.
        self.url = f"http://127.0.0.1:{self.port}{self.path}"
        cookies = [f"{COOKIE}={self.key}"] + ([f"{_RAYS_COOKIE}={self.stand_in}"] if token else [])
        lines = [f"Set-Cookie: {cookie}; Path=/; HttpOnly; SameSite=Strict\r\n" for cookie in cookies]
        # After a redirect the dashboard would be a page that another site has opened, e.g. a terminal in the
        # browser: without the cookie. And no page learns the key from its Referer.
        head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/html\r\n"
        page = "<meta http-equiv=refresh content='0; url=/'>"
        self.welcome = f"{head}Referrer-Policy: no-referrer\r\n{''.join(lines)}\r\n{page}".encode()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in a thread. Others of this host cannot keep the user out with idle ones.

        Too many of them close the oldest: a browser sends its headers at once.
        """
        self.unknown[request] = None
        if len(self.unknown) > _MOST_UNKNOWN:
            with contextlib.suppress(OSError, StopIteration):
                oldest = next(iter(list(self.unknown)))
                self.end_wait(oldest)
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def end_wait(self, request: socket.socket) -> None:
        """Note that a connection's headers are complete, or that it is closed."""
        self.unknown.pop(request, None)

    def start_step(self) -> subprocess.Popen[bytes]:
        """Start the step of one connection."""
        step = self.start()
        self.steps.add(step)
        return step

    def server_close(self) -> None:
        """End all connections, too."""
        super().server_close()
        for step in list(self.steps):
            step.terminate()


class _Connection(socketserver.BaseRequestHandler):
    """A connection. Each request is checked: a browser sends those of several pages on one connection."""

    server: Forwarder
    request: socket.socket

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the browser is gone, or too late
            try:
                data = self._read_head(b"", time.monotonic() + _HEAD_SECONDS)
            finally:
                self.server.end_wait(self.request)
            self.request.settimeout(None)
            self._answer(data)

    def _read_head(self, data: bytes, deadline: float | None = None) -> bytes:
        """Read until data has all headers of a request, or too much. OSError if it does not come in time."""
        while _END not in data and len(data) < _LONGEST_HEAD:
            if deadline is not None:
                self.request.settimeout(max(0.001, deadline - time.monotonic()))
            if not (piece := self.request.recv(_CHUNK)):
                raise ConnectionAbortedError
            data += piece
        return data

    def _answer(self, data: bytes) -> None:
        if not _is_of_this_user(self.request):
            self.request.sendall(_REFUSAL + _FOREIGN)
        elif _contains(data.decode("latin-1").split("\r\n")[0].split(" ")[1:2], self.server.path):
            self.request.sendall(self.server.welcome)
        elif not self._is_trusted(data):
            self.request.sendall(_REFUSAL + _HINT)
        else:
            self._forward(data)

    def _is_trusted(self, data: bytes) -> bool:
        """Whether a page of the dashboard, or the user, sends the request at the beginning of data.

        Pages from other ports of 127.0.0.1 are of the same site: their requests have the cookie. A page of
        another site can give its own name this address, so the host must be a name of the loopback; the port
        may be that of an ssh forwarding. Sec-Fetch-Site: www.w3.org/TR/fetch-metadata.
        """
        hosts = _values(data, "host")
        return (
            _END in data
            and re.fullmatch(_OWN_HOST, ", ".join(hosts)) is not None
            and set(_values(data, "origin")) <= {f"http://{host}" for host in hosts}
            and set(_values(data, "sec-fetch-site")) <= {"same-origin", "none"}
            and re.fullmatch("([0-9]{1,18})?", ", ".join(_values(data, "content-length"))) is not None
            and _contains(_cookies(data), self.server.key)
        )

    def _forward(self, data: bytes) -> None:
        step = self.server.start_step()
        assert step.stdin and step.stdout  # noqa: S101 - opened with PIPE
        threading.Thread(target=self._send, args=(data, step.stdin), daemon=True).start()
        try:
            with step.stdout:
                while piece := os.read(step.stdout.fileno(), _CHUNK):
                    self.request.sendall(piece)
        finally:
            try:
                step.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                step.terminate()
            self.server.steps.discard(step)

    def _send(self, data: bytes, stdin: IO[bytes]) -> None:
        """Send the dashboard one request after the other, with the token in place of the stand-in."""
        stand_in, token = (
            f"{_RAYS_COOKIE}={it}".encode() for it in (self.server.stand_in, self.server.token)
        )
        with contextlib.suppress(OSError), stdin:
            while self._is_trusted(data):
                data, left = data.replace(stand_in, token), _length(data)
                while left:
                    piece, data = data[:left], data[left:]
                    stdin.write(piece)
                    stdin.flush()
                    left -= len(piece)
                    if left and not (data := self.request.recv(_CHUNK)):
                        return
                data = self._read_head(data)
            self.request.sendall(_REFUSAL + _HINT)


def _is_of_this_user(connection: socket.socket) -> bool:
    """Whether the socket at the other end is this user's, or root's; true where the kernel shows no users.

    A closed one has inode 0, and before Linux 6.17 the user 0. ssh and sshd connect as the user of the
    forwarding.
    """
    ends = _table_entry(connection.getpeername()), _table_entry(connection.getsockname())
    tables = [table for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if table.exists()]
    rows = (row.split() for table in tables for row in table.read_text().splitlines()[1:])
    users = {
        row[7] for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1]) and row[9] != "0"
    }
    return not tables or (bool(users) and users <= {str(os.geteuid()), "0"})


def _table_entry(address: tuple[str, int]) -> str:
    """An IPv4 address and port as in /proc/net/tcp, and at the end of a mapped address in tcp6."""
    (word,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{word:08X}:{address[1]:04X}"


def _contains(texts: list[str], value: str) -> bool:
    return any(secrets.compare_digest(text.encode(), value.encode()) for text in texts)


def _values(data: bytes, name: str) -> list[str]:
    """Return the values of a header of the request at the beginning of data."""
    lines = data.partition(_END)[0].decode("latin-1").split("\r\n")[1:]
    headers = (line.partition(":") for line in lines)
    return [value.strip() for header, _, value in headers if header.lower() == name]


def _length(data: bytes) -> int:
    """Return the length of the request at the beginning of data; sys.maxsize: no other one follows it."""
    if _values(data, "upgrade") or _values(data, "transfer-encoding"):
        return sys.maxsize  # of a WebSocket, which a browser uses for nothing else; no page sends chunks
    return data.index(_END) + len(_END) + int("".join(_values(data, "content-length")) or 0)


def _cookies(data: bytes) -> list[str]:
    """Return the values of COOKIE in a request."""
    pairs = (pair.strip().partition("=") for pair in ";".join(_values(data, "cookie")).split(";"))
    return [value for name, _, value in pairs if name == COOKIE]
