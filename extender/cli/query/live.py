"""Reads the objects of a live cluster once: all that a service would know, except what only a
running service remembers.

The pages of each kind are read one after the other, as kubectl does. Objects may change in between,
so the answer is about a period of some seconds. Nothing is written, and only what the answer needs
is read.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from extender.cli.terminal.cluster_access import (
    PAGE_OBJECTS,
    ClusterAccess,
    objects,
    open_cluster,
)
from extender.cli.terminal.progress import Report, report_nothing
from extender.engine.state.manifests import Manifests
from extender.kube.api import (
    ADAPTERPOOLS,
    EVENTS,
    EVERYWHERE,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    VREPLICAQUOTAS,
    Api,
    ApiError,
    ConnectError,
    Forbidden,
    ListOptions,
    NotFound,
    Obj,
    Resource,
)
from extender.kube.first_errors import describe_error, listing_trouble
from extender.model.errors import InvalidObject, VReplicaError
from extender.model.names import POOL_LABEL
from extender.model.objects import split_key
from extender.model.reading import mapping, text
from extender.whatif.explanation import PastDecision

EVENTS_READ_MAX: Final = 5_000
HISTORY_MAX: Final = 20

KINDS: Final[tuple[tuple[Resource, ListOptions], ...]] = (
    (ADAPTERPOOLS, EVERYWHERE),
    (VREPLICAQUOTAS, EVERYWHERE),
    (VPODS, EVERYWHERE),
    (STATEFULSETS, EVERYWHERE),
    (NODES, EVERYWHERE),
    (NAMESPACES, EVERYWHERE),
    (PODS, ListOptions(label_selector=POOL_LABEL)),
)


class CannotRead(VReplicaError):
    """The cluster cannot be read. The text says what to do."""


@asynccontextmanager
async def open_live(access: ClusterAccess) -> AsyncIterator[Api]:
    """As ``open_cluster``, but the error also names the other sources of objects. Raises
    CannotRead.
    """
    try:
        async with open_cluster(access) as cluster:
            yield cluster.api
    except ConnectError as error:
        raise CannotRead(
            f"{describe_error(error)} Or ask -f FILE, objects from files, or --server URL, a "
            f"running service."
        ) from error


async def read_cluster(api: Api, command: str, report: Report = report_nothing) -> Manifests:
    """Read all that decisions look at. Objects that cannot be decoded are reported on stderr and
    left out, as the service does.

    Raises CannotRead.
    """
    manifests = Manifests(lenient=True)
    strange: list[str] = []
    for resource, options in KINDS:
        count = 0
        async for obj in _listed(api, resource, options):
            count += 1
            if count % PAGE_OBJECTS == 0:
                report(f"reading the cluster: {count:,} {resource.plural}")
            # Items of a list have no kind.
            whole = {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
            try:
                manifests.add(whole, f"{resource.kind} of the cluster")
            except InvalidObject as error:
                strange.append(str(error))
    report("thinking")
    strange += [note async for note in _read_sources(api, manifests)]
    if strange:
        more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
        print(
            f"vreplica {command}: left out: {'; '.join(strange[:3])}{more}"[:1000], file=sys.stderr
        )
    return manifests


async def _read_sources(api: Api, manifests: Manifests) -> AsyncIterator[str]:
    """Read the objects of the foreign kinds that pools declare; yield why some cannot be read."""
    sources = {source.key: source for pool in manifests.pools for source in pool.sources}
    for source in sources.values():
        refused = ""
        for version in source.versions:
            resource = Resource(source.group, version, source.resource, source.kind)
            try:
                async for obj in objects(api, resource, EVERYWHERE):
                    manifests.others.append(
                        {**obj, "apiVersion": resource.api_version, "kind": source.kind}
                    )
            except ApiError as error:
                refused = listing_trouble(resource, error).line
            else:
                refused = ""
                break
        if refused:
            yield refused


async def _listed(api: Api, resource: Resource, options: ListOptions) -> AsyncIterator[Obj]:
    try:
        async for obj in objects(api, resource, options):
            yield obj
    except ApiError as error:
        if isinstance(error, NotFound) and resource is VREPLICAQUOTAS:
            return  # the cluster has the CRDs of an earlier version
        trouble = listing_trouble(resource, error)
        elsewhere = (
            " Or ask a running service: --server URL." if isinstance(error, Forbidden) else ""
        )
        raise CannotRead(f"{trouble.line}{elsewhere}") from error


async def history_from_events(api: Api, kind: str, key: str) -> list[PastDecision]:
    """Earlier decisions according to the events of a ``vpod`` or ``pod``, the last one first. After
    an error, those that were read: none if events may not be read.
    """
    namespace, name = split_key(key)
    about = ("VPod" if kind == "vpod" else "Pod", name)
    found: list[PastDecision] = []
    read = 0
    try:
        async for event in objects(api, EVENTS, ListOptions(namespace=namespace)):
            read += 1
            if (text(event, "regarding", "kind"), text(event, "regarding", "name")) == about:
                found.append(_past_decision(event))
            if read == EVENTS_READ_MAX:
                break
    except ApiError:
        pass
    return sorted(found, key=lambda one: one.at, reverse=True)[:HISTORY_MAX]


def _past_decision(event: Obj) -> PastDecision:
    """Make a decision of an event. For a series, it is the first, because the note is from that
    one. What later ones said is not known, only the time of the last.
    """
    series = mapping(event, "series")
    at = (
        text(event, "eventTime")
        or text(event, "deprecatedFirstTimestamp")
        or text(series, "lastObservedTime")
        or text(event, "deprecatedLastTimestamp")
    )
    by = text(event, "reportingInstance") or text(event, "deprecatedSource", "component")
    why = f"event {text(event, 'reason')}"
    if (last := text(series, "lastObservedTime")) and last != at:
        why += f", again until {last[:19]}"
    return PastDecision(at, by, why, text(event, "note"))
