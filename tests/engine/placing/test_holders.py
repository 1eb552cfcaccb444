"""Who may serve a vpod in an exclusive pool: what each pod holds, and what others are allowed."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from extender.engine.placing.handover import Adapter
from extender.engine.placing.holders import ASKED_S, Holders
from extender.model.assignment import Acknowledged, AssignedShare, Assignment, ShareState
from extender.model.indexes import indexes_from, indexes_text

KEY, LEASE_S = "t/a", 30
SERVE, PREPARE, DRAIN = ShareState.SERVE, ShareState.PREPARE, ShareState.DRAIN


def adapter(
    told: tuple[int, ShareState] | None,
    *,
    generation: int = 1,
    said: int = 0,
    busy: Sequence[str] = (),
    lease_s: int = LEASE_S,
) -> Adapter:
    """It is told of (vreplicas, state), and has acknowledged the generation ``said``."""
    shares = {KEY: AssignedShare(told[0], 1, 9, 1, told[1])} if told is not None else {}
    known = Acknowledged(said, 0, frozenset(busy)) if said else None
    return Adapter(Assignment(generation, "k/p", "u", shares, lease_s), known)


def an_assignment(told: tuple[int, ShareState]) -> Assignment:
    found = adapter(told).assignment
    assert found is not None
    return found


def serving(vreplicas: int = 3) -> Holders:
    """Pod p-0 serves them; it has said so."""
    holders = Holders()
    holders.seen("0", "p-0", adapter((vreplicas, SERVE), said=1), 0.0)
    return holders


def asked_twice() -> Holders:
    """Two writes that tell p-0 to serve have failed."""
    holders = Holders()
    holders.ask("0", "p-0", None, an_assignment((3, SERVE)), 0.0)
    holders.ask("0", "p-0", None, an_assignment((3, SERVE)), 1.0)
    return holders


def test_what_was_asked_twice_and_never_arrived_is_forgotten():
    """Found by review: it was held for ever, and nobody else served the vpod."""
    holders = asked_twice()
    assert list(holders.in_doubt(KEY)) == [("p-0", ASKED_S + 1.0)]
    assert holders.run_out(ASKED_S) == set()
    assert others_may(holders) == 0
    assert holders.next_at() == ASKED_S + 1.0
    assert holders.run_out(ASKED_S + 1.0) == {KEY}
    assert others_may(holders) == 3
    assert list(holders.in_doubt(KEY)) == []


@pytest.mark.parametrize(("stopped", "allowed"), [(False, 0), (True, 3)])
def test_a_pod_that_goes_while_it_is_told_to_serve_keeps_a_lease(stopped: bool, allowed: int):
    """Found by review: the write whose answer was lost had arrived, and its adapter served."""
    holders = asked_twice()
    holders.gone("0", 2.0, stopped=stopped)
    assert others_may(holders) == allowed
    holders.run_out(2.0 + LEASE_S)
    assert others_may(holders) == 3


def others_may(holders: Holders, published: int = 3) -> int:
    """What a pod that serves nothing yet may be told to serve."""
    return holders.allowed(KEY, "1", published)


@pytest.mark.parametrize(
    ("after", "allowed"),
    [
        pytest.param(adapter((3, SERVE), said=1), 0, id="it serves"),
        pytest.param(adapter((1, SERVE), generation=2, said=1), 0, id="it is told of fewer"),
        pytest.param(
            adapter((1, SERVE), generation=2, said=2, busy=[KEY]), 0, id="it is busy with fewer"
        ),
        pytest.param(adapter((1, SERVE), generation=2, said=2), 2, id="it serves fewer"),
        pytest.param(
            adapter((1, SERVE), generation=2),
            2,
            id="it is told of fewer, and has never acknowledged",
        ),
        pytest.param(adapter((3, DRAIN), generation=2, said=1), 0, id="it is told to let go"),
        pytest.param(
            adapter((3, DRAIN), generation=2), 3, id="it is to let go, and has never acknowledged"
        ),
        pytest.param(
            adapter((3, DRAIN), generation=2, said=2, busy=[KEY]), 0, id="it is busy letting go"
        ),
        pytest.param(adapter((3, DRAIN), generation=2, said=2), 3, id="it has let go"),
        pytest.param(adapter(None, generation=2, said=1), 0, id="it is not told of it any more"),
        pytest.param(
            adapter(None, generation=2, said=2), 0, id="it knows, and its work may be ending"
        ),
        pytest.param(Adapter(), 0, id="somebody has removed its assignment"),
        pytest.param(adapter((3, PREPARE), generation=2, said=1), 0, id="it is told to prepare"),
        pytest.param(adapter((3, PREPARE), generation=2, said=2), 3, id="it knows that"),
    ],
)
def test_what_a_pod_may_serve_is_not_allowed_to_others(after: Adapter, allowed: int):
    holders = serving()
    holders.seen("0", "p-0", after, 1.0)
    assert others_may(holders) == allowed


def of_indexes(
    indexes: str, state: ShareState = SERVE, *, generation: int = 1, said: int = 0
) -> Adapter:
    """An adapter that is told of these, and has acknowledged that."""
    told = (indexes_from(indexes).bit_count(), state)
    known = adapter(told, generation=generation, said=said)
    assert known.assignment is not None
    shares = {key: one._replace(indexes=indexes) for key, one in known.assignment.shares.items()}
    return known._replace(assignment=replace(known.assignment, shares=shares))


@pytest.mark.parametrize(
    ("after", "held"),
    [
        pytest.param(of_indexes("0-2", said=1), "0-2", id="it serves"),
        pytest.param(of_indexes("0", generation=2, said=1), "0-2", id="it is told of fewer"),
        pytest.param(of_indexes("0", generation=2, said=2), "0", id="it serves fewer"),
        pytest.param(of_indexes("2-4", generation=2, said=1), "0-4", id="it is told of others"),
        pytest.param(of_indexes("2-4", generation=2, said=2), "2-4", id="it serves the others"),
        pytest.param(of_indexes("0-2", DRAIN, generation=2, said=1), "0-2", id="it lets go"),
        pytest.param(of_indexes("0-2", DRAIN, generation=2, said=2), "", id="it has let go"),
        pytest.param(adapter(None, generation=2, said=2), "0-2", id="its lease has not run out"),
    ],
)
def test_an_index_that_a_pod_may_serve_is_not_free_for_others(after: Adapter, held: str):
    holders = Holders()
    holders.seen("0", "p-0", of_indexes("0-2", said=1), 0.0)
    holders.seen("0", "p-0", after, 1.0)
    assert indexes_text(holders.others_indexes(KEY, "1")) == held
    assert holders.others_indexes(KEY, "0") == 0


def test_others_are_told_when_a_pod_has_other_indexes_although_as_many():
    holders = Holders()
    holders.seen("0", "p-0", of_indexes("0-2", said=1), 0.0)
    assert holders.seen("0", "p-0", of_indexes("2-4", generation=2, said=1), 1.0) == set()
    assert holders.seen("0", "p-0", of_indexes("2-4", generation=2, said=2), 2.0) == {KEY}


def test_indexes_that_are_being_written_are_held():
    holders = Holders()
    known = of_indexes("0-1", said=1)
    holders.seen("0", "p-0", known, 0.0)
    after = of_indexes("1-2", generation=2).assignment
    assert after is not None
    holders.ask("0", "p-0", known.assignment, after, 1.0)
    assert indexes_text(holders.others_indexes(KEY, "1")) == "0-2"


def test_a_pod_that_prepares_holds_nothing():
    holders = Holders()
    holders.seen("0", "p-0", adapter((3, PREPARE)), 0.0)
    assert others_may(holders) == 3


def test_what_a_pod_holds_itself_it_may_serve_on_although_less_is_published():
    assert serving().allowed(KEY, "0", 1) == 3


def test_what_is_taken_away_is_held_until_the_lease_has_run_out():
    holders = serving()
    holders.seen("0", "p-0", adapter(None, generation=2), 5.0)
    holders.seen("0", "p-0", adapter(None, generation=3), 20.0)
    assert holders.next_at() == 5.0 + LEASE_S
    assert holders.run_out(5.0 + LEASE_S - 0.1) == set()
    assert others_may(holders) == 0
    assert holders.run_out(5.0 + LEASE_S) == {KEY}
    assert others_may(holders) == 3


def test_what_comes_back_before_the_lease_has_run_out_is_held_on():
    holders = serving()
    holders.seen("0", "p-0", adapter(None, generation=2), 5.0)
    holders.seen("0", "p-0", adapter((3, SERVE), generation=3), 6.0)
    assert holders.run_out(100.0) == set()
    assert others_may(holders) == 0


def test_a_lease_that_was_longer_counts_as_long_as_that():
    holders = serving()
    holders.seen("0", "p-0", adapter(None, generation=2, lease_s=5), 5.0)
    assert holders.next_at() == 5.0 + LEASE_S


@pytest.mark.parametrize(("stopped", "allowed"), [(True, 3), (False, 0)])
def test_what_a_pod_that_is_gone_held_is_free_once_its_containers_have_stopped(
    stopped: bool, allowed: int
):
    holders = serving()
    assert holders.gone("0", 5.0, stopped=stopped) == ({KEY} if stopped else set())
    assert others_may(holders) == allowed
    holders.run_out(5.0 + LEASE_S)
    assert others_may(holders) == 3


def test_what_is_being_written_counts_until_the_pods_assignment_is_another_one():
    holders = Holders()
    before = adapter((3, PREPARE))
    holders.seen("0", "p-0", before, 0.0)
    holders.ask("0", "p-0", before.assignment, an_assignment((3, SERVE)), 0.0)
    holders.seen("0", "p-0", adapter((3, PREPARE), said=1), 1.0)
    assert others_may(holders) == 0, "the write may still arrive"
    assert holders.seen("0", "p-0", adapter((3, DRAIN), generation=2, said=2), 2.0) == {KEY}
    assert others_may(holders) == 3, "it has failed: its comparison does not hold any more"


def test_a_write_that_has_not_arrived_for_long_never_will():
    holders = Holders()
    before = adapter((3, PREPARE))
    holders.ask("0", "p-0", before.assignment, an_assignment((3, SERVE)), 0.0)
    assert holders.run_out(ASKED_S) == {KEY}
    assert (others_may(holders), holders.next_at()) == (3, None)


class SlowAdapter:
    """An adapter that keeps the contract: it hears late, and has its lease by its own clock."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.told: tuple[int, ShareState] | None = None
        self.stored = self.heard = self.said = 0
        self.heard_told: tuple[int, ShareState] | None = None
        self.serves, self.lease_until = 0, 0.0

    def tell(self, told: tuple[int, ShareState] | None) -> None:
        self.told, self.stored = told, self.stored + 1

    def act(self, now: float) -> None:
        """It does some of what it may do at this moment."""
        if now >= self.lease_until:
            self.serves = 0
        if self.rng.random() < 0.3:
            self.heard, self.heard_told = self.stored, self.told
        if self.rng.random() < 0.3 and self.heard == self.stored and self.heard:
            self.lease_until = now + 0.9 * LEASE_S
            state = self.heard_told[1] if self.heard_told is not None else None
            self.serves = self.heard_told[0] if self.heard_told and state is SERVE else 0
            self.said = self.heard

    def seen(self) -> Adapter:
        return adapter(self.told, generation=max(self.stored, 1), said=self.said)


@pytest.mark.parametrize("seed", range(30))
def test_however_late_adapters_hear_no_more_is_served_than_is_published(seed: int):
    rng = random.Random(seed)
    adapters = [SlowAdapter(rng) for _ in range(3)]
    holders, wanted = Holders(), [3, 0, 0]
    served_by: set[int] = set()
    for step in range(2_000):
        now = step * 0.5
        if rng.random() < 0.02:
            wanted = [0, 0, 0]
            for _ in range(3):
                wanted[rng.randrange(3)] += 1
        index = rng.randrange(3)
        one, count = adapters[index], wanted[index]
        holders.run_out(now)
        told = one.told[0] if one.told is not None and one.told[1] is SERVE else 0
        allowed = holders.allowed(KEY, str(index), 3)
        if count <= told:
            drain = (told, DRAIN) if told else one.told
            to_tell = (count, SERVE) if count else rng.choice([None, drain])
        else:
            to_tell = (min(count, max(allowed, told)), SERVE) if allowed else (count, PREPARE)
        if to_tell != one.told and rng.random() < 0.5:
            one.tell(to_tell)
        for each in adapters:
            each.act(now)
        for number, each in enumerate(adapters):
            holders.seen(str(number), f"p-{number}", each.seen(), now)
            if each.serves:
                served_by.add(number)
        assert sum(each.serves for each in adapters) <= 3, f"seed {seed}, step {step}"
    assert served_by == {0, 1, 2}


def test_a_share_that_comes_back_as_prepare_does_not_hold_its_old_lease_for_ever():
    def told(generation: int, share: AssignedShare | None) -> Assignment:
        return Assignment(generation, "ns/p", "u", {"t/a": share} if share else {}, 30)

    said, holders = Acknowledged(1, 1), Holders()
    serve, drain, prepare = ShareState.SERVE, ShareState.DRAIN, ShareState.PREPARE
    holders.seen("u", "p", Adapter(told(1, AssignedShare(1, 1, 1, 5, serve)), said), 0)
    holders.seen("u", "p", Adapter(told(2, AssignedShare(1, 1, 1, 5, drain)), said), 10)
    holders.seen("u", "p", Adapter(told(3, None), said), 70)  # its deadline; the adapter hangs
    holders.seen("u", "p", Adapter(told(4, AssignedShare(1, 1, 1, 9, prepare)), said), 80)
    holders.run_out(80 + 31)
    assert holders.allowed("t/a", "other", 1) == 1


def test_what_an_unanswered_write_may_tell_is_held_after_the_next_write():
    holders, known = Holders(), adapter((0, PREPARE))
    holders.seen("0", "p-0", known, 0.0)
    for at, indexes in ((1.0, "0-1"), (2.0, "2")):
        asked = of_indexes(indexes, generation=2).assignment
        assert asked is not None
        holders.ask("0", "p-0", known.assignment, asked, at)
    assert indexes_text(holders.others_indexes(KEY, "1")) == "0-2"
    assert holders.allowed(KEY, "1", 3) <= 1


def test_who_is_busy_with_what_it_is_told_to_prepare_still_holds_what_it_had():
    """It was taken away at its deadline, and comes back while the adapter lets it go."""
    holders = serving(3)
    holders.seen("0", "p-0", adapter(None, generation=2), 5.0)
    comes_back = adapter((3, PREPARE), generation=3, said=3, busy=[KEY])
    holders.seen("0", "p-0", comes_back, 6.0)
    assert others_may(holders) == 0
    assert holders.run_out(5.0 + LEASE_S) == {KEY}
    assert others_may(holders) == 3
