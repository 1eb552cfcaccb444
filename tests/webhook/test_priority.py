"""What ``/mutate`` writes into a VPod that names a PriorityClass."""

from typing import Any

import pytest

from extender.kube.api import Obj
from extender.lab.apiserver.patch import json_patch
from tests.webhook.builders import a_priority_class, a_vpod_object, caches, request
from webhook.caches import WebhookCaches
from webhook.mutate import stamp
from webhook.review import ALLOWED, Verdict

HIGH = {"priority": 1000, "preemptionPolicy": "PreemptLowerPriority"}
LAST = {"priority": -5, "preemptionPolicy": "Never"}
VIEW = caches(
    priority_classes=[
        a_priority_class("high", 1000),
        a_priority_class("last", -5, preemptionPolicy="Never"),
    ]
)


def a_vpod(**spec: Any) -> Obj:
    vpod = a_vpod_object()
    vpod["spec"] |= spec
    return vpod


def judged(new: Obj, old: Obj | None = None) -> Verdict:
    return stamp(request(new, old, resource="vpods"), VIEW)


def written(new: Obj, old: Obj | None = None) -> Obj:
    """The three fields after the patch."""
    got = judged(new, old)
    assert got.allowed, got.message
    spec = json_patch(new, [dict(op) for op in got.patch])["spec"]
    return {
        key: spec[key]
        for key in ("priorityClassName", "priority", "preemptionPolicy")
        if key in spec
    }


@pytest.mark.parametrize(
    ("name", "fields"), [("high", HIGH), ("last", LAST)], ids=["preempts", "never"]
)
def test_a_vpod_gets_the_value_and_the_policy_of_its_class(name, fields):
    assert written(a_vpod(priorityClassName=name)) == {"priorityClassName": name, **fields}


def test_a_vpod_without_a_class_needs_no_patch():
    assert judged(a_vpod()) is ALLOWED


def test_what_is_right_already_needs_no_patch():
    assert judged(a_vpod(priorityClassName="high", **HIGH)) is ALLOWED


def test_nobody_gives_a_vpod_a_priority_of_its_own():
    assert written(a_vpod(priority=999)) == {}
    chosen = a_vpod(priorityClassName="last", priority=999, preemptionPolicy="PreemptLowerPriority")
    assert written(chosen) == {"priorityClassName": "last", **LAST}


def test_a_vpod_that_names_another_class_changes_its_priority():
    old = a_vpod(priorityClassName="high", **HIGH)
    new = a_vpod(priorityClassName="last", **HIGH)
    assert written(new, old) == {"priorityClassName": "last", **LAST}


def test_a_vpod_that_names_no_class_any_more_loses_its_priority():
    assert written(a_vpod(**HIGH), a_vpod(priorityClassName="high", **HIGH)) == {}


def test_an_unknown_class_is_refused_by_its_name():
    got = judged(a_vpod(priorityClassName="none"))
    assert (got.allowed, got.code) == (False, 403)
    assert "no PriorityClass with name 'none' was found" in got.message


def test_a_vpod_whose_class_has_gone_may_be_changed_and_has_no_priority_any_more():
    """Else one that was stored while no webhook answered kept what its client chose for ever."""
    old = a_vpod(priorityClassName="gone", **HIGH)
    assert written(a_vpod(priorityClassName="gone", **HIGH), old) == {"priorityClassName": "gone"}
    [warning] = judged(a_vpod(priorityClassName="gone", **HIGH), old).warnings
    assert "'gone' does not exist any more" in warning


def test_a_class_of_the_system_is_refused_by_its_name():
    view = caches(priority_classes=[a_priority_class("system-node-critical", 2_000_001_000)])
    vpod = a_vpod(priorityClassName="system-node-critical")
    got = stamp(request(vpod, resource="vpods"), view)
    assert (got.allowed, got.code) == (False, 403)
    assert "'system-node-critical' is for pods of the system" in got.message


def test_a_webhook_that_has_just_started_asks_to_try_again():
    got = stamp(request(a_vpod(priorityClassName="high"), resource="vpods"), WebhookCaches())
    assert (got.allowed, got.code) == (False, 429)


@pytest.mark.parametrize("spec", [None, [], "high", {"priorityClassName": 7}])
def test_whatever_is_sent_instead_of_a_spec_changes_nothing(spec):
    assert judged({**a_vpod_object(), "spec": spec}) is ALLOWED


def test_a_vpod_whose_class_is_for_the_system_now_may_be_changed_and_has_no_priority_any_more():
    view = caches(priority_classes=[a_priority_class("high", 2_000_001_000)])
    old = a_vpod(priorityClassName="high", **HIGH)
    got = stamp(request(a_vpod(priorityClassName="high", **HIGH), old, resource="vpods"), view)
    assert got.allowed
    assert {op["op"] for op in got.patch} == {"remove"}
    assert "'high' is for pods of the system now" in got.warnings[0]


def test_the_last_finalizer_goes_whatever_the_class():
    vpod = a_vpod(priorityClassName="none")
    vpod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert judged(vpod, a_vpod(priorityClassName="other")) == ALLOWED
