"""What two replicas are doing at once, over three pods and three vpods: who starts what, and what
becomes of the cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from extender.kube.api import PODS, VPODS, PatchType
from extender.model.moves import Move, MoveReason
from tests.simulation.exhaustive.adapters import SteppedAdapters
from tests.simulation.exhaustive.parties import Party
from tests.support.builders import NS, POOL
from tests.support.service import TENANT, World, bind_args, filter_args

A: Final = "replica-A"
B: Final = "replica-B"
SLOTS: Final = 3
ROUNDS: Final = 4
"""A move is over after so many, if nothing disturbs it."""
Work = Callable[[World, Party], Awaitable[object]]
Act = Callable[[World, Mapping[str, Party]], Awaitable[object]]


@runtime_checkable
class WithAdapters(Protocol):
    """A world whose pods have adapters."""

    stepped: SteppedAdapters


@dataclass(frozen=True)
class Situation:
    """``furnish`` makes the cluster, which both know; then everything in ``work`` and ``acts``
    happens, in any order.

    ``work``: (replica, what) -> an operation; ``acts``: what somebody else does, one after the
    other; by default before everything else, or with ``acts_last`` after it. ``leaders``: who
    believes to lead. ``moves``: reasons for which something may be moved. ``gives_up``: how calls
    begin of which one may be given up by its sender and be served later. ``pool``: of its spec.
    With ``handoff``, all adapters serve at the beginning what is placed.
    """

    furnish: Callable[[World], Awaitable[None]]
    work: Mapping[tuple[str, str], Work]
    acts: Mapping[str, Act] = field(default_factory=dict)
    leaders: frozenset[str] = frozenset({A})
    moves: frozenset[str] = frozenset()
    gives_up: str = ""
    acts_last: bool = False
    pool: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hands_over(self) -> bool:
        """Whether the pool has ``spec.handoff``."""
        return "handoff" in self.pool


# -- operations ------------------------------------------------------------------------------------


def places(*vpods: str) -> Work:
    async def work(_world: World, party: Party) -> None:
        await party.service.placer.place_batch(POOL, [f"{TENANT}/{name}" for name in vpods])

    return work


def moves(vpod: str, count: int, source: int, target: int) -> Work:
    async def work(_world: World, party: Party) -> None:
        move = Move(
            f"{TENANT}/{vpod}",
            f"dispatcher-{source}",
            f"dispatcher-{target}",
            count,
            MoveReason.COMPACTION,
        )
        await party.service.placer.move(POOL, [move])

    return work


def binds(ordinal: int, node: str = "node-2") -> Work:
    """As kube-scheduler does: filter, then bind, with the pod as its informer knows it, bound or
    not.
    """

    async def work(world: World, party: Party) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in (await world.cluster.list_page(PODS)).items}
        pod = pods.get(f"dispatcher-{ordinal}")
        if pod is not None:
            party.service.verbs.filter(filter_args(pod, [node]))
            await party.service.verbs.bind(bind_args(pod, node))

    return work


def hands_over(vpod: str, *ordinals: int) -> Work:
    """What the loops of a leader do until a move is over: tell the pods' adapters, which
    acknowledge it, and decide again what was held back.
    """

    async def work(world: World, party: Party) -> None:
        assert isinstance(world, WithAdapters)
        for _ in range(ROUNDS):
            for ordinal in ordinals:
                await party.tell(ordinal)
            for ordinal in ordinals:
                await party.hear(world.stepped, ordinal)
            await party.service.placer.place_batch(POOL, [f"{TENANT}/{vpod}"])

    return work


def in_turn(*works: Work) -> Work:
    """One after the other."""

    async def work(world: World, party: Party) -> None:
        for one in works:
            await one(world, party)

    return work


def hands_over_by(name: str, vpod: str, *ordinals: int) -> Act:
    """A replica does it, after what was done before and not earlier."""
    return lambda world, parties: hands_over(vpod, *ordinals)(world, parties[name])


def deletes(ordinal: int) -> Act:
    return lambda world, _parties: world.remove_pod(ordinal)


def creates(ordinal: int) -> Act:
    return lambda world, _parties: world.pod(ordinal, slots=SLOTS)


def wants(vpod: str, vreplicas: int) -> Act:
    return lambda world, _parties: world.set_vreplicas(vpod, vreplicas)


def binds_by(name: str, ordinal: int) -> Act:
    """A replica binds, after what was done before and not earlier."""
    return lambda world, parties: binds(ordinal)(world, parties[name])


def places_by(name: str, *vpods: str) -> Act:
    """A replica decides, after what was done before and not earlier."""
    return lambda world, parties: places(*vpods)(world, parties[name])


def takes_over(name: str, former: str) -> Act:
    """A replica leads instead of another, and catches up: what the other has sent may still be
    under way.
    """

    async def act(_world: World, parties: Mapping[str, Party]) -> None:
        parties[former].elector.depose()
        parties[name].elector.appoint(since=asyncio.get_running_loop().time())
        await parties[name].list(PODS, VPODS)

    return act


def relists(name: str) -> Act:
    """A replica's watches end, and it lists pods, then vpods."""
    return lambda _world, parties: parties[name].list(PODS, VPODS)


# -- clusters --------------------------------------------------------------------------------------


async def _vpods(world: World, **sizes: tuple[int, dict[int, int]]) -> None:
    for name, (vreplicas, placements) in sizes.items():
        await world.vpod(name, vreplicas, placements or None)


async def _bound(world: World, ordinal: int, **ledger: int) -> None:
    shares = {f"{TENANT}/{name}": count for name, count in ledger.items()}
    await world.pod(ordinal, shares, node=f"node-{ordinal}", slots=SLOTS)


async def _a_pod_returns(world: World) -> None:
    """Pod 2 is to be bound again, with what c publishes there."""
    await _vpods(world, a=(2, {}), b=(2, {}), c=(2, {2: 1}))
    await _bound(world, 0)
    await _bound(world, 1)
    await world.pod(2, slots=SLOTS)


async def _nothing_placed(world: World) -> None:
    """Nine slots for nine vreplicas."""
    await _vpods(world, a=(3, {}), b=(3, {}), c=(3, {}))
    for ordinal in range(3):
        await _bound(world, ordinal)


async def _all_placed(world: World) -> None:
    await _vpods(world, a=(2, {2: 2}), b=(1, {0: 1}), c=(1, {1: 1}))
    await _bound(world, 0, b=1)
    await _bound(world, 1, c=1)
    await _bound(world, 2, a=2)


async def _to_be_drained(world: World) -> None:
    """Pod 0 is to be emptied, and pod 2 to be bound."""
    await _vpods(world, a=(2, {0: 2}), b=(1, {1: 1}), c=(2, {1: 1, 2: 1}))
    await _bound(world, 0, a=2)
    await _bound(world, 1, b=1, c=1)
    await world.pod(2, slots=SLOTS)
    await world.annotate(0, **{"vreplica.dev/unschedulable": "true"})


async def _fewer_wanted(world: World) -> None:
    """a has three and wants one; pod 2, on which it publishes two, is to be bound."""
    await _vpods(world, a=(1, {0: 1, 2: 2}), b=(2, {0: 1, 1: 1}), c=(1, {}))
    await _bound(world, 0, a=1, b=1)
    await _bound(world, 1, b=1)
    await world.pod(2, slots=SLOTS)


async def _shrunk_to_nothing(world: World) -> None:
    """a wants nothing any more of what it has on pod 2."""
    await _vpods(world, a=(0, {2: 2}), b=(1, {0: 1}), c=(1, {1: 1}))
    await _bound(world, 0, b=1)
    await _bound(world, 1, c=1)
    await _bound(world, 2, a=2)


async def _ledger_ahead(world: World) -> None:
    """A leader has died between ledger and status: pod 2 has more of a than is published."""
    await _vpods(world, a=(2, {}), b=(1, {0: 1}), c=(1, {1: 1}))
    await _bound(world, 0, b=1)
    await _bound(world, 1, c=1)
    await _bound(world, 2, a=2)


async def _all_served(world: World) -> None:
    """As ``_all_placed``, with pods that are Ready."""
    await _all_placed(world)
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    for ordinal in range(3):
        await world.cluster.patch(
            PODS,
            NS,
            f"dispatcher-{ordinal}",
            ready,
            patch_type=PatchType.MERGE,
            subresource="status",
        )


async def _room_on_one(world: World) -> None:
    """Only pod 2 has room, for all that a wants."""
    await _vpods(world, a=(2, {}), b=(3, {0: 3}), c=(3, {1: 3}))
    await _bound(world, 0, b=3)
    await _bound(world, 1, c=3)
    await _bound(world, 2)


BOTH: Final = frozenset({A, B})
COMPACTION: Final = frozenset({"Compaction"})
LIMITS: Final = {"prepareTimeoutSeconds": 10, "drainTimeoutSeconds": 10}
OVERLAP: Final = {"handoff": {"mode": "Overlap", **LIMITS}}
EXCLUSIVE: Final = {"handoff": {"mode": "Exclusive", "leaseSeconds": 10, **LIMITS}}
MOVES_AND_HANDS_OVER: Final = in_turn(moves("a", 2, 2, 0), hands_over("a", 0, 2))


def _size_changes(pool: Mapping[str, Any]) -> Situation:
    """A move is handed over, and its vpod wants more or less meanwhile."""
    return Situation(
        _all_served,
        {(A, "moves a from 2 to 0"): MOVES_AND_HANDS_OVER},
        {"a wants 1": wants("a", 1), "a wants 3": wants("a", 3)},
        moves=COMPACTION,
        pool=pool,
    )


def _leader_dies(pool: Mapping[str, Any]) -> Situation:
    """Another replica takes a hand-over over."""
    return Situation(
        _all_served,
        {(A, "moves a from 2 to 0"): MOVES_AND_HANDS_OVER},
        {
            "replica-B takes over": takes_over(B, A),
            "replica-B hands over": hands_over_by(B, "a", 0, 2),
        },
        moves=COMPACTION,
        acts_last=True,
        pool=pool,
    )


SITUATIONS: Final[Mapping[str, Situation]] = {
    "place and bind": Situation(
        _a_pod_returns, {(A, "places a, b, c"): places("a", "b", "c"), (B, "binds 2"): binds(2)}
    ),
    "both bind": Situation(_a_pod_returns, {(A, "binds 2"): binds(2), (B, "binds 2"): binds(2)}),
    "place, bind at the leader": Situation(
        _a_pod_returns, {(A, "places a, b, c"): places("a", "b", "c"), (A, "binds 2"): binds(2)}
    ),
    "two leaders place": Situation(
        _nothing_placed,
        {(A, "places a, b"): places("a", "b"), (B, "places b, c"): places("b", "c")},
        leaders=BOTH,
    ),
    "two leaders, one size": Situation(
        _all_placed,
        {(A, "places b"): places("b"), (B, "places b, c"): places("b", "c")},
        {"b wants 3": wants("b", 3)},
        leaders=BOTH,
    ),
    "move and place": Situation(
        _all_placed,
        {(A, "moves a from 2 to 0"): moves("a", 2, 2, 0), (B, "places b, c"): places("b", "c")},
        {"b wants 3": wants("b", 3)},
        leaders=BOTH,
        moves=COMPACTION,
    ),
    "two leaders move": Situation(
        _all_placed,
        {
            (A, "moves a from 2 to 0"): moves("a", 2, 2, 0),
            (B, "moves a from 2 to 1"): moves("a", 2, 2, 1),
        },
        leaders=BOTH,
        moves=COMPACTION,
    ),
    "drain and bind": Situation(
        _to_be_drained,
        {(A, "places a, b, c"): places("a", "b", "c"), (B, "binds 2"): binds(2)},
        moves=frozenset({"Drain"}),
    ),
    "shrink and bind": Situation(
        _fewer_wanted, {(A, "places a, c"): places("a", "c"), (B, "binds 2"): binds(2)}
    ),
    "a next incarnation": Situation(
        _ledger_ahead,
        {(A, "places a"): places("a"), (B, "binds 2"): binds(2)},
        {
            "pod 2 is deleted": deletes(2),
            "pod 2 is created": creates(2),
            "replica-B relists": relists(B),
        },
        acts_last=True,
    ),
    "a next incarnation of which nobody was told": Situation(
        _room_on_one,
        {(A, "places a"): places("a")},
        {
            "pod 2 is deleted": deletes(2),
            "pod 2 is created": creates(2),
            "replica-B relists": relists(B),
            "replica-B binds 2": binds_by(B, 2),
        },
        acts_last=True,
    ),
    "a next incarnation and a move": Situation(
        _all_placed,
        {(A, "moves a from 2 to 0"): moves("a", 2, 2, 0), (B, "binds 2"): binds(2)},
        {"pod 2 is deleted": deletes(2), "pod 2 is created": creates(2)},
        moves=COMPACTION,
        acts_last=True,
    ),
    "late lower, given up by its sender": Situation(
        _shrunk_to_nothing,
        {(A, "places a"): places("a")},
        {"a wants 2": wants("a", 2), "replica-A places a again": places_by(A, "a")},
        gives_up="patch of pods",
        acts_last=True,
    ),
    "late lower, of a leader before": Situation(
        _shrunk_to_nothing,
        {(A, "places a"): places("a")},
        {
            "replica-B takes over": takes_over(B, A),
            "a wants 2": wants("a", 2),
            "replica-B places a": places_by(B, "a"),
        },
        acts_last=True,
    ),
    "a move of a leader before": Situation(
        _all_placed,
        {(A, "moves a from 2 to 0"): moves("a", 2, 2, 0)},
        {"replica-B takes over": takes_over(B, A), "replica-B places a": places_by(B, "a")},
        moves=COMPACTION,
        acts_last=True,
    ),
    "a move is handed over": _size_changes(OVERLAP),
    "a hand-over of a leader before": _leader_dies(OVERLAP),
    "an exclusive move is handed over": _size_changes(EXCLUSIVE),
    "an exclusive hand-over of a leader before": _leader_dies(EXCLUSIVE),
    "late lower, two leaders": Situation(
        _shrunk_to_nothing,
        {(A, "places a"): places("a"), (B, "places a"): places("a")},
        {"a wants 2": wants("a", 2)},
        leaders=BOTH,
        acts_last=True,
    ),
}
