"""The tables: sorted as a person chooses, through news and in the address, and readable on
a phone.
"""

from dataclasses import replace

import pytest

from extender.engine.pods.pod_loads import pod_loads
from extender.model.assignment import AssignedShare, Assignment, ShareState, encode_assignment
from extender.model.ledger import Share
from extender.model.objects import LoadTarget
from tests.support.builders import POOL, Scene, a_pool
from tests.ui.browser import Opened, browsing, needs_browser
from tests.ui.scene import Cluster, a_page, served
from tests.ui.test_page import NOT_THERE

pytestmark = needs_browser
TABLES = "view=table"


def uneven() -> Cluster:
    """Four pods with 2, 1, 2 and 0 slots used."""
    cluster = Cluster(pods=4, vpods=0, nodes=3)
    for ordinal, used in enumerate((2, 1, 2, 0)):
        pod = cluster.pods[f"dispatcher-{ordinal}"]
        cluster.put(replace(pod, ledger={"tenant/a": Share(used)} if used else {}))
    return cluster


async def pods(it: Opened) -> list[str]:
    return await it.texts("#table .scroll:nth-child(1) tbody th")


async def sorts(it: Opened) -> dict[str, str]:
    """What each column of the pods says of its order."""
    heads = await it.tab.locator("#table .scroll:nth-child(1) thead th").all()
    return {
        (await head.inner_text()).split()[0]: str(await head.get_attribute("aria-sort"))
        for head in heads
    }


async def sort_by(it: Opened, title: str) -> None:
    await it.tab.locator(f"#table .scroll:nth-child(1) thead button:has-text('{title}')").focus()
    await it.tab.keyboard.press("Enter")


async def test_a_column_sorts_by_its_button_and_equal_rows_stay_in_order_of_their_names():
    async with served(a_page(uneven().state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(4)
        await it.tab.click("#view")
        await it.until_text("#table", "dispatcher-3")
        assert (await sorts(it))["Pod"] == "ascending"
        await sort_by(it, "Used")
        assert await pods(it) == ["dispatcher-0", "dispatcher-2", "dispatcher-1", "dispatcher-3"]
        assert {title: order for title, order in (await sorts(it)).items() if order != "none"} == {
            "Used": "descending"
        }
        assert await it.text("#live") == "Pods sorted by Used, descending"
        await it.tab.keyboard.press("Enter")  # the button that was pressed still has the focus
        assert await pods(it) == ["dispatcher-3", "dispatcher-1", "dispatcher-0", "dispatcher-2"]
        assert (await sorts(it))["Used"] == "ascending"
        assert await it.violations() == []


def balanced() -> Cluster:
    """As ``uneven``, in a pool with capacities that balances load, asked at its leader."""
    cluster = uneven()
    pool = cluster.state.pool(POOL)
    target = LoadTarget(metric="requests", target=1.2)
    pool.set_pool(a_pool(capacities=(("cpu", 4000),), load=target), pool.stateful_set)
    pool.load = pod_loads({0: 30.0, 1: 10.0, 2: 10.0, 3: 10.0}, {0: 2, 1: 1, 2: 2})
    return cluster


async def test_load_and_dimensions_are_shown_where_a_pool_has_them_and_sort():
    async with served(a_page(balanced().state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(4)
        await it.until_text("#numbers", "2 times the mean requests; target 1.2")
        await it.tab.click("#view")
        await it.until_text("#table", "0 of 4,000 cpu used")
        await sort_by(it, "Load")
        assert (await pods(it))[0] == "dispatcher-0"
        assert "sortPods=-load" in it.tab.url
        await it.tab.click("#table button:has-text('dispatcher-0')")
        await it.until_text("#side", "Load: 30 requests, 2 times the pods' mean.")
        await it.until_text("#side", "0 of 4,000 cpu used.")
        assert await it.violations() == []


async def test_what_adapters_have_still_to_do_is_shown_where_there_is_something():
    cluster = uneven()
    share = AssignedShare(1, 1, 1, 7, ShareState.DRAIN)
    told = encode_assignment(Assignment(4, "n/p", "uid", {"tenant/a": share}))
    cluster.put(replace(cluster.pods["dispatcher-1"], assignment_text=told))
    async with served(a_page(cluster.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(4)
        await it.tab.click("#view")
        await it.until_text("#table", "1 to drain, unacknowledged")
        await it.tab.click("#table button:has-text('dispatcher-1')")
        await it.until_text("#side", "Its adapter: 1 to drain, unacknowledged.")
        assert await it.violations() == []


async def test_a_pool_without_load_and_dimensions_has_no_columns_for_them():
    async with served(a_page(uneven().state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(4)
        await it.tab.click("#view")
        await it.until_text("#table", "dispatcher-3")
        assert not {"Load,", "Dimensions", "Hand-over"} & (await sorts(it)).keys()


async def test_an_order_lasts_through_news_and_is_in_the_address():
    cluster = uneven()
    async with served(a_page(cluster.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(4)
        await it.tab.click("#view")
        await it.until_text("#table", "dispatcher-3")
        await sort_by(it, "Used")
        cluster.put(replace(cluster.pods["dispatcher-1"], ledger={"tenant/a": Share(9)}))

        async def is_first() -> bool:
            return (await pods(it))[0] == "dispatcher-1"

        await it.until(is_first, "the news is not sorted in")
        assert await it.tab.evaluate("document.activeElement.textContent.startsWith('Used')")
        assert "view=table" in it.tab.url
        assert "sortPods=-used" in it.tab.url
        await it.tab.reload()
        await it.until_text("#table", "dispatcher-3")
        assert (await pods(it))[0] == "dispatcher-1"


async def test_vpods_are_sorted_by_why_they_wait_and_those_that_do_not_come_last():
    fragment = f"{TABLES}&sortVPods=why"
    cluster = Cluster(pods=17, vpods=40, nodes=6, tenants=4)
    async with (
        served(a_page(cluster.state)) as url,
        browsing(url, fragment=fragment, fails=NOT_THERE) as it,
    ):
        await it.until_text("#table", "orders-39")
        waits = await it.texts("#table .scroll:nth-child(2) tbody td:nth-child(5)")
        assert [bool(text) for text in waits] == [True] * 3 + [False] * 37


@pytest.mark.parametrize("order", ["nothing", "-", "-__proto__", "constructor"])
async def test_an_order_that_there_is_not_is_by_name(order: str):
    fragment = f"{TABLES}&sortPods={order}"
    async with (
        served(a_page(uneven().state)) as url,
        browsing(url, fragment=fragment, fails=NOT_THERE) as it,
    ):
        await it.until_text("#table", "dispatcher-3")
        assert await pods(it) == [f"dispatcher-{ordinal}" for ordinal in range(4)]


async def test_on_a_phone_a_row_is_one_line_and_its_name_stays_while_the_table_is_scrolled():
    cluster = Cluster(pods=17, vpods=40, nodes=6, tenants=4)
    async with (
        served(a_page(cluster.state)) as url,
        browsing(url, size=(390, 844), fragment=TABLES, fails=NOT_THERE) as it,
    ):
        await it.until_text("#table", "dispatcher-16")
        measured = await it.tab.evaluate(
            """() => [...document.querySelectorAll("#table .scroll")].slice(0, 2).map((table) => {
              table.scrollTo(table.scrollWidth, 0);
              const at = (it) => table.querySelector(it).getBoundingClientRect();
              const heights = [...table.querySelectorAll("tbody tr")]
                .map((it) => it.getBoundingClientRect().height);
              const shift = at("tbody th").left - table.getBoundingClientRect().left;
              return [Math.max(...heights), shift, at("thead th:last-child").right];
            })"""
        )  # at once: news draws the tables anew
        for highest, shift, right in measured:
            assert highest < 45
            assert 0 <= shift < 3
            assert right <= 390
        assert (
            await it.tab.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        )
        assert await it.violations() == []


async def test_five_thousand_pods_are_sorted_at_once():
    scene = Scene(replicas=5_000)
    for ordinal in range(5_000):
        scene.pod(ordinal, {f"tenant/v-{ordinal % 97}": 1 + ordinal % 20})
    async with (
        served(a_page(scene.state)) as url,
        browsing(url, fragment=TABLES, fails=NOT_THERE) as it,
    ):
        await it.until_text("#table caption", "Pods (5,000)")
        await it.until_pods(5_000)
        first = await it.tab.evaluate(
            """() => {
              const button = [...document.querySelectorAll("#table button.sort")]
                .find((it) => it.textContent.startsWith("Used"));
              button.click();
              return document.querySelector("#table .scroll:nth-child(1) tbody th").textContent;
            }"""
        )
        assert first == "dispatcher-19", "sorted when the click returns, not later"
        assert (await sorts(it))["Used"] == "descending"
