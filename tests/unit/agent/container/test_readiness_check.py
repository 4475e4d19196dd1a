"""Readiness checks of services."""

import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from slurmray.agent.container import readiness_check
from tests.unit.agent.containers import write_agent


def test_reason_is_logged_while_a_service_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readiness_check, "LOG_INTERVAL", 0.1)
    (tmp_path / "ready").write_text(json.dumps({"tcp": "127.0.0.1:9", "timeout": 1}))
    assert readiness_check.main([str(tmp_path / "ready")]) == readiness_check.NOT_READY
    assert "not ready yet: [Errno 111] Connection refused\n" in capsys.readouterr().err


def exit_code_of_check(**how: object) -> int:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ready").write_text(json.dumps({"timeout": 1, **how}))
        command = [sys.executable, write_agent(Path(folder)), "ready", f"{folder}/ready"]
        return subprocess.run(command, check=False, capture_output=True, timeout=30).returncode


class Retriever(BaseHTTPRequestHandler):
    """Accepts one POST, like Search-R1's retriever; a GET fails."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        good = json.loads(body) == {"queries": ["x"], "topk": 1} and "json" in self.headers["Content-Type"]
        self.send_response(200 if good else 422)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def retriever() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Retriever)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_service_is_ready(retriever: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    url = f"http://{retriever}/retrieve"
    assert exit_code_of_check(http=url, post='{"queries": ["x"], "topk": 1}') == 0
    assert exit_code_of_check(http=url, post='{"queries": []}') == readiness_check.NOT_READY
    assert exit_code_of_check(http=url) == readiness_check.NOT_READY
    assert exit_code_of_check(tcp=retriever) == 0
    assert exit_code_of_check(run=["true"]) == 0
    assert exit_code_of_check(run=["false"]) == readiness_check.NOT_READY


def test_a_service_that_does_not_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
    assert exit_code_of_check(tcp=place) == readiness_check.NOT_READY
    assert exit_code_of_check(http=f"http://{place}") == readiness_check.NOT_READY
