"""Screenshots of the page, for the documentation and to be looked at: ``python -m tests.ui.screenshots DIR``.

``ui-demo.png`` is ``vreplica run`` with a vpod selected, ``ui-large.png`` 1,000 pods and 2,000 vpods in the dark; the others are for eyes only.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from extender.demo.local import LocalSystem
from extender.demo.story import Census, Story
from extender.service.page import history
from tests.ui.browser import Opened, browsing
from tests.ui.scene import Answers, Cluster, a_page, an_hour_of_history, served
from tests.ui.test_page import EXPLAINED, NOT_THERE, PLANNED

SIZE = (1280, 800)


async def demonstration(directory: Path) -> None:
    """``vreplica run``, and what follows from each step."""
    history.PERIOD_S = 0.25  # type: ignore[misc]  # so that there is something to see after seconds
    with tempfile.TemporaryDirectory() as made:
        async with LocalSystem(seed=1, directory=Path(made)) as system:
            census = Census()
            system.local.spawn(census.follow(system.local.cluster), "census")
            async with browsing(system.running.server.url, fails=NOT_THERE, size=SIZE) as it:
                await it.until_text("#replica", "live")
                await shoot(it, directory / "empty.png")
                await Story(system, census, lambda _line: None).play()
                await asyncio.sleep(3)
                await shoot(it, directory / "demo.png")
                await it.find("team-a/orders-0")
                await it.until_text("#side .explanation", "placed")
                # Without the footer, which has the name of the machine that this was made on.
                await shoot(
                    it, directory / "ui-demo.png", clip={"x": 0, "y": 0, "width": 1280, "height": 590}
                )


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
    (directory / "large-dark.png").replace(directory / "ui-large.png")


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


async def main(directory: Path) -> None:
    """All of them."""
    await demonstration(directory)
    await constructed(directory)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(target))
