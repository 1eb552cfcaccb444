"""Why vreplicas have no place: what each pod of the StatefulSet answers to one more, in few, short,
constant texts. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from extender.engine.placing.select import refusals
from extender.engine.pods.claims import PodClaims, tenant_of
from extender.engine.policy.spreading import ZONE_SKEW
from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod
from extender.model.reasons import ConflictReason

NOT_THERE: Final = "does not exist"
NO_SLOTS: Final = "no free slots"
LEDGER_FULL: Final = "ledger too large"
LACKS: Final = "not enough "
"""Followed by the name of a dimension."""
AT_MOST: Final = "has as many of its vreplicas as maxPerPod allows"
SHARE_SPENT: Final = "its namespace has half of the ledger"
IN_DOUBT: Final = "closed while an earlier scale-down may still be under way"

_REASONS: Final[Mapping[str, ConflictReason]] = {
    NO_SLOTS: ConflictReason.INSUFFICIENT_SLOTS,
    LEDGER_FULL: ConflictReason.LEDGER_TOO_LARGE,
    SHARE_SPENT: ConflictReason.LEDGER_TOO_LARGE,
    AT_MOST: ConflictReason.POLICY_REFUSED,
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
    "being evicted": ConflictReason.POD_UNSCHEDULABLE,
    "being replaced by a rollout": ConflictReason.POD_UNSCHEDULABLE,
    "not ready for too long": ConflictReason.POD_UNSCHEDULABLE,
    "being emptied": ConflictReason.POD_UNSCHEDULABLE,
    IN_DOUBT: ConflictReason.POD_UNSCHEDULABLE,
}


def reason_of(text: str) -> ConflictReason:
    """The reason for a pod's answer. A text that is not listed is a filter's own."""
    if text.startswith(LACKS):
        return ConflictReason.INSUFFICIENT_SLOTS
    return _REASONS.get(text, ConflictReason.POLICY_REFUSED)


def reason_for(refused: Iterable[tuple[str, int]]) -> ConflictReason:
    """The reason for vreplicas without a place, from (text, number of pods). Slots are missing,
    unless a pod has slots but no bytes.
    """
    said = (reason_of(text) for text, _ in refused)
    if any(reason is ConflictReason.LEDGER_TOO_LARGE for reason in said):
        return ConflictReason.LEDGER_TOO_LARGE
    return ConflictReason.INSUFFICIENT_SLOTS


def why_not_each(
    pool: PoolState, vpod: VPod, kept: Mapping[str, int], free: Callable[[int], int]
) -> dict[int, str]:
    """Ordinal -> its pod's answer to one more vreplica, "" if it takes one, for all ordinals of the
    StatefulSet.

    ``kept``: pod name -> vreplicas. ``free``: an ordinal's free slots beside them. Raises
    PluginFailed.
    """
    by_policy = refusals(pool, vpod, kept, free, pool.profile) if pool.profile.has_plugins else {}
    return {
        ordinal: by_policy.get(ordinal)
        or _why_not(pool, pool.by_ordinal[ordinal], vpod, free(ordinal), kept)
        if ordinal in pool.by_ordinal
        else NOT_THERE
        for ordinal in (pool.stateful_set.ordinals if pool.stateful_set is not None else ())
    }


def why_refused(
    pool: PoolState, vpod: VPod, kept: Mapping[str, int], free: Callable[[int], int]
) -> tuple[tuple[str, int], ...]:
    """(Answer of ``why_not_each``, number of pods that give it), the most frequent first. Raises
    PluginFailed.

    It explains why not all vreplicas find a place: a pod that takes one counts as without slots.
    """
    refused = Counter(why_not_each(pool, vpod, kept, free).values())
    if some := refused.pop("", 0):
        refused[NO_SLOTS] += some
    return tuple(sorted(refused.items(), key=lambda item: (-item[1], item[0])))


def _why_not(
    pool: PoolState, pod: PodClaims, vpod: VPod, free: int, kept: Mapping[str, int]
) -> str:
    """The answer of a pod that no filter refuses; "" if it takes one. ``free``: its slots beside
    what the vpod keeps there, as far as the vpod can use them.
    """
    if why := pod.why_unschedulable():
        return why
    if pod.abandoned:
        return "not ready for too long"
    if pool.is_closed(pod):
        return IN_DOUBT if pool.is_in_doubt(pod) else "being emptied"
    if free < vpod.weight:
        return _what_lacks(pod, vpod, kept.get(pod.name, 0))
    if pod.ledger_full:
        return LEDGER_FULL
    spent = (
        pod.ordinal is not None
        and pool.tenant_room.spent.get(tenant_of(vpod.key), 0) >> pod.ordinal & 1
    )
    of_slots = "" if pod.has_room else NO_SLOTS
    return SHARE_SPENT if spent and vpod.key not in pod.claims else of_slots


def _what_lacks(pod: PodClaims, vpod: VPod, there: int) -> str:
    """Why a pod that has ``there`` vreplicas of the vpod has too few slots for one more."""
    if vpod.max_per_pod and there >= vpod.max_per_pod:
        return AT_MOST
    lacks = pod.lacks(vpod.per_vreplica, there, vpod.key)
    return f"{LACKS}{lacks}" if lacks else NO_SLOTS
