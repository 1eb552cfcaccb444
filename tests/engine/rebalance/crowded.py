"""Crowded pools, drawn from a seed: pods in three zones that are nearly full, vpods that wait."""

import random
from dataclasses import dataclass
from typing import Final

from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import Amounts
from extender.model.ledger import Share
from extender.model.moves import Move
from tests.support.builders import Scene, a_node

SLOTS: Final = 20
WEIGHT_MAX: Final = 13
PROFILES: Final = ("default", "pack", "spread", "ha")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vpod:
    """``placed``: ordinal -> vreplicas."""

    name: str
    weight: int
    amounts: Amounts
    placed: dict[int, int]
    waits: int = 0

    @property
    def vreplicas(self) -> int:
        return sum(self.placed.values()) + self.waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowded:
    """``vpods`` on ``pods`` pods of 20 slots and ``capacities``."""

    pods: int
    capacities: Amounts
    vpods: tuple[Vpod, ...]
    profile: str = "default"

    def pool(self) -> PoolState:
        scene = Scene(
            slots=SLOTS, replicas=self.pods, max_pods=self.pods, capacities=self.capacities
        )
        for zone in "abc":
            scene.node(a_node(f"n-{zone}", zone=zone))
        ledgers: list[dict[str, Share]] = [{} for _ in range(self.pods)]
        for vpod in self.vpods:
            for ordinal, count in vpod.placed.items():
                ledgers[ordinal][f"tenant/{vpod.name}"] = Share(count, vpod.weight, vpod.amounts)
        for ordinal, ledger in enumerate(ledgers):
            scene.pod(ordinal, ledger, node=f"n-{'abc'[ordinal % 3]}", ready=True)
        for vpod in self.vpods:
            scene.vpod(
                vpod.name,
                vpod.vreplicas,
                vpod.placed,
                weight=vpod.weight,
                per_vreplica=vpod.amounts,
            )
        scene.pool.set_profile(BUILT_IN_PROFILES[self.profile])
        return scene.pool

    def named(self, key: str) -> Vpod:
        """The vpod with that key."""
        return next(vpod for vpod in self.vpods if f"tenant/{vpod.name}" == key)

    @property
    def waiting(self) -> list[str]:
        """Keys of the vpods that wait, the heaviest first."""
        waiting = sorted((one for one in self.vpods if one.waits), key=lambda one: -one.weight)
        return [f"tenant/{one.name}" for one in waiting]


def crowded(
    seed: int,
    pods: int,
    *,
    capacities: Amounts = (),
    profile: str = "default",
    waiting: int = 2,
    misses: int | None = None,
) -> Crowded:
    """Fill pods with vpods of up to three vreplicas, until ``misses`` in a row find no room where
    they look; None: as many as there are pods, at least four.
    """
    rng = random.Random(seed)
    left = [{"slots": SLOTS, **dict(capacities)} for _ in range(pods)]
    vpods: list[Vpod] = []
    missed = 0
    while missed < (max(4, pods) if misses is None else misses):
        name, weight = f"v{len(vpods):04}", rng.randint(1, WEIGHT_MAX)
        amounts = _amounts(rng, capacities)
        takes = {"slots": weight, **dict(amounts)}
        placed: dict[int, int] = {}
        for ordinal in rng.sample(range(pods), min(pods, rng.randint(1, 3))):
            if all(left[ordinal][what] >= amount for what, amount in takes.items()):
                placed[ordinal] = 1
                for what, amount in takes.items():
                    left[ordinal][what] -= amount
        missed = 0 if placed else missed + 1
        if placed:
            vpods.append(Vpod(name=name, weight=weight, amounts=amounts, placed=placed))
    for number in range(waiting):
        amounts, weight = _amounts(rng, capacities), rng.randint(1, WEIGHT_MAX)
        vpods.append(Vpod(name=f"w{number}", weight=weight, amounts=amounts, placed={}, waits=1))
    return Crowded(pods=pods, capacities=capacities, vpods=tuple(vpods), profile=profile)


def _amounts(rng: random.Random, capacities: Amounts) -> Amounts:
    """What a vreplica takes: of each dimension up to two thirds of a pod's, or nothing."""
    drawn = {name: rng.randint(1, max(1, most * 2 // 3)) for name, most in capacities}
    return tuple((name, amount) for name, amount in drawn.items() if rng.random() < 0.7)


def a_plan(
    pool: PoolState, instance: Crowded, *, budget: int = 10, emptying: int = 0
) -> list[Move]:
    """One period's plan: room for what waits, compaction of ``emptying``, and policy."""
    if emptying:
        pool.set_closed(emptying)
    vpods = [*pool.vpods] if pool.profile.has_plugins else []
    return plan_moves(pool, Limits(budget=budget), Advice(waiting=instance.waiting, vpods=vpods))
