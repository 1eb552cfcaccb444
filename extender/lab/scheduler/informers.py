"""The scheduler's informers: one list and watch for each kind, and the effect of each change on
cache and queue.

A pod with a node goes into the cache. A pending pod of one of the scheduler's profiles goes into
the queue. The queue also hears of every change that may make a refused pod schedulable. Finished
pods (Succeeded, Failed) count as deleted: they take no room.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from extender.kube.api import (
    NODES,
    PODS,
    Api,
    ApiError,
    Expired,
    NotFound,
    Obj,
    Resource,
)
from extender.lab.apiserver.registry import (
    CSIDRIVERS,
    CSINODES,
    CSISTORAGECAPACITIES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    STORAGECLASSES,
    VOLUMEATTACHMENTS,
)
from extender.lab.informer import Handler, Informer, ObjectKey
from extender.lab.scheduler.cache import CacheError, SchedulerCache
from extender.lab.scheduler.cluster_events import (
    Action,
    ClusterEvent,
    EventResource,
    node_change_events,
    pod_change_events,
)
from extender.lab.scheduler.listers import LOOKED_UP, Listers
from extender.lab.scheduler.queue import SchedulingQueue
from extender.lab.scheduler.types import NodeView, PodInfo, labels_of, node_view, pod_info
from extender.model.reading import key_of, mapping, text

log = logging.getLogger(__name__)

RETRY_INITIAL_S: Final = 0.2
RETRY_MAX_S: Final = 5.0

_VOLUME_EVENTS: Final = {
    PERSISTENTVOLUMES: (EventResource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE),
    PERSISTENTVOLUMECLAIMS: (EventResource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE),
    STORAGECLASSES: (EventResource.STORAGE_CLASS, Action.ADD | Action.UPDATE),
    CSINODES: (EventResource.CSI_NODE, Action.ADD | Action.UPDATE),
    CSIDRIVERS: (EventResource.CSI_DRIVER, Action.UPDATE),
    CSISTORAGECAPACITIES: (EventResource.CSI_STORAGE_CAPACITY, Action.ADD | Action.UPDATE),
    VOLUMEATTACHMENTS: (EventResource.VOLUME_ATTACHMENT, Action.DELETE),
}
"""Kinds, besides pods and nodes, that refused pods may wait for, and the changes that can help."""


class SchedulerInformer(Informer):
    """An informer that pauses between its calls as kube-scheduler's do. A finished pod counts as
    deleted.
    """

    def __init__(self, api: Api, resource: Resource, handler: Handler, rng: random.Random) -> None:
        super().__init__(api, resource)
        self.on_change(handler)
        self._rng = rng

    async def run(self) -> None:
        """List, then watch, for ever. A lost watch is resumed; an expired one lists again."""
        pause_s = RETRY_INITIAL_S
        version = ""
        while True:
            try:
                version = version or await self._list()
                version = await self._watch(version)
                pause_s = RETRY_INITIAL_S
                await self._pause(pause_s)
            except NotFound:
                if self._resource in LOOKED_UP:
                    self.synced.set()
                    # The server does not have this kind.
                    return
                await self._pause(pause_s)
            except Expired:
                version = ""
            except ApiError as error:
                log.info("%s: %s", self._resource.plural, error)
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, RETRY_MAX_S)

    async def _pause(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.0))

    def _change(self, key: ObjectKey, after: Obj | None) -> None:
        finished = after is not None and text(after, "status", "phase") in {"Succeeded", "Failed"}
        super()._change(key, None if finished else after)


def _parsed(obj: Obj, before: PodInfo | None) -> PodInfo:
    """Parse a pod. If its spec is unchanged, as mostly, reuse the parsed spec."""
    if before is None or before.obj.get("spec") != obj.get("spec"):
        return pod_info(obj)
    return replace(
        before,
        obj=obj,
        uid=_uid(obj),
        resource_version=text(obj, "metadata", "resourceVersion"),
        labels=labels_of(obj),
        nominated_node=text(obj, "status", "nominatedNodeName"),
        deleting=bool(mapping(obj, "metadata").get("deletionTimestamp")),
        start_time=text(obj, "status", "startTime"),
    )


def _uid(obj: Obj) -> str:
    return text(obj, "metadata", "uid")


class ClusterWatcher:
    """Feeds cache, queue and listers. ``pods`` has the newest version of every live pod, by key,
    and ``nodes`` that of every node, by name.
    """

    def __init__(
        self,
        cache: SchedulerCache,
        queue: SchedulingQueue,
        listers: Listers,
        is_ours: Callable[[PodInfo], bool],
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._listers = listers
        self._is_ours = is_ours
        self.pods: dict[str, PodInfo] = {}
        self.nodes: dict[str, NodeView] = {}

    def informers(
        self, api: Api, rng: random.Random, *, unwatched: Collection[Resource] = ()
    ) -> list[SchedulerInformer]:
        """Return one informer for each kind; nodes come before pods. ``unwatched``: kinds of which
        there are no objects.
        """
        return [
            *(
                SchedulerInformer(api, resource, self._lookup_handler(resource), rng)
                for resource in LOOKED_UP
                if resource not in unwatched
            ),
            SchedulerInformer(api, NODES, self.on_node, rng),
            SchedulerInformer(api, PODS, self.on_pod, rng),
        ]

    def _lookup_handler(self, resource: Resource) -> Handler:
        store = self._listers.stores[resource]
        subject = _VOLUME_EVENTS.get(resource)

        def handle(old: Obj | None, new: Obj | None) -> None:
            obj = old if new is None else new
            if obj is None:
                return
            if new is None:
                store.pop(key_of(obj), None)
                action = Action.DELETE
            else:
                store[key_of(obj)] = obj
                action = Action.ADD if old is None else Action.UPDATE
            self._listers.changed(resource, obj)
            if subject is not None and action in subject[1]:
                self._queue.move_all(ClusterEvent(subject[0], action, old, new))

        return handle

    # Nodes

    def on_node(self, old: Obj | None, new: Obj | None) -> None:
        """Handle a change of a node."""
        if new is None:
            if old is not None:
                self._node_gone(self.nodes.pop(text(old, "metadata", "name")))
            return
        view = node_view(new)
        before = self.nodes.get(view.name)
        self.nodes[view.name] = view
        self._cache.put_node(view)
        if before is None:
            self._queue.move_all(ClusterEvent(EventResource.NODE, Action.ADD, new=view))
            return
        for event in node_change_events(before, view):
            self._queue.move_all(event)

    def _node_gone(self, view: NodeView) -> None:
        self._queue.move_all(ClusterEvent(EventResource.NODE, Action.DELETE, old=view))
        self._cache.remove_node(view.name)

    # Pods

    def on_pod(self, old: Obj | None, new: Obj | None) -> None:
        """Handle a change of a pod."""
        if new is None:
            if old is not None:
                self._pod_gone(self.pods.pop(key_of(old)))
            return
        before = self.pods.get(key_of(new))
        pod = _parsed(new, before)
        self.pods[pod.key] = pod
        if pod.node_name:
            self._assigned(before, pod)
        elif self._is_ours(pod):
            self._pending(before, pod)

    def _assigned(self, before: PodInfo | None, pod: PodInfo) -> None:
        self._cache.put_pod(pod)
        if before is not None and before.node_name:
            for event in pod_change_events(before, pod):
                self._queue.move_all(event)
            return
        if before is not None:
            self._queue.delete(pod.uid)
        self._queue.move_all(ClusterEvent(EventResource.ASSIGNED_POD, Action.ADD, new=pod))

    def _pending(self, before: PodInfo | None, pod: PodInfo) -> None:
        if before is None:
            self._queue.add(pod)
            return
        if before.resource_version == pod.resource_version:
            return
        if self._cache.is_assumed(pod.uid):
            # Its bind is in flight and decides. Only the start of a deletion frees the room
            # earlier.
            if pod.deleting and not before.deleting:
                self._forget_assumed(pod)
            return
        self._queue.update(before, pod)
        if before.nominated_node and before.nominated_node != pod.nominated_node:
            self._room_on_nominated_node(before)

    def _pod_gone(self, pod: PodInfo) -> None:
        if pod.node_name:
            self._cache.remove_pod(pod.uid)
            self._queue.move_all(assigned_pod_deleted(pod))
        elif self._is_ours(pod):
            self._queue.delete(pod.uid)
            if self._cache.is_assumed(pod.uid):
                self._forget_assumed(pod)
            elif pod.nominated_node:
                self._room_on_nominated_node(pod)

    def _forget_assumed(self, pod: PodInfo) -> None:
        try:
            self._cache.forget(pod.uid)
        except CacheError as error:
            log.debug("assumed pod %s: %s", pod.key, error)
        self._queue.move_all(assigned_pod_deleted(pod))

    def _room_on_nominated_node(self, pod: PodInfo) -> None:
        self._queue.move_all(
            assigned_pod_deleted(pod), lambda other: other.priority <= pod.priority
        )


def assigned_pod_deleted(pod: PodInfo) -> ClusterEvent:
    """Return the event for freed room: a pod was deleted, or does not go to the assumed node."""
    return ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE, old=pod)
