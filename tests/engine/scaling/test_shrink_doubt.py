"""Until when ordinals may still be removed by a scale-down that was not answered."""

import pytest

from extender.engine.scaling.shrink_doubt import ShrinkDoubt
from extender.model.objects import StatefulSet


def seen(version: str, uid: str = "u1") -> StatefulSet:
    return StatefulSet(
        namespace="ns", name="dispatcher", uid=uid, resource_version=version, replicas=5
    )


def in_doubt(version: str = "7") -> ShrinkDoubt:
    doubt = ShrinkDoubt()
    doubt.begin(0b11000, uid="u1", version=version, until=30.0)
    return doubt


def test_nothing_is_in_doubt_before_a_write_was_lost():
    assert ShrinkDoubt().ordinals(seen("7"), 0.0) == 0


def test_it_lasts_while_the_version_is_the_one_that_was_written_for():
    assert in_doubt().ordinals(seen("7"), 29.0) == 0b11000


def test_an_older_version_says_nothing():
    assert in_doubt().ordinals(seen("6"), 0.0) == 0b11000


@pytest.mark.parametrize(
    ("stateful_set", "now"),
    [
        pytest.param(seen("8"), 0.0, id="newer version"),
        pytest.param(seen("10"), 0.0, id="newer by number, not by letter"),
        pytest.param(seen("7", uid="u2"), 0.0, id="another StatefulSet of that name"),
        pytest.param(seen("7"), 30.0, id="no request lives that long"),
    ],
)
def test_it_ends_for_good(stateful_set: StatefulSet, now: float):
    doubt = in_doubt()
    assert doubt.ordinals(stateful_set, now) == 0
    assert not doubt.noted
    assert doubt.ordinals(seen("7"), 0.0) == 0


def test_versions_that_are_no_numbers_leave_it_to_the_clock():
    doubt = in_doubt("opaque-a")
    assert doubt.ordinals(seen("opaque-b"), 29.0) == 0b11000
    assert doubt.ordinals(seen("opaque-b"), 30.0) == 0


def test_a_second_write_for_the_same_version_adds_its_ordinals_and_time():
    doubt = in_doubt()
    doubt.begin(0b10000, uid="u1", version="7", until=40.0)
    assert doubt.ordinals(seen("7"), 39.0) == 0b11000


def test_a_write_for_a_newer_version_replaces_the_first_which_must_be_refused_by_then():
    doubt = in_doubt()
    doubt.begin(0b10000, uid="u1", version="8", until=40.0)
    assert doubt.ordinals(seen("8"), 0.0) == 0b10000
