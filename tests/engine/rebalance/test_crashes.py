"""Which vpods precede the crashes of pods."""

from dataclasses import replace
from typing import Any

import pytest

from extender.engine.rebalance.crashes import REMEMBERED_S, SHARES_MAX, Crashes
from extender.model.ledger import Share
from extender.model.objects import AdapterPod
from tests.support.builders import a_pod

WITHIN_S = 300.0


class Pods:
    """Pods of one pool, and what ``Crashes`` makes of their changes."""

    def __init__(self, *ordinals: int) -> None:
        self.crashes = Crashes(WITHIN_S)
        self.now = 1000.0
        self._pods: dict[int, AdapterPod] = {}
        for ordinal in ordinals:
            self.put(ordinal)

    def put(self, ordinal: int, *vpods: str, **fields: Any) -> list[str]:
        """The pod carries these vpods now."""
        old = self._pods.get(ordinal)
        ledger = {f"tenant/{name}": Share(1) for name in vpods}
        new = a_pod(ordinal, ledger) if old is None else replace(old, ledger=ledger)
        new = replace(new, **fields)
        self._pods[ordinal] = new
        return self.crashes.pod_changed(old, new, self.now)

    def crash(self, ordinal: int, after_s: float = 1.0) -> list[str]:
        """It crashes. Return the vpods against which that counts."""
        self.now += after_s
        old = self._pods[ordinal]
        self._pods[ordinal] = replace(old, crashes=old.crashes + 1)
        return self.crashes.pod_changed(old, self._pods[ordinal], self.now)

    def suspected(self, crashed_pods: int = 3) -> dict[str, list[str]]:
        return self.crashes.suspected(crashed_pods, self.now)


def test_a_vpod_is_suspected_once_three_pods_have_crashed_after_they_got_it():
    pods = Pods(0, 1, 2)
    for ordinal in range(3):
        assert pods.suspected() == {}
        pods.put(ordinal, "bad")
        assert pods.crash(ordinal) == ["tenant/bad"]
    assert pods.suspected() == {"tenant/bad": ["dispatcher-0", "dispatcher-1", "dispatcher-2"]}


def test_one_pod_that_crashes_again_and_again_counts_once():
    pods = Pods(0)
    pods.put(0, "bad")
    for _ in range(9):
        pods.crash(0)
    assert pods.suspected(2) == {}


def test_those_that_come_from_the_first_pod_are_one_crash_behind():
    pods = Pods(0, 1, 2)
    pods.put(0, "good")
    pods.now += WITHIN_S + 1
    pods.put(0, "good", "bad")
    pods.crash(0)
    for ordinal in (1, 2):
        pods.put(ordinal, "good", "bad")
        pods.crash(ordinal)
    assert list(pods.suspected()) == ["tenant/bad"]


@pytest.mark.parametrize(("after_s", "counts"), [(WITHIN_S, True), (WITHIN_S + 1, False)])
def test_a_crash_long_after_a_share_has_another_cause(after_s: float, counts: bool):
    pods = Pods(0)
    pods.put(0, "a")
    assert bool(pods.crash(0, after_s)) == counts


def test_what_a_pod_had_when_it_was_first_seen_is_not_new():
    pods = Pods()
    pods.put(0, "a")
    assert pods.crash(0) == []


def test_a_pod_that_is_made_anew_gets_back_what_its_ordinal_had():
    pods = Pods(0)
    pods.put(0, "a")
    pods.now += WITHIN_S + 1
    pods.put(0, "a", uid="another")
    assert pods.crash(0) == []


def test_what_has_left_a_pod_before_it_crashes_did_no_harm():
    pods = Pods(0)
    pods.put(0, "a")
    pods.put(0)
    assert pods.crash(0) == []


def test_a_pod_that_is_made_anew_has_not_crashed():
    pods = Pods(0)
    pods.put(0, "a", crashes=0)
    assert pods.put(0, "a", uid="another", crashes=7) == []


def test_what_is_only_assumed_is_not_known_to_the_adapter():
    pods = Pods(0)
    pods.put(0, "a", assumed=True)
    pods.put(0, assumed=False)
    assert pods.crash(0) == []


def test_crashes_are_forgotten_in_the_end():
    pods = Pods(0, 1, 2)
    for ordinal in range(3):
        pods.put(ordinal, "a")
        pods.crash(ordinal)
    pods.now += REMEMBERED_S + 1
    assert pods.suspected() == {}
    assert len(pods.crashes) == 0


def test_nothing_counts_against_a_vpod_that_a_person_has_released():
    pods = Pods(0, 1, 2)
    for ordinal in range(3):
        pods.put(ordinal, "a", "b")
        pods.crash(ordinal)
    pods.crashes.forget("tenant/a")
    assert list(pods.suspected()) == ["tenant/b"]


def test_so_many_shares_at_once_are_not_all_remembered():
    pods = Pods(*range(3))
    for ordinal in range(3):
        pods.put(ordinal, *map(str, range(SHARES_MAX // 2)))
    pods.put(0)
    assert len(pods.crashes) <= SHARES_MAX
