"""``ForeignKind``: translates the objects of one foreign kind, and assigns each to its pool.

It is the sink of the kind's reflector. Each object is kept translated, once for each way in which
pools read the kind (usually one), so that it can be assigned again when pools or namespaces change.
If an object cannot be read, its last known form stays.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from extender.kube.api import Obj, WatchEvent, WatchEventType
from extender.model.errors import InvalidObject
from extender.model.foreign_kinds import Claimant, owner_of
from extender.model.objects import Source, SourcePaths, VPod, object_key
from extender.model.reading import labels_of, mapping, text
from extender.model.translate import PlacementTranslator
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)

SLICE_OBJECTS: Final = 500
"""Objects assigned without a pause, in some 10 ms: the extender's verbs must answer in between."""


_Readings = Mapping[SourcePaths, VPod | InvalidObject]
"""An object translated in each way in which pools read its kind, or the error of that reading."""


class _Known(NamedTuple):
    """One object."""

    namespace: str
    labels: Mapping[str, str]
    read: _Readings
    pool: str
    """Key of the pool that has it; "" if none selects it."""
    source: Source | None
    """How that pool declares its kind."""
    also: tuple[str, ...]
    """Keys of other pools that select it."""


class ForeignKind:
    """The objects of one kind; the sink of its reflector."""

    def __init__(
        self, source: str, claimants: Callable[[str, str], Sequence[Claimant]], caches: Caches
    ) -> None:
        self.source = source
        self.conflicts: Counter[tuple[str, str]] = Counter()
        """(pool that selects objects, pool that has them) -> number of objects."""
        self._claimants = claimants
        """(source, namespace) -> who declares the kind, by pool key."""
        self._caches = caches
        self._objects: dict[str, _Known] = {}
        self._translators: dict[SourcePaths, PlacementTranslator] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def read_by(self, sources: Iterable[Source]) -> bool:
        """Read objects as these sources say, from the next list on. True if that differs from
        before.
        """
        translators = {source.paths: PlacementTranslator(source) for source in sources}
        changed = translators.keys() != self._translators.keys()
        self._translators = translators
        return changed

    # -- the reflector's sink ----------------------------------------------------------------------

    def listing(self) -> "_KindListing":
        """See sink.Sink."""
        return _KindListing(self)

    def replacing(self, objects: list[Obj]) -> Iterator[None]:
        """Take a whole list in slices of ``SLICE_OBJECTS``, between which other tasks may run."""
        listed = {self._key(obj) for obj in objects}
        for key in [key for key in self._objects if key not in listed]:
            self._forget(key)
        for count, obj in enumerate(objects, 1):
            try:
                self._take(obj)
            except InvalidObject as error:
                log.warning("listed object cannot be read, keeping what is known of it: %s", error)
            if count % SLICE_OBJECTS == 0:
                yield

    def apply(self, event: WatchEvent) -> None:
        """See sink.Sink. Raises InvalidObject, which the reflector reports."""
        if event.type is WatchEventType.DELETED:
            self._forget(self._key(event.object))
        else:
            self._take(event.object)

    def _take(self, obj: Obj) -> None:
        """Translate an object and assign it to its pool. Raises InvalidObject, and then the vpod
        stays as known.
        """
        metadata = mapping(obj, "metadata")
        self._assign(
            self._key(obj),
            text(metadata, "namespace"),
            labels_of(mapping(metadata, "labels")),
            {paths: _read(translator, obj) for paths, translator in self._translators.items()},
        )

    def _forget(self, key: str) -> None:
        known = self._objects.pop(key, None)
        if known is not None:
            self._count(known, -1)
            if (vpod := self._caches.vpods.get(key)) is not None:
                self._caches.vpods.delete(vpod)

    # -- assigning objects to pools ----------------------------------------------------------------

    def assign_again(self, namespaces: Collection[str] | None) -> Iterator[None]:
        """Assign each object again, after pools (None) or the labels of these namespaces have
        changed.

        Works in slices of ``SLICE_OBJECTS``. In between, other tasks may run, and objects may come
        and go.
        """
        for count, key in enumerate(list(self._objects), 1):
            known = self._objects.get(key)
            if known is not None and (namespaces is None or known.namespace in namespaces):
                try:
                    self._assign(key, known.namespace, known.labels, known.read)
                except InvalidObject as error:
                    log.warning("object cannot be read by its pool: %s", error)
            if count % SLICE_OBJECTS == 0:
                yield

    def _assign(self, key: str, namespace: str, labels: Mapping[str, str], read: _Readings) -> None:
        have = self._caches.vpods.latest(key)
        before = self._objects.get(key)
        has = before.pool if before is not None else ""
        owner, also = owner_of(
            self._claimants(self.source, namespace), labels, _placed_on(have, read), has
        )
        pool, source = (owner.pool.key, owner.source) if owner is not None else ("", None)
        if before is not None:
            self._count(before, -1)
        self._objects[key] = known = _Known(namespace, labels, read, pool, source, also)
        self._count(known, 1)
        if source is None:
            if have is not None:
                self._caches.vpods.delete(have)
            return
        vpod = read.get(source.paths)
        if isinstance(vpod, InvalidObject):
            raise vpod
        if vpod is None:
            return  # declared with new paths: the list under way reads them
        vpod = replace(vpod, pool=pool)
        if have is not None and have.resource_version == vpod.resource_version and have != vpod:
            # The cache compares versions. This object has another pool, or is read otherwise, under
            # the same version. It is not deleted meanwhile: that would end the doubt about a
            # status write that may still arrive (``StatusDoubts``).
            self._caches.vpods.reread(vpod)
        else:
            self._caches.vpods.update(vpod)

    def _count(self, known: _Known, step: int) -> None:
        for loser in known.also:
            self.conflicts[loser, known.pool] += step
            if not self.conflicts[loser, known.pool]:
                del self.conflicts[loser, known.pool]

    def forget_all(self) -> None:
        """No pool declares the kind any more: remove all its vpods."""
        for key in list(self._objects):
            self._forget(key)

    def written(self, reply: Obj, sent: VPod) -> VPod:
        """The reply to a status write, as a vpod of the pool that has the object now."""
        known = self._objects.get(self._key(reply))
        if known is None or known.source is None:
            return sent
        vpod = _read(PlacementTranslator(known.source), reply)
        return replace(vpod, pool=known.pool) if isinstance(vpod, VPod) else sent

    def declared(self, vpod: VPod) -> Source | None:
        """How the vpod's pool declares its kind. None if that pool no longer has the object."""
        known = self._objects.get(vpod.key)
        return known.source if known is not None and known.pool == vpod.pool else None

    def _key(self, obj: Obj) -> str:
        metadata = mapping(obj, "metadata")
        return f"{object_key(text(metadata, 'namespace'), text(metadata, 'name'))}@{self.source}"


class _KindListing:
    """A list being read. Objects are kept untranslated, because how they are read may change before
    the list ends.
    """

    def __init__(self, kind: ForeignKind) -> None:
        self._kind = kind
        self._objects: list[Obj] = []

    def add(self, objects: list[Obj]) -> None:
        """See sink.Listing."""
        self._objects += objects

    def end(self, _resource_version: str) -> Iterator[None]:
        """See sink.Listing."""
        return self._kind.replacing(self._objects)


def _placed_on(have: VPod | None, read: _Readings) -> Iterator[str]:
    """The pods on which an object publishes placements."""
    for vpod in (have, *read.values()):
        if isinstance(vpod, VPod):
            yield from vpod.placements


def _read(translator: PlacementTranslator, obj: Obj) -> VPod | InvalidObject:
    try:
        return translator.to_vpod(obj)
    except InvalidObject as error:
        return error
