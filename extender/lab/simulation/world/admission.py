"""``Admission``: the shipped webhook in a simulated world, as the API server calls it."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import orjson

from extender.kube.api import Api, Obj
from extender.kube.reflector import Reflector
from extender.lab.apiserver.admission import WebhookCall, WebhookCallError
from extender.lab.clock import wall_clock
from extender.lab.faults import Faults
from extender.lab.simulation.world.scale import LEASE
from extender.model.names import OWN_NAMESPACE
from webhook.caches import WebhookCaches
from webhook.evictions import Evictions
from webhook.mutate import stamp
from webhook.review import decode_review, encode_review


class Admission:
    """One process of the webhook. ``network`` delays every call. ``faults`` may make a call slow or
    lose it.
    """

    def __init__(self, network: Faults, faults: Faults) -> None:
        self._network = network
        self._faults = faults
        self._caches = WebhookCaches()
        self._evictions: Evictions | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(
        self,
        api: Api,
        rng: Callable[[str], Random],
        spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"],
    ) -> None:
        """Start, or restart, the watches. ``spawn`` runs a task with a name."""
        for task in self._tasks:
            task.cancel()
        self._tasks, self._caches = [], WebhookCaches()
        self._evictions = Evictions(api, self._caches, now=wall_clock, lease=(OWN_NAMESPACE, LEASE))
        for resource, sink in self._caches.sinks.items():
            name = f"webhook {resource.plural}"
            self._tasks.append(spawn(Reflector(api, resource, sink, rng=rng(name)).run(), name))

    async def call(self, call: WebhookCall) -> Obj:
        """Return the AdmissionReview that answers the call. Raises WebhookCallError."""
        await self._network.delay()
        if self._faults.hits("webhook_slow"):
            await asyncio.sleep(self._faults.seconds())
        if self._faults.hits("webhook_bypassed"):
            raise WebhookCallError("injected: connection refused")
        request = decode_review(orjson.dumps(call.review))
        if self._evictions is not None and request.subresource == "eviction":
            verdict = await self._evictions.review(request)
        else:
            verdict = stamp(request, self._caches)
        review: Obj = orjson.loads(encode_review(request.uid, verdict))
        return review
