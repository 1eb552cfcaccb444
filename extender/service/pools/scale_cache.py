"""``ScaleCache``: the scale subresources of StatefulSets, each read at most once per refresh period
(after Knative's ScaleCache and its ScaleCacheConfig).

Verbs and life of an entry are as in Knative: a get within the period makes no request, an update
always writes and stores the reply, a failed update keeps the entry, and reset forgets all. Two
things differ on purpose:

- An entry keeps its resourceVersion, and an update has it as its precondition. Knative drops it, so
  its update overwrites what a person or another controller has written meanwhile. A Conflict drops
  the entry.
- When the watch shows another version of a StatefulSet, its entry is dropped at once. So a change
  from outside is not hidden until the period ends.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from extender.config.model import SCALE_REFRESH_PERIOD_S, ScaleCacheConfig
from extender.kube.api import STATEFULSETS, Api, Conflict, NotFound, Obj
from extender.model.bounded import put_bounded
from extender.model.objects import StatefulSet, object_key
from extender.model.reading import mapping, text


@dataclass(frozen=True, slots=True)
class Scale:
    """An autoscaling/v1 Scale. ``replicas`` counts the pods asked for, ``status_replicas`` those
    that exist.
    """

    namespace: str
    name: str
    replicas: int
    status_replicas: int = 0
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return object_key(self.namespace, self.name)


class ScaleCache:
    """Scales by StatefulSet, for one event loop. ``clock``: seconds."""

    def __init__(self, api: Api, *, clock: Callable[[], float], config: ScaleCacheConfig) -> None:
        self._api = api
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, Scale]] = OrderedDict()
        """Key -> when it was read or written, and what. Oldest first."""
        self._changes = 0
        """What the watch has shown so far. A reply that was under way meanwhile may be older."""
        self._config = config

    def reconfigure(self, config: ScaleCacheConfig) -> None:
        """Apply a new configuration, also to what is kept already."""
        self._config = config
        while len(self._entries) > config.entries_max:
            self._entries.popitem(last=False)

    async def get_scale(self, namespace: str, name: str) -> Scale:
        """The scale, no older than the refresh period. Raises NotFound and other ApiErrors of a
        read.
        """
        key = object_key(namespace, name)
        known = self._entries.get(key)
        period_s = self._config.refresh_period_s or SCALE_REFRESH_PERIOD_S
        if known is not None and self._clock() < known[0] + period_s:
            return known[1]
        changes = self._changes
        scale = _scale(
            namespace, name, await self._api.get(STATEFULSETS, namespace, name, subresource="scale")
        )
        self._store(scale, changes)
        return scale

    async def update_scale(self, scale: Scale, replicas: int, *, via: Api | None = None) -> Scale:
        """Ask for ``replicas`` if the StatefulSet still has the version of ``scale``. Return what
        is stored.

        ``via``: the ``Api`` to write through, if it is another. Raises Conflict if the version has
        changed, and other ApiErrors of a write.
        """
        changes = self._changes
        try:
            stored = await (via or self._api).update(
                STATEFULSETS,
                scale.namespace,
                scale.name,
                _to_write(scale, replicas),
                subresource="scale",
            )
        except (Conflict, NotFound):
            self.forget(scale.key)
            raise
        new = _scale(scale.namespace, scale.name, stored)
        self._store(new, changes)
        return new

    def reset(self) -> None:
        """Forget everything, because this replica has just become leader."""
        self._entries.clear()

    def forget(self, key: str) -> None:
        """Forget one StatefulSet's scale, by its key ``namespace/name``."""
        self._entries.pop(key, None)

    def stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        """Drop the entry if the watch shows another version: the entry is outdated, or the watch
        will soon confirm it.
        """
        changed = new or old
        self._changes += 1
        known = self._entries.get(changed.key) if changed is not None else None
        if changed is None or known is None:
            return
        if new is None or new.resource_version != known[1].resource_version:
            self.forget(changed.key)

    def _store(self, scale: Scale, changes: int) -> None:
        """``changes``: what the watch had shown before the call."""
        if changes != self._changes:
            self.forget(scale.key)
            return
        put_bounded(self._entries, scale.key, (self._clock(), scale), self._config.entries_max)


def _scale(namespace: str, name: str, obj: Obj) -> Scale:
    return Scale(
        namespace=namespace,
        name=name,
        replicas=_count(obj, "spec"),
        status_replicas=_count(obj, "status"),
        uid=text(obj, "metadata", "uid"),
        resource_version=text(obj, "metadata", "resourceVersion"),
    )


def _count(obj: Obj, part: str) -> int:
    replicas = mapping(obj, part).get("replicas")
    return replicas if isinstance(replicas, int) else 0


def _to_write(scale: Scale, replicas: int) -> Obj:
    """The Scale to write. The version that was read is the precondition."""
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {
            "name": scale.name,
            "namespace": scale.namespace,
            "uid": scale.uid,
            "resourceVersion": scale.resource_version,
        },
        "spec": {"replicas": replicas},
    }
