"""What is wrong, once all has settled, with what pools say of their sources of load (the condition
LoadUnavailable).
"""

from collections.abc import Iterable, Iterator, Mapping

from extender.lab.simulation.world.facts import Pod, Pool
from extender.lab.simulation.world.scale import LOAD_SOURCE, second_name


def load_differences(pools: Mapping[str, Pool], pods: Iterable[Pod]) -> Iterator[str]:
    """Yield the pools whose condition is not true. Beside a second pool of the StatefulSet, a pool
    may say nothing. If none of its ``pods`` with vreplicas has a node, the source knows nothing of
    it (seed 600000254).
    """
    at_work = {pod.pool for pod in pods if pod.node and pod.total}
    for pool in pools.values():
        if pool.deleted or not (pool.load_source and pool.balances_load):
            continue
        known = pool.load_source == LOAD_SOURCE
        right = [("False", "LoadKnown") if known else ("True", "UnknownSource")]
        if known and pool.name not in at_work:
            right.append(("True", "NoSeries"))
        if pool.load_unavailable not in right and second_name(pool.name) not in pools:
            yield (
                f"{pool.name} takes its load from {pool.load_source}, and LoadUnavailable is "
                f"{pool.load_unavailable}"
            )
