"""Names of the live cluster's objects, for completion. Only lists are read: the first
``NAMES_MAX`` objects of a kind. Whatever goes wrong, and whatever takes longer than ``TIMEOUT_S``,
completes nothing: a shell shows no errors while somebody types.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from extender.cli.terminal.cluster_access import ClusterAccess, OpenCluster, open_cluster
from extender.kube.api import (
    ADAPTERPOOLS,
    NAMESPACES,
    NODES,
    PODS,
    VPODS,
    ListOptions,
    Obj,
    Resource,
)
from extender.model.names import POOL_LABEL, ZONE_LABEL
from extender.model.reading import mapping, text

TIMEOUT_S: Final = 2.0
NAMES_MAX: Final = 500

Given = Mapping[str, str]
"""``dest`` of an option -> its value, of those that stand before the cursor."""
_Read = Callable[[OpenCluster, str], Awaitable[list[str]]]


def explained(given: Given) -> Sequence[str]:
    """vpods, and ``pod/NAME`` of adapter pods, of the namespace."""
    return _names(given, _explained)


def drained(given: Given) -> Sequence[str]:
    """``pod/NAME`` of adapter pods, ``node/NAME`` and ``zone/NAME``."""
    return _names(given, _drained)


def pools(given: Given) -> Sequence[str]:
    """``NAMESPACE/NAME`` of AdapterPools."""
    return _names(given, _pools)


def namespaces(given: Given) -> Sequence[str]:
    """Namespaces."""
    return _names(given, _namespaces)


def _names(given: Given, read: _Read) -> Sequence[str]:
    if given.get("filename") or given.get("server"):
        return []
    access = ClusterAccess(given.get("kubeconfig", ""), given.get("context", ""))

    async def ask() -> list[str]:
        async with asyncio.timeout(TIMEOUT_S), open_cluster(access) as cluster:
            return await read(cluster, given.get("namespace", "") or cluster.namespace)

    logging.disable()
    with suppress(Exception):
        return asyncio.run(ask())
    return []


async def _explained(cluster: OpenCluster, namespace: str) -> list[str]:
    vpods = await _list(cluster, VPODS)
    pods = await _list(cluster, PODS, POOL_LABEL)
    return [_name(vpod) for vpod in vpods if _namespace(vpod) == namespace] + [
        f"pod/{_name(pod)}" for pod in pods if _namespace(pod) == namespace
    ]


async def _drained(cluster: OpenCluster, _namespace: str) -> list[str]:
    pods, nodes = await _list(cluster, PODS, POOL_LABEL), await _list(cluster, NODES)
    zones = {text(mapping(node, "metadata", "labels"), ZONE_LABEL) for node in nodes} - {""}
    return [
        *dict.fromkeys(f"pod/{_name(pod)}" for pod in pods),
        *(f"node/{_name(node)}" for node in nodes),
        *(f"zone/{zone}" for zone in sorted(zones)),
    ]


async def _pools(cluster: OpenCluster, _namespace_of: str) -> list[str]:
    return [f"{_namespace(pool)}/{_name(pool)}" for pool in await _list(cluster, ADAPTERPOOLS)]


async def _namespaces(cluster: OpenCluster, _namespace_of: str) -> list[str]:
    return [_name(namespace) for namespace in await _list(cluster, NAMESPACES)]


async def _list(cluster: OpenCluster, resource: Resource, selector: str = "") -> list[Obj]:
    options = ListOptions(label_selector=selector)
    return list((await cluster.api.list_page(resource, options, limit=NAMES_MAX)).items)


def _name(obj: Obj) -> str:
    return text(obj, "metadata", "name")


def _namespace(obj: Obj) -> str:
    return text(obj, "metadata", "namespace")
