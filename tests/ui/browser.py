"""A real Chromium (Debian's) before the page, and axe in it. Without them the tests are skipped,
and say why.

Every page records what it complains of: an error, a refusal by the content security policy, or
something that it asks for elsewhere fails the test.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip(
    "playwright", reason="the browser's driver is not installed (requirements/browser.txt)"
)

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page as Tab, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PERIOD_S = 0.05
WAIT_S = 30.0

needs_browser = [
    pytest.mark.skipif(
        not CHROMIUM, reason="there is no chromium on this machine (apt-get install chromium)"
    ),
    pytest.mark.browser,
    pytest.mark.timeout(180),
    pytest.mark.slow,
]


@dataclass
class Opened:
    """A tab with the page, and what it has complained of."""

    tab: Tab
    complaints: list[str] = field(default_factory=list)

    async def texts(self, selector: str) -> list[str]:
        return [
            " ".join(text.split()) for text in await self.tab.locator(selector).all_inner_texts()
        ]

    async def text(self, selector: str) -> str:
        return " ".join((await self.tab.locator(selector).first.inner_text()).split())

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        for _ in range(int(WAIT_S / PERIOD_S)):
            if await holds():
                return
            await asyncio.sleep(PERIOD_S)
        raise TimeoutError(what)

    async def until_text(self, selector: str, part: str) -> None:
        async def is_there() -> bool:
            return any(part in text for text in await self.texts(selector))

        await self.until(
            is_there, f"{selector} does not say {part!r}: {await self.texts(selector)}"
        )

    async def until_count(self, selector: str, count: int) -> None:
        async def are_there() -> bool:
            found: int = await self.tab.locator(selector).count()
            return found == count

        await self.until(are_there, f"{selector} is not there {count} times")

    async def until_pods(self, count: int) -> None:
        await self.until_count(".pod", count)

    async def find(self, text: str) -> None:
        """Search something, and take what is found first."""
        await self.tab.keyboard.press("/")
        await self.tab.keyboard.type(text)
        await self.tab.keyboard.press("Enter")

    async def violations(self, *, without: str = "") -> list[str]:
        """What axe finds, but in what ``without`` selects: it looks at every element, and of many
        equal ones that takes minutes.
        """
        context = {"exclude": [[without]]} if without else None
        found = await Axe().run(self.tab, context)
        return [
            f"{it['id']}: {it['help']}: {[node['html'][:200] for node in it['nodes'][:3]]}"
            for it in found.response["violations"]
        ]


@asynccontextmanager
async def browsing(
    url: str,
    *,
    dark: bool = False,
    size: tuple[int, int] = (1360, 900),
    fails: tuple[str, ...] = (),
    fragment: str = "",
    **context: Any,
) -> AsyncIterator[Opened]:
    """The page at ``url``, opened; ``size`` in CSS pixels. ``fails``: parts of complaints that are
    expected; ``fragment``: of its address.
    """
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        made = await browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            **context,
        )
        opened = Opened(await made.new_page())
        tab = opened.tab
        tab.on("pageerror", lambda error: opened.complaints.append(f"error: {error}"))
        tab.on(
            "console",
            lambda it: (
                opened.complaints.append(it.text) if it.type in {"error", "warning"} else None
            ),
        )
        tab.on(
            "request",
            lambda it: (
                None if it.url.startswith(url) else opened.complaints.append(f"asks for {it.url}")
            ),
        )
        try:
            await tab.goto(f"{url}/ui#{fragment}")
            yield opened
        finally:
            await browser.close()
        assert [it for it in opened.complaints if not any(part in it for part in fails)] == []
