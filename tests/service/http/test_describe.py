"""``/state.json``: what is in it, what it is narrowed to, and that it stays bounded."""

import orjson
import pytest

from extender.engine.placing.explain import Explanation, Reasoning, Step
from extender.kube.api import Obj
from extender.service.http import describe
from extender.service.http.describe import StateQuery, listed_sentences, state_steps
from tests.support.builders import (
    NS,
    POOL,
    Scene,
    a_node,
    a_pool,
    a_stateful_set,
    a_vpod,
    nothing_decided,
)
from tests.support.steps import result_of


def three_zones() -> Scene:
    scene = Scene(replicas=4)
    for index in range(3):
        scene.node(a_node(f"node-{index}", f"z{index}"))
        scene.pod(index, {"tenant/a": index + 1}, node=f"node-{index}")
    scene.node(a_node("node-2", "z2", cordoned=True))
    return scene.vpod("a", 9, {0: 1, 1: 2, 2: 3})


def page_of(scene: Scene, query: StateQuery | None = None) -> Obj:
    """As it is served: what JSON cannot say would raise."""
    described = result_of(state_steps(scene.state, nothing_decided, query))
    page: Obj = orjson.loads(orjson.dumps(described))
    return page


def the_pool(scene: Scene, query: StateQuery | None = None) -> Obj:
    (pool,) = page_of(scene, query)["pools"]
    assert isinstance(pool, dict)
    return pool


def test_a_pool_says_what_its_pods_and_vpods_have_and_who_takes_no_work():
    scene = three_zones()
    scene.state.pools[POOL].set_closed(0b1000)
    pool = the_pool(scene)
    pods, vpods = pool.pop("podList"), pool.pop("vpodList")
    assert pool == {
        "name": POOL,
        "found": True,
        "statefulSet": "dispatcher",
        "capacity": 20,
        "minPods": 0,
        "minPodsPerVPod": 0,
        "profile": "default",
        "replicas": 4,
        "missingPods": 1,
        "lastOrdinal": 2,
        "closedOrdinals": [3],
        "pods": 3,
        "schedulablePods": 2,
        "slots": 60,
        "usedSlots": 6,
        "freeSlots": 37,
        "closedSlots": 17,
        "pendingVReplicas": 3,
        "readyVReplicas": 0,
        "unservedVReplicas": 6,
        "unavailableVPods": 1,
        "vpods": 1,
        "expectedVReplicas": 9,
        "unschedulable": {"node cordoned": 1},
        "podsNotListed": 0,
        "vpodsNotListed": 0,
    }
    assert [pod["name"] for pod in pods] == ["dispatcher-0", "dispatcher-1", "dispatcher-2"]
    assert pods[2] == {
        "name": "dispatcher-2",
        "node": "node-2",
        "zone": "z2",
        "slots": 20,
        "usedSlots": 3,
        "freeSlots": 17,
        "schedulable": False,
        "why": "node cordoned",
        "placements": {"tenant/a": 3},
    }
    assert vpods == [
        {
            "name": "tenant/a",
            "vreplicas": 9,
            "slotsPerVReplica": 1,
            "published": {"dispatcher-0": 1, "dispatcher-1": 2, "dispatcher-2": 3},
            "placed": {"dispatcher-0": 1, "dispatcher-1": 2, "dispatcher-2": 3},
            "pending": 3,
            "reserved": {},
            "podSpread": {"dispatcher-0": 1, "dispatcher-1": 2},
            "nodeSpread": {"node-0": 1, "node-1": 2},
            "zoneSpread": {"z0": 1, "z1": 2},
            "elsewhere": {"dispatcher-2": 3},
            "explanation": [],
        }
    ]


def test_what_stands_on_an_ordinal_that_is_gone_is_listed():
    scene = three_zones().stateful_set(2)
    pods = the_pool(scene)["podList"]
    assert [(pod["name"], pod["why"]) for pod in pods] == [
        ("dispatcher-0", ""),
        ("dispatcher-1", ""),
        ("dispatcher-2", "node cordoned"),
    ]


def test_the_answer_can_be_narrowed_to_a_pool_or_a_vpod():
    scene = three_zones().vpod("b", 1, {0: 1})
    scene.state.adapter_pool_changed(None, a_pool(5, name="other", stateful_set="other"))
    scene.state.stateful_set_changed(None, a_stateful_set(1, name="other"))
    scene.state.vpod_changed(None, a_vpod("c", 1, pool=f"{NS}/other"))

    def shown(**parameters: str) -> dict[str, list[str]]:
        page = page_of(scene, StateQuery.of(parameters))
        return {pool["name"]: [vpod["name"] for vpod in pool["vpodList"]] for pool in page["pools"]}

    both = {POOL: ["tenant/a", "tenant/b"], f"{NS}/other": ["tenant/c"]}
    assert shown() == both
    assert shown(unknown="x") == both
    assert shown(pool=POOL) == {POOL: ["tenant/a", "tenant/b"]}
    assert shown(vpod="tenant/b") == {POOL: ["tenant/b"]}
    assert shown(vpod="tenant/c", pool=POOL) == {}
    assert shown(vpod="tenant/none") == {}
    narrowed = the_pool(scene, StateQuery(vpod="tenant/b"))
    assert [pod["name"] for pod in narrowed["podList"]] == ["dispatcher-0"]
    assert (narrowed["vpodsNotListed"], narrowed["podsNotListed"]) == (0, 0)


def test_only_so_much_is_listed_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch):
    for name in ("PODS", "VPODS", "NODES"):
        monkeypatch.setattr(describe, f"{name}_LISTED_MAX", 2)
    monkeypatch.setattr(describe, "POOLS_LISTED_MAX", 1)
    scene = three_zones()
    for name in "bcd":
        scene.vpod(name, 1)
    scene.state.vpod_changed(None, a_vpod("e", 1, pool=f"{NS}/zz"))
    page = page_of(scene)
    (pool,) = page["pools"]
    assert (page["poolsNotListed"], page["nodesNotListed"]) == (1, 1)
    assert (len(pool["podList"]), pool["podsNotListed"]) == (2, 1)
    assert (len(pool["vpodList"]), pool["vpodsNotListed"]) == (2, 2)


def test_a_long_explanation_is_cut_and_keeps_its_outcome():
    steps = tuple(Reasoning(Step.ADDED, f"dispatcher-{index}", 1) for index in range(500))
    sentences = listed_sentences(Explanation(500, steps, 0, None))
    assert len(sentences) == describe.SENTENCES_LISTED_MAX
    assert sentences[-1] == "all 500 vreplicas are placed"
    assert sentences[0] == "added: 1 on dispatcher-0"
