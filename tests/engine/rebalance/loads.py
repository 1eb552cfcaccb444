"""A pool whose vpods have loads, and rounds of balancing: what adapters report, and what moves."""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from extender.engine.rebalance.balance import LoadGoal, budget_of
from extender.engine.rebalance.load import PoolLoad
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.engine.rebalance.relocation import relocations
from extender.engine.state.pool_state import PoolState
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from extender.whatif.settling import commit
from tests.support.builders import Scene

REPORT_S = 10.0
PERIOD_S = 100.0

Noise = Callable[[], float]
"""The factor of one report."""


def exact() -> float:
    return 1.0


def noise(rng: random.Random, most: float = 0.1) -> Noise:
    return lambda: 1.0 + rng.uniform(-most, most)


@dataclass
class LoadedPool:
    """``rates``: vpod key -> the true load of one of its vreplicas, wherever it is."""

    scene: Scene
    rates: dict[str, float]
    target: float = 1.2
    now: float = 0.0
    unlimited: bool = False
    """Whether any part of the vreplicas may move in a period."""
    load: PoolLoad = field(default_factory=lambda: PoolLoad("requests"))

    @property
    def pool(self) -> PoolState:
        return self.scene.pool

    def shares(self) -> dict[tuple[str, str], int]:
        """(vpod key, pod name) -> vreplicas."""
        return {
            (key, pod.name): claim.decided.vreplicas
            for pod in self.pool.pods.values()
            for key, claim in pod.claims.items()
            if claim.decided.vreplicas
        }

    def report(self, noise: Noise = exact) -> None:
        """Each adapter reports once."""
        for (key, pod), count in self.shares().items():
            self.load.report(key, pod, self.rates[key] * count * noise(), count, self.now)

    def live(self, seconds: float, noise: Noise = exact) -> None:
        """Time passes, and adapters report."""
        until = self.now + seconds
        while self.now < until:
            self.now += REPORT_S
            self.report(noise)

    def goal(self, spent: int = 0) -> LoadGoal:
        view, now = self.load.view(self.pool, self.now), self.now
        return LoadGoal(
            view=view,
            rate=lambda vpod, pod: self.load.share(vpod, pod, now)[0],
            target=self.target,
            budget=10_000 if self.unlimited else budget_of(view.vreplicas) - spent,
            begun=spent > 0,
        )

    def plan(self, budget: int = 1_000_000, spent: int = 0, **limits) -> list[Move]:
        return self.plan_for(self.goal(spent), budget, **limits)

    def plan_for(self, goal: LoadGoal, budget: int = 1_000_000, **limits) -> list[Move]:
        return plan_moves(self.pool, Limits(budget=budget, **limits), Advice(load=goal))

    def make(self, moves: list[Move]) -> None:
        for decision in relocations(self.pool, moves):
            commit(self.scene.state, self.pool, [decision])

    def round(self, noise: Noise = exact, cooling: frozenset[str] = frozenset()) -> list[Move]:
        """A period: adapters report, and the evictor plans until its budget or the plans end."""
        self.live(PERIOD_S, noise)
        made: list[Move] = []
        moved = set(cooling)
        while plan := self.plan(spent=count(made), cooling=frozenset(moved).__contains__):
            assert {move.reason for move in plan} == {MoveReason.LOAD}
            self.make(plan)
            made += plan
            moved |= {move.vpod for move in plan}
        return made

    def loads(self) -> dict[str, float]:
        """Pod name -> true load."""
        found = {pod.name: 0.0 for pod in self.pool.members()}
        for (key, pod), vreplicas in self.shares().items():
            found[pod] += self.rates[key] * vreplicas
        return found

    def ratio(self) -> float:
        loads = self.loads().values()
        return max(loads) * len(loads) / sum(loads)


def count(moves: list[Move]) -> int:
    return sum(move.vreplicas for move in moves)


def a_loaded_pool(
    placements: Mapping[str, Mapping[int, int]],
    rates: Mapping[str, float],
    *,
    pods: int,
    slots: int = 20,
    target: float = 1.2,
    weights: Mapping[str, int] | None = None,
    **fields,
) -> LoadedPool:
    """``placements``: vpod name -> ordinal -> vreplicas. ``rates``: vpod name -> load of one."""
    weights = weights or {}
    scene = Scene(slots=slots, replicas=pods, **fields)
    for ordinal in range(pods):
        ledger = {
            f"tenant/{name}": Share(where[ordinal], weights.get(name, 1))
            for name, where in placements.items()
            if where.get(ordinal)
        }
        scene.pod(ordinal, ledger, ready=True)
    for name, where in placements.items():
        scene.vpod(name, sum(where.values()), where, weight=weights.get(name, 1))
    return LoadedPool(scene, {f"tenant/{name}": rate for name, rate in rates.items()}, target)


def a_skewed_pool(
    rng: random.Random, *, pods: int, per_pod: int = 20, slots: int = 24, skew: float = 20.0
) -> LoadedPool:
    """Vpods of 1 to 8 vreplicas, whose loads differ up to ``skew``-fold, on random pods."""
    free = dict.fromkeys(range(pods), per_pod)
    placements: dict[str, dict[int, int]] = {}
    while free:
        where: dict[int, int] = {}
        for _ in range(rng.randint(1, 8)):
            if not free:
                break
            ordinal = rng.choice(list(free))
            where[ordinal] = where.get(ordinal, 0) + 1
            free[ordinal] -= 1
            if not free[ordinal]:
                del free[ordinal]
        placements[f"v{len(placements)}"] = where
    rates = {name: skew ** rng.random() for name in placements}
    return a_loaded_pool(placements, rates, pods=pods, slots=slots)


def as_rows(plan: Iterable[Move]) -> list[tuple[str, int, int, int, str]]:
    """(vpod name, from ordinal, to ordinal, vreplicas, reason)."""
    return [
        (
            m.vpod.partition("/")[2],
            int(m.from_pod.rpartition("-")[2]),
            int(m.to_pod.rpartition("-")[2]),
            m.vreplicas,
            m.reason.value,
        )
        for m in plan
    ]
