"""The page's address says what is shown, and what is shown follows it: links, and the browser's
back button.
"""

from tests.support.builders import NS, POOL, a_pool
from tests.ui.browser import browsing, needs_browser
from tests.ui.scene import a_page, served
from tests.ui.test_page import NOT_THERE, small
from tests.ui.test_tables import sorts

pytestmark = needs_browser


async def test_back_leads_to_what_was_looked_at_before():
    async with served(a_page(small().state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(6)
        await it.find("alpine/orders-0")
        await it.until_text("#side h2", "vpod alpine/orders-0")
        await it.find("dispatcher-3")
        await it.until_text("#side h2", "pod dispatcher-3")
        await it.tab.go_back()
        await it.until_text("#side h2", "vpod alpine/orders-0")
        await it.until_count(".pod.inside", 5)
        await it.tab.go_back()
        await it.until_text("#side h2", "Attention")
        await it.until_count(".pod.inside", 0)


async def test_a_link_to_another_pool_is_followed_in_an_open_tab():
    cluster = small()
    cluster.state.adapter_pool_changed(None, a_pool(name="broker", stateful_set="broker"))
    fragment = f"pool={POOL}"
    async with (
        served(a_page(cluster.state)) as url,
        browsing(url, fragment=fragment, fails=NOT_THERE) as it,
    ):
        await it.until_pods(6)
        await it.tab.evaluate("hash => { location.hash = hash }", f"#pool={NS}/broker")
        await it.until_pods(0)
        assert await it.tab.locator("#pool").input_value() == f"{NS}/broker"
        await it.tab.go_back()
        await it.until_pods(6)
        assert await it.tab.locator("#pool").input_value() == POOL


def _fragment(**what: str) -> str:
    return "#" + "&".join(f"{name}={value}" for name, value in what.items())


async def test_an_address_that_changes_in_an_open_tab_changes_what_is_shown():
    cluster = small()
    async with served(a_page(cluster.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(6)
        await it.tab.evaluate("window.kept = true")
        await it.tab.evaluate(
            "hash => { location.hash = hash }", _fragment(pool=POOL, vpod="alpine/orders-0")
        )
        await it.until_text("#side h2", "vpod alpine/orders-0")
        await it.tab.evaluate(
            "hash => { location.hash = hash }", _fragment(pool=POOL, view="table", sortPods="-used")
        )
        await it.until_text("#table", "dispatcher-5")
        await it.until_text("#side h2", "Attention")
        assert (await sorts(it))["Used"] == "descending"
        await it.tab.go_back()
        await it.until_text("#side h2", "vpod alpine/orders-0")
        assert await it.tab.locator("#map").is_visible()
        await it.tab.go_forward()
        await it.until_text("#table", "dispatcher-5")
        assert await it.tab.evaluate("window.kept")
