"""``Page``: ``/ui`` with its files, and ``/v1/stream``, on the extender's server with the same
access rules.

Another site could open the page in any number of windows, and each would hold one of the few
streams. So a link on another site leads first to a *door*: a page with only a link to the real one,
which a person has to follow.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from extender.config.model import Config, Mode
from extender.engine.state.cluster_state import ClusterState
from extender.kube.serving.browsers import is_other_site
from extender.service.http.page.assets import HEADERS, TYPES, Asset, load_assets
from extender.service.http.page.facts import Facts
from extender.service.http.page.history import History
from extender.service.http.page.stream import END_REASONS, Streams
from extender.service.pools.leadership import Leadership
from extender.telemetry.exposition import Label
from extender.telemetry.metrics import Metrics

DOOR: Final = (
    b"<!doctype html><html lang=en><meta charset=utf-8><title>vreplicas</title>"
    b'<p>Another site has led you here. <a href="">Open the page of vreplica-scheduler</a>.'
)
"""The link has the door's own address; followed from there, the request no longer comes from
another site.
"""
DOOR_HEADERS: Final = {**HEADERS, "Cache-Control": "no-store", "Content-Type": TYPES["html"]}
POOL_CHARS_MAX: Final = 317
"""A namespace, a slash and a name."""


class Page:
    """The page of one replica. ``problems``: why it is not ready. ``now``: epoch seconds."""

    def __init__(
        self,
        state: ClusterState,
        leadership: Leadership,
        config: Config,
        *,
        problems: Callable[[], list[str]],
        now: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        self._state = state
        self._leadership = leadership
        self._shadow = config.mode is Mode.SHADOW
        self._problems = problems
        self.history = History(state, now)
        self.streams = Streams(self._facts)
        metrics.gauge(
            "page_streams", "Open streams of the page", None, lambda: float(self.streams.open)
        )
        metrics.counter(
            "page_streams_ended",
            "Streams of the page that were refused or cut, by reason",
            Label("reason", END_REASONS),
            lambda: {reason: float(count) for reason, count in self.streams.ended.items()},
        )

    async def run(self, synced: Callable[[], Awaitable[object]]) -> None:
        """Keep the history until cancelled."""
        await self.history.run(synced)

    def add_routes(self, app: web.Application) -> None:
        """For ``ExtenderServer.questions``."""
        assets = load_assets()
        app.router.add_get("/ui", _behind_the_door(_serving(assets["index.html"])))
        app.router.add_get("/ui/", _to_the_page)
        for name, asset in assets.items():
            if name != "index.html":
                app.router.add_get(f"/ui/{name}", _serving(asset))
        app.router.add_get("/v1/stream", self._stream)
        app.on_shutdown.append(self._end_streams)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        pool = request.query.get("pool", "")
        if len(pool) > POOL_CHARS_MAX:
            return web.Response(status=400, text="pool must be NAMESPACE/NAME\n")
        return await self.streams.serve(request, pool)

    async def _end_streams(self, _app: web.Application) -> None:
        await self.streams.stop()

    def _facts(self, pool: str) -> Facts:
        return Facts(
            self._state,
            pool,
            history=self.history,
            service=self._describe_service,
            own=self._describe_leader,
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


def _serving(asset: Asset) -> Handler:
    async def serve(request: web.Request) -> web.StreamResponse:
        return asset.answer(request)

    return serve


def _behind_the_door(handler: Handler) -> Handler:
    async def serve(request: web.Request) -> web.StreamResponse:
        return (
            web.Response(body=DOOR, headers=DOOR_HEADERS)
            if is_other_site(request)
            else await handler(request)
        )

    return serve


async def _to_the_page(_request: web.Request) -> web.StreamResponse:
    # Relative, because a proxy may serve the page below another path.
    return web.Response(status=308, headers={"Location": "../ui"})
