"""``Page``: ``/ui`` with its files, and ``/v1/stream``; added to the extender's server, under the same rules of access.

Beyond these, a browser is a way in for others: a page of somebody else's, opened beside us, may send requests to loopback, and by
a name of its own that resolves to loopback even read the answers. So a request that a browser says was made by another
site is refused, and on loopback so is one for a host that is not loopback.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from extender.core.state import State
from extender.exposition import Label
from extender.metrics import Metrics
from extender.service.config import LOOPBACK, Config, Mode
from extender.service.leadership import Leadership
from extender.service.page.assets import Asset, load_assets
from extender.service.page.facts import Facts
from extender.service.page.history import History
from extender.service.page.stream import END_REASONS, Streams

OWN_SITE: Final = frozenset({"same-origin", "none"})
"""Sec-Fetch-Site of a page of ours, and of what a person has typed."""
POOL_CHARS_MAX: Final = 317
"""Of a namespace, a slash and a name."""


class Page:
    """The page of one replica. ``problems``: why it is not ready; ``now``: epoch seconds."""

    def __init__(
        self,
        state: State,
        leadership: Leadership,
        config: Config,
        *,
        problems: Callable[[], list[str]],
        now: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        self._state = state
        self._leadership = leadership
        self._local = config.server.host in LOOPBACK
        self._shadow = config.mode is Mode.SHADOW
        self._problems = problems
        self.history = History(state, now)
        self.streams = Streams(self._facts)
        metrics.gauge("page_streams", "Open streams of the page", "", lambda: {"": float(self.streams.open)})
        metrics.counter(
            "page_streams_ended",
            "Streams of the page that were refused or cut, by reason",
            Label("reason", END_REASONS),
            lambda: {reason: float(count) for reason, count in self.streams.ended.items()},
        )

    async def run(self, synced: Callable[[], Awaitable[object]]) -> None:
        """Keep the history, until cancelled."""
        await self.history.run(synced)

    def add_routes(self, app: web.Application) -> None:
        """Called by the server before it starts."""
        assets = load_assets()
        app.router.add_get("/ui", self._own(_serving(assets["index.html"])))
        app.router.add_get("/ui/", self._own(_to_the_page))
        for name, asset in assets.items():
            if name != "index.html":
                app.router.add_get(f"/ui/{name}", self._own(_serving(asset)))
        app.router.add_get("/v1/stream", self._own(self._stream))
        app.on_shutdown.append(self._end_streams)

    def _own(self, handler: Handler) -> Handler:
        """A handler of requests that no foreign site has made."""

        async def checked(request: web.Request) -> web.StreamResponse:
            if request.headers.get("Sec-Fetch-Site", "none") not in OWN_SITE and not _is_navigation(request):
                return web.Response(status=403, text="this was asked for by a page of another site\n")
            if self._local and _host_of(request.host) not in LOOPBACK:
                return web.Response(
                    status=421, text="this is served on loopback: ask for it as 127.0.0.1 or localhost\n"
                )
            return await handler(request)

        return checked

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        pool = request.query.get("pool", "")
        if len(pool) > POOL_CHARS_MAX:
            return web.Response(status=400, text="pool must be NAMESPACE/NAME\n")
        return await self.streams.serve(request, pool)

    async def _end_streams(self, _app: web.Application) -> None:
        await self.streams.stop()

    def _facts(self, pool: str) -> Facts:
        return Facts(
            self._state, pool, history=self.history, service=self._describe_service, own=self._describe_leader
        )

    def _describe_service(self) -> Mapping[str, object]:
        return {
            "identity": self._leadership.identity,
            "leading": self._leadership.leading(),
            "shadow": self._shadow,
            "problems": self._problems(),
            "profiles": sorted(self._state.profiles),
        }

    def _describe_leader(self, pool: str) -> Mapping[str, object]:
        return {"leader": self._leadership.leader(pool), "leads": self._leadership.leads(pool)}


def _is_navigation(request: web.Request) -> bool:
    """Whether a person has followed a link to the page: that shows it to them, and to nobody else."""
    return request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET"


def _host_of(host: str) -> str:
    """Without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()


def _serving(asset: Asset) -> Handler:
    async def serve(request: web.Request) -> web.StreamResponse:
        return asset.answer(request)

    return serve


async def _to_the_page(_request: web.Request) -> web.StreamResponse:
    # Relative, for a proxy may serve us below a path of its own.
    return web.Response(status=308, headers={"Location": "../ui"})
