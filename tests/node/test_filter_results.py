"""The cache of results: by UID and node, replaced as a whole, expiring by itself."""

import pytest

from extender.model.ledger import Share
from extender.node import filter_results
from extender.node.bind_ledger import BindLedger
from extender.node.filter_results import FilterResultCache
from tests.support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock) -> FilterResultCache:
    return FilterResultCache(clock, ttl_s=60.0)


CARRY = BindLedger({"tenant/a": Share(2)}, {"tenant/a": 1}, '{"tenant/a":2}')


def find(cache: FilterResultCache, uid: str = "u", *nodes: str) -> None:
    cache.update(uid, CARRY, "{}", frozenset(nodes or ("n1", "n2")))


def found(cache: FilterResultCache) -> set[str]:
    return {node for node in ("n1", "n2", "n3") if cache.get("u", node) is not None}


def test_a_result_is_found_by_pod_and_node(cache):
    find(cache)
    result = cache.get("u", "n1")
    assert (result.bind_ledger, result.ledger_text) == (CARRY, "{}")
    assert cache.get("u", "elsewhere") is None
    assert cache.get("another", "n1") is None
    assert found(cache) == {"n1", "n2"}
    assert cache.bind_ledger("u") is CARRY


def test_a_pod_that_may_go_nowhere_carries_nothing(cache):
    cache.update("u", CARRY, None, frozenset())
    assert cache.bind_ledger("u") is None


def test_a_new_filter_call_replaces_all_that_was_found(cache):
    find(cache, "u", "n1", "n2")
    find(cache, "u", "n3")
    assert found(cache) == {"n3"}


def test_results_expire(cache, clock):
    find(cache)
    clock.now = 59.9
    assert cache.get("u", "n1") is not None
    clock.now = 60.0
    assert found(cache) == set()
    assert cache.bind_ledger("u") is None


def test_what_has_expired_is_dropped_by_the_next_update(cache, clock):
    find(cache, "old")
    clock.now = 61.0
    find(cache, "new")
    assert len(cache) == 1


def test_deciding_again_lives_on(cache, clock):
    find(cache)
    clock.now = 40.0
    find(cache)
    clock.now = 80.0
    assert cache.get("u", "n1") is not None


def test_clear_forgets_one_node_and_delete_the_pod(cache):
    find(cache)
    cache.clear("u", "n1")
    assert found(cache) == {"n2"}
    cache.delete("u")
    assert found(cache) == set()
    cache.clear("u", "n1")
    cache.delete("u")
    assert len(cache) == 0


def test_there_are_never_more_than_so_many_and_the_oldest_go_first(cache, monkeypatch):
    monkeypatch.setattr(filter_results, "RESULTS_MAX", 3)
    for index in range(5):
        find(cache, f"u{index}")
    assert len(cache) == 3
    assert cache.get("u0", "n1") is None
    assert cache.get("u4", "n1") is not None


def test_they_never_hold_more_names_of_nodes_than_so_many(cache, monkeypatch):
    monkeypatch.setattr(filter_results, "NODES_MAX", 5)
    for index in range(4):
        find(cache, f"u{index}")
    assert [cache.get(f"u{index}", "n1") is not None for index in range(4)] == [
        False,
        False,
        True,
        True,
    ]
    cache.delete("u3")
    find(cache, "u4")
    assert cache.get("u2", "n1") is not None


def test_it_is_counted_how_often_a_pod_was_asked_about(cache, clock):
    assert cache.times("u") == 0
    find(cache)
    find(cache)
    assert cache.times("u") == 2
    clock.now = 899.0
    assert cache.times("u") == 2, "kube-scheduler comes back after minutes"
    find(cache)
    assert cache.times("u") == 3
    clock.now += 900.0
    find(cache)
    assert cache.times("u") == 1
    cache.delete("u")
    assert cache.times("u") == 0
