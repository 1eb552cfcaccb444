"""Requests to an extender, byte for byte as kube-scheduler's Go client sends them.

The keys of a body are in the order of the Go structs, null where Go has null, without spaces; the
head is that of Go's HTTP client. The recordings in ``tests/contract/recordings`` are what this is
held to.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from tests.bench.population import Obj

FILTER: Final = "filter"
PRIORITIZE: Final = "prioritize"
PREEMPT: Final = "preempt"
BIND: Final = "bind"


def of_names(pod: Obj, names: Sequence[str]) -> bytes:
    """ExtenderArgs of a scheduler with nodeCacheCapable."""
    return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})


def of_nodes(pod: Obj, nodes: Sequence[Obj]) -> bytes:
    """ExtenderArgs without nodeCacheCapable: whole nodes."""
    return orjson.dumps({"Pod": pod, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None})


def of_meta_victims(pod: Obj, victims: Mapping[str, Sequence[str]]) -> bytes:
    """ExtenderPreemptionArgs of a scheduler with nodeCacheCapable; ``victims``: node -> UIDs."""
    by_node = {
        node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
        for node, uids in victims.items()
    }
    return orjson.dumps({"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": by_node})


def of_victims(pod: Obj, victims: Mapping[str, Sequence[Obj]]) -> bytes:
    """ExtenderPreemptionArgs without nodeCacheCapable; ``victims``: node -> whole pods."""
    by_node = {node: {"Pods": pods, "NumPDBViolations": 0} for node, pods in victims.items()}
    return orjson.dumps({"Pod": pod, "NodeNameToVictims": by_node, "NodeNameToMetaVictims": None})


def of_binding(pod: Obj, node: str) -> bytes:
    """ExtenderBindingArgs."""
    metadata = pod["metadata"]
    return orjson.dumps(
        {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
    )


def whole(host: str, verb: str, body: bytes) -> bytes:
    """The request with its head, for ``host`` (address:port)."""
    head = (
        f"POST /v1/{verb} HTTP/1.1\r\n"
        f"Host: {host}\r\n"
        "User-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Content-Type: application/json\r\n"
        "Accept-Encoding: gzip\r\n"
        "\r\n"
    )
    return head.encode() + body
