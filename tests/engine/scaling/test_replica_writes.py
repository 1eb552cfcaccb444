"""Our writes of replicas are known again in the watch; other hands are told apart, and not
fought.
"""

import pytest

from extender.engine.scaling.replica_writes import ReplicaWrites


def after(*writes: tuple[int, int]) -> ReplicaWrites:
    """Writes that were made and seen: (before, asked for)."""
    known = ReplicaWrites()
    for before, replicas in writes:
        known.asked(before, replicas)
        known.seen(before, replicas, 0.0)
    return known


def test_what_we_asked_for_is_ours_also_where_it_is_seen_before_the_reply():
    known = ReplicaWrites()
    known.asked(1, 3)
    assert not known.seen(1, 3, 0.0)
    assert known.foreign is None


def test_a_write_that_the_watch_skipped_is_not_waited_for():
    known = ReplicaWrites()
    known.asked(1, 3)
    known.asked(3, 5)
    assert not known.seen(1, 5, 0.0)
    assert known.seen(5, 3, 1.0), "3 was asked for before 5, and cannot be ours any more"


def test_a_refused_write_is_not_ours_when_somebody_else_makes_it():
    known = ReplicaWrites()
    known.asked(1, 3)
    known.refused(3)
    assert known.seen(1, 3, 0.0)
    assert known.foreign == 3


def test_a_change_that_changes_nothing_is_nobodys():
    assert not ReplicaWrites().seen(3, 3, 0.0)


def test_the_first_time_that_our_write_is_undone_vreplicas_do_not_wait():
    known = after((1, 5))
    assert known.seen(5, 2, 100.0)
    assert (known.foreign, known.back_off_until, known.patience) == (2, 100.0, 1)


def test_each_further_time_they_wait_twice_as_long_up_to_a_limit():
    known = after((1, 5))
    delays = []
    for round_ in range(9):
        known.seen(5, 2, float(round_))
        delays.append(known.back_off_until - round_)
        known.settle()
        known.asked(2, 5)
        known.seen(2, 5, float(round_))
    assert delays == [0, 10, 20, 40, 80, 160, 160, 160, 160]
    assert known.patience == 32


@pytest.mark.parametrize(
    ("write", "to", "strikes"),
    [
        pytest.param((1, 5), 9, 0, id="more than we asked for"),
        pytest.param((1, 5), 4, 1, id="less than we asked for"),
        pytest.param((5, 1), 4, 1, id="up again after we scaled down"),
        pytest.param((5, 1), 0, 0, id="further down after we scaled down"),
    ],
)
def test_only_what_undoes_our_write_is_a_strike(write, to, strikes):
    known = after(write)
    known.seen(write[1], to, 0.0)
    assert known.strikes == strikes


def test_what_a_late_watch_tells_of_the_time_before_our_write_undoes_nothing():
    """A watch that was silent tells of hours at once: another leader's writes, too."""
    known = ReplicaWrites()
    known.asked(6, 7)
    for old, new in ((2, 6), (6, 1), (1, 4), (4, 6)):
        assert known.seen(old, new, 0.0)
    assert known.strikes == 0
    assert not known.seen(6, 7, 0.0)
    assert known.seen(7, 6, 1.0)
    assert known.strikes == 1


def test_strikes_are_forgotten_after_an_hour():
    known = after((1, 5))
    known.seen(5, 2, 0.0)
    known.seen(2, 1, 10.0)
    assert known.strikes == 2
    known.seen(1, 0, 10.0 + 3601)
    assert known.strikes == 1
