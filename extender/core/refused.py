"""Why vreplicas are left over: what each pod of the StatefulSet says to one more, in few, short, equal texts. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping

from extender.core.claims import PodState
from extender.core.model import VPod
from extender.core.policy.select import refusals
from extender.core.pool_state import PoolState


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
        else "does not exist"
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
    return "no free slots" if pod.free <= 0 or pod.has_room else "ledger too large"
