"""Screenshots of the page, for the documentation and to be looked at: ``python -m
tests.ui.screenshots DIR``.

``ui-demo.png`` is ``vreplica run`` when its story is told, ``ui-large.png`` the same with 2,000
vpods in the dark, both as a person sees them first. The others are of constructed states, and for
eyes only.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from extender.kube.api import VPODS as VPODS_RESOURCE
from extender.lab.demo.local import LocalSystem, create_namespace
from extender.lab.demo.story import POOL, POOL_NAMESPACE, VPODS_COUNT, Census, Story
from extender.model.names import API_VERSION
from extender.service.http.page import history
from tests.ui.browser import Opened, browsing
from tests.ui.scene import TENANT_NAMES, Answers, Cluster, a_page, an_hour_of_history, served
from tests.ui.test_page import EXPLAINED, NOT_THERE, PLANNED

SIZE = (1280, 800)
VPODS = 2_000
VREPLICAS_MAX = 5
"""Of one vpod: so many in all as the embedded cluster's nodes have CPU for."""
SETTLED_S = 400.0


@asynccontextmanager
async def told() -> AsyncIterator[tuple[LocalSystem, Census]]:
    """``vreplica run``, up to the end of its story."""
    with tempfile.TemporaryDirectory() as made:
        async with LocalSystem(seed=1, directory=Path(made)) as system:
            census = Census()
            system.local.spawn(census.follow(system.local.cluster), "census")
            await Story(system, census, lambda _line: None).play()
            yield system, census


async def demonstration(directory: Path) -> None:
    """The end of the story, at first sight and with a vpod selected."""
    history.PERIOD_S = 0.25  # type: ignore[misc]  # so that there is something to see after seconds
    async with (
        told() as (system, census),
        browsing(system.running.server.url, fails=NOT_THERE, size=SIZE) as it,
    ):
        await it.until_pods(len(census.pods))
        await it.until_text("#side", "Nobody serves")
        await asyncio.sleep(3)
        await shoot_for_docs(it, directory / "ui-demo.png", height=590)
        await it.find("team-a/orders-0")
        await it.until_text("#side .explanation", "placed")
        await shoot(it, directory / "demo-vpod.png")


async def large_run(directory: Path) -> None:
    """The same, and then as many more vpods as make 2,000, of 24 tenants, once all of them are
    placed.
    """
    async with told() as (system, census):
        api = system.local.cluster
        for tenant in TENANT_NAMES:
            await create_namespace(api, tenant)
        for index in range(VPODS - VPODS_COUNT):
            tenant = TENANT_NAMES[index % len(TENANT_NAMES)]
            vpod = {
                "apiVersion": API_VERSION,
                "kind": "VPod",
                "metadata": {"name": f"orders-{index // len(TENANT_NAMES)}", "namespace": tenant},
                "spec": {
                    "poolRef": {"namespace": POOL_NAMESPACE, "name": POOL},
                    "vreplicas": 1 + index % VREPLICAS_MAX,
                },
            }
            await api.create(VPODS_RESOURCE, tenant, vpod)
        async with asyncio.timeout(SETTLED_S):
            while len(census.vpods) < VPODS or not census.settled:
                system.local.check()
                await asyncio.sleep(1)
        async with browsing(system.running.server.url, dark=True, fails=NOT_THERE, size=SIZE) as it:
            await it.until_pods(len(census.pods))
            await asyncio.sleep(2)
            await shoot_for_docs(it, directory / "ui-large.png", height=680)


async def constructed(directory: Path) -> None:
    """Small and large states, in every view, light and dark, wide and narrow."""
    sizes = {
        "small": Cluster(pods=17, vpods=40, nodes=6, tenants=4),
        "large": Cluster(pods=1_000, vpods=2_000, nodes=100),
    }
    for name, cluster in sizes.items():
        page = a_page(cluster.state)
        await an_hour_of_history(page, cluster)
        async with served(page, Answers(EXPLAINED, PLANNED)) as url:
            for look in ("light", "dark", "phone"):
                size = (390, 800) if look == "phone" else SIZE
                async with browsing(url, dark=look == "dark", size=size) as it:
                    await it.until_pods(len(cluster.pods))
                    await asyncio.sleep(1)
                    await shoot(it, directory / f"{name}-{look}.png")
                    await each_view(it, directory, f"{name}-{look}", min(cluster.vpods))


async def each_view(it: Opened, directory: Path, name: str, vpod: str) -> None:
    """A vpod, what if, tables."""
    await it.find(vpod)
    await it.until_text(".explanation", "one pod more")
    await shoot(it, directory / f"{name}-vpod.png")
    await it.tab.keyboard.press("Escape")
    await it.tab.click("#what-if")
    await it.tab.click("text=Show the plan")
    await it.until_text("#side", "The plan")
    await shoot(it, directory / f"{name}-what-if.png")
    await it.tab.keyboard.press("Escape")
    await it.tab.click("#view")
    await it.until_text("#table", "dispatcher")
    await shoot(it, directory / f"{name}-table.png")


async def shoot(it: Opened, path: Path, **options: Any) -> None:
    """What is seen of the page now."""
    await it.tab.screenshot(path=path, **options)


async def shoot_for_docs(it: Opened, path: Path, *, height: int) -> None:
    """The upper part of what is seen, without the footer: it has the name of the machine that this
    is made on.
    """
    await it.tab.evaluate("document.querySelector('footer').hidden = true")
    await shoot(it, path, clip={"x": 0, "y": 0, "width": SIZE[0], "height": height})


async def main(directory: Path) -> None:
    """All of them."""
    await demonstration(directory)
    await large_run(directory)
    await constructed(directory)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(target))
