"""Whose end has been seen: which ordinals' past is known, and from when on a list makes up for what
was not seen (I2).
"""

import pytest

from extender.engine.state.ordinal_history import HOLD_S, OrdinalHistory
from extender.model.objects import AdapterPod
from tests.support.builders import a_pod
from tests.support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ordinal_history(clock: Clock) -> OrdinalHistory:
    return OrdinalHistory(clock)


def pending(uid: str = "uid-0") -> AdapterPod:
    return a_pod(0, node="", uid=uid)


def closed(ordinal_history: OrdinalHistory, *pods: AdapterPod) -> OrdinalHistory:
    """As after a first list, and what had to be done for it."""
    ordinal_history.listed(pods)
    ordinal_history.close(ordinal_history.since)
    return ordinal_history


def test_after_a_list_nothing_can_close_the_gap_before_what_was_on_its_way_has_arrived(
    ordinal_history: OrdinalHistory, clock: Clock
):
    ordinal_history.listed([pending()])
    assert not ordinal_history.is_known(pending())
    waits = []
    for clock.now in (0.0, HOLD_S - 1, HOLD_S + 1):
        waits.append(ordinal_history.wait_s())
    assert waits == [HOLD_S, 1.0, 0.0]


def test_once_the_gap_is_closed_every_pod_that_comes_is_known(ordinal_history: OrdinalHistory):
    closed(ordinal_history)
    ordinal_history.pod_changed(None, pending())
    assert ordinal_history.is_known(pending())


def test_a_new_list_opens_the_gap_again(ordinal_history: OrdinalHistory):
    closed(ordinal_history).listed([pending()])
    assert not ordinal_history.is_known(pending())


def test_what_was_listed_for_an_earlier_gap_does_not_close_a_later_one(
    ordinal_history: OrdinalHistory, clock: Clock
):
    ordinal_history.listed([])
    begun = ordinal_history.since
    clock.now = 1.0
    ordinal_history.listed([pending()])
    ordinal_history.close(begun)
    assert not ordinal_history.is_known(pending())


def test_a_pod_that_was_known_before_the_gap_still_is(ordinal_history: OrdinalHistory):
    closed(ordinal_history, pending()).listed([pending()])
    assert ordinal_history.is_known(pending())


def test_a_pod_that_came_within_the_gap_is_not_known(ordinal_history: OrdinalHistory):
    closed(ordinal_history, pending()).listed([pending("next")])
    assert not ordinal_history.is_known(pending("next"))


def test_a_pod_that_the_watch_has_not_told_of_is_never_known(ordinal_history: OrdinalHistory):
    closed(ordinal_history, pending())
    assert not ordinal_history.is_known(pending("next"))


def test_a_bound_pods_own_ledger_is_what_counts_for_the_next_one(ordinal_history: OrdinalHistory):
    ordinal_history.listed([a_pod(0)])
    ordinal_history.pod_changed(a_pod(0), None)
    ordinal_history.pod_changed(None, pending("next"))
    assert ordinal_history.is_known(pending("next"))


def test_a_pod_that_is_only_assumed_to_be_bound_proves_nothing(ordinal_history: OrdinalHistory):
    ordinal_history.listed([pending()])
    ordinal_history.pod_changed(pending(), a_pod(0, assumed=True))
    assert not ordinal_history.is_known(pending())


class TestWhatToForget:
    """What was seen before a gap may be older than what was there last: once the gap is closed,
    statuses alone count.
    """

    def test_the_last_ledger_of_an_ordinal_whose_pod_ended_in_the_gap(
        self, ordinal_history: OrdinalHistory
    ):
        closed(ordinal_history, a_pod(0, uid="first"))
        ordinal_history.listed([pending("third")])
        assert ordinal_history.close(ordinal_history.since) == {pending().key}

    def test_also_where_no_pod_is_there_after_the_gap(self, ordinal_history: OrdinalHistory):
        closed(ordinal_history, a_pod(0, uid="first")).listed([])
        assert ordinal_history.close(ordinal_history.since) == {pending().key}

    def test_not_of_one_that_was_bound_since(self, ordinal_history: OrdinalHistory):
        closed(ordinal_history, a_pod(0, uid="first")).listed([pending("third")])
        ordinal_history.pod_changed(pending("third"), a_pod(0, uid="third"))
        assert ordinal_history.close(ordinal_history.since) == frozenset()

    def test_not_of_one_that_stands(self, ordinal_history: OrdinalHistory):
        closed(ordinal_history, a_pod(0, uid="first")).listed([a_pod(0, uid="first")])
        assert ordinal_history.close(ordinal_history.since) == frozenset()

    def test_nothing_where_pods_were_listed_again_meanwhile(
        self, ordinal_history: OrdinalHistory, clock: Clock
    ):
        closed(ordinal_history, a_pod(0, uid="first"))
        since = ordinal_history.since
        clock.now = 1.0
        ordinal_history.listed([pending("third")])
        assert ordinal_history.close(since) == frozenset()
        assert not ordinal_history.is_known(pending("third"))

    def test_of_two_gaps_together(self, ordinal_history: OrdinalHistory, clock: Clock):
        closed(ordinal_history, a_pod(0, uid="first"))
        for clock.now in (1.0, 2.0):
            ordinal_history.listed([pending("third")])
        assert ordinal_history.close(ordinal_history.since) == {pending().key}
