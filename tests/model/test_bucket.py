import random
from collections import Counter

import pytest

from extender.model.bucket import (
    WHOLE,
    Bucket,
    bucket_of,
    bucket_to_ask_for,
    may_give,
    weights_of,
)

POOLS = [f"adapters/pool-{number}" for number in range(200)]


@pytest.mark.parametrize("total", [1, 2, 3, 16, 64])
def test_every_pool_is_in_one_bucket(total: int):
    buckets = [Bucket(index, total) for index in range(total)]
    assert {sum(bucket.has(pool) for bucket in buckets) for pool in POOLS} == {1}


def test_a_pools_bucket_is_the_same_in_every_process():
    # Written down: another hash would give every pool two leaders while it is rolled out.
    assert [bucket_of(f"adapters/{name}", 3) for name in ("dispatcher", "receiver", "poller")] == [
        2,
        1,
        0,
    ]


def test_pools_are_spread_over_the_buckets():
    sizes = Counter(bucket_of(pool, 4) for pool in POOLS)
    assert min(sizes[index] for index in range(4)) > 30


def test_the_first_buckets_lease_is_the_only_ones():
    names = [Bucket(index, 4).lease_name("vreplica-scheduler") for index in range(2)]
    assert names == ["vreplica-scheduler", "vreplica-scheduler.01-of-04"]
    assert WHOLE.lease_name("vreplica-scheduler") == "vreplica-scheduler"


@pytest.mark.parametrize(
    ("holders", "weights", "asked"),
    [
        pytest.param("aaaa", [1, 1, 1, 1], 0, id="who has nothing asks for one"),
        pytest.param("aaab", [1, 1, 1, 1], 0, id="two less is enough"),
        pytest.param("aab", [1, 1, 1], None, id="one less is not: it would only change places"),
        pytest.param("b", [1], None, id="nobody else has any"),
        pytest.param("ab", [9, 5], None, id="the larger of two loads would stay as large"),
        pytest.param("aab", [9, 3, 5], 1, id="what fits between the two loads"),
        pytest.param("aacc", [5, 4, 9, 9], 2, id="of whoever carries most"),
        pytest.param("aa", [1, 5], 1, id="the larger one"),
        pytest.param(
            "aaac",
            [6, 6, 6, 21],
            0,
            id="not of whoever carries most, where that is one large bucket",
        ),
        pytest.param(["a", "a", ""], [1, 1, 9], 0, id="what nobody has counts for nobody"),
    ],
)
def test_what_b_asks_for(holders: str | list[str], weights: list[int], asked: int | None):
    assert bucket_to_ask_for(list(holders), weights, "b") == asked


def _squares(holders: list[str], weights: list[int]) -> dict[str, int]:
    loads: Counter[str] = Counter()
    for holder, weight in zip(holders, weights, strict=True):
        loads[holder] += weight
    return {holder: load * load for holder, load in loads.items()}


@pytest.mark.parametrize("seed", range(30))
def test_asking_and_giving_comes_to_an_end_and_is_even_then(seed: int):
    rng = random.Random(seed)
    total, replicas = rng.randint(1, 16), [f"r{number}" for number in range(rng.randint(1, 5))]
    weights = weights_of(rng.sample(POOLS, rng.randint(0, 30)), total)
    holders = [rng.choice(replicas) for _ in range(total)]
    while True:
        before = sum(_squares(holders, weights).values())
        asks = [(me, bucket_to_ask_for(holders, weights, me)) for me in replicas]
        wanted = [(me, index) for me, index in asks if index is not None]
        if not wanted:
            break
        me, index = rng.choice(wanted)
        assert may_give(holders, weights, index, me)
        holders[index] = me
        assert sum(_squares(holders, weights).values()) < before, f"seed {seed}: no end of it"
    loads = {
        me: sum(w for h, w in zip(holders, weights, strict=True) if h == me) for me in replicas
    }
    for holder, weight in zip(holders, weights, strict=True):
        assert all(
            max(loads[me] + weight, loads[holder] - weight) >= loads[holder] for me in replicas
        )


def test_a_bucket_counts_by_its_pools():
    empty, full = Bucket(bucket_of(POOLS[0], 8), 8), weights_of(POOLS[:1], 8)
    assert full[empty.index] == 10
    assert sum(full) == 10 + 7
