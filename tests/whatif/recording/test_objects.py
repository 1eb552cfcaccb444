"""What is recorded of an object reads back as the same object, less what no decision looks at."""

import json
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, strategies as st

from extender.engine.state.state_observer import Recorded
from extender.model.ledger import Share, decode_ledger
from extender.model.names import SLOTS_RESOURCE, UNKNOWN_ZONE, ZONE_LABEL
from extender.model.node_fit import NodeFit, NodeRequirement, Taint, Toleration
from extender.model.objects import (
    AdapterPod,
    Handoff,
    HandoffMode,
    LabelSelector,
    Namespace,
    SelectorRequirement,
)
from extender.whatif.recording.objects import object_from, put_of
from tests.support.builders import a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.worlds import pods, vpods

SOME_FIT = NodeFit(
    tolerations=(Toleration("dedicated", "Equal", "adapters", "NoSchedule"),),
    selector=(("disk", "ssd"),),
    terms=(
        (
            NodeRequirement("size", "In", ("l", "xl")),
            NodeRequirement("metadata.name", "In", ("n",), True),
        ),
    ),
)

OBJECTS = [
    pytest.param(a_node(labels={ZONE_LABEL: "z0", "size": "l"}), id="node"),
    pytest.param(
        a_node(
            labels={ZONE_LABEL: "z0"},
            cordoned=True,
            ready=False,
            slots=40,
            allocatable=((SLOTS_RESOURCE, "40"),),
            taints=(Taint("a", "b", "NoExecute"),),
        ),
        id="node of few",
    ),
    pytest.param(a_node(zone=UNKNOWN_ZONE), id="node without a zone"),
    pytest.param(Namespace(name="tenant", labels=MappingProxyType({"team": "a"})), id="namespace"),
    pytest.param(a_stateful_set(3, 2), id="StatefulSet of which no template is known"),
    pytest.param(
        a_stateful_set(3, fit=SOME_FIT, uid="u", deleting=True), id="StatefulSet for some nodes"
    ),
    pytest.param(a_stateful_set(3, fit=NodeFit()), id="StatefulSet for any node"),
    pytest.param(a_pool(), id="pool"),
    pytest.param(a_pool(capacities=(("cpu", 4), ("memory", 9))), id="pool with dimensions"),
    pytest.param(
        a_pool(handoff=Handoff(mode=HandoffMode.OVERLAP, prepare_timeout_s=7)),
        id="pool that hands shares over",
    ),
    pytest.param(a_vpod(per_vreplica=(("cpu", 4),)), id="vpod that takes some of a dimension"),
    pytest.param(a_pool(reschedule_after_s=None), id="pool that never reschedules"),
    pytest.param(
        a_pool(
            7,
            uid="u",
            generation=4,
            min_pods=1,
            min_pods_per_vpod=2,
            max_pods=0,
            scale_down_period_s=5,
            reschedule_after_s=0,
            moves_per_period=3,
            move_cooldown_s=9,
            move_dry_run=True,
            profile="ha",
            deleting=True,
            namespace_selector=LabelSelector(
                match_labels=MappingProxyType({"a": "b"}),
                match_expressions=(SelectorRequirement(key="c", operator="In", values=("d", "e")),),
            ),
        ),
        id="pool with everything",
    ),
    pytest.param(
        a_vpod("a", 3, {1: 2, 0: 0}, uid="u", generation=2, observed_generation=1, weight=2),
        id="vpod",
    ),
    pytest.param(
        a_vpod("a", 3, source="consumergroup.internal.kafka.eventing.knative.dev"),
        id="foreign vpod",
    ),
]


@pytest.mark.parametrize("obj", OBJECTS)
def test_an_object_reads_back(obj):
    assert read_back(obj) == obj


@given(pods())
def test_a_pod_reads_back_with_what_it_carries(pod: AdapterPod):
    known = replace(pod, ledger=decode_ledger("")) if pod.ledger_error else pod
    found = read_back(replace(known, ledger_text="[" if pod.ledger_error else pod.ledger_text))
    assert isinstance(found, AdapterPod)
    assert dict(found.ledger) == dict(known.ledger)
    assert bool(found.ledger_error) == bool(pod.ledger_error)
    assert plain(found) == plain(known)


def plain(pod: AdapterPod) -> AdapterPod:
    return replace(pod, ledger={}, ledger_text=None, ledger_error="", has_annotations=True)


@given(vpods())
def test_a_vpod_reads_back(vpod):
    assert read_back(vpod) == vpod


def test_of_a_bind_under_way_the_ledger_that_it_brings_is_recorded():
    pod = replace(a_pod(0, {"tenant/a": 1}), assumed=True, ledger={"tenant/a": Share(3, 2)})
    found = read_back(pod)
    assert isinstance(found, AdapterPod)
    assert (found.assumed, dict(found.ledger)) == (True, {"tenant/a": Share(3, 2)})


def test_nothing_of_a_pod_is_recorded_that_no_decision_looks_at():
    pod = a_pod(0, {"tenant/a": 1}, ready=True, ready_since="2026-01-01T00:00:00Z")
    manifest = put_of(pod)["put"]
    assert isinstance(manifest, dict)
    assert set(manifest) == {"kind", "metadata", "spec", "status"}
    spec = manifest["spec"]
    assert isinstance(spec, dict)
    assert set(spec) <= {"nodeName", "schedulerName", "priority"}


@given(st.sampled_from(["Secret", "ConfigMap", "", None]))
def test_no_other_kind_is_taken(kind: str | None):
    with pytest.raises(ValueError, match="not a kind that is recorded"):
        object_from({"put": {"kind": kind}})


def read_back(obj: Recorded) -> Recorded:
    return object_from(json.loads(json.dumps(put_of(obj))))
