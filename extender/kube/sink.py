"""``Sink``: where a reflector puts its objects, mostly an assume cache.

A sink touches memory only. It is called in order, never twice at once. It reads a list while that
arrives, and keeps only what it needs of each object. Ten thousand pods as JSON are some 300 MB of
dicts. To read them in one go stops the event loop for seconds.

A list may hold objects that a sink cannot read. It then keeps its old copies of them.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from extender.kube.api import Obj, WatchEvent
from extender.model.errors import InvalidObject
from extender.model.reading import key_of

T = TypeVar("T")

log: Final = logging.getLogger(__name__)


class Listing(Protocol):
    """A list that is being read. It changes nothing before ``end``."""

    def add(self, objects: list[Obj]) -> None:
        """The next objects of the list."""
        ...

    def end(self, resource_version: str) -> Iterator[None]:
        """The list is whole, as of ``resource_version``: put it into the sink, in slices between
        which other tasks may run. An object that is not in the list is gone.
        """
        ...


class Sink(Protocol):
    """Takes lists and events."""

    def listing(self) -> Listing:
        """Begin a list. One that breaks off is dropped without ``end``."""
        ...

    def apply(self, event: WatchEvent) -> None:
        """One ADDED, MODIFIED or DELETED; never a BOOKMARK.

        May raise InvalidObject. The reflector then reports the object once per version, and goes
        on.
        """
        ...


class DecodedListing(Generic[T]):
    """A ``Listing`` that decodes the objects while they arrive. ``take``: receives the decoded
    objects, the keys of unreadable ones, and the list's version. ``keeps``: which objects are
    decoded at all; the others count as not listed.
    """

    def __init__(
        self,
        decode: Callable[[Obj], T],
        take: Callable[[list[T], list[str], str], Iterator[None]],
        keeps: Callable[[Obj], bool] = lambda _obj: True,
    ) -> None:
        self._decode = decode
        self._keeps = keeps
        self._take = take
        self._decoded: list[T] = []
        self._unread: list[str] = []

    def add(self, objects: list[Obj]) -> None:
        """See Listing."""
        for obj in filter(self._keeps, objects):
            try:
                self._decoded.append(self._decode(obj))
            except InvalidObject as error:
                log.warning("listed object cannot be read, keeping what is known of it: %s", error)
                self._unread.append(key_of(obj))

    def end(self, resource_version: str) -> Iterator[None]:
        """See Listing."""
        return self._take(self._decoded, self._unread, resource_version)
