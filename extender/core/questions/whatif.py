"""What if: a pool drained, resized, placed by another profile, with more vpods, compared with the same pool left alone.

First the pools settle as they are, then the change is made and they settle again, by the same rules (``settling``): what
differs is the change's doing, and nothing that would have happened anyway.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from extender.core.comparison import moved
from extender.core.errors import InvalidObject
from extender.core.model import AdapterPool, Namespace, VPod, placement_order
from extender.core.plan import Decision
from extender.core.pool_state import PoolState
from extender.core.questions.candidates import loss_by_zone
from extender.core.questions.lift import labels_selected
from extender.core.questions.loosen import resize
from extender.core.questions.settling import Settled, settle
from extender.core.questions.snapshot import Snapshot
from extender.core.questions.trial import Trial, never
from extender.core.scaling.size import plan_scale
from extender.core.state import State

VPODS_LISTED_MAX: Final = 2_000
NAMES_SUGGESTED: Final = 5

Answer = dict[str, object]


class What(StrEnum):
    """What can be drained."""

    POD = "pod"
    NODE = "node"
    ZONE = "zone"


@dataclass(frozen=True, slots=True)
class Drain:
    """An adapter pod (``name`` or ``namespace/name``), or all of those on a node or in a zone."""

    what: What
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is asked about. ``settings``: fields of AdapterPool, by the names of the model; ``profile`` "" for each pool's own.

    ``autoscale``: the autoscaler may add pods; ``compact``: the evictor moves all that it would move in time.
    """

    drain: tuple[Drain, ...] = ()
    settings: Mapping[str, int] = field(default_factory=dict)
    profile: str = ""
    add: tuple[VPod, ...] = ()
    autoscale: bool = False
    compact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One pool as it has settled. ``placed``: vpod -> pod -> vreplicas; ``lost``: zone -> vreplicas, vpods that lose all."""

    profile: str
    pods: int
    free_slots: int
    overcommitted: int
    placed: Mapping[str, Mapping[str, int]]
    lost: Mapping[str, tuple[int, int]]
    settled: Settled


def what_if(snapshot: Snapshot, change: Change, *, expired: Callable[[], bool] = never) -> Answer:
    """``{"summary", "vpods", "pools"}`` (``/v1/plan``): the pools of the snapshot, left alone and then changed.

    Raises InvalidObject for a change that names what is not there, OutOfTime once ``expired``.
    """
    keys = [pool.key for pool in snapshot.full]
    state = snapshot.state()
    before = {key: _settled(state, key, change, (), expired) for key in keys}
    apply(state, keys, change)
    added = {vpod.key for vpod in change.add}
    after = {key: _settled(state, key, change, added, expired) for key in keys}
    rows = [row for key in keys for row in _vpod_rows(key, before[key], after[key], added)]
    rows.sort(key=lambda row: (-row.unplaced, -row.moved, row.key))
    return {
        "summary": {
            "moved": sum(row.moved for row in rows),
            "vpodsChanged": len(rows),
            "unplacedBefore": sum(side.settled.unplaced for side in before.values()),
            "unplacedAfter": sum(side.settled.unplaced for side in after.values()),
            "podsBefore": sum(side.pods for side in before.values()),
            "podsAfter": sum(side.pods for side in after.values()),
            "overcommittedAfter": sum(side.overcommitted for side in after.values()),
        },
        "vpods": [row.to_json() for row in rows[:VPODS_LISTED_MAX]],
        "vpodsNotListed": max(0, len(rows) - VPODS_LISTED_MAX),
        "pools": [_pool_row(key, before[key], after[key]) for key in keys],
    }


def _settled(
    state: State, key: str, change: Change, added: Iterable[str], expired: Callable[[], bool]
) -> _Side:
    settled = settle(state, key, last=added, grow=change.autoscale, compact=change.compact, expired=expired)
    pool = state.pool(key)
    pods = pool.stateful_set.replicas if pool.stateful_set is not None else 0
    if change.autoscale:
        plan = plan_scale(pool, lambda vpod: state.selects(key, vpod))
        pods = max(pods, plan.wanted) if plan is not None else pods
    return _Side(
        profile=pool.profile.name,
        pods=pods,
        free_slots=pool.free_slots(),
        overcommitted=len(pool.overcommitted()),
        placed={vpod: pool.placed_of(vpod) for vpod in pool.vpods},
        lost=_losses(pool),
        settled=settled,
    )


# -- the change -------------------------------------------------------------------------------------------------------


def apply(state: State, keys: Iterable[str], change: Change) -> None:
    """Change the state, the caller's own, as asked for. Raises InvalidObject."""
    trial = Trial(state)
    pools = [state.pool(key) for key in keys]
    for pool in pools:
        _set(trial, pool, change)
    for drain in change.drain:
        _drain(trial, pools, drain)
    for vpod in change.add:
        if vpod.key in state.pool(vpod.pool).vpods:
            raise InvalidObject("plan", "addVPods", f"vpod {vpod.key} is there already")
        _welcome(trial, vpod)
        trial.exchange(None, vpod)


def _welcome(trial: Trial, vpod: VPod) -> None:
    """A namespace that does not exist yet is thought of as one that the pool selects."""
    spec = trial.state.pool(vpod.pool).pool
    if spec is not None and vpod.namespace not in trial.state.namespaces:
        labels = labels_selected(spec.namespace_selector, {})
        trial.exchange(None, Namespace(name=vpod.namespace, labels=labels or {}))


def _set(trial: Trial, pool: PoolState, change: Change) -> None:
    spec = pool.pool
    if spec is None:
        return
    if change.profile and change.profile not in trial.state.profiles:
        known = ", ".join(sorted(trial.state.profiles))
        raise InvalidObject("plan", "profile", f"{change.profile!r:.80} is not known (known: {known})")
    new = _with(spec, change)
    if new.slots_per_pod != spec.slots_per_pod:
        # A node that does not declare so many will be said by its pod's being refused when it comes back.
        resize(trial, pool, new)
    elif new != spec:
        trial.exchange(spec, new)


def _with(spec: AdapterPool, change: Change) -> AdapterPool:
    settings = dict(change.settings)
    return replace(
        spec,
        slots_per_pod=settings.get("slots_per_pod", spec.slots_per_pod),
        min_pods=settings.get("min_pods", spec.min_pods),
        max_pods=settings.get("max_pods", spec.max_pods),
        min_pods_per_vpod=settings.get("min_pods_per_vpod", spec.min_pods_per_vpod),
        profile=change.profile or spec.profile,
        # As after any edit of the spec: what is remembered of the old generation must not answer for the new one.
        generation=spec.generation + 1,
    )


def _drain(trial: Trial, pools: Iterable[PoolState], drain: Drain) -> None:
    """As a person would: the pods are marked, so that what they carry goes elsewhere; nodes are cordoned."""
    state = trial.state
    names: set[str] = set()
    if drain.what is not What.POD:
        names = _nodes(state, drain)
        for name in sorted(names):
            node = state.nodes[name]
            trial.exchange(node, replace(node, cordoned=True))
    found = False
    for pool in pools:
        for known in list(pool.pods.values()):
            pod = known.pod
            if pod is None:
                continue
            if pod.node in names if names else drain.name in {pod.name, pod.key}:
                found = True
                trial.exchange(pod, replace(pod, unschedulable=True))
    if not found and drain.what is What.POD:
        listed = sorted((known.name for pool in pools for known in pool.pods.values()), key=placement_order)
        raise InvalidObject("plan", "drain", _unknown(f"adapter pod {drain.name}", listed))


def _nodes(state: State, drain: Drain) -> set[str]:
    if drain.what is What.NODE:
        if drain.name not in state.nodes:
            raise InvalidObject("plan", "drain", _unknown(f"node {drain.name}", sorted(state.nodes)))
        return {drain.name}
    names = {node.name for node in state.nodes.values() if node.zone == drain.name}
    if not names:
        zones = sorted({node.zone for node in state.nodes.values()})
        raise InvalidObject("plan", "drain", _unknown(f"zone {drain.name}", zones))
    return names


def _unknown(subject: str, known: list[str]) -> str:
    listed = ", ".join(known[:NAMES_SUGGESTED]) + (", ..." if len(known) > NAMES_SUGGESTED else "")
    return f"{subject:.300} is not known (known: {listed or 'none'})"


# -- the difference ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    """A vpod that the change touches. ``moved``, ``unplaced``: vreplicas."""

    key: str
    pool: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    moved: int
    unplaced_before: int
    unplaced: int
    reasons: list[str]
    new: bool

    def to_json(self) -> Answer:
        return {
            "name": self.key,
            "pool": self.pool,
            "new": self.new,
            "before": dict(self.before),
            "after": dict(self.after),
            "moved": self.moved,
            "unplacedBefore": self.unplaced_before,
            "unplaced": self.unplaced,
            "reasons": self.reasons,
        }


def _vpod_rows(key: str, before: _Side, after: _Side, added: Iterable[str]) -> Iterator[_Row]:
    new = set(added)
    for vpod in sorted({*before.settled.decisions, *after.settled.decisions}):
        was, now = before.placed.get(vpod, {}), after.placed.get(vpod, {})
        left_before = _left(before.settled.decisions.get(vpod))
        decision = after.settled.decisions.get(vpod)
        if was != now or left_before != _left(decision) or vpod in new:
            reasons = reasons_of(decision) if decision is not None and decision.left else []
            yield _Row(
                vpod, key, was, now, moved(was, now), left_before, _left(decision), reasons, vpod in new
            )


def _left(decision: Decision | None) -> int:
    return decision.left if decision is not None else 0


def reasons_of(decision: Decision) -> list[str]:
    """Why something of a decision has no place: the reason, a detail, and what pods say with how many say so."""
    explanation = decision.explanation
    reasons = [str(explanation.reason)] if explanation.reason is not None else []
    return [*reasons, *filter(None, [explanation.detail])] + [
        f"{count} {text}" for text, count in explanation.refused
    ]


def _pool_row(key: str, before: _Side, after: _Side) -> Answer:
    return {
        "name": key,
        "profileBefore": before.profile,
        "profileAfter": after.profile,
        "podsBefore": before.pods,
        "podsAfter": after.pods,
        "freeSlotsBefore": before.free_slots,
        "freeSlotsAfter": after.free_slots,
        "unplacedBefore": before.settled.unplaced,
        "unplacedAfter": after.settled.unplaced,
        "zones": _zone_rows(before, after),
        "evictions": [
            {
                "vpod": move.vpod,
                "from": move.from_pod,
                "to": move.to_pod,
                "vreplicas": move.vreplicas,
                "reason": str(move.reason),
            }
            for move in after.settled.moves[:VPODS_LISTED_MAX]
        ],
    }


def _zone_rows(before: _Side, after: _Side) -> list[Answer]:
    """Zone by zone what its loss takes: vreplicas, and vpods that lose all that they have."""
    was, now = before.lost, after.lost
    return [
        {
            "zone": zone,
            "before": was.get(zone, (0, 0))[0],
            "after": now.get(zone, (0, 0))[0],
            "vpodsLostBefore": was.get(zone, (0, 0))[1],
            "vpodsLostAfter": now.get(zone, (0, 0))[1],
        }
        for zone in sorted({*was, *now})
    ]


def _losses(pool: PoolState) -> dict[str, tuple[int, int]]:
    losses: dict[str, tuple[int, int]] = {}
    for key in pool.vpods:
        placed = pool.placed_of(key)
        total = sum(placed.values())
        for zone, count in loss_by_zone(pool, placed).items():
            lost, vpods = losses.get(zone, (0, 0))
            losses[zone] = (lost + count, vpods + (count == total))
    return losses
