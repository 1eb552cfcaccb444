"""The rules of a hand-over, one situation a row: what a move waits for, and what adapters are told
meanwhile.
"""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from extender.engine.placing.handover import (
    Adapter,
    instruction,
    intent_of,
    retains,
    retains_some,
    routable,
    still_served_on_old_pods,
    unprepared,
    unreleased,
    unserving,
    withheld,
)
from extender.engine.state.pool_state import PoolState
from extender.model.assignment import (
    Acknowledged,
    AssignedShare,
    Assignment,
    ShareInstruction,
    ShareState,
)
from extender.model.moves import MoveReason
from extender.model.timestamps import timestamp
from tests.support.builders import Scene

KEY = "tenant/a"
PREPARE, SERVE, DRAIN = ShareState.PREPARE, ShareState.SERVE, ShareState.DRAIN
GENERATION = 4
DEADLINE_S = 1_000.0

NO_CONTRACT = Adapter()


def adapter(
    state: ShareState | None, vreplicas: int = 2, *, said: int = GENERATION, busy: bool = False
) -> Adapter:
    """One that is told ``state`` of the vpod (None: nothing), and has acknowledged the generation
    ``said`` (0: none).
    """
    deadline = timestamp(DEADLINE_S) if state is DRAIN else ""
    shares = {KEY: AssignedShare(vreplicas, 1, 4, 7, state, deadline=deadline)} if state else {}
    return Adapter(
        Assignment(GENERATION, "n/p", "uid", shares),
        Acknowledged(said, 0, frozenset({KEY} if busy else ())) if said else None,
    )


class Asked(NamedTuple):
    """The answers of an adapter about two vreplicas."""

    has_done: bool = False
    is_busy: bool = False
    is_prepared: bool = False
    serves: bool = False
    may_serve: bool = False


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(NO_CONTRACT, Asked(), id="told nothing, says nothing"),
        pytest.param(adapter(SERVE, said=0), Asked(), id="never acknowledges"),
        pytest.param(adapter(None), Asked(has_done=True), id="told nothing of the vpod"),
        pytest.param(
            adapter(PREPARE), Asked(has_done=True, is_prepared=True), id="prepared, as told"
        ),
        pytest.param(adapter(PREPARE, busy=True), Asked(is_busy=True), id="prepares"),
        pytest.param(adapter(PREPARE, said=3), Asked(), id="not read yet that it is to prepare"),
        pytest.param(adapter(PREPARE, 1), Asked(has_done=True), id="prepared for fewer"),
        pytest.param(
            adapter(SERVE),
            Asked(has_done=True, is_prepared=True, serves=True, may_serve=True),
            id="serves, as told",
        ),
        pytest.param(
            adapter(SERVE, 1),
            Asked(has_done=True, serves=True, may_serve=True),
            id="serves fewer, as told",
        ),
        pytest.param(
            adapter(SERVE, busy=True), Asked(is_busy=True, may_serve=True), id="begins to serve"
        ),
        pytest.param(
            adapter(SERVE, said=3), Asked(may_serve=True), id="not read yet that it is to serve"
        ),
        pytest.param(adapter(DRAIN), Asked(has_done=True), id="has let go"),
        pytest.param(adapter(DRAIN, busy=True), Asked(is_busy=True, may_serve=True), id="lets go"),
        pytest.param(
            adapter(DRAIN, said=3), Asked(may_serve=True), id="not read yet that it is to let go"
        ),
    ],
)
def test_what_an_adapter_has_said_counts_for_what_it_is_told_now(asked: Adapter, expected: Asked):
    assert expected == Asked(
        asked.has_done(KEY),
        asked.is_busy(KEY),
        asked.is_prepared(KEY, 2),
        asked.serves(KEY),
        asked.may_serve(KEY),
    )


class Hand(NamedTuple):
    """A vpod in the middle of a hand-over: its placements by ordinal, and the adapters."""

    published: Mapping[int, int]
    target: Mapping[int, int]
    adapters: Mapping[int, Adapter]
    not_ready: frozenset[int] = frozenset()

    def pool(self) -> PoolState:
        """The decision's ledgers are written."""
        scene = Scene()
        for ordinal in (0, 1, 2):
            most = max(self.published.get(ordinal, 0), self.target.get(ordinal, 0))
            scene.pod(ordinal, {KEY: most} if most else {}, ready=ordinal not in self.not_ready)
        scene.vpod("a", sum(self.target.values()), self.published)
        for ordinal in {*self.published, *self.target}:
            scene.reserve("a", ordinal, self.target.get(ordinal, 0))
        return scene.pool

    def adapter(self, name: str) -> Adapter:
        return self.adapters.get(int(name.rpartition("-")[2]), NO_CONTRACT)

    def asked(self, rule) -> dict[int, int]:
        """What ``still_served_on_old_pods`` or ``withheld`` returns, by ordinal."""
        target = {f"dispatcher-{ordinal}": count for ordinal, count in self.target.items()}
        found = rule(self.pool(), KEY, target, self.adapter)
        return {int(name.rpartition("-")[2]): count for name, count in found.items()}


FULL = adapter(None)._replace(left_out=frozenset({KEY}))
SERVES, PREPARES, PREPARED = adapter(SERVE), adapter(PREPARE, busy=True), adapter(PREPARE)


@pytest.mark.parametrize(
    ("hand", "expected"),
    [
        pytest.param(Hand({0: 2}, {1: 2}, {0: SERVES}), {0: 2}, id="all of it"),
        pytest.param(Hand({0: 2}, {0: 1, 1: 1}, {0: SERVES}), {0: 1}, id="a part"),
        pytest.param(Hand({0: 2}, {0: 4}, {0: SERVES}), {}, id="it grows there"),
        pytest.param(Hand({0: 2}, {1: 2}, {0: adapter(DRAIN)}), {}, id="its adapter has let go"),
        pytest.param(Hand({0: 2}, {1: 2}, {}), {}, id="its adapter is without the contract"),
        pytest.param(
            Hand({0: 2}, {1: 2}, {0: SERVES}, frozenset({0})), {}, id="its pod is not Ready"
        ),
        pytest.param(Hand({}, {1: 2}, {0: SERVES}), {}, id="nothing is published"),
    ],
)
def test_what_leaves_a_pod_that_serves_it_has_to_be_handed_over(
    hand: Hand, expected: dict[int, int]
):
    assert hand.asked(still_served_on_old_pods) == expected


@pytest.mark.parametrize(
    ("hand", "expected"),
    [
        pytest.param(
            Hand({0: 2}, {1: 2}, {0: SERVES, 1: PREPARES}), {1: 2}, id="the new adapter prepares"
        ),
        pytest.param(
            Hand({0: 2}, {1: 2}, {0: SERVES}), {1: 2}, id="the new adapter has said nothing yet"
        ),
        pytest.param(Hand({0: 2}, {1: 2}, {0: SERVES, 1: PREPARED}), {}, id="it is prepared"),
        pytest.param(
            Hand({0: 2}, {1: 2}, {0: SERVES, 1: PREPARED}, frozenset({1})),
            {1: 2},
            id="it is prepared, and its pod is not Ready any more",
        ),
        pytest.param(
            Hand({0: 2}, {1: 2}, {0: SERVES, 1: FULL}), {}, id="the new adapter cannot be told"
        ),
        pytest.param(
            Hand({0: 4}, {0: 1, 1: 3}, {0: SERVES, 1: PREPARED}),
            {1: 3},
            id="it is prepared for fewer",
        ),
        pytest.param(
            Hand({0: 2, 1: 1}, {1: 3}, {0: SERVES, 1: adapter(SERVE, 1)}),
            {1: 2},
            id="what it serves already stays published",
        ),
        pytest.param(
            Hand({0: 4}, {1: 2, 2: 2}, {0: SERVES, 1: PREPARED, 2: PREPARES}),
            {1: 2, 2: 2},
            id="all parts wait for the last one",
        ),
        pytest.param(
            Hand({0: 4}, {1: 2, 2: 2}, {0: SERVES, 1: PREPARED, 2: PREPARED}),
            {},
            id="the last one is prepared",
        ),
        pytest.param(
            Hand({0: 1}, {1: 1, 2: 2}, {0: SERVES, 1: PREPARES, 2: PREPARED}),
            {1: 1},
            id="growth beside a move is published",
        ),
        pytest.param(
            Hand({0: 1}, {1: 3}, {0: SERVES, 1: PREPARES}),
            {1: 1},
            id="so is growth on the new pod",
        ),
        pytest.param(Hand({0: 2}, {0: 2, 1: 2}, {0: SERVES, 1: PREPARES}), {}, id="it only grows"),
        pytest.param(Hand({0: 2, 1: 2}, {1: 2}, {0: SERVES, 1: SERVES}), {}, id="it only shrinks"),
        pytest.param(
            Hand({0: 2}, {1: 2}, {0: SERVES, 1: PREPARES}, frozenset({0})),
            {},
            id="its old pod is not Ready, and nobody serves it",
        ),
        pytest.param(
            Hand({0: 2}, {1: 2}, {1: PREPARES}), {}, id="its old adapter is without the contract"
        ),
    ],
)
def test_a_move_is_not_published_before_its_new_adapters_are_prepared(
    hand: Hand, expected: dict[int, int]
):
    assert hand.asked(withheld) == expected


@pytest.mark.parametrize(
    ("hand", "expected"),
    [
        pytest.param(Hand({1: 2, 2: 2}, {}, {1: SERVES, 2: SERVES}), [], id="all serve"),
        pytest.param(
            Hand({1: 2, 2: 2}, {}, {1: SERVES, 2: adapter(SERVE, busy=True)}),
            ["dispatcher-2"],
            id="one begins to serve",
        ),
        pytest.param(Hand({1: 2}, {}, {1: PREPARED}), ["dispatcher-1"], id="it does not know yet"),
        pytest.param(Hand({1: 2}, {}, {}), [], id="its adapter is without the contract"),
        pytest.param(Hand({1: 2}, {}, {1: FULL}), [], id="its adapter cannot be told"),
        pytest.param(
            Hand({1: 2}, {}, {1: SERVES}, frozenset({1})), ["dispatcher-1"], id="it is not Ready"
        ),
        pytest.param(
            Hand({1: 2}, {0: 2, 1: 2}, {0: PREPARED, 1: SERVES}), [], id="one is not published"
        ),
        pytest.param(Hand({}, {}, {0: SERVES}), [], id="it publishes nothing any more"),
    ],
)
def test_a_vpod_is_taken_over_once_all_pods_that_it_publishes_serve_it(
    hand: Hand, expected: list[str]
):
    assert unserving(hand.pool(), KEY, hand.adapter) == expected


@pytest.mark.parametrize(
    ("hand", "expected"),
    [
        pytest.param(Hand({0: 2}, {1: 2}, {0: SERVES, 1: PREPARED}), {0: 2}, id="not published"),
        pytest.param(
            Hand({1: 2}, {0: 2, 1: 2}, {0: SERVES, 1: PREPARED}), {0: 2}, id="the new one is late"
        ),
        pytest.param(
            Hand({1: 2}, {0: 2, 1: 2}, {0: SERVES, 1: SERVES}), {1: 2}, id="the new one serves"
        ),
        pytest.param(
            Hand({1: 2}, {0: 2, 1: 2}, {0: adapter(DRAIN, busy=True), 1: PREPARED}),
            {1: 2},
            id="the old one lets go",
        ),
        pytest.param(
            Hand({1: 2}, {0: 2, 1: 2}, {0: SERVES, 1: PREPARED}, frozenset({0})),
            {1: 2},
            id="the old one is not Ready",
        ),
        pytest.param(
            Hand({0: 1, 1: 1, 2: 2}, {0: 3, 1: 1, 2: 2}, {0: SERVES, 1: SERVES, 2: PREPARED}),
            {0: 1, 1: 1},
            id="a part moves",
        ),
        pytest.param(Hand({1: 2}, {0: 2, 1: 2}, {}), {1: 2}, id="nobody has the contract"),
        pytest.param(
            Hand({1: 2}, {0: 2, 1: 2}, {0: adapter(SERVE, said=0), 1: PREPARED}),
            {1: 2},
            id="the old one is without the contract",
        ),
        pytest.param(Hand({0: 2}, {}, {0: adapter(SERVE, said=3)}), {0: 2}, id="nothing moves"),
    ],
)
def test_where_work_is_sent(hand: Hand, expected: dict[int, int]):
    found = routable(hand.pool(), KEY, hand.adapter)
    assert {int(name.rpartition("-")[2]): count for name, count in found.items()} == expected


@pytest.mark.parametrize(
    ("hand", "expected"),
    [
        pytest.param(Hand({0: 2}, {1: 2}, {0: SERVES}), ["dispatcher-1"], id="it has said nothing"),
        pytest.param(
            Hand({0: 4}, {1: 2, 2: 2}, {0: SERVES, 1: PREPARED, 2: PREPARES}),
            ["dispatcher-2"],
            id="not those that wait for others",
        ),
        pytest.param(Hand({0: 2}, {1: 2}, {0: SERVES, 1: PREPARED}), [], id="it is prepared"),
    ],
)
def test_whom_a_move_waits_for(hand: Hand, expected: list[str]):
    target = {f"dispatcher-{ordinal}": count for ordinal, count in hand.target.items()}
    assert unprepared(hand.pool(), KEY, target, hand.adapter) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(adapter(DRAIN, busy=True), {"dispatcher-0": 10.0}, id="it lets go"),
        pytest.param(adapter(DRAIN), {}, id="it has let go"),
        pytest.param(SERVES, {}, id="it is not told to let go yet"),
    ],
)
def test_how_long_an_adapter_may_take_to_let_go(asked: Adapter, expected: dict[str, float]):
    hand = Hand({1: 2}, {0: 0, 1: 2}, {0: asked})
    assert unreleased(hand.pool(), KEY, hand.adapter, DEADLINE_S - 10.0) == expected


@pytest.mark.parametrize(
    ("asked", "now", "whole", "part"),
    [
        pytest.param(SERVES, 0.0, True, True, id="it is not told to let go yet"),
        pytest.param(
            adapter(SERVE, busy=True), 0.0, True, True, id="it is still getting ready to serve"
        ),
        pytest.param(
            adapter(SERVE, said=3), 0.0, True, True, id="it has not read the newest assignment"
        ),
        pytest.param(adapter(DRAIN, said=3), 999.0, True, True, id="it lets go"),
        pytest.param(adapter(DRAIN, busy=True), 999.0, True, True, id="it says that it lets go"),
        pytest.param(adapter(DRAIN, said=3), 1_000.0, False, True, id="its deadline has come"),
        pytest.param(adapter(DRAIN), 0.0, False, False, id="it has let go"),
        pytest.param(PREPARED, 0.0, False, False, id="it has never served it"),
        pytest.param(adapter(None), 0.0, False, False, id="it is told nothing of it"),
        pytest.param(adapter(SERVE, said=0), 0.0, False, False, id="it is without the contract"),
    ],
)
def test_a_ledger_keeps_what_its_adapter_may_serve(
    asked: Adapter, now: float, whole: bool, part: bool
):
    """``whole``: a share of which nothing is published any more. ``part``: vreplicas that leave
    beside others.
    """
    for not_ready, kept in ((frozenset[int](), (whole, part)), (frozenset({0}), (False, False))):
        hand = Hand({1: 2}, {0: 0, 1: 2}, {0: asked}, not_ready)
        pod = hand.pool().pods["dispatcher-0"]
        assert (
            retains(pod, KEY, hand.adapter, now),
            retains_some(pod, KEY, hand.adapter),
        ) == kept


LET_GO = ShareInstruction(DRAIN, "dispatcher-1", timestamp(DEADLINE_S), "Rebalance")
LETS_GO = AssignedShare(2, 1, 4, 7, *LET_GO[:4])
TO_SERVE, TO_PREPARE = AssignedShare(2, 1, 4, 7), AssignedShare(2, 1, 4, 7, PREPARE, "dispatcher-1")


@pytest.mark.parametrize(
    ("hand", "current", "preparing", "drain", "expected"),
    [
        pytest.param(
            Hand({0: 2}, {0: 2}, {}), None, False, None, ShareInstruction(), id="published"
        ),
        pytest.param(
            Hand({0: 2}, {0: 2}, {}),
            TO_PREPARE,
            False,
            None,
            ShareInstruction(),
            id="published by now",
        ),
        pytest.param(
            Hand({0: 2}, {0: 2}, {}),
            LETS_GO,
            False,
            LET_GO,
            ShareInstruction(),
            id="published again",
        ),
        pytest.param(
            Hand({}, {}, {}), None, True, LET_GO, ShareInstruction(), id="no claim is known"
        ),
        pytest.param(
            Hand({}, {0: 2}, {}),
            None,
            False,
            None,
            ShareInstruction(),
            id="new, and nobody waits for it",
        ),
        pytest.param(
            Hand({1: 2}, {0: 2}, {}),
            None,
            True,
            None,
            ShareInstruction(PREPARE, "dispatcher-1"),
            id="new, and the status waits for it",
        ),
        pytest.param(
            Hand({1: 2}, {0: 2}, {}),
            TO_PREPARE,
            False,
            None,
            ShareInstruction(PREPARE, "dispatcher-1"),
            id="prepared until it is published",
        ),
        pytest.param(
            Hand({1: 2}, {0: 0, 1: 2}, {}),
            TO_PREPARE,
            False,
            LET_GO,
            ShareInstruction(PREPARE, "dispatcher-1"),
            id="prepared in vain: it never served",
        ),
        pytest.param(
            Hand({1: 2}, {0: 2}, {}),
            TO_SERVE,
            False,
            LET_GO,
            ShareInstruction(),
            id="its status follows",
        ),
        pytest.param(
            Hand({1: 2}, {0: 0, 1: 2}, {}),
            TO_SERVE,
            False,
            None,
            ShareInstruction(),
            id="it leaves, and nobody has taken over",
        ),
        pytest.param(
            Hand({1: 2}, {0: 0, 1: 2}, {}),
            TO_SERVE,
            False,
            LET_GO,
            LET_GO,
            id="it leaves, and others serve",
        ),
        pytest.param(
            Hand({1: 2}, {0: 0, 1: 2}, {}),
            LETS_GO,
            False,
            ShareInstruction(DRAIN, "dispatcher-2", "later", "Scale"),
            LET_GO,
            id="its deadline stays",
        ),
        pytest.param(
            Hand({1: 2}, {0: 2}, {}),
            LETS_GO,
            True,
            None,
            ShareInstruction(PREPARE, "dispatcher-1"),
            id="it comes back after the adapter has let go",
        ),
    ],
)
def test_what_a_pod_is_told(
    hand: Hand,
    current: AssignedShare | None,
    preparing: bool,
    drain: ShareInstruction | None,
    expected: ShareInstruction,
):
    pool = hand.pool()
    told = instruction(pool, KEY, "dispatcher-0", current, preparing=preparing, drain=lambda: drain)
    assert told == expected


@pytest.mark.parametrize(("together", "prepares"), [(2, False), (3, True)])
def test_a_share_is_prepared_while_ledgers_lack_what_its_vpod_needs_together(
    together: int, prepares: bool
):
    scene = Scene(replicas=2).pod(0, {KEY: 2}).pod(1)
    scene.vpod("a", 3, min_available=together)
    told = instruction(scene.pool, KEY, "dispatcher-0", None, preparing=False, drain=lambda: None)
    assert told == (ShareInstruction(PREPARE) if prepares else ShareInstruction())


@pytest.mark.parametrize(
    ("reason", "exists", "intent"),
    [
        (None, True, "Scale"),
        (None, False, "Removed"),
        (MoveReason.DRAIN, False, "Removed"),
        (MoveReason.DRAIN, True, "Drain"),
        (MoveReason.ORDINAL_GONE, True, "Drain"),
        (MoveReason.RESCHEDULE, True, "Drain"),
        (MoveReason.EVICTED, True, "Evicted"),
        (MoveReason.COMPACTION, True, "Rebalance"),
        (MoveReason.OVERCOMMIT, True, "Rebalance"),
        (MoveReason.MAKE_ROOM, True, "Rebalance"),
        (MoveReason.LOAD, True, "Rebalance"),
        (MoveReason.POLICY, True, "Rebalance"),
    ],
)
def test_an_adapter_is_told_why_its_share_goes(
    reason: MoveReason | None, exists: bool, intent: str
):
    assert intent_of(reason, exists=exists) == intent
