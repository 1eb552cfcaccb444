"""A page of another site in a browser beside us: by a name of its own that resolves to loopback,
and by requests across sites.
"""

import aiohttp

from tests.attack.target import Target

REBOUND = {"Host": "evil.example:10261", "Origin": "http://evil.example:10261"}
ACROSS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
POPUP = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
FOREIGN = {"Origin": "http://evil.example"}
POSTS = ("/v1/schedule", "/v1/bind", "/v1/filter", "/v1/plan")
GETS = ("/state.json", "/metrics", "/v1/stream", "/v1/decisions", "/v1/overview", "/ui")


async def play(target: Target) -> list[str]:
    """What is wrong: requests of such a page that were not refused, and honest ones that were."""
    wrong = []
    url = target.system.service_url
    body = b'{"key": "evil/made-up", "pool": "adapters/dispatcher", "vreplicas": 400}'
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
        for path in (*POSTS, *GETS):
            method = "POST" if path in POSTS else "GET"
            for name, headers in (("rebound", REBOUND), ("across", ACROSS), ("foreign", FOREIGN)):
                data = body if method == "POST" else None
                async with session.request(method, url + path, data=data, headers=headers) as reply:
                    if reply.status not in {403, 421}:
                        wrong.append(f"{method} {path}, {name}: {reply.status}")
        for path in ("/v1/stream", "/state.json"):
            async with session.get(url + path, headers=POPUP) as reply:
                if reply.status != 403:
                    wrong.append(f"GET {path} in a window of another site: {reply.status}")
        async with session.get(url + "/state.json") as reply:
            if reply.status != 200 or "evil/made-up" in await reply.text():
                wrong.append("the state is not told, or has what a page made up")
    return wrong
