"""``OldLists``: lists as an API server's cache that lags would answer them, some seconds old."""

import asyncio
from typing import Final

from extender.kube.api import PODS, ListOptions, ListPage, Resource
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.store import Change
from extender.lab.faults import Faults
from extender.lab.simulation.world.ledgers import Overseen

CACHE_AGE_MAX_S: Final = 5.0
VERSIONS_KEPT: Final = 4000


class OldLists:
    """Of one cluster. ``note`` is told of every write."""

    def __init__(self, cluster: Cluster, faults: Faults) -> None:
        self._server = cluster.server
        self._rng = faults.rng
        self._versions: list[tuple[float, int]] = []
        """(time, version) of the latest writes."""

    def note(self, change: Change) -> None:
        """A write that has just happened."""
        self._versions.append((asyncio.get_running_loop().time(), change.version))
        if len(self._versions) > 2 * VERSIONS_KEPT:
            del self._versions[:VERSIONS_KEPT]

    def forget(self) -> None:
        """etcd has another history from now on."""
        self._versions.clear()

    async def page(
        self, overseen: Overseen, resource: Resource, options: ListOptions
    ) -> ListPage | None:
        """A kind as it was some seconds ago, told to a process; None where that is not kept."""
        since = asyncio.get_running_loop().time() - self._rng.uniform(0.0, CACHE_AGE_MAX_S)
        version = next((version for at, version in reversed(self._versions) if at <= since), 0)
        page = self._server.list_at(resource, options, version) if version else None
        if page is not None and resource == PODS:
            overseen.note(page.items)
        return page
