"""Asks the GCS for the demands of Ray, and sends the controller those that no node could ever hold.

Runs in a thread of the head node's `ray start`, which has imported Ray. Ray 2.44, 2.52 and 2.60 answer alike.
A Ray that does not answer, or in another way, has no such demands.
"""

import collections
import importlib
import re
import time

from ... import background_io
from .unplaceable import Bundle, Demand, DemandWatch, Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Tuple

    from ...wire import messages

PENDING_INTERVAL, INTERVAL = 10.0, 30.0  # seconds between two questions, while demands are pending or not
TIMEOUT = 5.0  # seconds for an answer
DEAD = 2  # NodeStatus of autoscaler.proto
NOT_IN = 2  # LabelSelectorOperator of common.proto
# What a node has for a placement group: of all its bundles, or of that with this index.
IN_GROUP = re.compile("(.+)_group_([0-9]+_)?([0-9a-f]+)")


def start(address: str, send: "Callable[[messages.ToController], None]") -> None:
    """Start the thread. address: `host:port` of the GCS. send: to the controller."""

    def send_demand(text: str, fix: str, ended: bool) -> None:
        send({"type": "unplaceable", "text": text, "fix": fix, "ended": ended})

    background_io.start("demands", lambda: _watch(address, send_demand))


def _watch(address: str, send: "Callable[[str, str, bool], None]") -> None:
    watch, client, names = DemandWatch(), None, {}
    while True:
        demands: "Dict[Demand, int]" = {}
        try:
            client = client or importlib.import_module("ray._raylet").GcsClient(address=address)
            state = _ask(client)
            demands = read_demands(state)
            if demands and any(node.node_id not in names for node in state.node_states):
                names = {key.binary(): row.node_name for key, row in client.get_all_node_info().items()}
            for row in watch.update(demands, read_nodes(state, names), time.monotonic()):
                send(*row)
        except Exception:  # of any kind: Ray's internals may change
            pass
        time.sleep(PENDING_INTERVAL if demands else INTERVAL)


def _ask(client: "Any") -> "Any":
    """The message ClusterResourceState of autoscaler.proto, which `ray status` shows with autoscaler v2."""
    reply = importlib.import_module("ray.core.generated.autoscaler_pb2").GetClusterStatusReply()
    reply.ParseFromString(client.get_cluster_status(timeout_s=TIMEOUT))
    return reply.cluster_resource_state


def read_demands(state: "Any") -> "Dict[Demand, int]":
    """What is pending, and how often. What is to run in a placement group is left out: that is pending."""
    demands: "Dict[Demand, int]" = collections.Counter()
    for pending in state.pending_resource_requests:
        names = pending.request.resources_bundle
        if not any(IN_GROUP.fullmatch(name) for name in names):
            choices = [(bundle,) for bundle in _read_bundles(pending.request)]
            demands[Demand("", tuple(choices))] += pending.count
    for group in state.pending_gang_resource_requests:
        # Ray 2.44 has no bundle_selectors, of which the second and later ones are fallbacks.
        alternatives = [each.resource_requests for each in getattr(group, "bundle_selectors", [])]
        groups: "List[Tuple[Bundle, ...]]" = [
            tuple(sorted(_read_bundles(request)[0] for request in requests))
            for requests in alternatives or [group.requests]
        ]
        strategy = group.details.partition(":")[2].partition("|")[0]  # ID:STRATEGY|STATE
        if strategy:
            demands[Demand(strategy, tuple(groups))] += 1
    return demands


def _read_bundles(request: "Any") -> "List[Bundle]":
    """A bundle for each label selector of a request, as any of them does."""
    resources = tuple(sorted(request.resources_bundle.items()))
    selectors = [
        tuple(
            (label.label_key, label.operator != NOT_IN, tuple(sorted(label.label_values)))
            for label in selector.label_constraints
        )
        for selector in getattr(request, "label_selectors", [])  # Ray 2.44 has none
    ]
    return [Bundle(resources, labels) for labels in selectors or [()]]


def read_nodes(state: "Any", names: "Dict[bytes, str]") -> "List[Node]":
    """The nodes that are alive, sorted by name. names: by id."""
    nodes = []
    for row in state.node_states:
        if row.status == DEAD:
            continue
        resources: "Dict[str, float]" = {}
        groups: "Dict[str, Dict[str, float]]" = {}
        for name, amount in row.total_resources.items():
            match = IN_GROUP.fullmatch(name)
            if not match:
                resources[name] = amount
            elif not match.group(2):
                groups.setdefault(match.group(3), {})[match.group(1)] = amount
        name = names.get(row.node_id) or row.node_ip_address
        labels = dict(row.labels) if hasattr(row, "labels") else None
        nodes.append(Node(name, resources, labels, groups))
    return sorted(nodes, key=lambda node: node.name)  # Ray has them in any order
