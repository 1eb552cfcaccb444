"""``OldLists``: lists that are some seconds old, as from an API server's cache that lags."""

import asyncio
from typing import Final

from extender.kube.api import PODS, ListOptions, ListPage, Resource
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.store import Change
from extender.lab.faults import Faults
from extender.lab.simulation.world.ledgers import RecordingApi

CACHE_AGE_MAX_S: Final = 5.0
VERSIONS_KEPT: Final = 4000


class OldLists:
    """The old lists of one cluster. ``note`` must get every write."""

    def __init__(self, cluster: Cluster, faults: Faults) -> None:
        self._server = cluster.server
        self._rng = faults.rng
        self._versions: list[tuple[float, int]] = []
        """(time, version) of the latest writes."""

    def note(self, change: Change) -> None:
        """Record a write."""
        self._versions.append((asyncio.get_running_loop().time(), change.version))
        if len(self._versions) > 2 * VERSIONS_KEPT:
            del self._versions[:VERSIONS_KEPT]

    def forget(self) -> None:
        """Drop everything: etcd has another history."""
        self._versions.clear()

    async def page(
        self, recording_api: RecordingApi, resource: Resource, options: ListOptions
    ) -> ListPage | None:
        """Return a kind as it was some seconds ago, and record that the process gets it. Return
        None if that version is not kept.
        """
        since = asyncio.get_running_loop().time() - self._rng.uniform(0.0, CACHE_AGE_MAX_S)
        version = next((version for at, version in reversed(self._versions) if at <= since), 0)
        page = self._server.list_at(resource, options, version) if version else None
        if page is not None and resource == PODS:
            recording_api.note(page.items)
        return page
