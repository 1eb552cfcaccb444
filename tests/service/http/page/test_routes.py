"""``/ui``: which files are served, to whom, under which policy, and that nothing else is."""

import re

import aiohttp
import pytest
from multidict import CIMultiDictProxy

from extender.service.http.page.assets import load_assets
from tests.support.builders import Scene
from tests.support.service import World
from tests.ui.scene import a_page, served

FILES = sorted(load_assets())


async def get(url: str, path: str, **headers: str) -> tuple[int, str, CIMultiDictProxy[str]]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(url + path, headers=headers, allow_redirects=False) as reply,
    ):
        return reply.status, await reply.text(), reply.headers


async def test_the_service_serves_the_page_beside_its_state():
    world = await World.create()
    async with world.serving(serve=True) as service:
        status, text, headers = await get(service.server.url, "/ui")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "<title>vreplicas</title>" in text


@pytest.mark.parametrize("name", [name for name in FILES if name != "index.html"])
async def test_every_file_is_served_with_a_policy_that_lets_nothing_else_in(name: str):
    async with served(a_page(Scene().state)) as url:
        status, text, headers = await get(url, f"/ui/{name}")
        assert (status, bool(text)) == (200, True)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_who_has_a_file_is_not_sent_it_again_until_it_changes():
    async with served(a_page(Scene().state)) as url:
        _, _, headers = await get(url, "/ui/style.css")
        tag = headers["ETag"]
        status, text, headers = await get(url, "/ui/style.css", **{"If-None-Match": tag})
        assert (status, text, headers["ETag"]) == (304, "", tag)
        status, _, _ = await get(url, "/ui/style.css", **{"If-None-Match": '"another"'})
        assert status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../app.py",
        "/ui/%2e%2e/app.py",
        "/ui/..%2fapp.py",
        "/ui/nothing.js",
        "/ui/index.html",
        "/ui//etc/passwd",
    ],
)
async def test_nothing_but_these_files_is_served(path: str):
    async with served(a_page(Scene().state)) as url:
        assert (await get(url, path))[0] == 404


async def test_a_slash_too_much_leads_to_the_page_also_behind_a_proxy():
    async with served(a_page(Scene().state)) as url:
        status, _, headers = await get(url, "/ui/")
        assert (status, headers["Location"]) == (308, "../ui")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Sec-Fetch-Site": "same-origin"}, 200, id="our own page"),
        pytest.param({"Sec-Fetch-Site": "none"}, 200, id="typed by a person"),
        pytest.param(
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
            200,
            id="a link that was followed",
        ),
        pytest.param(
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
            403,
            id="another site's script",
        ),
        pytest.param(
            {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
            403,
            id="another port's script",
        ),
        pytest.param({"Host": "localhost:8080"}, 200, id="localhost"),
        pytest.param({"Host": "[::1]:8080"}, 200, id="loopback in IPv6"),
        pytest.param(
            {"Host": "evil.example:8080"},
            421,
            id="a name that somebody has made resolve to loopback",
        ),
    ],
)
async def test_on_loopback_only_this_site_is_answered(headers: dict[str, str], status: int):
    async with served(a_page(Scene().state)) as url:
        assert (await get(url, "/ui", **headers))[0] == status


async def test_the_name_of_a_pool_is_bounded():
    async with served(a_page(Scene().state)) as url:
        status, text, _ = await get(url, "/v1/stream?pool=" + "x" * 400)
        assert (status, text) == (400, "pool must be NAMESPACE/NAME\n")


def test_the_page_names_no_place_outside_and_has_no_script_or_style_of_its_own():
    for name, asset in load_assets().items():
        text = asset.content.decode()
        outside = [
            link for link in re.findall(r"https?://[^\s\"')]+", text) if "www.w3.org" not in link
        ]
        assert outside == [], name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text
        ), name
        if name.endswith(".html"):
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)
