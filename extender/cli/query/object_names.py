"""Names of the live cluster's objects, for completion. Only lists are read: the first
``NAMES_MAX`` objects of a kind. Whatever goes wrong, and whatever takes longer than ``TIMEOUT_S``,
completes nothing: a shell shows no errors while somebody types.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from extender.cli.terminal.cluster_access import ClusterAccess, OpenCluster, open_cluster
from extender.kube.api import (
    ADAPTERPOOLS,
    EVERYWHERE,
    NAMESPACES,
    NODES,
    PODS,
    VPODS,
    ApiError,
    ListOptions,
    Obj,
    Resource,
)
from extender.model.foreign_kinds import sources_from
from extender.model.names import POOL_LABEL, ZONE_LABEL
from extender.model.reading import mapping, text

TIMEOUT_S: Final = 2.0
NAMES_MAX: Final = 500
FOREIGN_S: Final = 1.0
"""For the lists of foreign kinds: the rest is shown without them."""
SOURCES_MAX: Final = 10

Given = Mapping[str, str]
"""``dest`` of an option -> its value, of those that stand before the cursor."""


def names(wanted: str, given: Given) -> Sequence[str]:
    """Return the names that ``WANTED`` describes, which go with the options that were given."""
    if given.get("filename") or given.get("server"):
        return []
    access = ClusterAccess(given.get("kubeconfig", ""), given.get("context", ""))

    async def ask() -> list[str]:
        async with asyncio.timeout(TIMEOUT_S), open_cluster(access) as cluster:
            return await WANTED[wanted](cluster, given.get("namespace", "") or cluster.namespace)

    logging.disable()
    with suppress(Exception):
        return asyncio.run(ask())
    return []


async def _explained(cluster: OpenCluster, namespace: str) -> list[str]:
    """vpods, with those of foreign kinds, and ``pod/NAME`` of adapter pods, of the namespace. A
    foreign object has its kind (``@KIND.GROUP``) only where two have its name.
    """
    vpods, pods, foreign = await asyncio.gather(
        _list(cluster, VPODS, ListOptions(namespace)),
        _list(cluster, PODS, ListOptions(namespace, POOL_LABEL)),
        _foreign(cluster, namespace),
    )
    taken = Counter([*map(_name, vpods), *(name for name, _ in foreign)])
    return [
        *map(_name, vpods),
        *(name if taken[name] == 1 else f"{name}@{source}" for name, source in foreign),
        *(f"pod/{_name(pod)}" for pod in pods),
    ]


async def _foreign(cluster: OpenCluster, namespace: str) -> list[tuple[str, str]]:
    """Name and source of the objects of the foreign kinds that pools declare. What may not be
    listed, or is not listed in time, is left out.
    """
    declared = [
        source
        for pool in await _list(cluster, ADAPTERPOOLS)
        for source in sources_from(mapping(pool, "spec").get("sources"))[0]
    ]
    found: list[tuple[str, str]] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(FOREIGN_S):
            for key, source in islice({one.key: one for one in declared}.items(), SOURCES_MAX):
                for version in source.versions:
                    resource = Resource(source.group, version, source.resource, source.kind)
                    with suppress(ApiError):
                        objects = await _list(cluster, resource, ListOptions(namespace))
                        found += [(_name(obj), key) for obj in objects]
                        break
    return found


async def _drained(cluster: OpenCluster, _namespace: str) -> list[str]:
    """``pod/NAME`` of adapter pods, ``node/NAME`` and ``zone/NAME``."""
    pods = await _list(cluster, PODS, ListOptions(label_selector=POOL_LABEL))
    nodes = await _list(cluster, NODES)
    zones = {text(mapping(node, "metadata", "labels"), ZONE_LABEL) for node in nodes} - {""}
    return [
        *dict.fromkeys(f"pod/{_name(pod)}" for pod in pods),
        *(f"node/{_name(node)}" for node in nodes),
        *(f"zone/{zone}" for zone in sorted(zones)),
    ]


async def _pools(cluster: OpenCluster, _namespace_of: str) -> list[str]:
    """``NAMESPACE/NAME`` of AdapterPools."""
    return [f"{_namespace(pool)}/{_name(pool)}" for pool in await _list(cluster, ADAPTERPOOLS)]


async def _namespaces(cluster: OpenCluster, _namespace_of: str) -> list[str]:
    return [_name(namespace) for namespace in await _list(cluster, NAMESPACES)]


WANTED: Final[Mapping[str, Callable[[OpenCluster, str], Awaitable[list[str]]]]] = {
    "explained": _explained,
    "drained": _drained,
    "pools": _pools,
    "namespaces": _namespaces,
}


async def _list(
    cluster: OpenCluster, resource: Resource, options: ListOptions = EVERYWHERE
) -> list[Obj]:
    return list((await cluster.api.list_page(resource, options, limit=NAMES_MAX)).items)


def _name(obj: Obj) -> str:
    return text(obj, "metadata", "name")


def _namespace(obj: Obj) -> str:
    return text(obj, "metadata", "namespace")
