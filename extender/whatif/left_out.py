"""What an answer about pools cannot count, and has to mention.

These are vpods of pools that do not exist, pods that are not ordinals of the StatefulSet, and
placed vreplicas that nobody serves.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from extender.engine.pods.claims import PodClaims
from extender.engine.state.availability import unserved_on
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.counted import counted

NAMED: Final = 5


def pools_asked(state: ClusterState) -> list[str]:
    """All AdapterPools, and pools that do not exist but that vpods ask for: their vreplicas wait
    too.
    """
    return sorted(
        key for key, pool in state.pools.items() if pool.adapter_pool is not None or pool.vpods
    )


def left_out(pool: PoolState) -> Iterator[str]:
    """Say in words what of a pool is not counted."""
    if pool.adapter_pool is None and pool.vpods:
        count = len(pool.vpods)
        asks = "vpod asks" if count == 1 else "vpods ask"
        yield (
            f"pool {pool.key} does not exist: {count} {asks} for it ({_named(sorted(pool.vpods))}) "
            f"and {'gets' if count == 1 else 'get'} nothing"
        )
    if pool.adapter_pool is None or pool.stateful_set is None:
        return
    own = {pod.name for pod in pool.members()}
    others = [name for name, pod in pool.pods.items() if pod.pod is not None and name not in own]
    if others:
        are = "pod is" if len(others) == 1 else "pods are"
        yield (
            f"pool {pool.key}: {len(others)} {are} beyond the "
            f"{counted(len(pool.stateful_set.ordinals), 'replica')} of StatefulSet "
            f"{pool.stateful_set.name} and count{'s' if len(others) == 1 else ''} for nothing: "
            f"{_named(sorted(others))}"
        )


@dataclass(frozen=True, slots=True)
class Unserved:
    """Vreplicas of a pool that nobody serves. ``why``: reason in words -> vreplicas. ``vpods``:
    keys of the vpods that have some of them.
    """

    why: Mapping[str, int]
    vpods: frozenset[str]

    @property
    def vreplicas(self) -> int:
        """The sum of ``why``."""
        return sum(self.why.values())


def unserved_of(pool: PoolState) -> Unserved:
    """Count what is published on pods that do not serve it, as far as pods and nodes say. Objects
    from files often do not say.
    """
    why, vpods = Counter[str](), set[str]()
    for known in pool.pods.values():
        published = {key: claim.published for key, claim in known.claims.items() if claim.published}
        on_it = {key: count for key, count in published.items() if key in pool.vpods}
        if on_it and _says_that_it_is_down(known):
            why[unserved_on(known, known.name, 0).why] += sum(on_it.values())
            vpods |= on_it.keys()
    return Unserved(dict(why.most_common()), frozenset(vpods))


def _says_that_it_is_down(known: PodClaims) -> bool:
    pod, node = known.pod, known.node
    if not known.down or pod is None or pod.ready or pod.deleting or pod.finished:
        return known.down
    # Without a condition Ready (``ready_since`` is ""), the pod itself says nothing.
    return not pod.node or node is None or not node.ready or bool(pod.ready_since)


def unserved_note(pool: PoolState, unserved: Unserved) -> Iterator[str]:
    """Say in words what nobody serves, and what becomes of it. Yields nothing if everything is
    served.
    """
    if not unserved.why:
        return
    reasons = ", ".join(f"{count} because {why}" for why, count in unserved.why.items())
    note = (
        f"pool {pool.key}: nobody serves {counted(unserved.vreplicas, 'vreplica')} of "
        f"{counted(len(unserved.vpods), 'vpod')} now: {reasons}"
    )
    if (
        pool.adapter_pool is not None
        and (after_s := pool.adapter_pool.reschedule_after_s) is not None
    ):
        note += f"; what is away for {after_s} s is placed elsewhere (rescheduleAfterSeconds)"
    yield note


def _named(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
