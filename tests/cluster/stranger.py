"""Asks the ports of a job as somebody without its token; runs in a container that has Ray.

Standard input: one JSON object.
    ports: [address, port] of each. token: the token to send, or null for none.
    procedures: whether to call all of Ray's remote procedures, too. client: address of Ray's client server.
Standard output: one JSON object.
    refused: number of refused requests. answered: [port, request, answer] of the others.
    client: "in" where Ray's client server accepts the connection, else the error.
"""

from __future__ import annotations

import functools
import http.client
import importlib
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

GET = (
    "/", "/metrics", "/api/version", "/nodes?view=summary", "/api/jobs/", "/api/v0/tasks",
    "/api/v0/logs?node_id=0",
    "/api/v0/logs/file?node_id=0&filename=raylet.out", "/events", "/timeline", "/worker/traceback?pid=1&ip=0",
    "/api/component_activities", "/api/cluster_status", "/api/serve/applications/",
    "/log_proxy?url=http://localhost/",
    "/api/healthz", "/api/gcs_healthz", "/api/local_raylet_healthz", "/-/healthz", "/api/authentication_mode",
)  # fmt: skip
POST = (
    "/api/jobs/", "/api/job_agent/jobs/", "/get_or_create_runtime_env", "/get_runtime_envs_info",
    "/delete_runtime_env_if_possible", "/api/packages/gcs/x", "/api/authenticate",
)  # fmt: skip
SUBMISSION = json.dumps({"entrypoint": "touch /tmp/a-stranger-was-here"})
NAME = rb"/[a-z][a-z0-9._]*\.[A-Za-z0-9.]+/[A-Z][A-Za-z]+(?=\0)"  # e.g. /ray.rpc.JobInfoGcsService/AddJob
REFUSED = ("401", "403", "UNAUTHENTICATED")
DEADLY = "/ray.rpc.syncer.RaySyncer/StartSync"


def over_http(host: str, port: int, token: str | None) -> list[tuple[str, str]]:
    """(request, answer) for all of GET and POST; none where the port does not speak HTTP."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    heard = []
    for method, path in [*(("GET", path) for path in GET), *(("POST", path) for path in POST)]:
        link = http.client.HTTPConnection(host, port, timeout=5)
        try:
            link.request(method, path, SUBMISSION if method == "POST" else None, headers)
            heard.append((f"{method} {path.split('?')[0]}", str(link.getresponse().status)))
        except (OSError, http.client.HTTPException):
            return heard
        finally:
            link.close()
    return heard


@functools.cache
def procedures() -> list[str]:
    """Every remote procedure that Ray describes in Python or names in its programs."""
    home = Path(importlib.import_module("ray").__file__ or "").parent
    found = set()
    for path in (home / "core/generated").glob("*_pb2.py"):
        module = importlib.import_module(f"ray.core.generated.{path.stem}")
        for service in module.DESCRIPTOR.services_by_name.values():
            found |= {f"/{service.full_name}/{method.name}" for method in service.methods}
    for program in ("raylet/raylet", "gcs/gcs_server"):
        found |= {name.decode() for name in re.findall(NAME, (home / "core/src/ray" / program).read_bytes())}
    return sorted(found)


def over_grpc(host: str, port: int, token: str | None) -> list[tuple[str, str]]:
    """(procedure, status code) for each, called with nothing; none where the port does not speak gRPC."""
    grpc = importlib.import_module("grpc")
    heard: list[tuple[str, str]] = []
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(2)
        except grpc.FutureTimeoutError:
            return heard
        for name in procedures():
            metadata = [("authorization", f"Bearer {token}")] if token else []
            if name == DEADLY:
                metadata.append(("node_id", "00"))
            try:
                channel.unary_unary(name)(b"", timeout=3, metadata=metadata)
                heard.append((name, "OK"))
            except grpc.RpcError as error:
                heard.append((name, error.code().name))
    return heard


def enter(address: str, token: str | None, retries: int) -> str:
    """Connect as a Ray client, which takes 5 s at most for each time: "in", or the error."""
    os.environ |= (
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}
    )
    os.environ["RAY_CLIENT_RECONNECT_GRACE_PERIOD"] = "0"
    client = importlib.import_module("ray.util.client")
    try:
        client.ray.connect(address, connection_retries=retries)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "in"


def main() -> None:
    """See the text of the module."""
    wanted = json.load(sys.stdin)
    # First: Ray reads its environment variables about tokens when it is imported.
    client = enter(wanted["client"], wanted["token"], 0 if wanted["procedures"] else 5)
    procedures()

    def ask(port: tuple[str, int]) -> list[tuple[str, str]]:
        heard = over_http(*port, wanted["token"])
        return heard + (over_grpc(*port, wanted["token"]) if wanted["procedures"] else [])

    refused, answered = 0, []
    with ThreadPoolExecutor(8) as pool:
        for (_, port), heard in zip(wanted["ports"], pool.map(ask, wanted["ports"]), strict=True):
            refused += sum(answer in REFUSED for _, answer in heard)
            answered += [(port, *one) for one in heard if one[1] not in {*REFUSED, "UNIMPLEMENTED"}]
    print(json.dumps({"refused": refused, "answered": answered, "client": client}))


if __name__ == "__main__":
    main()
