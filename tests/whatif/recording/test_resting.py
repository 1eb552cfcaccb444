"""Pools in which nothing goes on are not gone through again and again, and it comes to the same
(``Rehearsal._rests``).
"""

import random

import pytest

from extender.engine.state.pool_state import PoolState
from extender.engine.state.state_observer import Recorded
from extender.model.objects import Namespace
from extender.whatif.recording.entries import Abandon, EntryContent, Gone, Put
from extender.whatif.recording.rehearsal import Rehearsal
from tests.support.builders import NS, POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod

HOUR_S = 3600


class Resting(Rehearsal):
    """``periods``: how many were gone through."""

    periods = 0

    def _period(self, key: str, at: float) -> None:
        self.periods += 1
        super()._period(key, at)


class Restless(Resting):
    """The plain one: each period of each pool."""

    def _rests(self, pool: PoolState) -> bool:
        return False


def beginning(rng: random.Random) -> list[EntryContent]:
    nodes = [a_node(f"node-{i}", f"z{i}") for i in range(3)]
    pool = a_pool(
        5,
        max_pods=rng.choice((3, 8)),
        scale_down_period_s=rng.choice((1, 7)),
        move_cooldown_s=rng.choice((0, 30)),
        moves_per_period=rng.choice((1, 10)),
    )
    objects: list[Recorded] = [*nodes, a_stateful_set(rng.randint(1, 5)), pool, a_pod(0), a_pod(1)]
    return [Put(obj) for obj in objects]


def one_of(rng: random.Random) -> EntryContent:
    """Something that a recording may tell."""
    name, ordinal = rng.choice("abcd"), rng.randrange(4)
    node = f"node-{rng.randrange(3)}"
    match rng.randrange(9):
        case 0:
            return Gone("VPod", f"tenant/{name}")
        case 1:
            return Gone("Node", node)
        case 2:
            return Put(a_node(node, f"z{rng.randrange(3)}", ready=rng.random() < 0.7))
        case 3:
            return Put(a_pod(ordinal, node=node, unschedulable=rng.random() < 0.5))
        case 4:
            return Abandon(POOL, frozenset({f"dispatcher-{ordinal}"} if rng.random() < 0.5 else ()))
        case 5:
            return Put(Namespace(name="tenant", labels={"a": name}))
        case 6:
            return Put(a_pool(rng.choice((4, 5, 9)), scale_down_period_s=rng.choice((1, 7))))
        case _:
            return Put(a_vpod(name, rng.randrange(12), weight=rng.choice((1, 1, 2))))


def shown(rehearsal: Rehearsal) -> tuple[object, ...]:
    pool = rehearsal.state.pool(POOL)
    replicas = pool.stateful_set.replicas if pool.stateful_set is not None else None
    return (
        {key: pool.decided_of(key) for key in sorted(pool.vpods)},
        replicas,
        pool.closed,
        rehearsal.moved,
    )


@pytest.mark.parametrize("seed", range(25))
def test_what_rests_comes_to_the_same_as_what_does_not(seed: int):
    rng = random.Random(seed)
    resting, restless = Resting(), Restless()
    now = 0.0
    for step in range(30):
        for what in (
            beginning(rng) if not step else [one_of(rng) for _ in range(rng.choice((1, 1, 3)))]
        ):
            resting.play(what)
            restless.play(what)
        for _ in range(rng.choice((1, 3, 20, 60))):
            now += 1.0
            resting.tick(now)
            restless.tick(now)
            assert shown(resting) == shown(restless), f"seed {seed}, second {now}"
    assert resting.periods < restless.periods


def test_a_silent_hour_costs_a_few_periods():
    rehearsal = Resting()
    spec = a_pool(5, scale_down_period_s=1, move_cooldown_s=20)
    for obj in (a_node("node-0", "z0"), a_stateful_set(4), spec, a_vpod("a", 7, {0: 1, 3: 6})):
        rehearsal.play(Put(obj))
    for second in range(HOUR_S):
        rehearsal.tick(float(second))
    assert rehearsal.moved, "a vpod cools down"
    assert rehearsal.periods < 60


def test_what_was_moved_lately_is_looked_at_until_it_may_be_moved_again():
    rehearsal = Resting()
    spec = a_pool(5, scale_down_period_s=10, move_cooldown_s=200)
    for obj in (
        a_node("node-0", "z0"),
        a_stateful_set(3),
        spec,
        a_pod(0),
        a_pod(2),
        a_vpod("a", 3, {2: 3}),
    ):
        rehearsal.play(Put(obj))
    for second in range(21):
        rehearsal.tick(float(second))
    assert rehearsal.state.pool(POOL).decided_of("tenant/a") == {"dispatcher-0": 3}, (
        "it has moved once"
    )
    rehearsal.play(Gone("AdapterPool", f"{NS}/dispatcher"))
    rehearsal.play(Put(spec))
    for obj in (a_stateful_set(3), a_pod(1)):
        rehearsal.play(Put(obj))
    before = rehearsal.periods
    for second in range(21, 121):
        rehearsal.tick(float(second))
    assert rehearsal.periods - before == 10, "none is left out while it cools down"
