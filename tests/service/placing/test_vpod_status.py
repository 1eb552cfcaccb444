"""The status of a VPod as it is published."""

import pytest

from extender.engine.placing.explain import Explanation
from extender.engine.placing.plan import Decision
from extender.engine.state.availability import AVAILABLE, Availability, AvailableReason, Unserved
from extender.model.objects import Condition, VPod
from extender.model.reasons import ConflictReason
from extender.model.timestamps import timestamp
from extender.service.placing import vpod_status
from extender.service.placing.vpod_status import (
    ALL_PLACED,
    SCHEDULED,
    scheduled_condition,
)
from tests.support.builders import POOL, a_vpod

T0, T1 = 1_000_000_000.0, 1_000_000_100.9


def a_decision(target: dict[str, int], *, wanted: int, left: int = 0) -> Decision:
    reason = ConflictReason.INSUFFICIENT_SLOTS if left else None
    return Decision("tenant/a", POOL, target, 1, left, Explanation(wanted, (), left, reason))


def status_patch(vpod, decision, placements, now, *, unserved: tuple[Unserved, ...] = ()):
    """The patch where all pods serve but ``unserved``."""
    served = Availability(decision.explanation.wanted, sum(placements.values()), unserved)
    return vpod_status.status_patch(vpod, decision, placements, served, now)


def published(patch, kind: str = SCHEDULED) -> Condition:
    raw = next(item for item in patch["status"]["conditions"] if item["type"] == kind)
    return Condition(
        raw["type"], raw["status"], raw["reason"], raw["message"], raw["lastTransitionTime"]
    )


AVAILABLE_SINCE_T0 = Condition(AVAILABLE, "True", "AllReady", "2 of 2", timestamp(T0))


def settled(**fields) -> VPod:
    """A vpod whose status says already that both of its vreplicas are on pod 0."""
    condition = Condition(
        SCHEDULED, "True", ALL_PLACED, "all 2 vreplicas are placed", timestamp(T0)
    )
    fields = {
        "conditions": (condition, AVAILABLE_SINCE_T0),
        "ready_vreplicas": 2,
        "generation": 4,
        "observed_generation": 4,
        "scheduled_vreplicas": 2,
        **fields,
    }
    return a_vpod("a", 2, {0: 2}, uid="u", resource_version="7", **fields)


ALL = a_decision({"dispatcher-0": 2}, wanted=2)


def test_times_are_whole_seconds_in_utc():
    assert timestamp(T1) == "2001-09-09T01:48:20Z"


def test_everything_placed():
    assert scheduled_condition(ALL, {"dispatcher-0": 1, "dispatcher-1": 1}) == Condition(
        SCHEDULED,
        "True",
        ALL_PLACED,
        "all 2 vreplicas are placed: 1 on dispatcher-0, 1 on dispatcher-1",
    )


def test_something_left_over():
    condition = scheduled_condition(
        a_decision({"dispatcher-0": 2}, wanted=3, left=1), {"dispatcher-0": 2}
    )
    assert (condition.status, condition.reason) == ("False", "InsufficientSlots")
    assert condition.message.startswith("1 of 3 vreplicas are not placed")


def test_something_decided_but_not_written():
    condition = scheduled_condition(a_decision({"dispatcher-0": 3}, wanted=3), {"dispatcher-0": 1})
    assert (condition.status, condition.reason) == ("False", "InsufficientSlots")
    assert condition.message == "2 of 3 vreplicas are not written yet"


def test_the_patch_has_the_version_as_precondition():
    patch = status_patch(
        a_vpod("a", 2, uid="u", resource_version="7", generation=4), ALL, ALL.target, T0
    )
    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "7", "uid": "u"}
    assert patch["status"]["placements"] == [{"podName": "dispatcher-0", "vreplicas": 2}]
    assert patch["status"]["scheduledVReplicas"] == 2
    assert patch["status"]["observedGeneration"] == 4
    assert published(patch).last_transition_time == timestamp(T0)


def test_what_is_published_already_is_not_written_again():
    assert status_patch(settled(), ALL, ALL.target, T1) is None


def test_another_message_alone_is_not_worth_a_write():
    condition = Condition(SCHEDULED, "True", ALL_PLACED, "in other words", timestamp(T0))
    assert (
        status_patch(settled(conditions=(condition, AVAILABLE_SINCE_T0)), ALL, ALL.target, T1)
        is None
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"conditions": ()}, id="no condition"),
        pytest.param({"generation": 5}, id="another generation"),
        pytest.param({"scheduled_vreplicas": 1}, id="another count"),
        pytest.param({"ready_vreplicas": 1}, id="another count of those that are served"),
        pytest.param({"ready_vreplicas": None}, id="nothing is said of those that are served"),
    ],
)
def test_what_differs_is_written(fields):
    assert status_patch(settled(**fields), ALL, ALL.target, T1) is not None


def test_a_condition_keeps_its_time_while_its_status_stays():
    patch = status_patch(settled(generation=5), ALL, ALL.target, T1)
    assert published(patch).last_transition_time == timestamp(T0)
    worse = a_decision({"dispatcher-0": 2}, wanted=9, left=7)
    assert published(
        status_patch(settled(), worse, worse.target, T1)
    ).last_transition_time == timestamp(T1)


def test_other_conditions_stay():
    other = Condition("Audited", "True", "Fine", "by somebody", timestamp(T0))
    patch = status_patch(settled(conditions=(other,)), ALL, ALL.target, T1)
    assert patch is not None
    assert [item["type"] for item in patch["status"]["conditions"]] == [
        "Audited",
        SCHEDULED,
        AVAILABLE,
    ]


def test_messages_are_no_longer_than_the_api_allows():
    refused = tuple((f"reason {index}", 1) for index in range(500))
    explanation = Explanation(9, (), 9, ConflictReason.INSUFFICIENT_SLOTS, refused)
    assert (
        len(scheduled_condition(Decision("tenant/a", POOL, {}, 1, 9, explanation), {}).message)
        == 1024
    )


def test_a_vpod_on_many_pods_names_some_and_counts_the_others():
    target = {f"dispatcher-{ordinal}": 1 for ordinal in range(10)}
    message = scheduled_condition(a_decision(target, wanted=10), target).message
    assert message.startswith("all 10 vreplicas are placed: 1 on dispatcher-0, ")
    assert message.endswith("1 on dispatcher-7, and 2 pods more")


def test_the_longest_names_do_not_make_a_message_longer_than_the_api_allows():
    target = {f"{'x' * 240}-{ordinal}": 1 for ordinal in range(10)}
    assert len(scheduled_condition(a_decision(target, wanted=10), target).message) == 1024


def test_a_vpod_that_wants_nothing_says_so():
    assert scheduled_condition(a_decision({}, wanted=0), {}).message == "no vreplicas are wanted"


NODE_LOST = Unserved("dispatcher-0", 2, AvailableReason.NODE_LOST, "node n0 is not Ready")


def test_vreplicas_that_nobody_serves_are_published_as_not_ready():
    patch = status_patch(settled(), ALL, ALL.target, T1, unserved=(NODE_LOST,))
    assert patch["status"]["scheduledVReplicas"] == 2
    assert patch["status"]["readyVReplicas"] == 0
    assert published(patch).status == "True"
    assert published(patch, AVAILABLE) == Condition(
        AVAILABLE,
        "False",
        "NodeLost",
        "0 of 2 vreplicas are served; nobody serves 2 on dispatcher-0 (node n0 is not Ready)",
        timestamp(T1),
    )


def test_available_keeps_its_time_while_its_status_stays():
    patch = status_patch(settled(generation=5), ALL, ALL.target, T1)
    assert published(patch, AVAILABLE).last_transition_time == timestamp(T0)
