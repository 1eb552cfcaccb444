"""``Sink``: where a reflector puts its objects, mostly an assume cache.

A sink touches memory only. It is called in order, never twice at once. It decides what to do with
an object that it cannot read. Either it keeps its old copy and catches InvalidObject itself, object
by object, or it lets InvalidObject out. Then the reflector reports that object once per version and
goes on: it skips an event, or takes the object out of a list and offers the rest again. So a
``replace`` that raises must not have changed anything.

A sink for many objects is also a ``ListingSink``: it reads a list while that arrives, and keeps
only what it needs of each object. Ten thousand pods as JSON are some 300 MB of dicts. To read them
in one go stops the event loop for seconds.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol, runtime_checkable

from extender.kube.api import ApiError, Obj, WatchEvent
from extender.model.errors import InvalidObject

INVALID_PER_LIST_MAX: Final = 100


class Sink(Protocol):
    """Takes lists and events. See the module's docstring for InvalidObject."""

    def replace(self, objects: list[Obj], resource_version: str) -> None:
        """Take the whole collection as of ``resource_version``, after each list. An object that is
        not in it is gone.
        """
        ...

    def apply(self, event: WatchEvent) -> None:
        """One ADDED, MODIFIED or DELETED; never a BOOKMARK."""
        ...


class Listing(Protocol):
    """A list that is being read. It changes nothing before ``end``."""

    def add(self, objects: list[Obj]) -> None:
        """The next objects of the list."""
        ...

    def end(self, resource_version: str) -> Iterator[None]:
        """The list is whole, as of ``resource_version``: put it into the sink, in slices between
        which other tasks may run.
        """
        ...


@runtime_checkable
class ListingSink(Sink, Protocol):
    """A sink that reads lists piece by piece. It never raises InvalidObject there."""

    def listing(self) -> Listing:
        """Begin a list."""
        ...


class UnreadableList(ApiError):
    """A list that the sink refuses."""


class WholeList:
    """The ``Listing`` of a sink that takes a list in one go. ``subject``: an object as
    InvalidObject names it.

    Objects that the sink refuses with InvalidObject are reported and taken out, up to a limit.
    """

    def __init__(
        self,
        sink: Sink,
        subject: Callable[[Obj], str],
        report: Callable[[Obj, InvalidObject], None],
    ) -> None:
        self._sink = sink
        self._subject = subject
        self._report = report
        self._objects: list[Obj] = []

    def add(self, objects: list[Obj]) -> None:
        """See Listing."""
        self._objects += objects

    def end(self, resource_version: str) -> Iterator[None]:
        """See Listing. Raises UnreadableList."""
        objects = self._objects
        for _ in range(INVALID_PER_LIST_MAX):
            try:
                self._sink.replace(objects, resource_version)
            except InvalidObject as error:
                rest = [obj for obj in objects if self._subject(obj) != error.subject]
                if len(rest) == len(objects):
                    text = f"the sink refuses the list: {error}"
                    raise UnreadableList(0, "InvalidObject", text) from error
                for obj in objects:
                    if self._subject(obj) == error.subject:
                        self._report(obj, error)
                objects = rest
            else:
                return iter(())
        raise UnreadableList(
            0, "InvalidObject", f"the sink refuses over {INVALID_PER_LIST_MAX} objects of one list"
        )
