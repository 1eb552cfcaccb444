"""Balancing beside published ways to do it: how even the pods are after three rounds, and how many
vreplicas have moved. ``python -m tests.engine.rebalance.test_balance_compared`` prints a table.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest

from extender.engine.rebalance.balance import MOVED_MAX
from tests.engine.rebalance.loads import LoadedPool, a_skewed_pool, count, exact, noise
from tests.engine.rebalance.published_balancers import Peer, cadence, slicer

ROUNDS = 3
TARGET = 1.25
PEERS: dict[str, Callable[[Peer], tuple[str, str, str] | None]] = {
    "slicer": slicer,
    "cadence": cadence,
}


class Outcome(NamedTuple):
    """``ratios``: max/mean of the pods' true loads, before the first round and after each.
    ``moved``: vreplicas in all rounds, as a part of all.
    """

    ratios: tuple[float, ...]
    moved: float
    most_in_a_round: float = 0.0


def ours(pool: LoadedPool, seed: int, *, noisy: bool = True) -> Outcome:
    """With reports, noise, slots and cool-down."""
    total = sum(pool.shares().values())
    spread = noise(random.Random(seed)) if noisy else exact
    ratios, moved, cooling = [pool.ratio()], [], frozenset[str]()
    for _ in range(ROUNDS):
        made = pool.round(spread, cooling)
        cooling |= {move.vpod for move in made}
        moved.append(count(made))
        ratios.append(pool.ratio())
    return Outcome(tuple(ratios), sum(moved) / total, max(moved) / total)


def theirs(pool: LoadedPool, name: str, stop: float = 1.0) -> Outcome:
    peer = Peer(pool)
    ratios = [peer.ratio()]
    for _ in range(ROUNDS):
        peer.round(PEERS[name], stop)
        ratios.append(peer.ratio())
    return Outcome(tuple(ratios), peer.moved / peer.vreplicas)


def a_pool(seed: int, pods: int) -> LoadedPool:
    return a_skewed_pool(random.Random(seed), pods=pods)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("pods", [20, 100])
def test_loads_that_differ_twenty_fold_are_even_within_three_rounds(pods, seed):
    outcome = ours(a_pool(seed, pods), seed)
    assert outcome.ratios[-1] <= TARGET
    assert outcome.most_in_a_round <= MOVED_MAX
    for name in PEERS:
        peer = theirs(a_pool(seed, pods), name)
        assert outcome.moved <= peer.moved, f"{name} goes on to {peer.ratios[-1]}"


def test_a_pool_of_a_thousand_pods_is_even_within_three_rounds():
    outcome = ours(a_pool(1, 1000), 1)
    assert outcome.ratios[-1] <= TARGET


def plan_times_ms(pods: int, plans: int) -> Iterator[float]:
    pool = a_pool(1, pods)
    pool.live(60)
    for _ in range(plans):
        goal = pool.goal()
        began = time.process_time()
        pool.plan_for(goal)
        yield 1000 * (time.process_time() - began)


def _ways() -> Iterator[tuple[str, Callable[[LoadedPool, int], Outcome]]]:
    yield "ours, target 1.2", ours
    yield "ours, target 1.05", lambda pool, seed: ours(replace(pool, target=1.05), seed)
    for name in PEERS:
        yield f"{name}, to the end", partial(_theirs, name, 1.0)
        yield f"{name}, stopped at 1.2", partial(_theirs, name, 1.2)


def _theirs(name: str, stop: float, pool: LoadedPool, _seed: int) -> Outcome:
    return theirs(pool, name, stop)


def _table() -> Iterator[str]:
    yield "pods | way | max/mean before | after 1 | after 2 | after 3 | worst | moved"
    for pods, seeds in ((20, range(20)), (100, range(20)), (1000, range(3))):
        for name, run in _ways():
            found = [run(a_pool(seed, pods), seed) for seed in seeds]
            columns = [
                f"{statistics.mean(outcome.ratios[index] for outcome in found):.3f}"
                for index in range(ROUNDS + 1)
            ]
            worst = max(outcome.ratios[-1] for outcome in found)
            moved = statistics.mean(outcome.moved for outcome in found)
            yield f"{pods} | {name} | {' | '.join(columns)} | {worst:.3f} | {100 * moved:.1f} %"
    times = sorted(plan_times_ms(1000, 200))
    yield f"plan for 1,000 pods: median {times[100]:.1f} ms, p99 {times[197]:.1f} ms"


if __name__ == "__main__":
    for line in _table():
        print(line)  # noqa: T201
