"""Keeps caches up to date with the cluster while a command runs a block.

It uses the service's reflectors, over an ``Api`` that only reads. Reflectors retry after every
error. That suits a service, but not a person who has typed a command. So each kind is requested
once first, and an error of that request ends the command.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from extender.engine.state.ordinal_history import OrdinalHistory
from extender.kube.api import (
    ADAPTERPOOLS,
    EVERYWHERE,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    VREPLICAQUOTAS,
    Api,
    ApiError,
    ListOptions,
    NotFound,
    Resource,
)
from extender.kube.first_errors import listing_trouble
from extender.model.errors import VReplicaError
from extender.model.names import POOL_LABEL
from extender.service.watching.caches import Caches
from extender.service.watching.informers import Informers

KINDS: Final = (NODES, NAMESPACES, STATEFULSETS, ADAPTERPOOLS, VREPLICAQUOTAS, VPODS, PODS)
LOOK_EVERY_S: Final = 0.2


class NotReadable(VReplicaError):
    """A kind of objects cannot be read from the cluster. The message says why, and what helps."""


@asynccontextmanager
async def watched(
    api: Api,
    *,
    progress: Callable[[int], None] = lambda _objects: None,
) -> AsyncIterator[Caches]:
    """Yield caches that follow the cluster until the block ends, with all kinds listed.
    ``progress``: called with the number of objects so far. Raises NotReadable.
    """
    for resource in KINDS:
        await _probe(api, resource)
    caches = Caches()
    ordinal_history = OrdinalHistory(asyncio.get_running_loop().time)
    informers = Informers(api, caches, rng=random.Random(), ordinal_history=ordinal_history)
    watching = asyncio.create_task(informers.run(), name="informers")
    try:
        synced = asyncio.create_task(informers.wait_synced(), name="first lists")
        while not synced.done():
            await asyncio.wait(
                {synced, watching}, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED
            )
            if watching.done():
                synced.cancel()
                watching.result()
            progress(len(caches.pods) + len(caches.vpods) + len(caches.nodes))
        yield caches
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def _probe(api: Api, resource: Resource) -> None:
    options = ListOptions(label_selector=POOL_LABEL) if resource is PODS else EVERYWHERE
    try:
        await api.list_page(resource, options, limit=1)
    except NotFound as error:
        if resource is not VREPLICAQUOTAS:  # the cluster may have the CRDs of an earlier version
            raise NotReadable(listing_trouble(resource, error).line) from error
    except ApiError as error:
        raise NotReadable(listing_trouble(resource, error).line) from error
