"""Sends requests to a job's ports, with or without its token. Runs in a container with Ray.

Standard input: one JSON object.
    ports: [address, port] of each. token: the token to send, or null for none.
    procedures: whether to call all of Ray's remote procedures too. client: address of the Ray Client server.
Standard output: one JSON object.
    rejected: number of rejected requests. answered: [port, request, answer] of the others.
    client: "connected" if the Ray Client server accepts the connection, else the error.
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
SUBMISSION = json.dumps({"entrypoint": "touch /tmp/submitted-without-a-token"})
NAME = rb"/[a-z][a-z0-9._]*\.[A-Za-z0-9.]+/[A-Z][A-Za-z]+(?=\0)"  # e.g. /ray.rpc.JobInfoGcsService/AddJob
REJECTED = ("401", "403", "UNAUTHENTICATED")
CRASHES_WITHOUT_NODE_ID = "/ray.rpc.syncer.RaySyncer/StartSync"


def over_http(host: str, port: int, token: str | None) -> list[tuple[str, str]]:
    """Return (request, answer) for all of GET and POST; [] if the port does not speak HTTP."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    answers = []
    for method, path in [*(("GET", path) for path in GET), *(("POST", path) for path in POST)]:
        connection = http.client.HTTPConnection(host, port, timeout=5)
        try:
            connection.request(method, path, SUBMISSION if method == "POST" else None, headers)
            answers.append((f"{method} {path.split('?')[0]}", str(connection.getresponse().status)))
        except (OSError, http.client.HTTPException):
            return answers
        finally:
            connection.close()
    return answers


@functools.cache
def procedures() -> list[str]:
    """Return all remote procedures in Ray's Python descriptors and programs."""
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
    """Return (procedure, status code) of calls without arguments; [] if the port does not speak gRPC."""
    grpc = importlib.import_module("grpc")
    answers: list[tuple[str, str]] = []
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(2)
        except grpc.FutureTimeoutError:
            return answers
        for name in procedures():
            metadata = [("authorization", f"Bearer {token}")] if token else []
            if name == CRASHES_WITHOUT_NODE_ID:
                metadata.append(("node_id", "00"))
            try:
                channel.unary_unary(name)(b"", timeout=3, metadata=metadata)
                answers.append((name, "OK"))
            except grpc.RpcError as error:
                answers.append((name, error.code().name))
    return answers


def connect_ray_client(address: str, token: str | None, retries: int) -> str:
    """Connect to the Ray Client server, at most 5 s for each try; return "connected" or the error."""
    os.environ |= (
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}
    )
    os.environ["RAY_CLIENT_RECONNECT_GRACE_PERIOD"] = "0"
    client = importlib.import_module("ray.util.client")
    try:
        client.ray.connect(address, connection_retries=retries)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "connected"


def main() -> None:
    """Read the request from stdin, and print the answers."""
    request = json.load(sys.stdin)
    # First: Ray reads the environment variables of tokens during its import.
    client = connect_ray_client(request["client"], request["token"], 0 if request["procedures"] else 5)
    procedures()

    def send_requests(port: tuple[str, int]) -> list[tuple[str, str]]:
        answers = over_http(*port, request["token"])
        return answers + (over_grpc(*port, request["token"]) if request["procedures"] else [])

    rejected, answered = 0, []
    with ThreadPoolExecutor(8) as pool:
        for (_, port), answers in zip(
            request["ports"], pool.map(send_requests, request["ports"]), strict=True
        ):
            rejected += sum(answer in REJECTED for _, answer in answers)
            answered += [(port, *one) for one in answers if one[1] not in {*REJECTED, "UNIMPLEMENTED"}]
    print(json.dumps({"rejected": rejected, "answered": answered, "client": client}))


if __name__ == "__main__":
    main()
