"""``vreplica plan``: shows what one round of placing would do to objects from files or a cluster.
Writes nothing.

The decisions are those of the service: the same ``ClusterState``, ``place``, ``plan_scale`` and
``plan_moves``. Vpods are decided in order of namespace and name; each decision is reserved before
the next is made. With a change (``--drain``, ``--set``, ``--add-vpods``, ``--diff``), the answer is
the difference: see ``extender.cli.query.what_if``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from extender.cli.query.plan_tables import plan_tables
from extender.cli.query.where import Where
from extender.cli.terminal.console import Terminal
from extender.cli.terminal.output import Format, print_result
from extender.cli.terminal.progress import working
from extender.engine.placing.plan import Decision
from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.move_plan import Limits, placed_by_moves
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.engine.scaling.scale_down import ordinals_to_close
from extender.engine.scaling.size import plan_scale, waiting_without_growth
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.manifests import Manifests
from extender.engine.state.pool_state import PoolState
from extender.model.errors import InvalidObject
from extender.model.moves import Move, MoveReason
from extender.model.objects import VPod, split_key
from extender.whatif.differences import reasons_of
from extender.whatif.growth import held_back
from extender.whatif.left_out import left_out, pools_asked, unserved_note, unserved_of
from extender.whatif.settling import Course, settle
from extender.whatif.trial import Trial

Row = dict[str, object]


async def run_plan(
    where: Where, *, output: Format, autoscale: bool, compact: bool, profile: str
) -> int:
    """Read files or the live cluster, plan, print. ``profile``: place every pool by this one; ""
    keeps its own. Raises InvalidObject, CannotRead.
    """
    with working("plan", "reading and planning") as report:
        manifests = await where.read("plan", report)
        choose_profiles(manifests, profile, where.profiles)
        result = plan(manifests, autoscale=autoscale, compact=compact, profiles=where.profiles)
    print_result(result, output, lambda: plan_tables(Terminal(), result))
    return 0


def choose_profiles(
    manifests: Manifests, profile: str, profiles: Mapping[str, Profile], *, asked: str = ""
) -> None:
    """Place every pool by ``profile``; "" keeps its own. Raises InvalidObject for an unknown
    profile.

    ``asked``: the key of the pool that the question is about, "" for all. Profiles of other pools
    are not checked.
    """
    if profile:
        manifests.pools[:] = [replace(pool, profile=profile) for pool in manifests.pools]
    for pool in manifests.pools:
        if pool.profile not in profiles and asked in {"", pool.key}:
            known = ", ".join(sorted(profiles))
            raise InvalidObject(
                f"AdapterPool {pool.key}",
                "spec.profile",
                f"{pool.profile!r} is not known (known: {known}); --config FILE adds those of a "
                f"service",
            )


def plan(
    manifests: Manifests,
    *,
    autoscale: bool,
    compact: bool,
    profiles: Mapping[str, Profile] = BUILT_IN_PROFILES,
) -> dict[str, list[Any]]:
    """Plan one round over all objects: ``{"vpods": [...], "pools": [...]}``, and ``notes``, if any.

    The notes say what is not counted, and which placed vreplicas nobody serves
    (``unservedVReplicas``). With ``autoscale``, each vpod also has ``settled``: where it ends once
    the wanted pods have come and found nodes.
    """
    state = manifests.state(profiles)
    asked = [state.pool(key) for key in pools_asked(state)]
    unserved = {pool.key: unserved_of(pool) for pool in asked}
    known = [vpod for pool in state.pools.values() for vpod in pool.vpods.values()]
    vpods = sorted(known, key=lambda vpod: (vpod.namespace, vpod.name))
    trial = Trial(state)
    rows = [_vpod_row(vpod, trial.decide(state.pool(vpod.pool), vpod)) for vpod in vpods]
    keys = sorted(pool.key for pool in manifests.pools)
    if autoscale:
        by_key = {vpod.key: row for vpod, row in zip(vpods, rows, strict=True)}
        _add_settled(by_key, manifests.state(profiles), keys)
    notes = [
        note
        for pool in asked
        for note in (*left_out(pool), *unserved_note(pool, unserved[pool.key]))
    ]
    return {
        "vpods": rows,
        "pools": [
            {
                **_pool_row(state, key, autoscale=autoscale, compact=compact),
                "unservedVReplicas": unserved[key].vreplicas,
            }
            for key in keys
        ],
        **({"notes": notes} if notes else {}),
    }


def _add_settled(rows: Mapping[str, Row], state: ClusterState, keys: Sequence[str]) -> None:
    """``rows``: by the vpod's key. ``state``: as it was read; this function changes it."""
    settled: dict[str, Row] = {}
    for key in keys:
        course = Course(grow=True, held=frozenset(held_back(state.pool(key), state)))
        found = settle(state, key, course)
        moved = {move.vpod for move in found.moves}
        for vpod, decision in found.decisions.items():
            target = state.pool(key).decided_of(vpod) if vpod in moved else decision.target
            settled[vpod] = {"placements": _placements(target), "unplaced": decision.pending}
    for vpod, row in rows.items():
        row["settled"] = settled.get(
            vpod, {"placements": row["placements"], "unplaced": row["unplaced"]}
        )


def _placements(target: Mapping[str, int]) -> list[Row]:
    return [{"podName": name, "vreplicas": count} for name, count in target.items()]


def _vpod_row(vpod: VPod, decision: Decision) -> Row:
    return {
        "namespace": vpod.namespace,
        "name": vpod.name,
        **({"source": vpod.source} if vpod.source else {}),
        "placements": _placements(decision.target),
        "unplaced": decision.pending,
        "reasons": reasons_of(decision),
    }


def _pool_row(state: ClusterState, key: str, *, autoscale: bool, compact: bool) -> Row:
    allows = partial(state.selects, key)
    namespace, name = split_key(key)
    pool = state.pool(key)
    replicas = pool.stateful_set.replicas if pool.stateful_set is not None else 0
    scale = plan_scale(pool, allows)
    wanted = replicas
    moves: list[Move] = []
    if scale is not None:
        waiting = waiting_without_growth(pool, allows, scale)
        if autoscale and not placed_by_moves(pool, waiting):
            wanted = scale.wanted
        surplus = ordinals_to_close(pool, scale, allows) if compact else 0
        moves = _moves(pool, waiting, surplus, compact=compact)
    return {
        "namespace": namespace,
        "name": name,
        "replicas": replicas,
        "wantedReplicas": wanted,
        "freeSlots": pool.free_slots(),
        **({"freeCapacities": pool.free_amounts()} if pool.capacities else {}),
        "evictions": _evictions(moves),
    }


def _moves(pool: PoolState, waiting: Sequence[str], surplus: int, *, compact: bool) -> list[Move]:
    """The moves of one period; without ``compact`` only those that make room for ``waiting``. What
    is drained has its part of the period's budget anyway.
    """
    budget = pool.adapter_pool.moves_per_period if pool.adapter_pool is not None else 0
    moves = plan_moves(pool, Limits(budget=budget, emptying=surplus), Advice(waiting=waiting))
    return [move for move in moves if compact or move.reason is MoveReason.MAKE_ROOM]


def _evictions(moves: Sequence[Move]) -> list[Row]:
    """What leaves each pod, in one row even if it has several destinations."""
    counts: dict[tuple[str, str, str], int] = {}
    for move in moves:
        what = (move.vpod, move.from_pod, str(move.reason))
        counts[what] = counts.get(what, 0) + move.vreplicas
    return [
        {"vpod": vpod, "podName": pod_name, "vreplicas": count, "reason": reason}
        for (vpod, pod_name, reason), count in counts.items()
    ]
