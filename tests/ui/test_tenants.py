"""The tenants of a pool that they share: who has borrowed most, who waits, and for which quota."""

from dataclasses import replace

import pytest

from extender.model.objects import Condition
from extender.model.tenancy import Tenancy, VReplicaQuota
from tests.support.builders import POOL, Scene, a_pool
from tests.ui.browser import Opened, browsing, needs_browser
from tests.ui.scene import a_page, served
from tests.ui.test_page import HOSTILE, NOT_THERE, small

pytestmark = needs_browser
SHARED = Tenancy(default_limit=1_000)
OVER = Condition("Scheduled", "False", "QuotaExceeded", "tenant greedy may use 28 slots")


def shared(tenancy: Tenancy = SHARED) -> Scene:
    """As in docs/tenancy.md: 80 slots, of which a tenant is guaranteed 30 and gets 50 at most."""
    scene = Scene(replicas=4, max_pods=4, tenancy=tenancy)
    quota = VReplicaQuota(namespace="late-a", name="quota", pool=POOL, guarantee=30, limit=50)
    scene.state.quota_changed(None, quota)
    scene.pod(0, {"greedy/everything": 20}).pod(1, {"late-a/orders": 20})
    scene.pod(2, {"late-a/orders": 20}).pod(3, {"greedy/everything": 8, "late-a/orders": 10})
    scene.vpod("everything", 1_000_000, {0: 20, 3: 8}, namespace="greedy", conditions=(OVER,))
    scene.vpod("orders", 100, {1: 20, 2: 20, 3: 10}, namespace="late-a")
    return scene.vpod("clicks", 2, {}, namespace="late-b")


async def rows(it: Opened) -> list[str]:
    return await it.texts('#table [data-table="tenants"] tbody tr')


async def test_tenants_are_told_with_who_has_borrowed_most_and_who_waits():
    async with served(a_page(shared().state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_text("#side", "Borrowed most: greedy 28 slots, late-a 20.")
        await it.until_text(
            "#side",
            "3 of 3 tenants wait for 1,000,024 slots: greedy for 999,972, late-a for 50, "
            "late-b for 2.",
        )
        assert await it.texts("#side .shares .figure") == [
            "28 slots, 999,972 wait",
            "50 slots, 50 wait",
            "0 slots, 2 wait",
        ]
        assert [
            await bar.get_attribute("aria-label")
            for bar in await it.tab.locator("#side .shares .bar").all()
        ] == [
            "28 slots used, 28 borrowed; a guarantee of 0, a limit of 1,000",
            "50 slots used, 20 borrowed; a guarantee of 30, a limit of 50",
            "0 slots used, 0 borrowed; a guarantee of 0, a limit of 1,000",
        ]


async def test_the_table_has_the_figures_of_each_tenant_and_follows_the_news():
    scene = shared(Tenancy())
    async with served(a_page(scene.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(4)
        await it.tab.click("text=All figures")
        assert await it.tab.evaluate("document.activeElement.textContent") == "greedy"
        assert await rows(it) == [
            "greedy 1 0 none 28 28 28 999,972",
            "late-a 1 30 50 50 50 20 50",
            "late-b 1 0 none 2 0 0 2",
        ]
        scene.pod(3, {"late-a/orders": 10, "late-b/clicks": 2})
        scene.vpod("clicks", 2, {3: 2}, namespace="late-b")

        async def is_told() -> bool:
            return (await rows(it))[-1] == "late-b 1 0 none 2 2 2 0"

        await it.until(is_told, f"the news is not in the table: {await rows(it)}")
        assert await it.tab.evaluate("document.activeElement.textContent") == "greedy"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_every_view_of_tenants_is_accessible(dark: bool):
    page = a_page(shared().state)
    async with served(page) as url, browsing(url, dark=dark, fails=NOT_THERE) as it:
        await it.until_text("#side", "Borrowed most")
        assert await it.violations() == []
        await it.find("greedy/everything")
        await it.until_text("#side", "Its tenant is greedy")
        assert await it.violations() == []
        await it.tab.click("text=Its row among all tenants")
        await it.until_count('#table [data-table="tenants"] [aria-current]', 1)
        assert await it.violations() == []


async def test_a_vpod_that_waits_for_quota_leads_to_the_row_of_its_tenant_by_keys_alone():
    async with served(a_page(shared().state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(4)
        await it.until_text("#side .reasons .of-tenants", "of tenant greedy")
        await it.find("greedy/everything")
        await it.until_text("#side", "QuotaExceeded: tenant greedy may use 28 slots")
        await it.until_text(
            "#side",
            "It uses 28 slots, 28 of them borrowed, and has a guarantee of 0, a limit of 1,000, a "
            "fair share of 28. It waits for 999,972 more.",
        )
        await it.tab.locator("text=Its row among all tenants").focus()
        await it.tab.keyboard.press("Enter")
        await it.until_text("#side h2", "tenant greedy")
        assert await it.texts("#table [aria-current]") == ["greedy"]
        assert await it.tab.evaluate("document.activeElement.textContent") == "greedy"
        assert "tenant=greedy" in it.tab.url
        assert "view=table" in it.tab.url
        await it.tab.reload()
        await it.until_text("#table [aria-current]", "greedy")


async def test_of_many_tenants_how_many_are_left_out_is_said():
    scene = Scene(replicas=1, max_pods=1, tenancy=Tenancy()).pod(0)
    for number in range(60):
        scene.vpod(f"v-{number}", 1 + number, namespace=f"team-{number}")
    async with served(a_page(scene.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_text("#side", "team-58 for 59, team-57 for 58, and 57 more.")
        assert len(await it.texts("#side .shares .bar")) == 30
        await it.until_text("#side .shares", "and 30 more")
        await it.tab.click("text=All figures")
        assert len(await rows(it)) == 50
        await it.until_text('#table [data-table="tenants"] caption', "Tenants (60), in slots")
        await it.until_text(
            '#table [data-table="tenants"]', "and 10 more: those that wait for least"
        )
        await it.find("team-3/v-3")
        await it.until_text("#side", "Its tenant is team-3.")
        await it.tab.click("#side >> role=button[name='team-3']")
        await it.until_text("#side", "Its figures are not here: 10 tenants of those")


async def test_namespaces_of_one_tenant_are_one_tenant_on_the_page_too():
    scene = shared(Tenancy(tenant_label="team"))
    async with served(a_page(scene.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_text("#legend", "namespace/late-a")
        for name in ("late-a", "late-b"):
            scene.namespace(name, team="late")
        await it.until_text("#side h2", "Tenants (2)")
        await it.until_text("#legend", "late namespace/greedy")
        label = it.tab.locator('[data-name="dispatcher-3"]')

        async def is_told() -> bool:
            return "late 10, namespace/greedy 8" in str(await label.get_attribute("aria-label"))

        await it.until(is_told, "the map still has the former tenant")
        await it.tab.click("#side .shares >> role=button[name='late']")
        await it.until_text("#side", "2 vpods, 50 slots on 3 pods.")
        await it.until_count(".pod.inside", 3)


async def test_a_pool_without_tenancy_shows_nothing_of_shares():
    cluster = small()
    async with served(a_page(cluster.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_pods(6)
        await it.find("alpine/orders-0")
        await it.until_text("#side", "5 of 8 vreplicas are placed")
        assert "Its tenant" not in await it.text("#side")
        await it.tab.click("#view")
        await it.until_text("#table", "dispatcher-5")
        assert await it.tab.locator('.quota, [data-table="tenants"]').count() == 0
        assert "Tenant" not in await it.texts('#table [data-table="vpods"] thead th')


async def test_a_pool_that_gives_up_its_tenancy_shows_its_tenants_as_others_do():
    scene = shared()
    async with served(a_page(scene.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_text("#side", "Borrowed most")
        await it.tab.click("text=All figures")
        old = a_pool(max_pods=4, tenancy=SHARED)
        scene.state.adapter_pool_changed(old, replace(old, tenancy=None))
        await it.until_count(".quota", 0)
        await it.until_text("#side .tenants", "greedy 28 slots")


async def test_names_of_tenants_are_text_whatever_they_say():
    scene = Scene(replicas=1, max_pods=1, tenancy=Tenancy(tenant_label="team")).pod(0)
    for number, name in enumerate(HOSTILE):
        scene.namespace(f"n-{number}", team=name)
        scene.vpod("a", 100 - number, namespace=f"n-{number}", conditions=(OVER,))
    async with served(a_page(scene.state)) as url, browsing(url, fails=NOT_THERE) as it:
        await it.until_text("#side h2", f"Tenants ({len(HOSTILE)})")
        await it.tab.evaluate(
            "() => { window.alert = () => { throw new Error('a name was run') } }"
        )
        for number, name in enumerate(HOSTILE[:6]):
            await it.find(f"n-{number}/a")
            await it.until_text("#side", f"Its tenant is {name}")
            await it.tab.click("text=Its row among all tenants")
            await it.until_text("#side h2", name)
            assert await it.texts("#table [aria-current]") == [name]
        assert await it.tab.locator("main img, main script, main a").count() == 0
        assert await it.tab.evaluate(
            "Object.keys(Object.prototype).length === 0 && ({}).usedSlots === undefined"
        )


@pytest.mark.parametrize("width", [320, 390])
async def test_tenants_are_not_cut_off_on_a_phone(width: int):
    async with (
        served(a_page(shared().state)) as url,
        browsing(url, size=(width, 700), fails=NOT_THERE) as it,
    ):
        await it.until_text("#side", "Borrowed most")
        too_wide = "document.documentElement.scrollWidth - window.innerWidth"
        assert await it.tab.evaluate(too_wide) <= 0
        await it.tab.click("text=All figures")
        await it.until_text("#table", "late-b")
        assert await it.tab.evaluate(too_wide) <= 0
