"""A pool's revision: what was derived from it holds while it stands, so every change that may
matter has to move it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extender.engine.scaling.size import plan_scale
from extender.model.ledger import Share
from extender.model.node_fit import NodeFit
from tests.support.builders import POOL, Scene, a_node, a_pool


def scene() -> Scene:
    """Three ordinals, of which two have pods; one vpod, on both."""
    return Scene().pod(0, {"tenant/a": 2}).pod(1, {"tenant/a": 1}).vpod("a", 4, {0: 2, 1: 1})


def close_one(of: Scene) -> None:
    of.pool.set_closed(0b10)


def abandon_one(of: Scene) -> None:
    of.pool.set_abandoned(frozenset({"dispatcher-1"}))


def change_pool(**fields: Any) -> Callable[[Scene], None]:
    def change(of: Scene) -> None:
        of.state.adapter_pool_changed(
            of.pool.adapter_pool, replace(of.pool.adapter_pool or a_pool(), **fields)
        )

    return change


def release(of: Scene) -> None:
    of.reserve("a", 2, 1, owner="bind")
    before = of.state.revision_of(of.pool)
    of.state.release("bind", POOL, "tenant/a")
    assert of.state.revision_of(of.pool) != before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda of: of.pod(2), id="a pod comes"),
        pytest.param(lambda of: of.no_pod(1), id="a pod goes"),
        pytest.param(
            lambda of: of.pod(1, {"tenant/a": 1}, unschedulable=True), id="a pod is marked"
        ),
        pytest.param(lambda of: of.pod(1, {"tenant/a": 3}), id="a ledger changes"),
        pytest.param(lambda of: of.vpod("b", 1), id="a vpod comes"),
        pytest.param(lambda of: of.no_vpod("a"), id="a vpod goes"),
        pytest.param(lambda of: of.vpod("a", 9, {0: 2, 1: 1}), id="a vpod wants more"),
        pytest.param(lambda of: of.vpod("a", 4, {0: 2, 1: 2}), id="a vpod publishes more"),
        pytest.param(lambda of: of.vpod("a", 4, {0: 2, 1: 1}, weight=2), id="a vpod weighs more"),
        pytest.param(lambda of: of.stateful_set(5), id="the StatefulSet grows"),
        pytest.param(lambda of: of.stateful_set(3, fit=NodeFit()), id="the pod template changes"),
        pytest.param(lambda of: of.node(a_node("node-0", ready=False)), id="a node fails"),
        pytest.param(
            lambda of: of.node(a_node("node-9", "z9")), id="a zone comes that no pod is in"
        ),
        pytest.param(lambda of: of.namespace("tenant", team="x"), id="a tenant's labels change"),
        pytest.param(lambda of: of.reserve("a", 2, 1), id="a reservation"),
        pytest.param(release, id="a reservation released"),
        pytest.param(close_one, id="an ordinal closed"),
        pytest.param(abandon_one, id="a pod taken for lost"),
        pytest.param(change_pool(slots_per_pod=4), id="slotsPerPod"),
        pytest.param(change_pool(max_pods=2), id="maxPods"),
        pytest.param(change_pool(profile="ha"), id="the profile"),
    ],
)
def test_a_change_moves_the_revision(change):
    of = scene()
    before = of.state.revision_of(of.pool)
    change(of)
    assert of.state.revision_of(of.pool) != before


def test_a_reservation_that_runs_out_moves_the_revision():
    of = scene().reserve("a", 2, 1)
    before = of.state.revision_of(of.pool)
    assert of.state.expire(30.0)
    assert of.state.revision_of(of.pool) != before


def test_a_write_of_the_pools_own_status_leaves_the_revision():
    of = scene()
    before = of.state.revision_of(of.pool)
    change_pool(resource_version="99")(of)
    assert of.state.revision_of(of.pool) == before


def test_looking_leaves_the_revision():
    of = scene()
    before = of.state.revision_of(of.pool)
    assert plan_scale(of.pool, lambda vpod: of.state.selects(POOL, vpod)) is not None
    assert of.state.expire(0.0) == []
    of.state.digest()
    assert of.state.revision_of(of.pool) == before


def test_a_status_that_is_published_again_claims_what_it_claimed():
    of = scene().reserve("a", 1, 3)
    before = {
        name: (claim.status, claim.reserved)
        for name, claim in of.pool.claims_of("tenant/a").items()
    }
    of.vpod("a", 4, {0: 2, 1: 1})
    after = {
        name: (claim.status, claim.reserved)
        for name, claim in of.pool.claims_of("tenant/a").items()
    }
    assert (
        after == before == {"dispatcher-0": (Share(2), None), "dispatcher-1": (Share(1), Share(3))}
    )


@pytest.mark.parametrize(
    ("change", "others"),
    [
        pytest.param(
            lambda of: of.pod(1, {"tenant/a": 1}, unschedulable=True), False, id="it is marked"
        ),
        pytest.param(lambda of: of.pod(1, {"tenant/a": 3}), False, id="its ledger changes"),
        pytest.param(
            lambda of: of.vpod("a", 4, {0: 2, 1: 2}), False, id="a vpod publishes more on it"
        ),
        pytest.param(lambda of: of.vpod("b", 1, {1: 1}), False, id="another vpod publishes on it"),
        pytest.param(
            lambda of: of.reserve("b", 1, 1), False, id="a reservation of another vpod on it"
        ),
        pytest.param(
            lambda of: of.reserve("a", 1, 2), False, id="a reservation that changes what it has"
        ),
        pytest.param(close_one, False, id="it is closed"),
        pytest.param(abandon_one, False, id="it is taken for lost"),
        pytest.param(lambda of: of.node(a_node("node-0", ready=False)), True, id="its node fails"),
        pytest.param(lambda of: of.stateful_set(1), True, id="its ordinal goes"),
        pytest.param(change_pool(slots_per_pod=4), True, id="slotsPerPod"),
    ],
)
def test_a_change_moves_the_revision_of_the_pods_that_it_is_about(change, others: bool):
    of = scene()
    before = {name: pod.revision for name, pod in of.pool.pods.items()}
    change(of)
    moved = {name for name, pod in of.pool.pods.items() if pod.revision != before[name]}
    assert moved == ({"dispatcher-0", "dispatcher-1"} if others else {"dispatcher-1"})
