"""What is wrong, once all has settled, with what pools say of their sources of load (the condition
LoadUnavailable).
"""

from collections.abc import Iterator, Mapping

from extender.lab.simulation.world.facts import Pool
from extender.lab.simulation.world.scale import LOAD_SOURCE, second_name


def load_differences(pools: Mapping[str, Pool]) -> Iterator[str]:
    """Yield the pools whose condition is not true. Beside a second pool of the StatefulSet, a pool
    may say nothing.
    """
    for pool in pools.values():
        if pool.deleted or not (pool.load_source and pool.balances_load):
            continue
        known = pool.load_source == LOAD_SOURCE
        right = ("False", "LoadKnown") if known else ("True", "UnknownSource")
        if pool.load_unavailable != right and second_name(pool.name) not in pools:
            yield (
                f"{pool.name} takes its load from {pool.load_source}, and LoadUnavailable is "
                f"{pool.load_unavailable}"
            )
