"""``GET /v1/overview``: what ``vreplica top`` shows of this replica (``whatif.overview``), with the
leader and counters.

``counters`` only grow while the process lives, so a client computes rates from two answers:
``decisions``, ``binds``, ``published`` (vpods whose placements have changed) and ``moved``
(vreplicas that left a pod while they were wanted). An answer is reused for ``FRESH_S``, so many
clients cost as much as one. While it is computed, other tasks run every few milliseconds. ``load``
has ``status.load`` of the pools that this replica leads and balances, by key; it is absent if there
are none.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import orjson
from aiohttp import web

from extender.engine.state.cluster_state import ClusterState
from extender.kube.serving.readers import ask_again
from extender.model.objects import AdapterPod, VPod
from extender.model.timestamps import timestamp
from extender.service.watching.caches import Caches
from extender.whatif.comparison import moved
from extender.whatif.overview import Overview

FRESH_S: Final = 1.0


class ChangeCounts:
    """Counts binds, publications and moves that the caches show."""

    def __init__(self, caches: Caches) -> None:
        self.binds = 0
        self.published = 0
        self.moved = 0
        caches.pods.add_event_handler(self._pod_changed)
        caches.vpods.add_event_handler(self._vpod_changed)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is None or new is None or old.uid != new.uid or not new.node or new.assumed:
            return
        self.binds += not old.node or old.assumed

    def _vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        if old is None or new is None or old.placements is new.placements or old.uid != new.uid:
            return
        if old.placements != new.placements:
            self.published += 1
            self.moved += moved(old.placements, new.placements, wanted=new.vreplicas)

    def to_json(self) -> dict[str, int]:
        """The part of ``counters`` that is counted here."""
        return {"binds": self.binds, "published": self.published, "moved": self.moved}


async def overview_of(state: ClusterState) -> dict[str, object]:
    """The overview, computed in steps between which other tasks run."""
    made = Overview(state)
    for _ in made.steps():
        await asyncio.sleep(0)
    return made.to_json()


class OverviewAnswer:
    """The route. ``more``: fields to add. ``refusal``: why nothing is answered; "" if it is."""

    def __init__(
        self,
        state: ClusterState,
        *,
        now: Callable[[], float],
        more: Callable[[], Mapping[str, object]],
        refusal: Callable[[], str] = str,
    ) -> None:
        self._state = state
        self._now = now
        self._more = more
        self._refusal = refusal
        self._made_at = float("-inf")
        self._body = b""
        self._lock = asyncio.Lock()

    def add_routes(self, app: web.Application) -> None:
        """For ``ExtenderServer.questions``."""
        app.router.add_get("/v1/overview", self._answer)

    async def _answer(self, _request: web.Request) -> web.Response:
        if problem := self._refusal():
            return ask_again(problem)
        clock = asyncio.get_running_loop().time
        async with self._lock:
            if clock() - self._made_at >= FRESH_S:
                found = await overview_of(self._state)
                self._body = orjson.dumps({"at": timestamp(self._now()), **self._more(), **found})
                self._made_at = clock()
        return web.Response(body=self._body, content_type="application/json")
