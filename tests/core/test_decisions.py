"""The cache of decisions: by UID and node, replaced as a whole, expiring by itself."""

import pytest

from extender.core import decisions
from extender.core.decisions import PlacementDecision, PlacementDecisionCache
from extender.core.ledger import Share
from extender.core.node_level.carry import Carry


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock) -> PlacementDecisionCache:
    return PlacementDecisionCache(clock, ttl_s=60.0)


def decided(uid: str = "u", *nodes: str) -> dict[str, PlacementDecision]:
    carry = Carry({"tenant/a": Share(2)}, {"tenant/a": 1})
    return {node: PlacementDecision(uid, node, carry, None) for node in nodes or ("n1", "n2")}


def test_a_decision_is_found_by_pod_and_node(cache):
    cache.update("u", decided())
    assert cache.get("u", "n1") == decided()["n1"]
    assert cache.get("u", "elsewhere") is None
    assert cache.get("another", "n1") is None
    assert set(cache.decisions("u")) == {"n1", "n2"}
    assert cache.planned("u") == {"tenant/a": 1}


def test_a_new_filter_call_replaces_all_that_was_decided(cache):
    cache.update("u", decided("u", "n1", "n2"))
    cache.update("u", decided("u", "n3"))
    assert set(cache.decisions("u")) == {"n3"}


def test_decisions_expire(cache, clock):
    cache.update("u", decided())
    clock.now = 59.9
    assert cache.get("u", "n1") is not None
    clock.now = 60.0
    assert cache.get("u", "n1") is None
    assert cache.decisions("u") == {}
    assert cache.planned("u") == {}


def test_what_has_expired_is_dropped_by_the_next_update(cache, clock):
    cache.update("old", decided("old"))
    clock.now = 61.0
    cache.update("new", decided("new"))
    assert len(cache) == 1


def test_deciding_again_lives_on(cache, clock):
    cache.update("u", decided())
    clock.now = 40.0
    cache.update("u", decided())
    clock.now = 80.0
    assert cache.get("u", "n1") is not None


def test_clear_forgets_one_node_and_delete_the_pod(cache):
    cache.update("u", decided())
    cache.clear("u", "n1")
    assert set(cache.decisions("u")) == {"n2"}
    cache.delete("u")
    assert cache.decisions("u") == {}
    cache.clear("u", "n1")
    cache.delete("u")
    assert len(cache) == 0


def test_the_caller_may_change_what_it_got(cache):
    cache.update("u", decided())
    cache.decisions("u").clear()
    cache.planned("u").clear()
    assert cache.planned("u") == {"tenant/a": 1}


def test_there_are_never_more_than_so_many_and_the_oldest_go_first(cache, monkeypatch):
    monkeypatch.setattr(decisions, "DECISIONS_MAX", 3)
    for index in range(5):
        cache.update(f"u{index}", decided(f"u{index}"))
    assert len(cache) == 3
    assert cache.get("u0", "n1") is None
    assert cache.get("u4", "n1") is not None
