"""Evictions as kubectl drain makes them, in a ``World`` whose API server calls the webhook."""

import asyncio

import orjson

from extender.kube.api import (
    ADAPTERPOOLS,
    PODS,
    VALIDATING_WEBHOOKS,
    NotFound,
    Obj,
    TooManyRequests,
)
from extender.lab.apiserver.admission import WebhookCall
from extender.lab.embedded import EVICTION_WEBHOOK
from tests.kube.fakes import give_list
from tests.support.builders import NS
from tests.support.service import World
from webhook.caches import WebhookCaches
from webhook.evictions import Evictions
from webhook.review import decode_review, encode_review

RETRY_S = 5.0
"""As kubectl drain."""


async def with_webhook(world: World, *, ahead_s: float = 0.0) -> None:
    """The API server asks the webhook about evictions from now on. ``ahead_s``: of its clock."""
    caches = WebhookCaches()
    evictions = Evictions(world.api, caches, now=lambda: world.cluster.server.now() + ahead_s)

    async def call(call: WebhookCall) -> Obj:
        pools = await world.cluster.list_page(ADAPTERPOOLS)
        give_list(caches.pools, pools.items, pools.resource_version)
        request = decode_review(orjson.dumps(call.review))
        review: Obj = orjson.loads(encode_review(request.uid, await evictions.review(request)))
        return review

    world.cluster.call_webhooks_with(call)
    await world.cluster.create(VALIDATING_WEBHOOKS, "", EVICTION_WEBHOOK)


async def evict(world: World, ordinal: int, *, tries_max: int = 100) -> list[str]:
    """Try until the pod is evicted. Returns the refusals."""
    refusals: list[str] = []
    for _ in range(tries_max):
        try:
            await world.cluster.evict(NS, f"dispatcher-{ordinal}")
        except TooManyRequests as error:
            refusals.append(error.message)
            await asyncio.sleep(RETRY_S)
        else:
            return refusals
    raise AssertionError(f"dispatcher-{ordinal} was never evicted: {refusals[-1]}")


async def is_gone(world: World, ordinal: int) -> bool:
    try:
        pod = await world.cluster.get(PODS, NS, f"dispatcher-{ordinal}")
    except NotFound:
        return True
    return "deletionTimestamp" in pod["metadata"]
