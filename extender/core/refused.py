"""Why vreplicas are left over: what each pod of the StatefulSet says to one more, in few, short, equal texts. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from extender.core.claims import PodState
from extender.core.model import VPod
from extender.core.policy.pick import refusal
from extender.core.policy.select import refusals, spread_of
from extender.core.policy.spreading import ZONE_SKEW
from extender.core.pool_state import PoolState
from extender.core.reasons import ConflictReason

NOT_THERE: Final = "does not exist"
NO_SLOTS: Final = "no free slots"

_REASONS: Final[Mapping[str, ConflictReason]] = {
    NO_SLOTS: ConflictReason.INSUFFICIENT_SLOTS,
    "ledger too large": ConflictReason.LEDGER_TOO_LARGE,
    "ledger unreadable": ConflictReason.LEDGER_UNREADABLE,
    "node unknown": ConflictReason.NODE_UNKNOWN,
    "node cordoned": ConflictReason.NODE_UNSCHEDULABLE,
    "node not ready": ConflictReason.NODE_NOT_READY,
    ZONE_SKEW: ConflictReason.ZONE_SKEW_EXCEEDED,
    NOT_THERE: ConflictReason.POD_UNSCHEDULABLE,
    "finished": ConflictReason.POD_UNSCHEDULABLE,
    "being deleted": ConflictReason.POD_UNSCHEDULABLE,
    "not bound": ConflictReason.POD_UNSCHEDULABLE,
    "marked unschedulable": ConflictReason.POD_UNSCHEDULABLE,
    "not ready for too long": ConflictReason.POD_UNSCHEDULABLE,
    "being emptied": ConflictReason.POD_UNSCHEDULABLE,
}


def reason_of(text: str) -> ConflictReason:
    """The reason for what a pod says to one more vreplica; what no pod says is a filter's own text."""
    return _REASONS.get(text, ConflictReason.POLICY_REFUSED)


def why_not_each(
    pool: PoolState, vpod: VPod, kept: Mapping[str, int], free: Callable[[int], int]
) -> dict[int, str]:
    """Ordinal -> what its pod says to one more vreplica, "" where it takes it; for all of the StatefulSet's.

    As ``why_refused`` counts it where no pod takes one. Raises PluginFailed.
    """
    spread = spread_of(pool, kept, weight=vpod.weight, free=free)
    filters = pool.profile.filters if pool.profile.has_plugins else ()
    said: dict[int, str] = {}
    for ordinal in pool.stateful_set.ordinals if pool.stateful_set is not None else ():
        if ordinal not in pool.by_ordinal:
            said[ordinal] = NOT_THERE
        elif spread.room >> ordinal & 1 and spread.fits(ordinal):
            said[ordinal] = refusal(spread.candidate(ordinal), spread, filters)
        else:
            said[ordinal] = _why_not(pool, pool.by_ordinal[ordinal])
    return said


def why_refused(
    pool: PoolState, vpod: VPod, kept: Mapping[str, int], free: Callable[[int], int]
) -> tuple[tuple[str, int], ...]:
    """(text, number of pods that say so), the most frequent first. Looks at every ordinal. Raises PluginFailed.

    ``kept``: pod name -> vreplicas; ``free``: an ordinal's free slots beside them.
    """
    by_policy = refusals(pool, vpod, kept, free, pool.profile) if pool.profile.has_plugins else {}
    refused = Counter(
        by_policy.get(ordinal) or _why_not(pool, pool.by_ordinal[ordinal])
        if ordinal in pool.by_ordinal
        else NOT_THERE
        for ordinal in (pool.stateful_set.ordinals if pool.stateful_set is not None else ())
    )
    return tuple(sorted(refused.items(), key=lambda item: (-item[1], item[0])))


def _why_not(pool: PoolState, pod: PodState) -> str:
    if why := pod.why_unschedulable():
        return why
    if pod.abandoned:
        return "not ready for too long"
    if pool.is_closed(pod):
        return "being emptied"
    return NO_SLOTS if pod.free <= 0 or pod.has_room else "ledger too large"
