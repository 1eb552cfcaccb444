"""What a commit may rely on, and for how long: confirmations, doubts, and what others have reserved
or published since.
"""

import asyncio

import pytest

from extender.engine.placing.explain import Explanation, Reasoning, Step
from extender.engine.placing.plan import Decision, release_all
from extender.engine.rebalance.relocation import relocate
from extender.kube.api import VPODS, ApiError
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from extender.service.placing.ledger_confirmations import (
    FRESH_S,
    LATE_MAX,
    UNDER_WAY_S,
    LedgerConfirmations,
)
from extender.service.placing.status_doubts import StatusDoubts
from extender.service.placing.unreported_moves import UnreportedMoves
from extender.service.watching.caches import Caches
from tests.service.placing.test_committer import (
    OWNER,
    a_decision,
    commit,
    made_now,
    placed_on_the_first_of_two,
    reserve_and_commit,
)
from tests.support.builders import NS, POOL, a_vpod
from tests.support.clock import Clock
from tests.support.placing import place
from tests.support.service import TENANT, World, a_world, lost

pytestmark = pytest.mark.looptime


def test_of_several_late_writes_of_a_pod_each_is_remembered():
    """The ledger was A, then B, and is A again: the first write finds what it looks for (seed
    230000296).
    """
    clock = Clock()
    ledger_confirmations = LedgerConfirmations(clock)
    ledger_confirmations.late("uid", "A")
    ledger_confirmations.late("uid", "B")
    ledger_confirmations.changed("uid", 0.0)
    assert [ledger_confirmations.is_fresh("uid", text) for text in "ABC"] == [False, False, True]
    clock.now = UNDER_WAY_S
    ledger_confirmations.note("uid", clock.now)
    assert [ledger_confirmations.is_fresh("uid", text) for text in "ABC"] == [True, True, True]


def test_of_too_many_late_writes_any_text_may_be_looked_for():
    clock = Clock()
    ledger_confirmations = LedgerConfirmations(clock)
    for number in range(LATE_MAX + 1):
        ledger_confirmations.late("uid", str(number))
    ledger_confirmations.note("uid", 0.0)
    assert not ledger_confirmations.is_fresh("uid", "another")
    clock.now = UNDER_WAY_S
    ledger_confirmations.note("uid", clock.now)
    assert ledger_confirmations.is_fresh("uid", "another")


def test_a_proof_is_good_for_five_seconds_from_when_it_was_asked_for():
    clock = Clock()
    ledger_confirmations = LedgerConfirmations(clock)
    ledger_confirmations.note("uid", 0.0)
    clock.now = FRESH_S - 0.1
    assert ledger_confirmations.is_fresh("uid", "{}")
    clock.now = FRESH_S
    assert not ledger_confirmations.is_fresh("uid", "{}")


def test_a_proof_is_none_while_a_write_that_compares_with_the_same_text_may_arrive():
    clock = Clock()
    ledger_confirmations = LedgerConfirmations(clock)
    ledger_confirmations.late("uid", "{}")
    ledger_confirmations.note("uid", 0.0)
    assert not ledger_confirmations.is_fresh("uid", "{}")
    assert ledger_confirmations.is_fresh("uid", "another")
    clock.now = UNDER_WAY_S
    ledger_confirmations.note("uid", clock.now)
    assert ledger_confirmations.is_fresh("uid", "{}")


def test_after_a_takeover_only_a_ledger_that_we_have_changed_proves_anything():
    clock = Clock(10.0)
    ledger_confirmations = LedgerConfirmations(clock)
    ledger_confirmations.note("asked", 10.0)
    ledger_confirmations.changed("changed", 10.0)
    assert [
        ledger_confirmations.is_fresh(uid, "{}", changed_since=9.0) for uid in ("asked", "changed")
    ] == [
        False,
        True,
    ]
    assert not ledger_confirmations.is_fresh("changed", "{}", changed_since=10.5)


async def test_what_a_lowering_of_unknown_outcome_may_still_take_away_is_not_published():
    """Found by review: it was given up, the vpod grew again, and the ledger looked as if it covered
    that.
    """
    world = await World.create()
    await world.pod(0, {"tenant/a": Share(2)}, node="node-0")
    await world.vpod("a", 2)
    await world.sync()
    committer = world.committer()
    pod = world.caches.pods.latest(f"{NS}/dispatcher-0")
    assert pod is not None
    committer.ledger_confirmations.late(pod.uid, pod.ledger_text)
    decision = made_now(world, a_decision("a", {0: 2}))
    failed = (await reserve_and_commit(committer, decision)).failed
    assert (await world.published(), list(failed)) == ({}, ["tenant/a"])


def knowing(*names: str) -> Caches:
    caches = Caches()
    for name in names:
        caches.vpods.update(a_vpod(name, 3))
    return caches


class Lists:
    """Lists of vpods that are asked for, and are there when they are ``answered``."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, asyncio.Future[bool]]] = []

    async def again(self, source: str) -> bool:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.asked.append((source, answer))
        return await answer

    async def answered(self, *, there: bool = True) -> None:
        self.asked[-1][1].set_result(there)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def held(doubts: StatusDoubts) -> bool:
    doubts.look_again("tenant/a")
    holds = doubts.is_doubtful("tenant/a")
    await asyncio.sleep(0)
    return holds


async def test_a_write_without_an_answer_is_in_doubt_until_vpods_are_listed_after_its_time():
    clock = Clock()
    lists = Lists()
    doubts = StatusDoubts(knowing("a", "b"), clock, lists.again)
    doubts.note(OWNER, POOL, a_vpod("a", 3), conflict=False)
    clock.now = UNDER_WAY_S - 1.0
    assert (await held(doubts), lists.asked) == (True, [])
    clock.now = UNDER_WAY_S
    assert await held(doubts)
    clock.now = 600.0
    assert (await held(doubts), len(lists.asked)) == (True, 1)
    await lists.answered()
    assert not await held(doubts)


async def test_a_conflict_is_in_doubt_until_the_newer_version_is_seen_however_long_that_takes():
    """Seed 161002421: the watch was silent for longer than the reservation; what was published lost
    its ledger.
    """
    clock = Clock()
    lists = Lists()
    doubts = StatusDoubts(knowing("a", "b"), clock, lists.again)
    doubts.note(OWNER, POOL, a_vpod("a", 3), conflict=True)
    clock.now = 1.9
    assert (await held(doubts), lists.asked) == (True, [])
    clock.now = 2.0
    assert (await held(doubts), len(lists.asked)) == (True, 1)
    await lists.answered(there=False)
    clock.now = 11.0
    assert (await held(doubts), len(lists.asked)) == (True, 1)
    clock.now = 12.0
    assert (await held(doubts), len(lists.asked)) == (True, 2)
    await lists.answered()
    assert not await held(doubts)


async def test_conflict_after_conflict_does_not_put_the_list_off():
    clock = Clock()
    lists = Lists()
    doubts = StatusDoubts(knowing("a", "b"), clock, lists.again)
    for clock.now in (0.0, 1.0, 2.0):
        doubts.note(OWNER, POOL, a_vpod("a", 3), conflict=True)
    assert (await held(doubts), len(lists.asked)) == (True, 1)


async def test_a_list_begun_while_a_write_may_be_under_way_tells_nothing_of_it():
    clock = Clock()
    lists = Lists()
    doubts = StatusDoubts(knowing("a", "b"), clock, lists.again)
    doubts.note(OWNER, POOL, a_vpod("a", 3), conflict=False)
    doubts.note(OWNER, POOL, a_vpod("b", 3), conflict=True)
    clock.now = 5.0
    doubts.look_again("tenant/b")
    assert doubts.is_doubtful("tenant/b")
    await asyncio.sleep(0)
    clock.now = UNDER_WAY_S + 1.0
    await lists.answered()
    assert (await held(doubts), doubts.is_doubtful("tenant/b")) == (True, False)


@pytest.mark.parametrize("conflict", [True, False])
def test_a_newer_version_that_came_while_the_write_was_under_way_leaves_no_doubt(conflict: bool):
    """Seed 200003442: what was decided for the older one stayed reserved, and the vpod grew again
    elsewhere (I4).
    """
    caches = Caches()
    caches.vpods.update(a_vpod("a", 1, uid="uid", resource_version="5"))
    vpod = caches.vpods.latest("tenant/a")
    assert vpod is not None
    doubts = StatusDoubts(caches, lambda: 0.0, Lists().again)
    pool = caches.state.pool(POOL)
    pool.reserve(OWNER, "tenant/a", {"dispatcher-0": Share(1)}, expires_at=30.0)
    caches.vpods.update(a_vpod("a", 2, uid="uid", resource_version="6"))
    doubts.note(OWNER, POOL, vpod, conflict=conflict)
    assert not doubts.is_doubtful("tenant/a")
    assert pool.decided_of("tenant/a") == {}


def test_a_newer_version_of_the_vpod_ends_the_doubt_and_its_reservation():
    caches = Caches()
    caches.vpods.update(a_vpod("a", 3, uid="uid", resource_version="5"))
    doubts = StatusDoubts(caches, lambda: 0.0, Lists().again)
    pool = caches.state.pool(POOL)
    pool.reserve(OWNER, "tenant/a", {"dispatcher-0": Share(3)}, expires_at=30.0)
    vpod = caches.vpods.latest("tenant/a")
    assert vpod is not None
    doubts.note(OWNER, POOL, vpod, conflict=False)
    assert doubts.is_doubtful("tenant/a")
    caches.vpods.update(a_vpod("a", 3, uid="uid", resource_version="6"))
    assert not doubts.is_doubtful("tenant/a")
    assert pool.decided_of("tenant/a") == {}


async def test_a_later_failure_does_not_give_up_what_a_status_in_doubt_may_publish():
    """Seed 9001469: the pod came back without its ledger, and others got the room."""
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.sync()
    committer, pool = world.committer(), world.caches.state.pool(POOL)
    failures: tuple[dict[str, ApiError], ...] = (
        {"after": lost()},
        {"before": ApiError(503, "ServiceUnavailable", "no leader")},
    )
    for attempt, failure in enumerate(failures):
        world.api.fail("patch", "vpods/status", **failure)
        decision = made_now(world, a_decision("a", {0: 3}))
        committer.reserve(("test", attempt), decision)
        assert (await committer.commit(("test", attempt), POOL, [decision])).failed
        assert pool.is_reserved("tenant/a")
    await world.sync()
    assert not pool.is_reserved("tenant/a"), "the newer version is seen"


async def test_what_a_bind_has_reserved_since_the_decision_stays_in_the_ledger():
    world = await placed_on_the_first_of_two()
    committer = world.committer()
    decision = made_now(world, a_decision("a", {1: 3}))
    committer.reserve(OWNER, decision)
    world.caches.state.reserve(
        ("bind", "uid"), POOL, "tenant/a", {"dispatcher-0": Share(3)}, expires_at=60.0
    )
    await committer.commit(OWNER, POOL, [decision])
    assert (await world.ledger(0), await world.ledger(1)) == ({"tenant/a": 3}, {"tenant/a": 3})


async def test_a_vpod_that_comes_back_while_its_release_is_written_keeps_its_ledgers():
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("b", 1)
    await world.sync()

    async def come_back() -> None:
        await world.vpod("a", 3)
        await world.sync("vpods")

    world.api.fail("patch", "vpods/status", name="b", then=come_back)
    gone = release_all(world.caches.state.pool(POOL), "tenant/a")
    await commit(world, a_decision("b", {0: 1}), gone)
    assert (await world.cluster.get(VPODS, TENANT, "a"))["spec"]["vreplicas"] == 3
    assert await world.ledger(0) == {"tenant/a": 3, "tenant/b": 1}


async def test_a_ledger_that_somebody_else_has_begun_is_not_overwritten():
    world = await World.create()
    await world.pod(0, node="node-0")
    await world.vpod("a", 15)
    await world.sync()
    await world.edit_ledger(0, {"tenant/x": 10})
    assert set(await commit(world, a_decision("a", {0: 15}))) == {"tenant/a"}
    assert await world.ledger(0) == {"tenant/x": 10}


async def test_what_another_leader_publishes_meanwhile_stays_in_the_ledger():
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("a", 1, {0: 3})
    await world.vpod("b", 1)
    await world.sync()
    pause = world.api.pause("patch", "vpods/status", name="b")
    written = asyncio.create_task(commit(world, a_decision("a", {0: 1}), a_decision("b", {0: 1})))
    await pause.reached.wait()
    await asyncio.sleep(1)
    assert await world.published() == {0: 1}
    status = {"placements": [{"podName": "dispatcher-0", "vreplicas": 3}], "scheduledVReplicas": 3}
    await world.patch_status(VPODS, TENANT, "a", **status)
    await world.sync("vpods")
    pause.go_on.set()
    await written
    assert await world.ledger(0) == {"tenant/a": 3, "tenant/b": 1}


async def test_what_a_vpod_that_has_left_still_publishes_stays_in_the_ledger():
    world = await World.create()
    await world.pod(0, {"tenant/a": 3}, node="node-0")
    await world.vpod("a", 3, {0: 3}, poolRef={"namespace": NS, "name": "other"})
    await world.sync()
    committer, gone = world.committer(), release_all(world.caches.state.pool(POOL), "tenant/a")
    assert set((await reserve_and_commit(committer, gone)).failed) == {"tenant/a"}
    assert await world.ledger(0) == {"tenant/a": 3}


async def test_a_ledger_that_may_have_been_lowered_is_not_published_by_what_we_know_of_it():
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.sync()
    committer = world.committer()

    async def decide(vreplicas: int) -> None:
        await world.set_vreplicas("a", vreplicas)
        await world.sync("vpods")
        decision = made_now(world, a_decision("a", {0: vreplicas}))
        await reserve_and_commit(committer, decision)

    await decide(3)
    world.api.fail("patch", "pods", after=lost())
    world.api.fail("get", "pods", before=lost())
    await decide(1)
    assert await world.ledger(0) == {"tenant/a": 1}
    await decide(3)
    await world.check()


async def test_a_ledger_is_not_lowered_while_a_status_of_the_leader_before_may_be_under_way():
    world = await a_world(0)
    await world.vpod("a", 1)
    await world.sync()
    assert await commit(world, a_decision("a", {0: 1})) == {}
    await world.edit_ledger(0, {"tenant/a": 3})
    await world.sync()
    committer, decision = world.committer(), made_now(world, a_decision("a", {0: 1}))
    world.no_predecessor_writes = False
    assert set((await reserve_and_commit(committer, decision)).failed) == {"tenant/a"}
    assert await world.ledger(0) == {"tenant/a": 3}
    world.no_predecessor_writes = True
    assert (await reserve_and_commit(committer, decision)).failed == {}
    assert await world.ledger(0) == {"tenant/a": 1}


async def test_a_move_in_doubt_is_not_told_by_a_stale_decision_nor_where_it_was_not_made():
    world = await a_world(0, 1)
    await world.vpod("a", 3)
    await world.sync()
    await commit(world, a_decision("a", {0: 3}))
    await world.sync()
    committer = world.committer()
    pool = world.caches.state.pool(POOL)

    world.api.fail("patch", "vpods/status", before=lost())
    move = Move("tenant/a", "dispatcher-0", "dispatcher-1", 3, MoveReason.COMPACTION)
    in_doubt = await reserve_and_commit(committer, relocate(pool, pool.vpods["tenant/a"], [move]))
    assert (list(in_doubt.failed), in_doubt.reported) == (["tenant/a"], {})
    again = place(pool, pool.vpods["tenant/a"])
    await world.set_vreplicas("a", 4)
    await world.sync()
    stale = await reserve_and_commit(committer, again)
    assert (stale.failed, stale.reported) == ({}, {})
    written = await reserve_and_commit(committer, place(pool, pool.vpods["tenant/a"]))
    assert (await world.published(), written.reported["tenant/a"].moves) == ({0: 3, 1: 1}, ())


async def test_a_move_in_doubt_keeps_its_reason_while_its_new_pod_is_not_bound():
    """That pod was made anew meanwhile, so there was nothing to publish (seed 30000223)."""
    world = await placed_on_the_first_of_two()
    committer, pool = world.committer(), world.caches.state.pool(POOL)
    move = Move("tenant/a", "dispatcher-0", "dispatcher-1", 3, MoveReason.DRAIN)
    world.api.fail("patch", "vpods/status", before=lost())
    moving = relocate(pool, pool.vpods["tenant/a"], [move])
    assert list((await reserve_and_commit(committer, moving)).failed) == ["tenant/a"]

    await world.remove_pod(1)
    await world.pod(1, node="")
    await world.sync()
    again = made_now(world, a_decision("a", {1: 3}))
    unbound = await reserve_and_commit(committer, again)
    assert (await world.published(), unbound.reported["tenant/a"].moves) == ({0: 3}, ())

    await world.remove_pod(1)
    await world.pods(1)
    await world.sync()
    bound = await reserve_and_commit(committer, made_now(world, a_decision("a", {1: 3})))
    assert (await world.published(), bound.reported["tenant/a"].moves) == ({1: 3}, (move,))


def off_0(target: dict[int, int], count: int, to: int, reason: MoveReason) -> Decision:
    """A decision that moves vreplicas off pod 0 to pod ``to``, and so comes to ``target``."""
    steps = (
        Reasoning(Step.MOVED_AWAY, "dispatcher-0", count, str(reason), reason),
        Reasoning(Step.ADDED, f"dispatcher-{to}", count),
    )
    wanted = sum(target.values())
    return a_decision("a", target)._replace(explanation=Explanation(wanted, steps, 0, None))


async def test_a_move_to_an_unbound_pod_that_a_doubt_keeps_reserved_is_told_once_it_is_published():
    """The next decision begins where the vpod was moved to, and cannot know why (seed 5028 of pools
    with tenancy).
    """
    world = await placed_on_the_first_of_two()
    committer, pool = world.committer(), world.caches.state.pool(POOL)
    world.api.fail("patch", "vpods/status", before=lost())
    growing = made_now(world, a_decision("a", {0: 3, 1: 1}))
    assert list((await reserve_and_commit(committer, growing)).failed) == ["tenant/a"]

    await world.remove_pod(1)
    await world.pod(1, node="")
    await world.sync()
    move = Move("tenant/a", "dispatcher-0", "dispatcher-1", 3, MoveReason.DRAIN)
    moving = made_now(world, off_0({1: 3}, 3, 1, MoveReason.DRAIN))
    await reserve_and_commit(committer, moving)
    assert await world.published() == {0: 3}
    assert pool.is_reserved("tenant/a")

    await world.remove_pod(1)
    await world.pods(1)
    await world.sync()
    bound = await reserve_and_commit(committer, made_now(world, a_decision("a", {1: 3})))
    assert (await world.published(), bound.reported["tenant/a"].moves) == ({1: 3}, (move,))


def test_an_untold_move_is_told_once_with_the_decision_that_is_written():
    unreported_moves = UnreportedMoves()
    moving = off_0({1: 3}, 3, 1, MoveReason.DRAIN)
    unreported_moves.remember(moving, {"dispatcher-0": 3})
    next_one = a_decision("a", {1: 3})
    assert (
        unreported_moves.added_to(next_one).moves
        == unreported_moves.reported(next_one).moves
        == moving.moves
    )
    assert unreported_moves.reported(next_one).moves == ()


@pytest.mark.parametrize(
    ("published", "told"),
    [
        pytest.param(
            {"dispatcher-0": 5},
            [(2, "dispatcher-0", "dispatcher-1")],
            id="the status has not arrived",
        ),
        pytest.param({"dispatcher-0": 3, "dispatcher-1": 2}, [], id="it has"),
        pytest.param(
            {"dispatcher-0": 4, "dispatcher-1": 1},
            [(1, "dispatcher-0", "dispatcher-1")],
            id="with a part of it",
        ),
    ],
)
def test_what_a_status_whose_answer_was_lost_has_told_is_not_told_again(published, told):
    """Seed 287003885: the vpod was made smaller since, and what left then was called
    another move.
    """
    unreported_moves = UnreportedMoves()
    moving = off_0({0: 3, 1: 2}, 2, 1, MoveReason.POLICY)
    unreported_moves.remember(moving, {"dispatcher-0": 5})
    moves = unreported_moves.added_to(a_decision("a", {0: 1}), published).moves
    assert [(move.vreplicas, move.from_pod, move.to_pod) for move in moves] == told


def test_a_move_is_not_told_of_vreplicas_that_leave_for_a_reason_of_the_decision_itself():
    """Seed 600000217: the vpod was to move within its pool, and left the pool before that."""
    unreported_moves = UnreportedMoves()
    unreported_moves.remember(off_0({1: 2}, 2, 1, MoveReason.POLICY), {"dispatcher-0": 3})
    gone = (Reasoning(Step.DROPPED, "dispatcher-0", 2, "", MoveReason.ORDINAL_GONE),)
    left = a_decision("a", {})._replace(explanation=Explanation(2, gone, 2, None))
    of_two, of_three = (
        unreported_moves.added_to(left, {"dispatcher-0": count}).moves for count in (2, 3)
    )
    assert [(move.reason, move.vreplicas) for move in of_two] == [(MoveReason.ORDINAL_GONE, 2)]
    assert [(move.reason, move.vreplicas) for move in of_three] == [
        (MoveReason.POLICY, 1),
        (MoveReason.ORDINAL_GONE, 2),
    ]


def test_of_two_moves_off_one_pod_the_one_that_was_undone_is_not_told():
    unreported_moves = UnreportedMoves()
    for ordinal, reason in ((1, MoveReason.POLICY), (2, MoveReason.DRAIN)):
        unreported_moves.remember(off_0({ordinal: 2}, 2, ordinal, reason), {"dispatcher-0": 2})
    moves = unreported_moves.added_to(a_decision("a", {2: 2}), {"dispatcher-0": 2}).moves
    assert [(move.reason, move.to_pod, move.vreplicas) for move in moves] == [
        (MoveReason.DRAIN, "dispatcher-2", 2)
    ]


async def test_what_a_move_has_left_behind_is_not_called_a_move_when_fewer_are_wanted():
    world = await a_world(0, 1)
    await world.vpod("a", 5)
    await world.sync()
    await commit(world, a_decision("a", {0: 5}))
    await world.sync()
    committer = world.committer()
    pool = world.caches.state.pool(POOL)

    world.api.fail("patch", "vpods/status", after=lost())
    move = Move("tenant/a", "dispatcher-0", "dispatcher-1", 1, MoveReason.POLICY)
    moving = relocate(pool, pool.vpods["tenant/a"], [move])
    assert list((await reserve_and_commit(committer, moving)).failed) == ["tenant/a"]
    assert await world.published() == {0: 4, 1: 1}
    told = await moved(world)
    await asyncio.sleep(2)
    await world.set_vreplicas("a", 1)
    await world.sync()
    await reserve_and_commit(committer, place(pool, pool.vpods["tenant/a"]))
    assert (await world.published(), await moved(world)) == ({0: 1}, told)


async def moved(world: World) -> list[str]:
    found = (await world.conditions()).get("Moved")
    return [found["message"] + found["lastTransitionTime"]] if found else []
