"""The answer to a what-if: sums, the vpods that the change touches, the pools, and notes on what
the numbers assume.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from extender.engine.placing.plan import Decision
from extender.model.counted import counted, first_of, taken_of
from extender.whatif.comparison import moved
from extender.whatif.new_tenants import tenant_rows
from extender.whatif.sides import Compared, Side

PARTS_LISTED_MAX: Final = 2_000
OVERCOMMITTED_MAX: Final = 5
"""Pods of one pool that a note names."""


@dataclass(frozen=True, slots=True)
class Row:
    """A vpod that the change touches. ``moved`` and ``unplaced`` count vreplicas."""

    key: str
    pool: str
    before: Mapping[str, int]
    settled: Mapping[str, int]
    after: Mapping[str, int]
    moved: int
    unplaced_before: int
    unplaced_settled: int
    unplaced: int
    reasons: list[str]
    new: bool

    def to_json(self) -> dict[str, object]:
        """The row in ``/v1/plan``."""
        return {
            "name": self.key,
            "pool": self.pool,
            "new": self.new,
            "before": dict(self.before),
            "settled": dict(self.settled),
            "after": dict(self.after),
            "moved": self.moved,
            "unplacedBefore": self.unplaced_before,
            "unplacedSettled": self.unplaced_settled,
            "unplaced": self.unplaced,
            "reasons": self.reasons,
        }


def vpod_rows(pool: Compared, added: Collection[str]) -> Iterator[Row]:
    """Yield the vpods that the change touches, and those ``added``, by key."""
    today, alone, after = pool.today, pool.alone, pool.after
    for vpod in sorted({*alone.left, *after.left}):
        was, now = alone.placed.get(vpod, {}), after.placed.get(vpod, {})
        left_alone, left = alone.left.get(vpod, 0), after.left.get(vpod, 0)
        if was == now and left_alone == left and vpod not in added:
            continue
        decision = after.settled.decisions.get(vpod)
        yield Row(
            key=vpod,
            pool=pool.key,
            before=today.placed.get(vpod, {}),
            settled=was,
            after=now,
            moved=moved(was, now),
            unplaced_before=today.left.get(vpod, 0),
            unplaced_settled=left_alone,
            unplaced=left,
            reasons=reasons_of(decision) if decision is not None and left else [],
            new=vpod in added,
        )


def reasons_of(decision: Decision) -> list[str]:
    """Why some vreplicas have no place: the reason, a detail, and each refusal with its number of
    pods.
    """
    explanation = decision.explanation
    reasons = [str(explanation.reason)] if explanation.reason is not None else []
    left_out = explanation.not_admitted
    if left_out is not None and explanation.asked > explanation.wanted:
        reasons = [str(left_out.reason), left_out.why, *reasons]
    return [*reasons, *filter(None, [explanation.detail])] + [
        f"{count} {text}" for text, count in explanation.refused
    ]


def summary_of(pools: Collection[Compared], rows: Collection[Row]) -> dict[str, object]:
    """The sums over all pools, in vreplicas, vpods and pods."""
    return {
        "moved": sum(row.moved for row in rows),
        "movedSettled": sum(
            moved(placed, pool.alone.placed.get(vpod, {}))
            for pool in pools
            for vpod, placed in pool.today.placed.items()
        ),
        "vpodsChanged": len(rows),
        "unplacedBefore": sum(pool.today.unplaced for pool in pools),
        "unplacedSettled": sum(pool.alone.unplaced for pool in pools),
        "unplacedAfter": sum(pool.after.unplaced for pool in pools),
        "podsBefore": sum(pool.today.pods for pool in pools),
        "podsSettled": sum(pool.alone.pods for pool in pools),
        "podsAfter": sum(pool.after.pods for pool in pools),
        "podsImagined": sum(pool.newly_bound for pool in pools),
        "overcommittedAfter": sum(len(pool.after.overcommitted) for pool in pools),
        "outOfService": sum(pool.out_of_service[0] for pool in pools),
        "vpodsOutOfService": sum(pool.out_of_service[1] for pool in pools),
    }


def notes_of(pools: Collection[Compared], *, grown: bool) -> Iterator[str]:
    """What the numbers assume. ``grown``: the autoscaler was allowed to add pods."""
    for pool in pools:
        after = pool.after
        if pool.failed:
            yield _failing(pool)
        if pool.held:
            count, refusal = len(pool.held), next(iter(pool.held.values()))
            more = ", and no pod more is thought to find one" if grown else ""
            yield (
                f"pool {pool.key}: kube-scheduler finds no node for {count} of its pods: "
                f"{refusal}; so it stays here{more}"
            )
        if after.overcommitted:
            over = [f"{name} ({taken_of(of)})" for name, of in sorted(after.overcommitted.items())]
            yield f"pool {pool.key}: too much would be on {first_of(over, OVERCOMMITTED_MAX)}"
        if not grown and after.unplaced and after.wanted > after.pods:
            yield (
                f"pool {pool.key} would grow from {after.pods} to {counted(after.wanted, 'pod')}: "
                f"--autoscale counts them in"
            )
    if count := sum(pool.newly_bound for pool in pools):
        yield (
            f"{count} {'pod that has' if count == 1 else 'pods that have'} no node today "
            f"would get one as far as is known: "
            "CPU, memory, volumes and affinity between pods are not known here"
        )


def _failing(pool: Compared) -> str:
    (vreplicas, vpods), after_s = pool.out_of_service, pool.after.reschedule_after_s
    lost = (
        f"pool {pool.key}: {counted(len(pool.failed), 'pod')} and {counted(vreplicas, 'vreplica')} "
        f"would be away"
    )
    if vpods:
        lost += f", with all that {counted(vpods, 'vpod')} {'has' if vpods == 1 else 'have'}"
    if after_s is None:
        return (
            f"{lost}; nothing moves, the pods come back with what they hold "
            f"(rescheduleAfterSeconds is null)"
        )
    return (
        f"{lost}; after {after_s} s what has room elsewhere is placed there "
        f"(rescheduleAfterSeconds)"
    )


def pool_row(pool: Compared) -> dict[str, object]:
    """The pool's row in ``/v1/plan``."""
    today, alone, after = pool.today, pool.alone, pool.after
    return {
        "name": pool.key,
        "profileBefore": today.profile,
        "profileAfter": after.profile,
        "podsBefore": today.pods,
        "podsSettled": alone.pods,
        "podsAfter": after.pods,
        "podsWantedAfter": after.wanted,
        "podsImagined": pool.newly_bound,
        "podsRefused": len(pool.held),
        "freeSlotsBefore": today.free_slots,
        "freeSlotsSettled": alone.free_slots,
        "freeSlotsAfter": after.free_slots,
        **_free_capacities(pool),
        "unplacedBefore": today.unplaced,
        "unplacedSettled": alone.unplaced,
        "unplacedAfter": after.unplaced,
        **tenant_rows(pool),
        "zones": _zone_rows(alone, after),
        "evictions": [
            {
                "vpod": move.vpod,
                "from": move.from_pod,
                "to": move.to_pod,
                "vreplicas": move.vreplicas,
                "reason": str(move.reason),
            }
            for move in after.settled.moves[:PARTS_LISTED_MAX]
        ],
    }


def _free_capacities(pool: Compared) -> dict[str, object]:
    """What is free of the pool's dimensions; nothing if it has none."""
    if not pool.today.free_amounts:
        return {}
    return {
        "freeCapacitiesBefore": dict(pool.today.free_amounts),
        "freeCapacitiesSettled": dict(pool.alone.free_amounts),
        "freeCapacitiesAfter": dict(pool.after.free_amounts),
    }


def _zone_rows(before: Side, after: Side) -> list[dict[str, object]]:
    """For each zone the vreplicas that its loss takes, and the vpods that lose all they have: if
    the pool is left alone, and with the change.
    """
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
