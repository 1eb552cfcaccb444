"""``python -m tests.engine.rebalance.plan_cost``: what a plan that makes room costs in a pool of
1,000 pods, in processor time.

Each pod of 20 slots has at most so many free slots as the first column says. 40 vreplicas of 5 to
13 slots wait. A plan takes them from another one on each time, and may move 20 vreplicas.
"""

import gc
import random
import statistics
import sys
import time
from typing import Final

from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.model.ledger import Share
from tests.support.builders import Scene, a_node

PODS: Final = 1_000
SLOTS: Final = 20
NODES: Final = 6
WAITING: Final = 40
SEEDS: Final = range(3)
FREE_MOST: Final = (1, 2, 4)
BUDGET: Final = 20


def crowded(seed: int, profile: str, free_most: int) -> Scene:
    """The pool, with the vpods ``w0`` to ``w39`` that wait."""
    dice = random.Random(seed)
    scene = Scene(replicas=PODS, slots=SLOTS, max_pods=PODS, min_pods=PODS)
    for index in range(NODES):
        scene.node(a_node(f"node-{index}", f"z{index % 3}"))
    number = 0
    for ordinal in range(PODS):
        left, ledger = SLOTS - dice.randrange(free_most + 1), dict[str, Share]()
        while left > 0:
            weight = min(left, dice.randint(1, 13))
            ledger[f"tenant/v{number}"] = Share(1, weight)
            scene.vpod(f"v{number}", 1, {ordinal: 1}, weight=weight)
            left, number = left - weight, number + 1
        scene.pod(ordinal, ledger, node=f"node-{ordinal % NODES}")
    for index in range(WAITING):
        scene.vpod(f"w{index}", 1, weight=dice.randint(5, 13))
    scene.pool.set_profile(BUILT_IN_PROFILES[profile])
    return scene


def measured(profile: str, free_most: int) -> tuple[list[float], int]:
    """Milliseconds of each plan, ascending, and how many moves all plans have."""
    costs, moves = [], 0
    for seed in SEEDS:
        pool = crowded(seed, profile, free_most).pool
        gc.collect()
        gc.freeze()  # as the service does once all is listed
        for first in range(0, WAITING, 2):
            turn = [f"tenant/w{(first + index) % WAITING}" for index in range(WAITING)]
            began = time.process_time()
            moves += len(plan_moves(pool, Limits(budget=BUDGET), Advice(waiting=turn)))
            costs.append((time.process_time() - began) * 1e3)
    return sorted(costs), moves


def main() -> None:
    """Print the table."""
    sys.stdout.write(f"seeds {SEEDS.start} to {SEEDS.stop - 1}; milliseconds\n")
    sys.stdout.write("free  profile   mean   p99   max  moves\n")
    for free_most in FREE_MOST:
        for profile in ("default", "spread", "ha"):
            costs, moves = measured(profile, free_most)
            p99 = costs[int(0.99 * len(costs))]
            figures = f"{statistics.mean(costs):6.1f}{p99:6.1f}{costs[-1]:6.1f}"
            sys.stdout.write(f"{free_most:4}  {profile:8}{figures} {moves:6}\n")


if __name__ == "__main__":
    main()
