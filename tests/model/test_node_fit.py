"""Where a template's pods could stand: as kube-scheduler's TaintToleration and NodeAffinity have
it, less what passes.
"""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from extender.lab.scheduler.node_affinity import RequiredNodeAffinity
from extender.lab.scheduler.taints import (
    Taint as SimTaint,
    Toleration as SimToleration,
    untolerated_taint,
)
from extender.model import decode, names
from extender.model.node_fit import TAINTS_OF_CONDITION, NodeFit, Taint

Json = dict[str, Any]
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoExecute"}


def fits(pod_spec: Json, *, labels: Json | None = None, taints: list[Json] | None = None) -> bool:
    node = decode.node_from(
        {"metadata": {"name": "n", "labels": labels or {}}, "spec": {"taints": taints}}
    )
    return decode.node_fit_from(pod_spec).fits(node.name, node.labels, node.taints)


def affinity(*terms: Json) -> Json:
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
    }
    return {"affinity": {"nodeAffinity": required}}


def on_label(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def on_name(operator: str, *values: str) -> Json:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        pytest.param(None, CONTROL_PLANE, False, id="no toleration"),
        pytest.param(
            {"key": CONTROL_PLANE["key"], "operator": "Exists"}, CONTROL_PLANE, True, id="Exists"
        ),
        pytest.param(
            {"operator": "Exists"}, GPU, True, id="an empty key with Exists tolerates all"
        ),
        pytest.param(
            {"operator": "Exists", "effect": "NoSchedule"}, GPU, False, id="another effect"
        ),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, GPU, True, id="this effect"),
        pytest.param(
            {"key": "nvidia.com/gpu", "value": "present"}, GPU, True, id="no operator is Equal"
        ),
        pytest.param(
            {"key": "nvidia.com/gpu", "operator": "Equal", "value": "no"}, GPU, False, id="value"
        ),
        pytest.param({"key": "other", "operator": "Exists"}, GPU, False, id="another key"),
        pytest.param(
            {"key": "nvidia.com/gpu", "operator": "Like"}, GPU, False, id="unknown operator"
        ),
        pytest.param(
            {"key": "slo", "operator": "Gt", "value": "950"},
            {"key": "slo", "value": "990", "effect": "NoSchedule"},
            True,
            id="Gt: the taint's number is greater",
        ),
        pytest.param(
            {"key": "slo", "operator": "Lt", "value": "950"},
            {"key": "slo", "value": "990", "effect": "NoSchedule"},
            False,
            id="Lt: it is not less",
        ),
        pytest.param(
            {"key": "slo", "operator": "Lt", "value": "950"},
            {"key": "slo", "value": "high", "effect": "NoSchedule"},
            False,
            id="Lt: it is no number",
        ),
    ],
)
def test_taints_must_be_tolerated(toleration, taint, tolerated):
    spec = {"tolerations": [toleration]} if toleration else {}
    assert fits(spec, taints=[taint]) is tolerated


def test_every_taint_must_be_tolerated():
    only_gpu = {"tolerations": [{"key": GPU["key"], "operator": "Exists"}]}
    assert fits(only_gpu, taints=[GPU])
    assert not fits(only_gpu, taints=[GPU, CONTROL_PLANE])


def test_advice_keeps_nobody_away():
    assert fits({}, taints=[{**GPU, "effect": "PreferNoSchedule"}])


@pytest.mark.parametrize("key", sorted(TAINTS_OF_CONDITION))
def test_how_a_node_is_at_the_moment_does_not_count(key: str):
    assert fits(
        {}, taints=[{"key": key, "effect": "NoSchedule"}, {"key": key, "effect": "NoExecute"}]
    )


@pytest.mark.parametrize(
    ("spec", "labels", "fit"),
    [
        pytest.param(
            {"nodeSelector": {"disk": "ssd"}}, {"disk": "ssd", "x": "y"}, True, id="label is there"
        ),
        pytest.param({"nodeSelector": {"disk": "ssd"}}, {"disk": "hdd"}, False, id="another value"),
        pytest.param({"nodeSelector": {"disk": "ssd"}}, {}, False, id="label is missing"),
        pytest.param(
            affinity(on_label("disk", "In", "ssd", "nvme")), {"disk": "nvme"}, True, id="In"
        ),
        pytest.param(affinity(on_label("disk", "In", "ssd")), {}, False, id="In, missing"),
        pytest.param(affinity(on_label("disk", "NotIn", "hdd")), {}, True, id="NotIn, missing"),
        pytest.param(
            affinity(on_label("disk", "NotIn", "hdd")), {"disk": "hdd"}, False, id="NotIn"
        ),
        pytest.param(affinity(on_label("disk", "Exists")), {"disk": ""}, True, id="Exists"),
        pytest.param(
            affinity(on_label("disk", "DoesNotExist")), {"disk": ""}, False, id="DoesNotExist"
        ),
        pytest.param(affinity(on_label("cores", "Gt", "8")), {"cores": "16"}, True, id="Gt"),
        pytest.param(affinity(on_label("cores", "Lt", "8")), {"cores": "16"}, False, id="Lt"),
        pytest.param(
            affinity(on_label("cores", "Gt", "8")), {"cores": "+-16"}, False, id="Gt of no number"
        ),
        pytest.param(affinity(on_label("cores", "Gt", "8")), {}, False, id="Gt of nothing"),
        pytest.param(affinity(on_name("In", "n")), {}, True, id="this node"),
        pytest.param(affinity(on_name("In", "m")), {}, False, id="another node"),
        pytest.param(affinity(on_name("NotIn", "n")), {}, False, id="not this node"),
        pytest.param(
            affinity(on_label("a", "Exists"), on_label("b", "Exists")),
            {"b": ""},
            True,
            id="terms are ORed",
        ),
        pytest.param(
            affinity({**on_label("a", "Exists"), **on_name("In", "m")}),
            {"a": ""},
            False,
            id="one is ANDed",
        ),
        pytest.param(affinity({}), {}, False, id="an empty term matches nothing"),
        pytest.param(affinity(), {}, False, id="nor do no terms"),
        pytest.param({"affinity": {"nodeAffinity": {}}}, {}, True, id="nothing is required"),
        pytest.param(
            {"nodeSelector": {"a": ""}, **affinity(on_label("b", "Exists"))},
            {"b": ""},
            False,
            id="both count",
        ),
    ],
)
def test_labels_and_names(spec, labels, fit):
    assert fits(spec, labels=labels) is fit


_keys = st.sampled_from(["", "a", "b"])
_values = st.sampled_from(["", "x", "3", "-5", "40"])
_expressions = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "b"]),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"]),
        "values": st.lists(_values, max_size=2),
    }
)
_fields = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn", "Exists"]),
        "values": st.lists(st.sampled_from(["n", "m"]), max_size=2),
    }
)
_terms = st.fixed_dictionaries(
    {
        "matchExpressions": st.lists(_expressions, max_size=2),
        "matchFields": st.lists(_fields, max_size=1),
    }
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["a", "b"]), _values, max_size=1),
    st.lists(_terms, max_size=2),
    st.dictionaries(st.sampled_from(["a", "b"]), _values),
)
def test_it_agrees_with_the_embedded_scheduler_about_labels(selector, terms, labels):
    pod_spec = {"nodeSelector": selector, **(affinity(*terms) if terms else {})}
    theirs = RequiredNodeAffinity.of_pod({"spec": pod_spec})
    assert decode.node_fit_from(pod_spec).fits("n", labels, ()) is theirs.matches("n", labels)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            _keys,
            st.sampled_from(["", "Equal", "Exists"]),
            _values,
            st.sampled_from(["", "NoExecute"]),
        ),
        max_size=2,
    ),
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]), _values, st.sampled_from(["NoExecute", "NoSchedule"])
        ),
        max_size=2,
    ),
)
def test_it_agrees_with_the_embedded_scheduler_about_taints(tolerations, taints):
    listed = [
        dict(zip(("key", "operator", "value", "effect"), one, strict=True)) for one in tolerations
    ]
    ours = decode.node_fit_from({"tolerations": listed})
    theirs = untolerated_taint(
        [SimTaint(*one) for one in taints], [SimToleration(*one) for one in tolerations]
    )
    assert ours.fits("n", {}, tuple(Taint(*one) for one in taints)) is (theirs is None)


def test_nothing_is_known_of_a_stateful_set_without_a_template():
    stateful_set = {"metadata": {"namespace": "k", "name": "d"}}
    assert decode.stateful_set_from(stateful_set).fit is None
    with_template = {
        **stateful_set,
        "spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
    }
    assert decode.stateful_set_from(with_template).fit == NodeFit(selector=(("disk", "ssd"),))


def test_a_node_keeps_its_labels_and_the_taints_that_say_whom_it_is_for():
    node = decode.node_from(
        {
            "metadata": {"name": "n", "labels": {"disk": "ssd", "wrong": 1}},
            "spec": {"taints": [GPU, {"key": names.NOT_READY_TAINT, "effect": "NoExecute"}]},
        }
    )
    assert node.labels == {"disk": "ssd"}
    assert node.taints == (Taint("nvidia.com/gpu", "present", "NoExecute"),)
