"""What a stream is told: news are what has changed and nothing else, and looking again and again
misses nothing.
"""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.pods.claims import PodClaims
from extender.engine.pods.pod_loads import NO_LOADS, pod_loads
from extender.model.assignment import Assignment, encode_assignment
from extender.model.ledger import Share
from extender.model.objects import Condition, LoadTarget
from extender.service.http.page import facts
from extender.service.http.page.facts import Facts, News
from extender.service.http.page.history import History
from extender.service.http.page.records import pod_record
from tests.support.builders import POOL, Scene, a_node, a_pool
from tests.support.worlds import World, pods, vpods, worlds


def facts_of(scene: Scene | World, pool: str = POOL) -> Facts:
    state = scene.state
    return Facts(
        state,
        pool,
        history=History(state, lambda: 1_000.0),
        service=lambda: {"identity": "replica-0"},
        own=lambda _pool: {"leader": "replica-0", "leads": True},
    )


def look(it: Facts) -> News:
    """As it is sent: what JSON cannot say would raise."""
    looking = it.look()
    try:
        while True:  # it only lets others have their turn, so no loop is needed
            looking.send(None)
    except StopIteration as done:
        news: News = orjson.loads(orjson.dumps(done.value))
        return news


def three_zones() -> Scene:
    scene = Scene(replicas=4)
    for index in range(3):
        scene.node(a_node(f"node-{index}", f"z{index}"))
        scene.pod(index, {"tenant/a": index + 1}, node=f"node-{index}")
    return scene.vpod("a", 9, {0: 1, 1: 2, 2: 3})


def test_the_first_look_tells_everything_of_the_pool():
    scene = three_zones()
    scene.node(a_node("node-2", "z2", cordoned=True))
    news = look(facts_of(scene))
    assert news["service"] == {"": {"identity": "replica-0"}}
    assert news["pods"]["dispatcher-2"] == {
        "node": "node-2",
        "zone": "z2",
        "slots": 20,
        "used": 3,
        "free": 17,
        "why": "node cordoned",
        "unserved": "the pod is not Ready",
        "closed": False,
        "placements": {"tenant/a": 3},
    }
    assert news["vpods"] == {
        "tenant/a": {"wanted": 9, "weight": 1, "published": 6, "waits": "not decided yet"}
    }
    assert news["nodes"]["node-2"] == {"zone": "z2", "ready": True, "cordoned": True}
    pool = news["pools"][POOL]
    assert isinstance(pool, dict)
    assert (pool["pods"], pool["usedSlots"], pool["pendingVReplicas"], pool["leads"]) == (
        3,
        6,
        3,
        True,
    )
    assert news["notListed"] == {"pods": 0, "vpods": 0, "pools": 0}


def balancing(scene: Scene, loads: dict[int, float]) -> Scene:
    """The pool balances, and its leader has just seen these loads."""
    target = LoadTarget(metric="requests", target=1.2)
    scene.pool.set_pool(a_pool(load=target), scene.pool.stateful_set)
    scene.pool.load = pod_loads(loads, dict.fromkeys(loads, 3))
    return scene


def test_the_load_of_pods_and_of_the_pool_is_told_where_it_is_known():
    scene = balancing(three_zones(), {0: 1.0, 1: 12.3456, 2: 4.6544})
    it = facts_of(scene)
    news = look(it)
    assert [news["pods"][f"dispatcher-{o}"]["load"] for o in (0, 1)] == [  # type: ignore[index]
        {"metric": "requests", "load": 1.0, "toMean": 0.17},
        {"metric": "requests", "load": 12.35, "toMean": 2.06},
    ]
    assert news["pools"][POOL]["load"] == {  # type: ignore[index]
        "metric": "requests",
        "maxToMean": 2.06,
        "hottestPod": "dispatcher-1",
        "target": 1.2,
    }
    assert look(it) == {}
    scene.pool.load = pod_loads({0: 1.0, 1: 12.3456, 2: 4.7}, {0: 3})
    assert set(look(it)["pods"]) >= {"dispatcher-2"}, "another look, and nothing else has changed"
    scene.pool.load = NO_LOADS
    news = look(it)
    assert "load" not in orjson.dumps(news["pods"]).decode()
    assert "load" not in orjson.dumps(news["pools"]).decode()


def test_dimensions_of_a_pod_are_told_if_the_pool_has_some():
    scene = Scene()
    scene.pool.set_pool(a_pool(capacities=(("cpu", 4000),)), scene.pool.stateful_set)
    scene.pod(0, {"tenant/a": Share(1, 1, (("cpu", 250),))})
    pods = look(facts_of(scene))["pods"]
    assert pods["dispatcher-0"]["dimensions"] == {"cpu": {"capacity": 4000, "used": 250}}  # type: ignore[index]


def test_what_an_adapter_has_still_to_do_is_told_until_it_says_that_it_has():
    told = encode_assignment(Assignment(4, "n/p", "uid", {}))
    scene = Scene().pod(0, assignment_text=told)
    it = facts_of(scene)
    assert look(it)["pods"]["dispatcher-0"]["handOver"] == "unacknowledged"  # type: ignore[index]
    scene.pod(0, assignment_text=told, acknowledged_text='{"generation":4,"serving":0}')
    assert "handOver" not in look(it)["pods"]["dispatcher-0"]  # type: ignore[operator]


def test_a_pod_that_is_down_is_told_as_soon_as_something_is_published_on_it():
    scene = Scene().pod(0, {"tenant/a": 3})
    it = facts_of(scene)
    assert look(it)["pods"]["dispatcher-0"]["unserved"] == ""  # type: ignore[index]
    scene.vpod("a", 3, {0: 3})
    assert look(it)["pods"]["dispatcher-0"]["unserved"] == "the pod is not Ready"  # type: ignore[index]


def test_a_vpod_whose_pool_is_gone_says_so_although_all_of_it_is_placed():
    why = Condition("Scheduled", "False", "PoolNotFound", "AdapterPool x/y does not exist")
    scene = three_zones().vpod("b", 2, {0: 2}, conditions=(why,)).vpod("none", 0, conditions=(why,))
    vpods = look(facts_of(scene))["vpods"]
    for key in ("tenant/b", "tenant/none"):
        assert vpods[key]["waits"] == "PoolNotFound: AdapterPool x/y does not exist"  # type: ignore[index]


def test_without_a_pool_only_the_counts_of_all_are_told():
    news = look(facts_of(three_zones(), ""))
    assert set(news) == {"service", "pools", "notListed"}


def test_a_pool_that_is_not_known_is_told_as_nothing():
    assert "pods" not in look(facts_of(three_zones(), "nobody/nothing"))


def test_nothing_is_told_twice():
    scene = three_zones()
    it = facts_of(scene)
    look(it)
    assert look(it) == {}
    scene.node(a_node("node-1", "z1", resource_version="2"))  # a heartbeat
    assert look(it) == {}


def test_news_are_what_has_changed_and_null_for_what_is_gone():
    scene = three_zones()
    it = facts_of(scene)
    look(it)
    scene.pod(0, {"tenant/a": 1, "tenant/b": 2}, node="node-0").vpod("b", 2, {0: 2}).no_vpod("a")
    news = look(it)
    assert news["vpods"] == {
        "tenant/a": None,
        "tenant/b": {"wanted": 2, "weight": 1, "published": 2, "waits": ""},
    }
    scene.no_pod(2)
    news = look(it)
    assert news["nodes"] == {"node-2": None}
    assert set(news["pods"]) == {"dispatcher-2"}


def test_a_change_of_one_pod_looks_into_no_other(monkeypatch: pytest.MonkeyPatch):
    scene = three_zones()
    it = facts_of(scene)
    look(it)
    seen: list[str] = []

    def noted(pool: Any, pod: PodClaims) -> Any:
        seen.append(pod.name)
        return pod_record(pool, pod)

    monkeypatch.setattr(facts, "pod_record", noted)
    scene.reserve("c", 1, 4)
    assert look(it)["pods"]["dispatcher-1"]["placements"]["tenant/c"] == [4, 4, 0]  # type: ignore[index]
    assert seen == ["dispatcher-1"]


def test_a_share_that_is_not_in_the_ledger_or_weighs_more_says_its_slots():
    scene = (
        Scene()
        .pod(0, {"tenant/heavy": Share(2, 3)})
        .vpod("heavy", 2, {0: 2}, weight=3)
        .vpod("late", 1, {1: 1})
    )
    pods = look(facts_of(scene))["pods"]
    assert pods["dispatcher-0"]["placements"] == {"tenant/heavy": [2, 6, 6]}  # type: ignore[index]
    assert pods["dispatcher-1"]["placements"] == {"tenant/late": [1, 1, 0]}  # type: ignore[index]
    assert pods["dispatcher-1"]["why"] == "does not exist"  # type: ignore[index]


def test_a_vpod_that_waits_says_why_in_the_words_of_its_condition_and_no_more_than_fit():
    condition = Condition("Scheduled", "False", "InsufficientSlots", "0/3 pods " + "x" * 1_000)
    record = look(facts_of(Scene().vpod("a", 2, conditions=(condition,))))["vpods"]["tenant/a"]
    assert record["waits"].startswith("InsufficientSlots: 0/3 pods")  # type: ignore[index]
    assert len(record["waits"]) == 400  # type: ignore[index]


def test_a_pool_that_goes_takes_all_with_it():
    scene = three_zones()
    it = facts_of(scene)
    look(it)
    for ordinal in range(3):
        scene.no_pod(ordinal)
    scene.no_vpod("a").state.adapter_pool_changed(a_pool(), None)
    look(it)
    assert [name for name in ("pools", "pods", "vpods", "nodes") if it.all()[name]] == []


def test_of_too_many_pods_and_vpods_the_first_are_told_and_how_many_are_not(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(facts, "PODS_MAX", 2)
    monkeypatch.setattr(facts, "VPODS_MAX", 1)
    scene = three_zones().vpod("b", 1)
    news = look(facts_of(scene))
    assert sorted(news["pods"]) == ["dispatcher-0", "dispatcher-1"]
    assert sorted(news["vpods"]) == ["tenant/a"]
    assert news["notListed"] == {"pods": 1, "vpods": 1, "pools": 0}


def test_others_are_served_while_a_large_pool_is_looked_at():
    scene = Scene(replicas=1_000)
    for ordinal in range(1_000):
        scene.pod(ordinal)

    async def turns() -> int:
        looking = asyncio.ensure_future(facts_of(scene).look())
        count = 0
        while not looking.done():
            count += 1
            await asyncio.sleep(0)
        return count

    assert asyncio.run(turns()) > 1_000 // facts.SLICE_ITEMS


@settings(max_examples=30)
@given(world=worlds(), data=st.data())
def test_what_was_told_change_by_change_is_what_there_is(world: World, data: st.DataObject):
    """The news are merged as the page does; a look that missed a change would leave the two
    apart.
    """
    it = facts_of(world)
    known: dict[str, dict[str, object]] = {}
    for _ in range(6):
        for section, records in look(it).items():
            for key, record in records.items():
                if record is None:
                    del known[section][key]
                else:
                    known.setdefault(section, {})[key] = record
        assert {name: records for name, records in known.items() if records} == look(
            facts_of(world)
        )
        _change(world, data)


def _change(world: World, data: st.DataObject) -> None:
    match data.draw(
        st.sampled_from(["pod", "vpod", "reserve", "release", "close", "abandon", "node", "expire"])
    ):
        case "pod":
            world.put(data.draw(pods(POOL)))
        case "vpod":
            world.put(data.draw(vpods(POOL)))
        case "reserve":
            share = Share(data.draw(st.integers(0, 3)), data.draw(st.integers(1, 2)))
            world.reserve(
                "test",
                POOL,
                "tenant/a",
                {f"dispatcher-{data.draw(st.integers(0, 3))}": share},
                30.0,
            )
        case "release":
            world.release("test", POOL, "tenant/a")
        case "close":
            world.close(POOL, data.draw(st.integers(0, 7)))
        case "abandon":
            world.abandon(
                POOL,
                frozenset(data.draw(st.sets(st.sampled_from(["dispatcher-0", "dispatcher-1"])))),
            )
        case "node" if world.nodes:
            node = world.nodes[data.draw(st.sampled_from(sorted(world.nodes)))]
            world.put(replace(node, ready=not node.ready))
        case _:
            world.expire(40.0)
