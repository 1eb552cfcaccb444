"""From cold: how long after its lists have arrived the service makes its first decision.

A cluster that is placed but for one vpod is filled into empty caches, and that vpod is decided:
once from values that are decoded already, once from lists of JSON, in turns.
"""

from collections.abc import Callable

from extender.service.watching.caches import Caches
from tests.bench.clusters import (
    VPODS_PER_POD,
    Cluster,
    caches_from_lists,
    filled_caches,
    raw_cluster,
)
from tests.bench.result import Result
from tests.bench.shipped import Shipped
from tests.bench.timing import Stopwatch, median


def cold_result(pods: int, *, rounds: int) -> Result:
    """Milliseconds of CPU, the best of ``rounds``; the ratio is their median."""
    vpods = pods * VPODS_PER_POD
    raw = raw_cluster(pods, placed=vpods - 1)
    lists, cluster = raw.lists(), Cluster.of(raw)
    del raw
    last = cluster.vpod_keys[-1]
    measured = [
        (
            first_decision_s(lambda: filled_caches(cluster), last),
            first_decision_s(lambda: caches_from_lists(lists), last),
        )
        for _ in range(rounds)
    ]
    objects_s, json_s = min(one for one, _ in measured), min(one for _, one in measured)
    count = len(cluster.nodes) + len(cluster.pods) + len(cluster.vpods)
    return Result(
        "engine",
        {"profile": "default", "pods": pods, "vpods": vpods, "workload": "cold"},
        {
            "fromObjectsMilliseconds": round(objects_s * 1e3, 2),
            "fromJsonMilliseconds": round(json_s * 1e3, 2),
            "jsonRatio": round(median([with_json_s / one_s for one_s, with_json_s in measured]), 3),
            "objects": count,
            "jsonObjectsPerSecond": round(count / json_s, 1),
            "jsonMebibytes": round(sum(map(len, lists.values())) / 2**20, 2),
            "rounds": rounds,
        },
    )


def first_decision_s(fill: Callable[[], Caches], key: str) -> float:
    """CPU seconds until the vpod is decided. Raises AssertionError where it found no place."""
    watch = Stopwatch()
    (decision,) = watch.run(lambda: Shipped(fill()).decide([key]))
    if decision.pending:
        raise AssertionError(f"{key} was not placed: {decision.explanation.outcome()}")
    return watch.cpu_s
