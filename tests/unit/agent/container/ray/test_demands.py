"""What the GCS answers about demands and nodes, in Ray's own messages."""

from __future__ import annotations

import importlib
from typing import Any

from slurmray.agent.container.ray import demands
from slurmray.agent.container.ray.unplaceable import Bundle, Demand, Node

GROUP = "f7f5be622ad6428d31b8f67b7bd801000000"
# As Ray 2.60 answered, shortened.
STATE = f"""
node_states {{
  node_id: "a" node_ip_address: "192.0.2.2" status: RUNNING
  total_resources {{ key: "CPU" value: 2 }}
  total_resources {{ key: "CPU_group_{GROUP}" value: 1 }}
  total_resources {{ key: "CPU_group_0_{GROUP}" value: 1 }}
  total_resources {{ key: "bundle_group_{GROUP}" value: 1000 }}
  labels {{ key: "zone" value: "a" }}
}}
node_states {{ node_id: "b" node_ip_address: "192.0.2.3" status: IDLE }}
node_states {{ node_id: "c" node_ip_address: "192.0.2.4" status: DEAD }}
pending_resource_requests {{
  count: 2
  request {{ resources_bundle {{ key: "CPU" value: 5 }} label_selectors {{ }} }}
}}
pending_resource_requests {{
  count: 1
  request {{
    resources_bundle {{ key: "CPU" value: 1 }}
    label_selectors {{
      label_constraints {{ label_key: "zone" operator: LABEL_OPERATOR_IN label_values: "b" }}
    }}
    label_selectors {{
      label_constraints {{ label_key: "zone" operator: LABEL_OPERATOR_NOT_IN label_values: "a" }}
    }}
  }}
}}
pending_resource_requests {{
  count: 1
  request {{ resources_bundle {{ key: "CPU_group_{GROUP}" value: 1 }} }}
}}
pending_gang_resource_requests {{
  requests {{ resources_bundle {{ key: "CPU" value: 2 }} }}
  requests {{ resources_bundle {{ key: "CPU" value: 1 }} }}
  details: "{GROUP}:STRICT_PACK|PENDING"
}}
pending_gang_resource_requests {{ details: "in another way" }}
"""
CPU = Bundle((("CPU", 1.0),), ())


def state() -> Any:
    parse = importlib.import_module("google.protobuf.text_format").Parse
    return parse(STATE, importlib.import_module("ray.core.generated.autoscaler_pb2").ClusterResourceState())


def test_demands() -> None:
    labelled = tuple(
        (Bundle(CPU.resources, (("zone", is_in, (value,)),)),) for is_in, value in ((True, "b"), (False, "a"))
    )
    assert demands.read_demands(state()) == {
        Demand("", ((Bundle((("CPU", 5.0),), ()),),)): 2,
        Demand("", labelled): 1,
        Demand("STRICT_PACK", ((CPU, Bundle((("CPU", 2.0),), ())),)): 1,
    }


def test_nodes_that_are_alive() -> None:
    second, first = demands.read_nodes(state(), {b"a": "node1"})
    assert second == Node("192.0.2.3", {}, {}, {})
    assert first == Node("node1", {"CPU": 2.0}, {"zone": "a"}, {GROUP: {"CPU": 1.0, "bundle": 1000.0}})
