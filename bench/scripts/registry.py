"""A registry with one image of one layer, for bench.images. It has no tags: any name means that image.

usage: python3 registry.py ARCHIVE PORT MB_PER_SECOND

ARCHIVE: a tar of `docker save`. All connections together get MB_PER_SECOND; 0: as fast as they can.
The distribution specification is github.com/opencontainers/distribution-spec.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import sys
import tarfile
import threading
import time
from pathlib import Path

BLOCK = 1 << 20  # bytes
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Link:
    """The registry's connection to the nodes."""

    def __init__(self, rate: float) -> None:
        self._rate = rate * 1e6
        self._lock = threading.Lock()
        self._free = 0.0

    def send(self, size: int) -> None:
        """Wait until so many bytes have passed."""
        if not self._rate:
            return
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._rate
            end = self._free
        time.sleep(max(0.0, end - time.monotonic()))


class Registry(http.server.ThreadingHTTPServer):
    """Serves the blobs of an archive, and counts what it sends."""

    request_queue_size = 64

    def __init__(self, archive: str, port: int, rate: float) -> None:
        super().__init__(("", port), Handler)
        self.link = Link(rate)
        self.sent = 0
        self.lock = threading.Lock()
        self.archive = archive
        self.blobs: dict[str, tuple[int, int]] = {}  # digest -> offset in the archive, and size
        with tarfile.open(archive) as tar:
            listed = tar.extractfile("manifest.json")
            assert listed
            image = json.load(listed)[0]
            descriptors = [self._add(tar, image["Config"], CONFIG), self._add(tar, image["Layers"][0], LAYER)]
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptors[0],
            "layers": descriptors[1:],
        }
        self.manifest = json.dumps(manifest).encode()

    def _add(self, tar: tarfile.TarFile, name: str, media_type: str) -> dict[str, object]:
        member = tar.getmember(name)
        checksum = hashlib.sha256()
        stream = tar.extractfile(member)
        assert stream
        for block in iter(lambda: stream.read(BLOCK), b""):
            checksum.update(block)
        digest = "sha256:" + checksum.hexdigest()
        self.blobs[digest] = (member.offset_data, member.size)
        return {"mediaType": media_type, "digest": digest, "size": member.size}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one client."""

    server: Registry
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Send the manifest, a blob, or how many bytes of blobs were sent (/sent)."""
        _, _, last = self.path.rpartition("/")
        if self.path == "/sent":
            self._send(str(self.server.sent).encode(), "text/plain")
        elif "/manifests/" in self.path:
            self._send(self.server.manifest, MANIFEST)
        elif last in self.server.blobs:
            self._send_blob(*self.server.blobs[last])
        elif self.path == "/v2/":
            self._send(b"{}", "application/json")
        else:
            self.send_error(404)

    def _send(self, content: bytes, media_type: str) -> None:
        self._begin(len(content), media_type)
        if media_type == MANIFEST:
            self.send_header("Docker-Content-Digest", "sha256:" + hashlib.sha256(content).hexdigest())
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def _send_blob(self, offset: int, size: int) -> None:
        self._begin(size, "application/octet-stream")
        self.end_headers()
        if self.command != "GET":
            return
        with Path(self.server.archive).open("rb") as file:
            file.seek(offset)
            while size:
                block = file.read(min(size, BLOCK))
                self.server.link.send(len(block))
                self.wfile.write(block)
                size -= len(block)
                with self.server.lock:
                    self.server.sent += len(block)

    def _begin(self, size: int, media_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(size))

    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    Registry(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])).serve_forever()
