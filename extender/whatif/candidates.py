"""The verdict of each pod of a pool on a vpod: chosen, fits or refused, with the reason and the
profile's score. Pure.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from extender.engine.placing.grow import free_beside
from extender.engine.placing.pick import totals
from extender.engine.placing.plan import Decision
from extender.engine.placing.refused import reason_of, why_not_each
from extender.engine.placing.select import spread_of
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.framework import MAX_SCORE
from extender.engine.policy.guard import PluginFailed
from extender.engine.state.collector import why_no_member
from extender.engine.state.pool_state import PoolState
from extender.model.counted import EXACT_MAX
from extender.model.objects import VPod, placement_order
from extender.model.reasons import ConflictReason

CANDIDATES_LISTED_MAX: Final = 1_000
SCORE_BEST: Final = 100
"""As MaxNodeScore of kube-scheduler."""


class Verdict(StrEnum):
    """A pod's part in a decision."""

    CHOSEN = "chosen"
    """It has some of the vpod's vreplicas, or will have."""
    FITS = "fits"
    """It would take one more."""
    REFUSED = "refused"


Row = dict[str, object]
"""One pod, as ``/v1/explain`` has it. ``freeSlots`` are left after the decision. ``score``, from 0
(worst) to 100, is that of one more vreplica there.

``reason`` and ``text`` say why the pod takes no more; a chosen pod may have them too. They are ""
if it would take one. ``cost``, from which the score is computed, is how far the profile's scores
are below their maximum.
"""


class Candidates(NamedTuple):
    """All pods of a pool, by ordinal. ``refusals`` pairs each text of a refusal with the number of
    pods that give it. ``not_listed`` rows are left out.
    """

    rows: tuple[Row, ...]
    not_listed: int
    refusals: tuple[tuple[str, int], ...]


def candidates_of(pool: PoolState, vpod: VPod, decision: Decision) -> Candidates:
    """List every pod that the StatefulSet has, and pods beyond it that still hold some of the vpod.

    ``decision`` must be made on this state, and not be reserved in it.
    """
    free = free_beside(pool, vpod, decision.target)
    problem = _problem_of_all(decision)
    try:
        why_not = why_not_each(pool, vpod, decision.target, free)
        scores = _scores(
            pool, vpod, decision.target, [o for o, why in why_not.items() if not why], free
        )
    except PluginFailed as failure:
        why_not, scores = _all_say(pool, str(failure)), {}
    names = {name: ordinal for ordinal in why_not if (name := _name(pool, ordinal))}
    names |= {name: -1 for name in decision.target if name not in names}
    rows: list[Row] = []
    for name in _listed(names, decision.target):
        ordinal = names[name]
        why = why_not.get(ordinal, why_no_member(pool))
        score, cost = scores.get(ordinal, (None, None)) if not problem else (None, None)
        rows.append(
            {
                **_pod_row(pool, name, free(ordinal) if ordinal in pool.by_ordinal else 0),
                **_verdict_row(decision.target.get(name, 0), why, problem),
                "score": score,
                "cost": cost,
            }
        )
    counted = Counter(problem or why for why in why_not.values() if problem or why)
    return Candidates(
        tuple(rows),
        len(names) - len(rows),
        tuple(sorted(counted.items(), key=lambda it: (-it[1], it[0]))),
    )


def _problem_of_all(decision: Decision) -> str:
    """The reason if the vpod has a problem that does not depend on the pod; else ""."""
    reason = decision.explanation.reason
    of_pods = (ConflictReason.INSUFFICIENT_SLOTS, ConflictReason.LEDGER_TOO_LARGE)
    ours = reason is not None and reason not in of_pods
    return str(reason) if ours else ""


def _all_say(pool: PoolState, text: str) -> dict[int, str]:
    return dict.fromkeys(pool.stateful_set.ordinals if pool.stateful_set is not None else (), text)


def _name(pool: PoolState, ordinal: int) -> str:
    return f"{pool.stateful_set.name}-{ordinal}" if pool.stateful_set is not None else ""


def _listed(names: Mapping[str, int], target: Mapping[str, int]) -> list[str]:
    """The chosen pods and the first of the others, by ordinal."""
    others = [name for name in names if name not in target]
    room = max(0, CANDIDATES_LISTED_MAX - len(target))
    return sorted([*list(target)[:CANDIDATES_LISTED_MAX], *others[:room]], key=placement_order)


def _scores(
    pool: PoolState,
    vpod: VPod,
    kept: Mapping[str, int],
    ordinals: Sequence[int],
    free: Callable[[int], int],
) -> dict[int, tuple[int, int]]:
    """Return ordinal -> (score, cost) of one more vreplica on ``ordinals``. Empty if no plugin
    chooses.
    """
    profile = pool.profile
    if not profile.has_plugins or not ordinals:
        return {}
    spread = spread_of(pool, kept, weight=vpod.weight, free=free, vpod=vpod)
    found = totals([spread.candidate(ordinal) for ordinal in ordinals], spread, profile.choosing)
    marks = MAX_SCORE * sum(item.weight for item in profile.choosing)
    worst, best = min(found), max(found)
    return {
        ordinal: (
            SCORE_BEST if best == worst else SCORE_BEST * (total - worst) // (best - worst),
            max(0, min(marks - total, EXACT_MAX)),
        )
        for ordinal, total in zip(ordinals, found, strict=True)
    }


def _pod_row(pool: PoolState, name: str, free: int) -> Row:
    known = pool.pods.get(name)
    node, zone = known.where if known is not None else ("", "")
    return {
        "pod": name,
        "node": node,
        "zone": zone,
        "slots": _slots(pool, known),
        "freeSlots": free if known is not None and (known.pod is not None or known.claims) else 0,
    }


def _verdict_row(vreplicas: int, why: str, problem: str) -> Row:
    """``why``: the pod takes no more. ``problem``: no pod does."""
    text = why or (_says(problem) if problem else "")
    others = Verdict.REFUSED if text else Verdict.FITS
    return {
        "verdict": str(Verdict.CHOSEN if vreplicas else others),
        "vreplicas": vreplicas,
        "reason": problem or (str(reason_of(why)) if why else ""),
        "text": text,
    }


def _slots(pool: PoolState, known: PodClaims | None) -> int:
    if known is not None:
        return known.capacity
    return pool.adapter_pool.slots_per_pod if pool.adapter_pool is not None else 0


def _says(reason: str) -> str:
    """What a problem of the vpod means for every pod."""
    return {
        ConflictReason.TENANT_NOT_ALLOWED: "the pool is closed to the vpod's namespace",
        ConflictReason.QUARANTINED: "the vpod is in quarantine",
        ConflictReason.UNSATISFIABLE: "one vreplica is heavier than the pod's slots",
    }.get(ConflictReason(reason), reason)


def loss_by_zone(pool: PoolState, placed: Mapping[str, int]) -> dict[str, int]:
    """Zone -> vreplicas that its loss takes down. Pods on no known node are in no zone."""
    zones: dict[str, int] = {}
    for name, count in placed.items():
        known = pool.pods.get(name)
        zone = known.where[1] if known is not None else ""
        if zone:
            zones[zone] = zones.get(zone, 0) + count
    return dict(sorted(zones.items()))
