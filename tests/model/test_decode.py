"""API objects as JSON -> the model: lenient where a default exists, strict where we would decide
wrongly.
"""

from contextlib import suppress
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings, strategies as st

from extender.model import decode, names
from extender.model.assignment import Acknowledged, encode_acknowledged
from extender.model.errors import InvalidObject, VReplicaError
from extender.model.ledger import Share
from extender.model.objects import (
    AdapterPod,
    SelectorRequirement,
    VPod,
    ordinal_of,
    placement_order,
)
from extender.model.reading import selector_from


def a_pod(**parts) -> AdapterPod:
    metadata = {
        "name": "d-3",
        "namespace": "k",
        "uid": "u",
        "labels": {names.POOL_LABEL: "p"},
        **parts.pop("metadata", {}),
    }
    return decode.pod_from({"metadata": metadata, **parts})


class TestPod:
    def test_a_bare_pod(self):
        pod = a_pod()
        assert (pod.key, pod.pool, pod.ordinal, pod.node, pod.slots) == (
            "k/d-3",
            "k/p",
            3,
            "",
            None,
        )
        assert (pod.ledger, pod.ledger_text, pod.has_annotations) == ({}, None, False)

    def test_its_ledger(self):
        pod = a_pod(metadata={"annotations": {names.PLACEMENTS_ANNOTATION: '{"t/a":[2,3]}'}})
        assert pod.ledger == {"t/a": Share(2, 3)}
        assert pod.ledger_text == '{"t/a":[2,3]}'

    def test_a_ledger_that_cannot_be_read_is_kept_with_the_reason(self):
        pod = a_pod(metadata={"annotations": {names.PLACEMENTS_ANNOTATION: "x"}})
        assert (pod.ledger, pod.ledger_text) == ({}, "x")
        assert pod.ledger_error.startswith("not JSON")

    @pytest.mark.parametrize("value", ["1", "t", "T", "true", "TRUE", "True"])
    @pytest.mark.parametrize(
        "name", [names.UNSCHEDULABLE_ANNOTATION, names.KNATIVE_UNSCHEDULABLE_ANNOTATION]
    )
    def test_marked_as_taking_no_work(self, name, value):
        assert a_pod(metadata={"annotations": {name: value}}).unschedulable

    @pytest.mark.parametrize("value", ["", "0", "false", "tRue", "yes", None, True])
    def test_not_marked(self, value):
        assert not a_pod(
            metadata={"annotations": {names.UNSCHEDULABLE_ANNOTATION: value}}
        ).unschedulable

    def test_slots_are_asked_for_by_all_containers_together(self):
        def container(amount: str) -> dict[str, object]:
            return {"resources": {"requests": {names.SLOTS_RESOURCE: amount}}}

        assert (
            a_pod(spec={"containers": [container("20"), {}, container("1k")]}).slots_request == 1020
        )
        assert a_pod(spec={"containers": [{}]}).slots_request is None

    def test_its_owner_is_the_stateful_set_that_controls_it(self):
        refs = [
            {"kind": "StatefulSet", "name": "no-controller"},
            {"kind": "ReplicaSet", "name": "no", "controller": True},
            {"kind": "StatefulSet", "name": "d", "controller": True},
        ]
        assert a_pod(metadata={"ownerReferences": refs}).owner == "d"

    @pytest.mark.parametrize(
        ("phase", "finished"),
        [("Running", False), ("Pending", False), ("Succeeded", True), ("Failed", True)],
    )
    def test_finished(self, phase, finished):
        assert a_pod(status={"phase": phase}).finished is finished

    def test_ready_since(self):
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        pod = a_pod(status={"conditions": [{"type": "Initialized", "status": "True"}, ready]})
        assert (pod.ready, pod.ready_since) == (True, "2026-01-01T00:00:00Z")

    @pytest.mark.parametrize(
        ("status", "expired", "ready", "lease_expired"),
        [
            ("True", False, True, False),
            ("True", True, False, True),
            ("False", False, False, False),
            ("False", True, False, False),
        ],
    )
    def test_a_pod_whose_adapters_lease_has_run_out_is_not_ready(
        self, status, expired, ready, lease_expired
    ):
        text = encode_acknowledged(Acknowledged(1, 1, expired=expired))
        pod = a_pod(
            metadata={"annotations": {names.ACKNOWLEDGED_ANNOTATION: text}},
            status={"conditions": [{"type": "Ready", "status": status}]},
        )
        assert (pod.ready, pod.lease_expired) == (ready, lease_expired)

    @pytest.mark.parametrize(
        ("condition", "node", "refusal"),
        [
            pytest.param(
                {
                    "status": "False",
                    "message": "0/6 nodes: 5 Insufficient cpu. preemption: 0/6 nodes: no",
                },
                "",
                "'0/6 nodes: 5 Insufficient cpu.'",
                id="a message, without preemption's",
            ),
            pytest.param(
                {"status": "False", "reason": "SchedulingGated"},
                "",
                "'SchedulingGated'",
                id="a reason",
            ),
            pytest.param({"status": "False"}, "", "", id="nothing said"),
            pytest.param({"status": "True", "message": "x"}, "", "", id="scheduled"),
            pytest.param({"status": "False", "message": "x"}, "n", "", id="bound meanwhile"),
            pytest.param(
                {"status": "False", "message": "a\n\x1b[31m"}, "", "'a\\n\\x1b[31m'", id="made safe"
            ),
        ],
    )
    def test_why_kube_scheduler_finds_no_node(self, condition, node, refusal):
        conditions = [{"type": "PodScheduled", **condition}]
        assert a_pod(spec={"nodeName": node}, status={"conditions": conditions}).refusal == refusal

    def test_a_long_refusal_is_cut(self):
        conditions = [{"type": "PodScheduled", "status": "False", "message": "x" * 10_000}]
        assert len(a_pod(status={"conditions": conditions}).refusal) == decode.REFUSAL_CHARS_MAX


class TestNode:
    @pytest.mark.parametrize(
        ("node", "takes_work"),
        [
            pytest.param({}, True, id="nothing said"),
            pytest.param(
                {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, True, id="Ready"
            ),
            pytest.param(
                {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
                False,
                id="Unknown",
            ),
            pytest.param(
                {"spec": {"taints": [{"key": names.UNREACHABLE_TAINT}]}}, False, id="unreachable"
            ),
            pytest.param(
                {
                    "spec": {
                        "taints": [{"key": names.UNREACHABLE_TAINT, "effect": "PreferNoSchedule"}]
                    }
                },
                True,
                id="only advised against",
            ),
            pytest.param({"spec": {"taints": [{"key": "other"}]}}, True, id="another taint"),
            pytest.param({"spec": {"unschedulable": True}}, False, id="cordoned"),
            pytest.param(
                {"spec": {"taints": [{"key": names.OUT_OF_SERVICE_TAINT, "effect": "NoExecute"}]}},
                False,
                id="out of service",
            ),
        ],
    )
    def test_takes_work(self, node, takes_work):
        assert decode.node_from({"metadata": {"name": "n"}, **node}).takes_work is takes_work

    @pytest.mark.parametrize(
        ("declared", "slots"),
        [("40", 40), ("2k", 2000), ("1Ki", 1024), (None, None), ("forty", None)],
    )
    def test_slots_are_a_quantity(self, declared, slots):
        node = {
            "metadata": {"name": "n"},
            "status": {"allocatable": {names.SLOTS_RESOURCE: declared}},
        }
        assert decode.node_from(node).slots == slots

    def test_zone_and_slots(self):
        node = decode.node_from(
            {
                "metadata": {"name": "n", "labels": {names.ZONE_LABEL: "z"}},
                "status": {"allocatable": {names.SLOTS_RESOURCE: "40"}},
            }
        )
        assert (node.zone, node.slots) == ("z", 40)
        assert decode.node_from({"metadata": {"name": "n"}}).zone == names.UNKNOWN_ZONE


class TestStatefulSet:
    def test_its_ordinals(self):
        obj = {"metadata": {"name": "s"}, "spec": {"replicas": 3, "ordinals": {"start": 5}}}
        assert list(decode.stateful_set_from(obj).ordinals) == [5, 6, 7]

    def test_replicas_left_out_are_1(self):
        assert decode.stateful_set_from({"metadata": {"name": "s"}}).replicas == 1

    @pytest.mark.parametrize(
        ("strategy", "updates_from"),
        [
            pytest.param({}, 0, id="the default"),
            pytest.param(
                {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}, 7, id="part"
            ),
            pytest.param({"type": "OnDelete"}, None, id="OnDelete"),
        ],
    )
    def test_it_tells_which_pods_the_controller_updates(self, strategy, updates_from):
        spec = {"replicas": 3, "ordinals": {"start": 5}, "updateStrategy": strategy}
        found = decode.stateful_set_from({"metadata": {"name": "s"}, "spec": spec})
        assert found.updates_from == updates_from


class TestAdapterPool:
    OBJECT: ClassVar[dict[str, Any]] = {
        "metadata": {"name": "p", "namespace": "k"},
        "spec": {"statefulSet": "s", "slotsPerPod": 20},
    }

    def test_defaults(self):
        pool = decode.pool_from(self.OBJECT)
        assert (pool.key, pool.stateful_set_key, pool.slots_per_pod) == ("k/p", "k/s", 20)
        assert (pool.min_pods, pool.min_pods_per_vpod, pool.max_pods, pool.reschedule_after_s) == (
            0,
            0,
            None,
            300,
        )
        assert (pool.scale_down_period_s, pool.moves_per_period, pool.move_cooldown_s) == (
            100,
            10,
            300,
        )
        assert (pool.move_dry_run, pool.profile) == (False, "default")
        assert pool.namespace_selector.matches({})

    def test_null_never_reschedules_and_is_not_the_default(self):
        spec = {**self.OBJECT["spec"], "rescheduleAfterSeconds": None}
        assert decode.pool_from({**self.OBJECT, "spec": spec}).reschedule_after_s is None

    def test_its_selector(self):
        selector = {
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}],
        }
        pool = decode.pool_from(
            {**self.OBJECT, "spec": {**self.OBJECT["spec"], "namespaceSelector": selector}}
        )
        assert pool.namespace_selector.match_expressions == (
            SelectorRequirement(key="c", operator="In", values=("d",)),
        )
        assert pool.namespace_selector.matches({"a": "b", "c": "d"})
        assert not pool.namespace_selector.matches({"a": "b", "c": "x"})
        assert not pool.namespace_selector.matches({"c": "d"})

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("slotsPerPod", 0),
            ("slotsPerPod", "20"),
            ("slotsPerPod", 2**31),
            ("minPods", -1),
            ("maxPods", 1.0),
            ("scaleDownPeriodSeconds", 0),
        ],
    )
    def test_a_wrong_number_is_named(self, field, value):
        with pytest.raises(InvalidObject) as caught:
            decode.pool_from({**self.OBJECT, "spec": {**self.OBJECT["spec"], field: value}})
        assert (caught.value.subject, caught.value.field) == ("AdapterPool k/p", f"spec.{field}")

    @pytest.mark.parametrize(
        ("spec", "field"),
        [
            ({"rebalance": {"load": {"metric": "a b"}}}, "spec.rebalance.load.metric"),
            ({"rebalance": {"load": {"metric": "1m"}}}, "spec.rebalance.load.metric"),
            ({"rebalance": {"load": {"metric": "m" * 64}}}, "spec.rebalance.load.metric"),
            ({"loadSource": "prometheus"}, "spec.loadSource"),
            ({"loadSource": "prometheus", "rebalance": {"dryRun": True}}, "spec.loadSource"),
        ],
    )
    def test_what_the_api_refuses_of_load_is_named(self, spec, field):
        with pytest.raises(InvalidObject) as caught:
            decode.pool_from({**self.OBJECT, "spec": {**self.OBJECT["spec"], **spec}})
        assert (caught.value.subject, caught.value.field) == ("AdapterPool k/p", field)

    def test_a_load_source_beside_what_is_balanced(self):
        spec = {"loadSource": "prometheus", "rebalance": {"load": {"metric": "job:requests_1m"}}}
        pool = decode.pool_from({**self.OBJECT, "spec": {**self.OBJECT["spec"], **spec}})
        assert pool.load is not None
        assert (pool.load_source, pool.load.metric) == ("prometheus", "job:requests_1m")


class TestSelector:
    @pytest.mark.parametrize(
        ("operator", "values", "matching", "not_matching"),
        [
            ("In", ["x", "y"], [{"k": "x"}], [{}, {"k": "z"}]),
            ("NotIn", ["x"], [{}, {"k": "z"}], [{"k": "x"}]),
            ("Exists", [], [{"k": ""}], [{}]),
            ("DoesNotExist", [], [{}], [{"k": "x"}]),
            ("Like", ["x"], [], [{}, {"k": "x"}]),
        ],
    )
    def test_operators(self, operator, values, matching, not_matching):
        selector = selector_from(
            {"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}
        )
        assert all(selector.matches(labels) for labels in matching)
        assert not any(selector.matches(labels) for labels in not_matching)


class TestVPod:
    def vpod(self, placements: object = None, **spec) -> VPod:
        return decode.vpod_from(
            {
                "metadata": {"name": "a", "namespace": "t", "generation": 3},
                "spec": {"poolRef": {"name": "p"}, "vreplicas": 4, **spec},
                "status": {"placements": placements},
            }
        )

    def test_the_pool_is_in_its_own_namespace_unless_told(self):
        assert self.vpod().pool == "t/p"
        assert self.vpod(poolRef={"namespace": "k", "name": "p"}).pool == "k/p"

    def test_placements_are_sorted_by_ordinal_and_summed(self):
        listed = [("d-10", 1), ("d-9", 2), ("d-10", 3), ("d-1", 0)]
        vpod = self.vpod([{"podName": name, "vreplicas": count} for name, count in listed])
        assert list(vpod.placements.items()) == [("d-1", 0), ("d-9", 2), ("d-10", 4)]

    @pytest.mark.parametrize(
        ("placements", "field"),
        [
            ({}, "status.placements"),
            ([3], "status.placements[0]"),
            ([{"podName": "d-0", "vreplicas": True}], "status.placements[0].vreplicas"),
            ([{"podName": "d-0", "vreplicas": -1}], "status.placements[0].vreplicas"),
            (
                [{"podName": "d-0", "vreplicas": 1}, {"vreplicas": 1}],
                "status.placements[1].podName",
            ),
        ],
    )
    def test_a_placement_that_is_not_understood_is_refused(self, placements, field):
        with pytest.raises(InvalidObject) as caught:
            self.vpod(placements)
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [
        ("d-0", 0),
        ("a-b-12", 12),
        ("d-007", 7),
        ("d", None),
        ("d-", None),
        ("d-x", None),
        ("d-²", None),
        ("d-1234567890", None),
    ],
)
def test_ordinals_in_names(name, ordinal):
    assert ordinal_of(name) == ordinal
    assert placement_order(name)[0] == (2**31 if ordinal is None else ordinal)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda children: (
        st.lists(children, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "name",
                    "annotations",
                    "labels",
                    "spec",
                    "status",
                    "conditions",
                    "containers",
                    "placements",
                    "poolRef",
                    "vreplicas",
                    "taints",
                    "ownerReferences",
                    names.PLACEMENTS_ANNOTATION,
                    names.SLOTS_ANNOTATION,
                ]
            ),
            children,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), json_values),
    st.sampled_from(
        ["pod_from", "node_from", "stateful_set_from", "namespace_from", "pool_from", "vpod_from"]
    ),
)
def test_no_object_raises_anything_but_an_error_of_ours(obj, reader):
    with suppress(VReplicaError):
        getattr(decode, reader)(obj)


def test_ordinals_that_would_make_every_decision_slow_are_refused_by_name():
    obj = {
        "metadata": {"namespace": "a", "name": "s"},
        "spec": {"replicas": 1, "ordinals": {"start": 2_000_000_000}},
    }
    with pytest.raises(
        InvalidObject, match=r"StatefulSet a/s: spec\.ordinals\.start \+ spec\.replicas"
    ):
        decode.stateful_set_from(obj)


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [
        ("d-0", 0),
        ("d-100000", 100_000),
        ("d-100001", None),
        ("d-999999999", None),
        ("d", None),
        ("d-x", None),
    ],
)
def test_the_ordinal_of_a_pods_name(name, ordinal):
    assert ordinal_of(name) == ordinal
