"""What the page tells first, and beside the map: nothing before it knows, troubles by reason, fixes
with all that matters.
"""

from dataclasses import replace

import pytest

from extender.engine.state.cluster_state import ClusterState
from tests.support.builders import NS, Scene, a_pool
from tests.ui.browser import browsing, needs_browser
from tests.ui.scene import Answers, Cluster, a_page, hold_pools_back, served
from tests.ui.test_page import NOT_THERE, PLANNED, small

pytestmark = needs_browser


@pytest.mark.parametrize(
    "selected", ["", "vpod=alpine%2Forders-0"], ids=["nothing selected", "a vpod"]
)
async def test_before_a_pool_is_told_nothing_is_said_of_it(selected: str):
    page = a_page(small().state)
    told = hold_pools_back(page)
    async with served(page) as url, browsing(url, fails=NOT_THERE, fragment=selected) as it:
        await it.until_text("#numbers", "pods 6")
        await it.until_text("#side", "Loading")
        assert await it.text("#side") == "Loading\u2026"
        assert await it.text("#loading") == "Loading\u2026"
        told.set()
        await it.until_pods(6)
        await it.until_text(
            "#side", "5 of 8 vreplicas are placed" if selected else "vpods that wait"
        )


async def test_of_another_pool_nothing_is_shown_under_the_name_of_the_chosen_one():
    cluster = small()
    cluster.state.adapter_pool_changed(None, a_pool(name="zulu", stateful_set="zulu"))
    page = a_page(cluster.state)
    async with served(page) as url, browsing(url) as it:
        await it.until_pods(6)
        told = hold_pools_back(page)
        await it.tab.select_option("#pool", f"{NS}/zulu")
        await it.until_pods(0)
        assert await it.text("#side") == "Loading\u2026"
        told.set()
        await it.until_text("#side", "Tenants (0)")


async def test_a_fix_names_its_numbers_once_and_no_values_that_are_none():
    slots = {
        "change": "slotsPerPod 20 to 21",
        "object": "AdapterPool ns/a",
        "from": 20,
        "to": 21,
        "places": 1,
    }
    bound = {
        "change": "dispatcher-5 is bound to a node",
        "object": "Pod ns/dispatcher-5",
        "from": "",
        "to": "any that takes work",
        "places": 5,
        "left": 2,
    }
    answers = Answers({"outcome": "2 of 8 wait", "fixes": [slots, bound]})
    async with served(a_page(small().state), answers) as url, browsing(url) as it:
        await it.until_pods(6)
        await it.find("alpine/orders-0")
        await it.until_text(".explanation", "What would make it fit")
        assert await it.texts(".explanation li") == [
            "slotsPerPod 20 to 21 (AdapterPool ns/a): places 1 vreplica",
            "dispatcher-5 is bound to a node (Pod ns/dispatcher-5): places 5 vreplicas, 2 "
            "vreplicas still wait",
        ]


async def test_a_fix_of_a_pod_says_what_is_changed_and_which_nodes_take_it_then():
    fix = {
        "change": "uncordon node-1",
        "object": "Node node-1",
        "field": "spec.unschedulable",
        "from": True,
        "to": False,
        "nodes": ["node-1", "node-2", "node-3", "node-4"],
        "note": "it was cordoned for a reason",
    }
    answers = Answers(
        {"outcome": "no node takes it", "fixes": [fix, {**fix, "nodes": [], "note": ""}]}
    )
    async with served(a_page(small().state), answers) as url, browsing(url) as it:
        await it.until_pods(6)
        await it.find("dispatcher-5")
        await it.until_text(".explanation", "What would make it fit")
        assert await it.texts(".explanation li") == [
            "uncordon node-1 (Node node-1): then node-1, node-2, node-3 and others would take it;"
            " it was cordoned for a reason",
            "uncordon node-1 (Node node-1)",
        ]


async def test_what_waits_is_told_by_reason_with_the_first_names():
    cluster = Cluster(pods=6, vpods=40, nodes=3, tenants=1, waiting=31)
    for index, key in enumerate(sorted(cluster.vpods)):
        vpod = cluster.vpods[key]
        if vpod.conditions:
            told = replace(vpod.conditions[0], message=f"0/{6 + index % 2} pods have room")
            cluster.put(replace(vpod, conditions=(told,)))
    async with served(a_page(cluster.state)) as url, browsing(url) as it:
        await it.until_pods(6)
        waiting = [
            vpod
            for vpod in cluster.vpods.values()
            if sum(vpod.placements.values()) < vpod.vreplicas
        ]
        await it.until_text("#side", f"vpods that wait ({len(waiting)})")
        first, *_ = await it.texts(".reasons > li")
        missing = sum(8 - sum(vpod.placements.values()) for vpod in waiting if vpod.conditions)
        assert first.startswith(f"31 vpods, {missing} vreplicas InsufficientSlots: 0/")
        assert first.endswith("and 26 more")
        assert await it.tab.locator(".reasons > li").first.locator("button").count() == 5


async def test_few_nodes_with_many_pods_take_the_whole_width():
    cluster = Cluster(pods=600, vpods=60, nodes=6)
    async with served(a_page(cluster.state)) as url, browsing(url) as it:
        await it.until_pods(600)
        zone = it.tab.locator(".zone:not(.nowhere)").first
        width = "it => it.getBoundingClientRect().width"
        whole = await zone.evaluate(width)
        nodes = [await node.evaluate(width) for node in await zone.locator(".node").all()]
        assert len(nodes) == 2
        assert sum(nodes) > 0.9 * whole


async def test_what_is_to_be_typed_to_drain_something_is_not_cut():
    fits = """field => {
      const style = getComputedStyle(field);
      const pen = document.createElement("canvas").getContext("2d");
      pen.font = style.font;
      const room = field.clientWidth - 2 * parseFloat(style.paddingLeft);
      return pen.measureText(field.placeholder).width <= room;
    }"""
    async with served(a_page(small().state)) as url, browsing(url) as it:
        await it.until_pods(6)
        await it.tab.click("#what-if")
        assert await it.tab.locator("#target").evaluate(fits)


async def test_without_a_pool_the_page_says_one_thing_and_offers_nothing_to_do_with_it():
    async with served(a_page(ClusterState())) as url, browsing(url) as it:
        await it.until_text(".notice", "There is no AdapterPool yet.")
        await it.until_text("#side", "There is no AdapterPool in this cluster.")
        text = await it.text("body")
        assert "not known" not in text
        assert "Tenants" not in text
        for offer in ("#view", "#what-if", ".pool-field", "#legend"):
            assert not await it.tab.locator(offer).is_visible(), offer
        assert await it.violations() == []


@pytest.mark.parametrize(
    ("scene", "says"),
    [
        pytest.param(Scene(replicas=0), "This pool has no pods and no vpods yet.", id="neither"),
        pytest.param(Scene(replicas=1).pod(0), "No vpod uses this pool yet.", id="no vpods"),
        pytest.param(Scene(replicas=0).vpod("a", 1), "This pool has no pods yet.", id="no pods"),
    ],
)
async def test_of_an_empty_pool_the_page_does_not_say_that_all_is_well(scene: Scene, says: str):
    async with served(a_page(scene.state)) as url, browsing(url) as it:
        await it.until_text("#side", says)
        assert "every pod takes work" not in await it.text("#side")


async def test_what_if_shows_the_pods_that_come_on_the_map_as_new():
    plan = {
        **PLANNED,
        "summary": {**PLANNED["summary"], "podsAfter": 8},  # type: ignore[dict-item]
    }
    answers = Answers(plan=plan)
    async with served(a_page(small().state), answers) as url, browsing(url) as it:
        await it.until_pods(6)
        await it.tab.click("#what-if")
        await it.tab.fill("[name=slotsPerPod]", "10")
        await it.tab.click("text=Show the plan")
        await it.until_text("#map .to-come", "New in this plan 2 pods")
        assert await it.texts(".to-come li") == [
            "dispatcher-6 3/10 new +3",
            "dispatcher-7 0/10 new",
        ]
        assert await it.tab.locator(".to-come button").count() == 0  # nothing is known of them
        assert await it.violations() == []
        await it.tab.keyboard.press("Escape")
        await it.until_count(".to-come", 0)


async def test_a_pool_that_is_deleted_while_the_page_is_open_is_told_in_one_way():
    cluster = Cluster(pods=0, vpods=0, nodes=0)
    async with served(a_page(cluster.state)) as url, browsing(url) as it:
        await it.until_text("#side", "This pool has no pods and no vpods yet.")
        cluster.state.adapter_pool_changed(a_pool(20), None)
        await it.until_text("#side", "There is no AdapterPool in this cluster.")
        await it.until_text(".notice", "There is no AdapterPool yet.")
