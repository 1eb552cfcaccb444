"""Whose end has been seen: which ordinals' past is known, and from when on a list makes up for what was not seen (I2)."""

from dataclasses import dataclass

import pytest

from extender.engine.state.ordinal_history import HOLD_S, Succession
from extender.model.objects import AdapterPod
from tests.support.builders import a_pod


@dataclass
class Clock:
    at: float = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def succession(clock: Clock) -> Succession:
    return Succession(clock)


def pending(uid: str = "uid-0") -> AdapterPod:
    return a_pod(0, node="", uid=uid)


def closed(succession: Succession, *pods: AdapterPod) -> Succession:
    """As after a first list, and what had to be done for it."""
    succession.listed(pods)
    succession.close(succession.since)
    return succession


def test_after_a_list_nothing_can_close_the_gap_before_what_was_on_its_way_has_arrived(
    succession: Succession, clock: Clock
):
    succession.listed([pending()])
    assert not succession.is_known(pending())
    waits = []
    for clock.at in (0.0, HOLD_S - 1, HOLD_S + 1):
        waits.append(succession.wait_s())
    assert waits == [HOLD_S, 1.0, 0.0]


def test_once_the_gap_is_closed_every_pod_that_comes_is_known(succession: Succession):
    closed(succession)
    succession.pod_changed(None, pending())
    assert succession.is_known(pending())


def test_a_new_list_opens_the_gap_again(succession: Succession):
    closed(succession).listed([pending()])
    assert not succession.is_known(pending())


def test_what_was_listed_for_an_earlier_gap_does_not_close_a_later_one(succession: Succession, clock: Clock):
    succession.listed([])
    begun = succession.since
    clock.at = 1.0
    succession.listed([pending()])
    succession.close(begun)
    assert not succession.is_known(pending())


def test_a_pod_that_was_known_before_the_gap_still_is(succession: Succession):
    closed(succession, pending()).listed([pending()])
    assert succession.is_known(pending())


def test_a_pod_that_came_within_the_gap_is_not_known(succession: Succession):
    closed(succession, pending()).listed([pending("next")])
    assert not succession.is_known(pending("next"))


def test_a_pod_that_the_watch_has_not_told_of_is_never_known(succession: Succession):
    closed(succession, pending())
    assert not succession.is_known(pending("next"))


def test_a_bound_pods_own_ledger_is_what_counts_for_the_next_one(succession: Succession):
    succession.listed([a_pod(0)])
    succession.pod_changed(a_pod(0), None)
    succession.pod_changed(None, pending("next"))
    assert succession.is_known(pending("next"))


def test_a_pod_that_is_only_assumed_to_be_bound_proves_nothing(succession: Succession):
    succession.listed([pending()])
    succession.pod_changed(pending(), a_pod(0, assumed=True))
    assert not succession.is_known(pending())


class TestWhatToForget:
    """What was seen before a gap may be older than what was there last: once the gap is closed, statuses alone count."""

    def test_the_last_ledger_of_an_ordinal_whose_pod_ended_in_the_gap(self, succession: Succession):
        closed(succession, a_pod(0, uid="first"))
        succession.listed([pending("third")])
        assert succession.close(succession.since) == {pending().key}

    def test_also_where_no_pod_is_there_after_the_gap(self, succession: Succession):
        closed(succession, a_pod(0, uid="first")).listed([])
        assert succession.close(succession.since) == {pending().key}

    def test_not_of_one_that_was_bound_since(self, succession: Succession):
        closed(succession, a_pod(0, uid="first")).listed([pending("third")])
        succession.pod_changed(pending("third"), a_pod(0, uid="third"))
        assert succession.close(succession.since) == frozenset()

    def test_not_of_one_that_stands(self, succession: Succession):
        closed(succession, a_pod(0, uid="first")).listed([a_pod(0, uid="first")])
        assert succession.close(succession.since) == frozenset()

    def test_nothing_where_pods_were_listed_again_meanwhile(self, succession: Succession, clock: Clock):
        closed(succession, a_pod(0, uid="first"))
        since = succession.since
        clock.at = 1.0
        succession.listed([pending("third")])
        assert succession.close(since) == frozenset()
        assert not succession.is_known(pending("third"))

    def test_of_two_gaps_together(self, succession: Succession, clock: Clock):
        closed(succession, a_pod(0, uid="first"))
        for clock.at in (1.0, 2.0):
            succession.listed([pending("third")])
        assert succession.close(succession.since) == {pending().key}
