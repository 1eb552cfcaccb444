"""Instances: a pool, and the vpods that ask for room in it, drawn from a seed. The same seed draws
the same instance on every machine.

Pods have 20 slots. A vreplica takes 1 to 13 of them (``slotsPerVReplica``). The vpods together ask
for 80 to 100 % of the slots that maxPods allows.
"""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

SLOTS: Final = 20
"""Slots of a pod."""
ZONES: Final = ("a", "b", "c")
WEIGHT_MAX: Final = 13
"""Slots of the heaviest vreplica."""
VREPLICAS_MAX: Final = 6
"""Vreplicas of the largest vpod."""
PODS: Final = range(3, 21)
"""The values of maxPods."""
FILL: Final = (0.8, 1.0)
"""The part of the slots of all pods that vpods ask for."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A vpod: it asks for ``vreplicas``, each of ``weight`` slots."""

    name: str
    vreplicas: int
    weight: int

    @property
    def slots(self) -> int:
        return self.vreplicas * self.weight


@dataclass(frozen=True, slots=True)
class Instance:
    """``zone_of_pod``: the zone of each ordinal, as many as maxPods. ``asks``: vpods in the order
    of their arrival. ``standing``: how many of them were placed before the last batch came.
    ``deleted``: names of the vpods that go later.
    """

    seed: int
    zone_of_pod: tuple[str, ...]
    asks: tuple[Ask, ...]
    standing: int = 0
    deleted: frozenset[str] = field(default_factory=frozenset)

    @property
    def max_pods(self) -> int:
        return len(self.zone_of_pod)

    @property
    def left(self) -> tuple[Ask, ...]:
        """What stays once the deleted vpods have gone."""
        return tuple(ask for ask in self.asks if ask.name not in self.deleted)


def counts(asks: Iterable[Ask]) -> Counter[int]:
    """Weight -> vreplicas of this weight."""
    found: Counter[int] = Counter()
    for ask in asks:
        found[ask.weight] += ask.vreplicas
    return found


def even(pods: int) -> tuple[str, ...]:
    """Zones of pods that are spread evenly: a, b, c, a, b and so on."""
    return tuple(ZONES[ordinal % len(ZONES)] for ordinal in range(pods))


def full(seed: int) -> Instance:
    """A pool that is asked for 80 to 100 % of its slots. Half of the vpods stand before the others
    come.
    """
    rng = random.Random(seed)
    pods = rng.choice(PODS)
    asks = _asks(rng, pods, (1, WEIGHT_MAX))
    return Instance(seed, even(pods), asks, standing=len(asks) // 2)


def heavy(seed: int) -> Instance:
    """As ``full``, with vreplicas of at least 5 slots only."""
    rng = random.Random(seed)
    pods = rng.choice(PODS)
    return Instance(seed, even(pods), _asks(rng, pods, (5, WEIGHT_MAX)))


def deleting(seed: int) -> Instance:
    """As ``full``. Half of the vpods go later."""
    rng = random.Random(seed)
    pods = rng.choice(PODS)
    asks = _asks(rng, pods, (1, WEIGHT_MAX))
    return Instance(seed, even(pods), asks, deleted=_half(rng, asks))


def blocked(seed: int) -> Instance:
    """Each pod but one has a vreplica of 11 or 12 slots, and one has a vreplica that is one slot
    heavier. A vpod of light vreplicas fills the rest. Most of the heavy ones go later. Then no pod
    has room for the heaviest until light ones move.
    """
    rng = random.Random(seed)
    pods = rng.choice(PODS)
    weight = rng.choice((11, 12))
    heavies = [Ask(f"heavy{index:02}", 1, weight) for index in range(pods - 1)]
    deleted = frozenset(ask.name for ask in heavies if rng.random() < 0.9)
    heavies.insert(rng.randrange(pods), Ask("heaviest", 1, weight + 1))
    light = Ask("light", pods * (SLOTS - weight) - 1, 1)
    return Instance(seed, even(pods), (*heavies, light), deleted=deleted)


def unequal(seed: int) -> Instance:
    """As ``deleting``, but about half of the pods are in the first zone and a sixth in the last."""
    rng = random.Random(seed)
    pods = rng.choice(range(6, PODS.stop))
    zones = [*ZONES, *rng.choices(ZONES, weights=(3, 2, 1), k=pods - len(ZONES))]
    asks = _asks(rng, pods, (1, WEIGHT_MAX))
    return Instance(seed, tuple(zones), asks, deleted=_half(rng, asks))


def _half(rng: random.Random, asks: tuple[Ask, ...]) -> frozenset[str]:
    return frozenset(rng.sample([ask.name for ask in asks], len(asks) // 2))


def _asks(rng: random.Random, pods: int, weights: tuple[int, int]) -> tuple[Ask, ...]:
    """Vpods that together ask for ``FILL`` of the pods' slots, and at most one vreplica less."""
    most = round(pods * SLOTS * rng.uniform(*FILL))
    asks: list[Ask] = []
    taken = 0
    while taken < most:
        weight = rng.randint(*weights)
        vreplicas = min(rng.randint(1, VREPLICAS_MAX), (most - taken) // weight)
        if not vreplicas:
            break
        asks.append(Ask(f"v{len(asks):03}", vreplicas, weight))
        taken += vreplicas * weight
    return tuple(asks)
