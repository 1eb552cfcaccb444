"""What if: a pool is drained, resized, placed by another profile or given more vpods or tenants.

Pools and vpods are shown from three sides: *before* is today; *settled* is what the pools reach if
nobody does anything; *after* is what they reach with the change on top of that, by the same rules
(``settling``). The moves are the difference between the last two, so they are caused by the change
and would not have happened anyway.

Pods that kube-scheduler has refused for reasons not known here get no node on any side
(``growth.held_back``).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.errors import InvalidObject
from extender.model.objects import Namespace, VPod
from extender.whatif.differences import notes_of, pool_row, summary_of, vpod_rows
from extender.whatif.growth import held_back
from extender.whatif.left_out import left_out, unserved_note, unserved_of
from extender.whatif.lift import labels_selected
from extender.whatif.loosen import resize
from extender.whatif.new_tenants import NewTenant, add, arrivals, tenant_notes
from extender.whatif.settings import with_settings
from extender.whatif.settling import Course, settle
from extender.whatif.sides import Compared, Side, side_of
from extender.whatif.snapshot import Snapshot
from extender.whatif.targets import Target, drain, fail
from extender.whatif.trial import Trial, never

VPODS_LISTED_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change that is asked about. ``drain``: drained by a person. ``fail``: away for good.
    ``settings``: fields of AdapterPool's spec (``SETTINGS``). ``profile``: "" keeps each
    pool's own.

    ``autoscale``: the autoscaler may add pods. ``compact``: the evictor makes all moves that it
    would make over time.
    """

    drain: tuple[Target, ...] = ()
    fail: tuple[Target, ...] = ()
    settings: Mapping[str, int] = field(default_factory=dict)
    profile: str = ""
    add: tuple[VPod, ...] = ()
    tenants: tuple[NewTenant, ...] = ()
    autoscale: bool = False
    compact: bool = False


def what_if(
    snapshot: Snapshot, change: Change, *, expired: Callable[[], bool] = never
) -> dict[str, object]:
    """Answer ``/v1/plan``, ``{"summary", "notes", "vpods", "pools"}``: the snapshot's pools today,
    left alone and changed.

    Raises InvalidObject if the change names something that does not exist, OutOfTime once
    ``expired``.
    """
    keys = [pool.key for pool in snapshot.full]
    state = snapshot.state()
    today = {key: side_of(state, key) for key in keys}
    held = {key: held_back(state.pool(key), state) for key in keys}
    unserved = {key: unserved_of(state.pool(key)) for key in keys}
    beside = [
        note
        for pool in map(state.pool, keys)
        for note in (*left_out(pool), *unserved_note(pool, unserved[pool.key]))
    ]
    coming = arrivals(state, change.tenants)
    added = frozenset(vpod.key for vpod in (*change.add, *(one.vpod for one in coming)))

    def settled(key: str) -> Side:
        course = Course(
            last=added, grow=change.autoscale, compact=change.compact, held=frozenset(held[key])
        )
        if (tenancy := state.pool(key).tenancy) is not None:
            tenancy.lift_budget()
        side = side_of(state, key, settle(state, key, course, expired=expired))
        return replace(side, pods=max(side.pods, side.wanted)) if course.grow else side

    alone = {key: settled(key) for key in keys}
    failed = apply(state, keys, change)
    for arrival in coming:
        add(Trial(state), arrival)
    pools = [
        Compared(
            key=key,
            today=today[key],
            alone=alone[key],
            after=settled(key),
            held=held[key],
            failed=failed.get(key, frozenset()),
        )
        for key in keys
    ]
    rows = [row for pool in pools for row in vpod_rows(pool, added)]
    rows.sort(key=lambda row: (-row.unplaced, -row.moved, row.key))
    return {
        "summary": {
            **summary_of(pools, rows),
            "unserved": sum(one.vreplicas for one in unserved.values()),
        },
        "notes": [
            *beside,
            *(note for pool in pools for note in tenant_notes(pool, change.tenants)),
            *notes_of(pools, grown=change.autoscale),
        ],
        "vpods": [row.to_json() for row in rows[:VPODS_LISTED_MAX]],
        "vpodsNotListed": max(0, len(rows) - VPODS_LISTED_MAX),
        "pools": [pool_row(pool) for pool in pools],
    }


# -- the change ------------------------------------------------------------------------------------


def apply(state: ClusterState, keys: Iterable[str], change: Change) -> dict[str, frozenset[str]]:
    """Make the change on ``state``, the caller's own. Return the names of the pods that fail, by
    pool. Raises InvalidObject.
    """
    trial = Trial(state)
    pools = [state.pool(key) for key in keys]
    for pool in pools:
        _set(trial, pool, change)
    for target in change.drain:
        drain(trial, pools, target)
    failed: dict[str, frozenset[str]] = {}
    for target in change.fail:
        for key, names in fail(trial, pools, target).items():
            failed[key] = failed.get(key, frozenset()) | names
    for vpod in change.add:
        if vpod.key in state.pool(vpod.pool).vpods:
            raise InvalidObject("plan", "addVPods", f"vpod {vpod.key} is there already")
        _add_namespace(trial, vpod)
        trial.exchange(None, vpod)
    return failed


def _add_namespace(trial: Trial, vpod: VPod) -> None:
    """If the namespace of an added vpod does not exist, add it with labels that the pool
    selects.
    """
    spec = trial.state.pool(vpod.pool).adapter_pool
    if spec is not None and vpod.namespace not in trial.state.namespaces:
        labels = labels_selected(spec.namespace_selector, {})
        trial.exchange(None, Namespace(name=vpod.namespace, labels=labels or {}))


def _set(trial: Trial, pool: PoolState, change: Change) -> None:
    spec = pool.adapter_pool
    if spec is None:
        return
    if change.profile and change.profile not in trial.state.profiles:
        known = ", ".join(sorted(trial.state.profiles))
        raise InvalidObject(
            "plan", "profile", f"{change.profile!r:.80} is not known (known: {known})"
        )
    new = replace(
        with_settings(spec, change.settings, change.profile),
        # As after any edit of the spec: results cached for the old generation must not be used.
        generation=spec.generation + 1,
    )
    if new.slots_per_pod != spec.slots_per_pod:
        # If a node does not declare enough slots, it refuses its pod when that comes back. So the
        # result of ``resize`` is not needed.
        resize(trial, pool, new)
    elif new != spec:
        trial.exchange(spec, new)
