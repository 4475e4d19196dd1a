"""Connections to a dashboard; a web server of this test is the dashboard, and there is no srun."""

from __future__ import annotations

import http.client
import http.server
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from slurmray import local_commands
from slurmray.slurm import dashboard_relay
from slurmray.slurm.dashboard_relay import COOKIE, Forwarder, relay
from tests.attacks import tried


class Dashboard(http.server.BaseHTTPRequestHandler):
    """Answers with path and body, without a newline at the end; keeps the connection.

    posted: paths of the requests that it got in a test.
    """

    protocol_version = "HTTP/1.1"
    posted: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.posted.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        text = f"{self.path} ".encode() + body
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None:
        """Be quiet."""


def forward(port: int, token: str, listen: int = 0) -> Forwarder:
    """Forward a port of this host."""
    argv = relay("127.0.0.1", port)
    return Forwarder(lambda: local_commands.start(argv), token, listen)


@pytest.fixture(params=["the token", ""])
def forwarder(request: pytest.FixtureRequest) -> Iterator[Forwarder]:
    Dashboard.posted.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dashboard) as dashboard_relay:
        threading.Thread(target=dashboard_relay.serve_forever, args=(0.05,), daemon=True).start()
        with forward(dashboard_relay.server_address[1], request.param) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            yield server
            server.shutdown()
        dashboard_relay.shutdown()


def connect(forwarder: Forwarder) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", forwarder.port, timeout=60)


def signed_in(forwarder: Forwarder) -> str:
    """Sign in as a browser does; return its cookie."""
    connection = connect(forwarder)
    connection.request("GET", forwarder.url.partition(str(forwarder.port))[2])
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Referrer-Policy"]) == (200, "no-referrer")
    assert answer.read() == b"<meta http-equiv=refresh content='0; url=/'>"
    cookie, *attributes = answer.headers["Set-Cookie"].split("; ")
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Strict"]
    return str(cookie)


def test_a_browser(forwarder: Forwarder) -> None:
    """Many requests on one connection, and large ones."""
    cookie = signed_in(forwarder)
    connection = connect(forwarder)
    for body in (b"small", bytes(range(256)) * 10000, b"", b"\r\n\r\nPOST /api/y HTTP/1.1\r\n\r\n", b"1"):
        connection.request("POST", "/api/x", body, {"Cookie": f"other=1; {cookie}; more=2"})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"/api/x " + body)


class Recorder(Dashboard):
    """Answers with the request's cookies."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        text = self.headers["Cookie"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.mark.attack("a later listener on the dashboard's port", inputs=1)
def test_the_browser_does_not_get_the_token() -> None:
    """Ray gets it in each request of a connection, also where a read ends within the cookie."""
    token = "0123456789abcdef" * 4
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as dashboard:
        threading.Thread(target=dashboard.serve_forever, args=(0.05,), daemon=True).start()
        with forward(dashboard.server_address[1], token) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            connection = connect(server)
            connection.request("GET", server.path)
            lines = connection.getresponse().headers.get_all("Set-Cookie", [])
            cookies = [cookie.partition(";")[0] for cookie in lines]
            assert token not in " ".join(cookies)
            name, _, stand_in = cookies[1].partition("=")
            assert (name, len(stand_in)) == ("ray-authentication-token", len(token))
            expected = f"{cookies[0]}; {name}={token}".encode()
            connection = connect(server)
            for _ in range(2):
                connection.request("POST", "/", b"", {"Cookie": "; ".join(cookies)})
                assert connection.getresponse().read() == expected
            headers = "Host: localhost\r\nContent-Length: 0\r\n"
            request = f"POST / HTTP/1.1\r\n{headers}Cookie: {'; '.join(cookies)}\r\n\r\n".encode()
            middle = request.index(stand_in.encode()) + 20
            for piece in (request[:middle], request[middle:]):
                connection.sock.sendall(piece)
                time.sleep(0.2)
            answer = http.client.HTTPResponse(connection.sock)
            answer.begin()
            assert answer.read() == expected
            server.shutdown()
        dashboard.shutdown()


def test_a_port_that_is_taken(forwarder: Forwarder) -> None:
    with pytest.raises(OSError, match="in use"):
        forward(1, "", forwarder.port)


def test_it_listens_at_one_address(forwarder: Forwarder) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", forwarder.port))


def test_a_dashboard_that_is_still_starting() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        with forward(port, "") as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            connection = connect(server)
            connection.request("GET", "/", headers={"Cookie": f"{COOKIE}={server.key}"})
            (step,) = wait_for_step(server)
            with pytest.raises(subprocess.TimeoutExpired):
                step.wait(1)
            reserved.listen()
            accepted, _ = reserved.accept()
            with accepted:
                assert accepted.recv(100).startswith(b"GET / HTTP/1.1\r\n")
            server.shutdown()


def wait_for_step(server: Forwarder) -> set[subprocess.Popen[bytes]]:
    while not server.steps:
        time.sleep(0.01)
    return server.steps


# With the cookie. Chromium 156 sent those of a fetch, a frame and a form, and the first of OWN, so; the rest
# follows www.w3.org/TR/fetch-metadata. No page can send the last ones.
OF_OTHERS = {
    "fetch": {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    "GET, frame": {"Sec-Fetch-Site": "same-site"},
    "form of a site": {"Origin": "https://example.org", "Sec-Fetch-Site": "cross-site"},
    "link of a site": {"Sec-Fetch-Site": "cross-site"},
    "sandbox": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "WebSocket": {"Origin": "http://127.0.0.1:1", "Upgrade": "websocket", "Connection": "Upgrade"},
    "other name": {"Origin": "http://localhost:{port}", "Sec-Fetch-Site": "cross-site"},
    "rebound name": {"Host": "example.org:{port}", "Origin": "http://example.org:{port}"},
    "rebound name, same origin": {"Host": "127.0.0.1.example.org", "Sec-Fetch-Site": "same-origin"},
    "https": {"Origin": "https://{own}"},
    "no host": {"Host": ""},
    "two hosts": {"Host": "{own}, {own}"},
    "length": {"Content-Length": "+1"},
    "lengths": {"Content-Length": "1, 1"},
    "long": {"X": "x" * 65536},
}
OWN = [
    {"Origin": "http://{own}", "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    # The user has forwarded another port with ssh.
    {"Host": "localhost:9000", "Origin": "http://localhost:9000", "Sec-Fetch-Site": "same-origin"},
    {"Host": "[::1]", "Origin": "http://[::1]"},
]


def send(
    connection: http.client.HTTPConnection, forwarder: Forwarder, cookie: str, headers: dict[str, str]
) -> http.client.HTTPResponse:
    """Post with these headers."""
    own = f"127.0.0.1:{forwarder.port}"
    given = {name: value.format(port=forwarder.port, own=own) for name, value in headers.items()}
    connection.putrequest("POST", "/api/x", skip_host=True)
    for name, value in {"Host": own, "Content-Length": "1", "Cookie": cookie, **given}.items():
        connection.putheader(name, value)
    connection.endheaders(b"1")
    return connection.getresponse()


@pytest.mark.attack("another page in the browser uses the dashboard's cookie")
@pytest.mark.parametrize("forwarder", ["the token"], indirect=True)
@pytest.mark.parametrize("headers", OF_OTHERS.values(), ids=OF_OTHERS)
def test_a_page_of_another_origin(forwarder: Forwarder, headers: dict[str, str]) -> None:
    """On a connection of its own, and on one that the browser has used for the dashboard."""
    cookie, used = signed_in(forwarder), connect(forwarder)
    assert send(used, forwarder, cookie, OWN[0]).read() == b"/api/x 1"
    for connection in tried((connect(forwarder), used)):
        answer = send(connection, forwarder, cookie, headers)
        assert (answer.status, answer.headers["Connection"]) == (403, "close")
        assert b"open the address that" in answer.read()
        assert connection.sock is None, "closed"
    assert Dashboard.posted == ["/api/x"]


@pytest.mark.parametrize("forwarder", ["the token"], indirect=True)
def test_the_dashboard_s_own_pages(forwarder: Forwarder) -> None:
    cookie, connection = signed_in(forwarder), connect(forwarder)
    for headers in OWN:
        assert send(connection, forwarder, cookie, headers).read() == b"/api/x 1"


def test_a_websocket() -> None:
    """After its handshake any bytes go both ways, also those of a request that would be refused."""
    with (
        socket.create_server(("127.0.0.1", 0)) as dashboard,
        forward(dashboard.getsockname()[1], "") as server,
    ):
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        lines = ["GET /ws HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "Upgrade: websocket"]
        lines += [f"Origin: http://127.0.0.1:{server.port}", f"Cookie: {COOKIE}={server.key}", "", ""]
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as browser:
            browser.sendall("\r\n".join(lines).encode())
            accepted, _ = dashboard.accept()
            with accepted, accepted.makefile("rb") as requests, browser.makefile("rb") as answers:
                for line in lines[:-1]:
                    assert requests.readline() == f"{line}\r\n".encode()
                for end, text in (
                    (accepted, b"HTTP/1.1 101 x\r\n\r\n"),
                    (browser, b"GET / x\r\n\r\n\x00"),
                ):
                    end.sendall(text)
                assert answers.read(18) == b"HTTP/1.1 101 x\r\n\r\n"
                assert requests.read(12) == b"GET / x\r\n\r\n\x00"
        server.shutdown()


@pytest.mark.parametrize("headers", [{}, {"Cookie": f"{COOKIE}="}, {"Cookie": f"{COOKIE}=x; x={COOKIE}"}])
def test_others_are_refused(forwarder: Forwarder, headers: dict[str, str]) -> None:
    for path in ("/", "/?key=", "/?key=x", f"{forwarder.path}x"):
        connection = connect(forwarder)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Set-Cookie"]) == (403, None)
        assert b"open the address that" in answer.read()


def test_what_is_not_http(forwarder: Forwarder) -> None:
    connection = connect(forwarder)
    connection.connect()
    connection.sock.sendall(b"\r\n\r\n\xff")
    assert connection.sock.recv(100).startswith(b"HTTP/1.1 403 ")


def test_a_relay_that_cannot_start(forwarder: Forwarder) -> None:
    """As for a job that has ended: the connection is closed."""
    cookie = signed_in(forwarder)
    forwarder.start = lambda: local_commands.start(["false"])
    connection = connect(forwarder)
    connection.request("POST", "/", b"", {"Cookie": cookie})
    with pytest.raises(http.client.RemoteDisconnected):
        connection.getresponse()


def open_connections(forwarder: Forwarder, count: int, text: bytes = b"") -> list[socket.socket]:
    """Open connections as another user of this host does, who has no key; send the same on each."""
    made = []
    for _ in range(count):
        made.append(socket.create_connection(("127.0.0.1", forwarder.port), timeout=60))
        made[-1].sendall(text)
    return made


@pytest.mark.attack("connections that stay idle")
@pytest.mark.parametrize("forwarder", ["the token"], indirect=True)
def test_idle_connections_do_not_keep_the_user_out(
    forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither silent ones nor those whose headers do not end; nor do they close one that is in use."""
    monkeypatch.setattr(dashboard_relay, "_HEAD_SECONDS", 600)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    idle: list[socket.socket] = []
    cookie, before = signed_in(forwarder), connect(forwarder)

    def is_served(connection: http.client.HTTPConnection) -> bool:
        connection.request("POST", "/api/x", b"1", {"Cookie": cookie})
        return connection.getresponse().read() == b"/api/x 1"

    assert is_served(before)
    try:
        for text in tried((b"", b"GET / HTTP/1.1\r\nHost: x\r\n")):
            idle += open_connections(forwarder, 512, text)
        cookie = signed_in(forwarder)
        assert is_served(connect(forwarder))
        assert is_served(before)
        assert len(forwarder.unknown) < 100
        assert idle[0].recv(1) == b"", "closed: a process has few descriptors"
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.attack("connections that stay idle", inputs=1)
@pytest.mark.parametrize("forwarder", ["the token"], indirect=True)
def test_headers_have_a_deadline(forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many bytes come one after the other."""
    monkeypatch.setattr(dashboard_relay, "_HEAD_SECONDS", 0.5)
    (slow,) = open_connections(forwarder, 1)
    with slow, pytest.raises(OSError, match=r"reset|[Pp]ipe"):
        for _ in range(600):
            slow.sendall(b"x")
            time.sleep(0.05)


@pytest.mark.attack("connections that stay idle", inputs=1)
@pytest.mark.parametrize("forwarder", ["the token"], indirect=True)
def test_headers_have_a_limit(forwarder: Forwarder) -> None:
    """They are kept until they end."""
    (large,) = open_connections(forwarder, 1, b"x" * 65536)
    with large:
        assert large.recv(100).startswith(b"HTTP/1.1 403 ")


CLIENT = """
import contextlib, os, socket, sys
os.setuid(int(sys.argv[1]))
with socket.socket() as it, contextlib.suppress(ConnectionError):
    it.settimeout(20)
    it.connect(("127.0.0.1", int(sys.argv[2])))
    it.sendall(sys.stdin.buffer.read())
    if sys.argv[3] == "waits":
        print(it.recv(12).decode())
"""


@pytest.mark.attack("another user has the dashboard's cookie")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs processes of two users")
@pytest.mark.parametrize(("user", "way"), [(1002, "waits"), (1002, "closes"), (0, "waits")])
def test_a_client_of_another_user(forwarder: Forwarder, user: int, way: str) -> None:
    """Is refused, and the dashboard gets nothing, also if the client is gone when the kernel is asked."""
    headers = ["POST /api/jobs/ HTTP/1.1", "Host: localhost", f"Cookie: {signed_in(forwarder)}"]
    request = "\r\n".join([*headers, "Content-Length: 0", "", ""])
    argv = [sys.executable, "-c", CLIENT, str(user), str(forwarder.port), way]
    if way == "closes":
        forwarder.shutdown()  # connections wait to be accepted
    done = subprocess.run(argv, input=request.encode(), capture_output=True, check=True, timeout=60)
    if way == "closes":
        threading.Thread(target=forwarder.serve_forever, args=(0.05,), daemon=True).start()
    if user:
        time.sleep(1)  # in which a relay would start
    assert Dashboard.posted == ([] if user else ["/api/jobs/"])
    assert done.stdout == {"waits": b"HTTP/1.1 %d\n" % (403 if user else 200), "closes": b""}[way]


LISTENER = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
family = socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET
with socket.create_server((sys.argv[2], 0), family=family) as it:
    print(it.getsockname()[1], flush=True)
    it.settimeout(20)
    accepted, _ = it.accept()
    accepted.settimeout(20)
    print(accepted.recv(100), flush=True)
"""


@pytest.mark.attack("another user listens on a port of the job", inputs=1)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs processes of two users")
@pytest.mark.parametrize("user", [1002, 0])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_nothing_is_sent_to_a_process_of_another_user(address: str, user: int) -> None:
    """And to one of this user everything."""
    if ":" in address and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 on this machine")
    argv = [sys.executable, "-c", LISTENER, str(user), address]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout
        port = int(listener.stdout.readline())
        request = b"GET / HTTP/1.1\r\nCookie: ray-authentication-token=secret\r\n\r\n"
        done = subprocess.run(
            relay(address, port), input=request, capture_output=True, check=False, timeout=60
        )
        received = listener.stdout.readline()
    if user:
        assert received == "b''\n"
        assert done.stdout.startswith(b"HTTP/1.1 502 ")
        assert done.stdout.endswith(
            b"another user's process listens on port %d. It got nothing; see the job's log\n" % port
        )
    else:
        assert received == f"{request!r}\n"
