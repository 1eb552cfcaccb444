"""What the benches send is what kube-scheduler sends."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.model.decode import node_from, pod_from
from extender.node.wire import decode_binding_args, decode_extender_args, decode_preemption_args
from tests.bench import requests
from tests.bench.population import (
    NODE_SLOTS,
    RECORDINGS,
    SLOTS_PER_POD,
    Pool,
    Population,
    bound_pod,
    node,
    pending_pod,
)

POOL = Pool("dispatcher", bound=6, pending=2, vpods=5)


def recorded(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((Path(RECORDINGS) / f"{name}.json").read_text())
    return loaded


@pytest.mark.parametrize("name", ["filter-1", "filter-2", "prioritize-1", "prioritize-3"])
def test_a_request_with_names_has_the_recorded_keys_in_their_order_and_the_recorded_length(name):
    recording = recorded(name)
    request = recording["request"]
    body = requests.of_names(request["Pod"], request["NodeNames"])
    assert list(orjson.loads(body)) == list(request)
    assert orjson.loads(body) == request
    assert str(len(body)) == recording["headers"]["Content-Length"]


def test_a_bind_request_is_the_recorded_one():
    recording = recorded("bind-1")
    request = recording["request"]
    pod = {
        "metadata": {
            "name": request["PodName"],
            "namespace": request["PodNamespace"],
            "uid": request["PodUID"],
        }
    }
    body = requests.of_binding(pod, request["Node"])
    assert orjson.loads(body) == request
    assert str(len(body)) == recording["headers"]["Content-Length"]


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("filter-full-1", lambda r: requests.of_nodes(r["Pod"], r["Nodes"]["items"])),
        ("preempt-meta-1", lambda r: requests.of_meta_victims(r["Pod"], _uids(r))),
        ("preempt-full-1", lambda r: requests.of_victims(r["Pod"], _pods(r))),
    ],
)
def test_a_request_with_whole_objects_or_victims_is_the_recorded_one(name, build):
    request = recorded(name)["request"]
    body = orjson.loads(build(request))
    assert body == request
    assert list(body) == list(request)


def _uids(request: dict[str, Any]) -> dict[str, list[str]]:
    return {
        name: [pod["UID"] for pod in victims["Pods"]]
        for name, victims in request["NodeNameToMetaVictims"].items()
    }


def _pods(request: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: victims["Pods"] for name, victims in request["NodeNameToVictims"].items()}


def test_the_head_is_that_of_gos_client():
    recording = recorded("bind-1")
    request = requests.whole("127.0.0.1:8888", "bind", b"x" * 112)
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    assert first == "POST /v1/bind HTTP/1.1"
    assert dict(line.split(": ") for line in lines) == recording["headers"]
    assert len(body) == 112


def test_a_pending_pod_is_the_recorded_one_with_our_label_and_slots():
    pod = pending_pod(POOL, 7)
    was = recorded("filter-1")["request"]["Pod"]
    assert list(pod) == list(was)
    assert list(pod["metadata"]) == list(was["metadata"])
    assert list(pod["spec"]) == list(was["spec"])
    read = pod_from(pod)
    assert (read.pool, read.ordinal, read.node, read.slots) == (
        "knative-eventing/dispatcher",
        7,
        "",
        SLOTS_PER_POD,
    )


def test_a_node_is_the_recorded_one_in_a_zone_and_declares_slots():
    made = node(4)
    was = recorded("filter-full-1")["request"]["Nodes"]["items"][0]
    assert list(made["metadata"]) == list(was["metadata"])
    assert list(made["status"]) == list(was["status"])
    read = node_from(made)
    assert (read.name, read.zone, read.slots) == ("node-0004", "z1", NODE_SLOTS)


def test_the_services_decoders_read_all_bodies():
    pod = pending_pod(POOL, 7)
    assert decode_extender_args(requests.of_names(pod, ["a"])).names == ("a",)
    assert decode_extender_args(requests.of_nodes(pod, [node(1)])).names == ("node-0001",)
    assert decode_binding_args(requests.of_binding(pod, "a")).node == "a"
    assert decode_preemption_args(requests.of_meta_victims(pod, {"a": ["u"]})).victims[
        "a"
    ].uids == ("u",)
    victims = {"a": [bound_pod(POOL, 1, "a", {})]}
    assert len(decode_preemption_args(requests.of_victims(pod, victims)).victims["a"].uids) == 1


def test_in_a_population_ledgers_and_statuses_agree_and_no_pod_is_over_its_slots():
    lists = Population(3, (POOL,)).objects()
    pods = [pod_from(obj) for obj in lists["pods"]]
    published: dict[str, dict[str, int]] = {}
    for vpod in lists["vpods"]:
        key = f"{vpod['metadata']['namespace']}/{vpod['metadata']['name']}"
        assert (
            sum(entry["vreplicas"] for entry in vpod["status"]["placements"])
            == vpod["spec"]["vreplicas"]
        )
        for entry in vpod["status"]["placements"]:
            published.setdefault(entry["podName"], {})[key] = entry["vreplicas"]
    for pod in pods[: POOL.bound]:
        ledger = {key: share.vreplicas for key, share in pod.ledger.items()}
        assert ledger == published[pod.name]
        assert sum(ledger.values()) <= SLOTS_PER_POD
    assert [pod.node for pod in pods[POOL.bound :]] == ["", ""]
    assert all(pod.name in published for pod in pods[POOL.bound :]), (
        "a pod that comes back carries something"
    )
