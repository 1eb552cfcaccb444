"""Pages of other sites in a browser that reaches us: what they are refused, and who is not taken
for one.
"""

import aiohttp
import orjson
import pytest

from tests.service.http.test_server import serving
from tests.support.service import World, bind_args, until

EVIL = {"Host": "evil.example:10261", "Origin": "http://evil.example:10261"}
ROUTES = [
    ("POST", "/v1/filter"),
    ("POST", "/v1/prioritize"),
    ("POST", "/v1/preempt"),
    ("POST", "/v1/bind"),
    ("POST", "/v1/schedule"),
    ("POST", "/v1/plan"),
    *[
        ("GET", path)
        for path in (
            "/livez",
            "/healthz",
            "/readyz",
            "/metrics",
            "/state.json",
            "/ui",
            "/ui/",
            "/ui/app.js",
            "/nowhere",
            "/v1/stream",
            "/v1/explain",
            "/v1/overview",
            "/v1/decisions",
        )
    ],
]


async def ask(url: str, method: str, path: str, **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method,
            url + path,
            data=b"{}" if method == "POST" else None,
            headers={"Content-Type": "application/json", **headers},
            allow_redirects=False,
        ) as reply,
    ):
        return reply.status


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_no_route_answers_a_page_of_another_site(method: str, path: str):
    world = await World.create()
    async with serving(world) as it:
        url = it.server.url
        assert await ask(url, method, path, **EVIL) == 421, "a name that was made to resolve to us"
        assert await ask(url, method, path, Host="a.svc.evil.example") == 421
        assert await ask(url, method, path, **{"Sec-Fetch-Site": "cross-site"}) == 403
        assert (
            await ask(
                url, method, path, **{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}
            )
            == 403
        )
        assert await ask(url, method, path, Origin="http://evil.example") == 403
        assert await ask(url, method, path, Origin="null") == 403


async def test_what_a_page_has_by_rebinding_binds_nothing():
    world = await World.create()
    await world.pod(0)
    async with serving(world) as it:
        body = bind_args(await world.pod_object(0), "node-0")
        status, _ = await it.post("bind", body, headers=EVIL)
        assert status == 421
        status, _ = await it.post("bind", body, headers={"Origin": "http://127.0.0.1:1"})
        assert status == 403
    assert await world.node_of(0) == ""


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:10261",
        "localhost",
        "[::1]:10261",
        "10.1.2.3:10262",
        "[fd00::1]",
        "vreplica-scheduler:10261",
        "vreplica-scheduler.vreplica-system.svc:10261",
        "a.b.svc.cluster.local",
        "Scheduler.Example.Org.",
    ],
)
async def test_who_asks_by_an_address_or_a_name_that_is_ours_is_answered(host: str):
    world = await World.create()
    async with serving(world, allowed_hosts=("scheduler.example.org",)) as it:
        assert await ask(it.server.url, "GET", "/state.json", Host=host) == 200


async def test_our_own_page_may_ask_whatever_its_proxy_makes_of_the_host():
    world = await World.create()
    async with serving(world) as it:
        url = it.server.url
        own = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
        assert await ask(url, "POST", "/v1/plan", **own) == 200
        assert await ask(url, "POST", "/v1/plan", Origin=url) == 200
        assert await ask(url, "POST", "/v1/plan", **{**own, "Origin": "https://ui.example"}) == 200


async def test_windows_that_another_site_opens_hold_no_stream():
    world = await World.create()
    opened = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    async with serving(world) as it, aiohttp.ClientSession() as session:
        for path in ("/v1/stream", "/state.json", "/v1/decisions"):
            assert await ask(it.server.url, "GET", path, **opened) == 403
        async with session.get(f"{it.server.url}/ui", headers=opened) as reply:
            door = await reply.text()
        assert (reply.status, "<script" in door, '<a href="">' in door) == (200, False, True)


async def test_health_beyond_loopback_is_there_by_any_name_and_for_no_page():
    world = await World.create()
    async with serving(world, health_port=_free_port(), health_host="0.0.0.0") as it:
        url = it.server.health_url.replace("0.0.0.0", "127.0.0.1")
        assert await ask(url, "GET", "/metrics", Host="node-1.example.org:10262") == 200
        assert await ask(url, "GET", "/metrics", **{"Sec-Fetch-Site": "cross-site"}) == 403


def _free_port() -> int:
    from tests.e2e.processes import free_port  # noqa: PLC0415

    return free_port()


async def test_the_page_is_told_why_in_words():
    world = await World.create()
    async with serving(world) as it:
        async with it.session.get(
            it.server.url + "/state.json", headers={"Host": "evil.example"}
        ) as reply:
            assert "server.allowedHosts" in await reply.text()
        await until(lambda: _readable(it), timeout_s=15)


async def _readable(it) -> bool:
    return "pools" in orjson.loads((await it.get("/state.json"))[1])
