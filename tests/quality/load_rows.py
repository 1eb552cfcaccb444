"""Rows of the table about load: how even the pods are after three rounds of balancing, beside the
published ways to do it.

Pools have 10 to 40 pods with 20 vreplicas each, on random pods, and loads that differ up to 20-fold
from vpod to vpod. Ours sees reports with 10 % of noise, and keeps slots and cool-down. The others
(``tests.engine.rebalance.published_balancers``) know the true loads, have room everywhere, and stop
at the same target of 1.2. No pod over the mean would be the optimum of ``load/...``. The optimum of
``load-moves/...`` is what the other way moves.
"""

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tests.engine.rebalance import test_balance_compared as compared
from tests.engine.rebalance.test_balance_compared import PEERS, Outcome
from tests.quality.instances import Instance, even
from tests.quality.row import Measure, Pair, Row

PODS: Final = range(10, 41)
STOP: Final = 1.2


def loaded(seed: int) -> Instance:
    """A pool whose vpods and loads ``a_skewed_pool`` draws from the same seed."""
    return Instance(seed, even(random.Random(f"{seed}/pods").choice(PODS)), ())


@lru_cache(maxsize=4096)
def _ours(instance: Instance) -> Outcome:
    return compared.ours(compared.a_pool(instance.seed, instance.max_pods), instance.seed)


@lru_cache(maxsize=4096)
def _theirs(instance: Instance, name: str) -> Outcome:
    return compared.theirs(compared.a_pool(instance.seed, instance.max_pods), name, STOP)


def _over_the_mean(outcome: Outcome) -> Pair:
    """By how many thousandths of the mean the hottest pod is over it."""
    return Pair(round(1000 * (outcome.ratios[-1] - 1)), 0)


def our_load(instance: Instance) -> Pair:
    """The hottest pod after three rounds of ours."""
    return _over_the_mean(_ours(instance))


def their_load(name: str) -> Callable[[Instance], Pair]:
    """The hottest pod after three rounds of a published way."""
    return lambda instance: _over_the_mean(_theirs(instance, name))


def moves_beside(name: str) -> Measure:
    """Vreplicas that ours moves in three rounds, beside a published way."""

    def measure(instance: Instance) -> Pair:
        count = 20 * instance.max_pods
        ours, theirs = _ours(instance), _theirs(instance, name)
        return Pair(round(ours.moved * count), round(theirs.moved * count))

    return measure


LOAD_ROWS: Final = (
    Row("load/ours", "per mille over the mean", loaded, our_load, fitting=False),
    *(
        Row(f"load/{name}", "per mille over the mean", loaded, their_load(name), fitting=False)
        for name in PEERS
    ),
    *(
        Row(f"load-moves/{name}", "vreplicas", loaded, moves_beside(name), fitting=False)
        for name in PEERS
    ),
)
