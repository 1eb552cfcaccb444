"""The engine's workloads are what they are said to be, and rebuilt state decides as the shipped
path does.
"""

import asyncio
import json
from collections import Counter

import pytest

from extender.model.objects import VPod
from tests.bench import engine, objects, rounds
from tests.bench.clusters import (
    PROFILES,
    REFERENCE,
    SLOTS_PER_VPOD,
    WEIGHTS,
    Cluster,
    Kind,
    caches_from_lists,
    filled_caches,
    raw_cluster,
    rebuilt_state,
)
from tests.bench.cold import cold_result
from tests.bench.rounds import Variant
from tests.bench.shipped import Shipped
from tests.bench.timing import Stopwatch

PODS = 24
VPODS = 48
WORKLOADS = {"reference": REFERENCE, "weights": WEIGHTS}


def a_cluster(profile: str = "default", kinds: tuple[Kind, ...] = REFERENCE) -> Cluster:
    return Cluster.of(raw_cluster(PODS, kinds)).by(profile)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_vpod_is_placed_and_16_of_20_slots_are_used(profile: str, workload: str):
    cluster = a_cluster(profile, WORKLOADS[workload])
    shipped = Shipped(filled_caches(cluster))
    decisions = shipped.decide(cluster.vpod_keys)
    slots: Counter[str] = Counter()
    for vpod, decision in zip(cluster.vpods, decisions, strict=True):
        assert (sum(decision.target.values()), decision.pending) == (vpod.vreplicas, 0)
        slots += Counter({name: count * vpod.weight for name, count in decision.target.items()})
    assert max(slots.values()) <= objects.SLOTS_PER_POD
    assert slots.total() == VPODS * SLOTS_PER_VPOD == PODS * 16
    assert shipped.caches.state.pool(objects.POOL).profile.name == profile
    assert all(shipped.placer.history.explanation(key) for key in cluster.vpod_keys)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_rebuilt_state_decides_the_same(profile: str, workload: str):
    cluster = a_cluster(profile, WORKLOADS[workload])
    decisions = Shipped(filled_caches(cluster)).decide(cluster.vpod_keys)
    watch = Stopwatch()
    for index in range(0, VPODS, 5):
        key = cluster.vpod_keys[index]
        assert rounds.decide_rebuilt(cluster, decisions[:index], key, watch) == decisions[index]


def test_batches_of_the_placer_decide_what_one_after_the_other_does():
    cluster = a_cluster()
    one, other = Shipped(filled_caches(cluster)), Shipped(filled_caches(cluster))
    one.decide(cluster.vpod_keys)
    asyncio.run(other.place_batches(cluster.vpod_keys))
    assert one.caches.state.digest() == other.caches.state.digest()
    told, told_other = one.placer.history.explanation, other.placer.history.explanation
    assert list(map(told, cluster.vpod_keys)) == list(map(told_other, cluster.vpod_keys))


@pytest.mark.parametrize("profile", PROFILES)
def test_churn_is_a_tenth_of_the_vpods_and_ends_with_what_they_want(profile: str):
    cluster = a_cluster(profile)
    shipped = Shipped(filled_caches(cluster))
    decisions = shipped.decide(cluster.vpod_keys)
    settled = cluster.settled({decision.vpod: decision.target for decision in decisions})
    shipped.settle(settled)
    pool = shipped.caches.state.pool(objects.POOL)
    assert not any(
        claim.reserved for claims in pool.claims_by_vpod.values() for claim in claims.values()
    )
    changes = rounds.churned(settled)
    decided = shipped.change(changes)
    wanted = [vpod.vreplicas if isinstance(vpod, VPod) else 0 for vpod in changes.values()]
    assert wanted == [10, 6, 0, 10, 6]
    assert [sum(decision.target.values()) for decision in decided] == wanted


def test_a_placed_cluster_is_the_same_from_json_and_from_objects_and_on_rebuilt_state():
    raw = raw_cluster(PODS, placed=VPODS - 1)
    cluster = Cluster.of(raw)
    state = filled_caches(cluster).state
    assert caches_from_lists(raw.lists()).state.digest() == state.digest()
    assert rebuilt_state(cluster).digest() == state.digest()
    pool = state.pool(objects.POOL)
    assert {pod.held for pod in pool.pods.values()} == {15, 16}
    assert [*pool.vpods_with_pending] == [cluster.vpod_keys[-1]]
    for key, claims in pool.claims_by_vpod.items():
        assert all(claim.ledger == claim.status for claim in claims.values()), key


def test_the_lines_have_the_documented_keys():
    small, cluster = a_cluster(), a_cluster()
    variant = Variant("default", "reference", cluster, small)
    rounds.measure(variant, rebuilt_samples=1)
    lines = [engine._placed(variant), *engine._after(variant, "churn", variant.churns)]
    lines += [*engine._after(variant, "batches", variant.batches), cold_result(PODS, rounds=1)]
    found = [json.loads(line.json_line()) for line in lines]
    case = {"bench": "engine", "profile": "default", "pods": PODS, "vpods": VPODS}
    assert [line["workload"] for line in found] == ["reference", "churn", "batches", "cold"]
    assert all(case.items() <= line.items() for line in found)
    reference, churn, batches, cold = found
    assert reference["placedVpods"] == batches["decidedVpods"] == VPODS
    assert (reference["sameDecisions"], reference["goVpodsPerSecond"]) == (True, None)
    for key in (
        "vpodsPerSecond",
        "microsecondsPerVpod",
        "yardstickRatio",
        "rebuiltVpodsPerSecond",
        "rebuiltRatio",
    ):
        assert reference[key] > 0
    assert {"vpodsPerSecond", "referenceRatio"} <= churn.keys() & batches.keys()
    assert cold["objects"] == 12 + PODS + VPODS
    assert {"fromObjectsMilliseconds", "fromJsonMilliseconds", "jsonRatio"} <= cold.keys()


def test_the_sizes_are_those_of_the_go_figures_and_one_more():
    assert [size.pods for size in engine.SIZES] == [*engine.GO_VPODS_PER_SECOND, 10_000]
    assert [size.pods for size in engine.SIZES_SHORT] == [50, 1_000]
