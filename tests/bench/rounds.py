"""One round of the engine's bench: a cluster is placed, vpod by vpod, from empty to 16 of 20 slots.

It is cut into stretches; between them the peers take their turns: the smallest cluster is placed by
the same profile, for the cost a vpod as clusters grow, and the next vpod is also decided on a state
that is made anew from all objects, which has to come to the same decision. Then everything is
written and seen, and a tenth of the vpods grows, shrinks or is deleted.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from extender.engine.placing.plan import Decision
from extender.model.objects import VPod
from tests.bench import objects
from tests.bench.clusters import Cluster, filled_caches, rebuilt_state
from tests.bench.shipped import Shipped
from tests.bench.timing import Stopwatch, median, yardstick_s
from tests.support.placing import place

STRETCHES: Final = 5
CHURN_PERCENT: Final = 10
CHURN_VREPLICAS: Final = 2
"""By how many a vpod grows or shrinks."""


@dataclass(frozen=True, slots=True)
class Round:
    """One cluster placed once. Seconds are of CPU unless they say otherwise."""

    vpods: int
    cpu_s: float
    wall_s: float
    small_s: float
    """A vpod of the smallest cluster, meanwhile; its own where this is the smallest."""
    rebuilt_s: float | None
    """A vpod decided on rebuilt state, meanwhile; None where that was not asked for."""
    same: bool
    """Whether the same was decided there."""
    placed: int
    """vpods all of which has a place."""
    yardstick_s: float
    """``timing.yardstick_s`` meanwhile: the median of those after each stretch."""

    @property
    def each_s(self) -> float:
        """Of one vpod."""
        return self.cpu_s / self.vpods


@dataclass(slots=True)
class Variant:
    """A profile on a workload, and what its rounds came to. ``small``: the smallest cluster; None:
    this is it.
    """

    profile: str
    workload: str
    cluster: Cluster
    small: Cluster | None
    rounds: list[Round] = field(default_factory=list)
    churns: list[tuple[int, float]] = field(default_factory=list)
    """vpods, and CPU seconds of all."""
    batches: list[tuple[int, float]] = field(default_factory=list)


def measure(variant: Variant, *, rebuilt_samples: int) -> None:
    """One round. Churn, batches and rebuilt state only on the reference workload, batches only for
    one profile.
    """
    reference = variant.workload == "reference"
    shipped = Shipped(filled_caches(variant.cluster))
    round_, decisions = place_all(variant, shipped, rebuilt_samples if reference else 0)
    variant.rounds.append(round_)
    if reference:
        variant.churns.append(churn(variant.cluster, shipped, decisions))
    if reference and variant.profile == "default":
        variant.batches.append(in_batches(variant.cluster))


def place_all(variant: Variant, shipped: Shipped, samples: int) -> tuple[Round, list[Decision]]:
    """Decide every vpod of the cluster, with the peers in between."""
    keys, small = variant.cluster.vpod_keys, variant.small
    watch, small_watch, rebuilt_watch = Stopwatch(), Stopwatch(), Stopwatch()
    stretch = -(-len(keys) // STRETCHES)
    sampled = {
        len(keys) * (2 * n + 1) // (2 * samples) // stretch * stretch for n in range(samples)
    }
    made: list[Decision] = []
    peers: list[tuple[int, Decision]] = []
    small_vpods, yardsticks = 0, list[float]()
    for first in range(0, len(keys), stretch):
        if first in sampled:
            peers.append((first, decide_rebuilt(variant.cluster, made, keys[first], rebuilt_watch)))
        if small is not None:
            small_watch.run(Shipped(filled_caches(small)).decide, small.vpod_keys)
            small_vpods += len(small.vpod_keys)
        made += watch.run(shipped.decide, keys[first : first + stretch])
        yardsticks.append(yardstick_s())
    each_s = watch.cpu_s / len(keys)
    round_ = Round(
        vpods=len(keys),
        cpu_s=watch.cpu_s,
        wall_s=watch.wall_s,
        small_s=small_watch.cpu_s / small_vpods if small_vpods else each_s,
        rebuilt_s=rebuilt_watch.cpu_s / len(peers) if peers else None,
        same=all(made[index] == decision for index, decision in peers),
        placed=sum(1 for decision in made if not decision.pending),
        yardstick_s=median(yardsticks),
    )
    return round_, made


def decide_rebuilt(
    cluster: Cluster, made: Sequence[Decision], key: str, watch: Stopwatch
) -> Decision:
    """Decide one vpod after ``made`` on a state that is made from all objects as they would be by
    then.
    """
    now = cluster.settled({decision.vpod: decision.target for decision in made})
    vpod = next(one for one in now.vpods if one.key == key)

    def decide() -> Decision:
        state = rebuilt_state(now)
        return place(state.pool(objects.POOL), vpod, allowed=state.selects(objects.POOL, vpod))

    return watch.run(decide)


def churned(cluster: Cluster) -> dict[str, VPod | None]:
    """A tenth of the vpods as they come by the watch: in turn one that grows, one that shrinks, one
    that is deleted.
    """
    changes: dict[str, VPod | None] = {}
    for turn, vpod in enumerate(cluster.vpods[:: 100 // CHURN_PERCENT]):
        change = (CHURN_VREPLICAS, -CHURN_VREPLICAS, None)[turn % 3]
        changes[vpod.key] = None
        if change is not None:
            changes[vpod.key] = replace(
                vpod,
                vreplicas=vpod.vreplicas + change,
                generation=vpod.generation + 1,
                resource_version=objects.next_version(),
            )
    return changes


def churn(cluster: Cluster, shipped: Shipped, decisions: Sequence[Decision]) -> tuple[int, float]:
    """Changed vpods, and CPU seconds until all are decided: taking each change into the caches is
    part of it.
    """
    settled = cluster.settled({decision.vpod: decision.target for decision in decisions})
    shipped.settle(settled)
    changes, watch = churned(settled), Stopwatch()
    made = watch.run(shipped.change, changes)
    if any(decision.pending for decision in made):
        raise AssertionError("what has grown was not placed")
    return len(changes), watch.cpu_s


def in_batches(cluster: Cluster) -> tuple[int, float]:
    """vpods, and CPU seconds until the placer has taken all of them through its batches."""
    shipped, watch = Shipped(filled_caches(cluster)), Stopwatch()
    watch.run(lambda: asyncio.run(shipped.place_batches(cluster.vpod_keys)))
    return len(cluster.vpod_keys), watch.cpu_s
