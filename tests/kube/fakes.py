"""An in-memory ``Api`` whose answers a test can script, for the reflector, the elector and the
recorder.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from extender.kube.api import (
    EVERYWHERE,
    AlreadyExists,
    ApiError,
    Binding,
    Conflict,
    ListOptions,
    ListPage,
    NotFound,
    Obj,
    OutcomeUnknown,
    PatchType,
    Preconditions,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.kube.sink import Sink

EPOCH = 1_700_000_000.0


def wall() -> float:
    """A wall clock that goes with the loop's."""
    return EPOCH + asyncio.get_running_loop().time()


def pod(name: str, version: int = 1, **more: Any) -> Obj:
    return {"metadata": {"namespace": "ns", "name": name, "resourceVersion": str(version)}, **more}


def event(kind: str, obj: Obj) -> WatchEvent:
    return WatchEvent(WatchEventType(kind), obj)


def bookmark(version: int) -> WatchEvent:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


HANG = object()
"""In a watch's script: stay open and silent."""


@dataclass
class ListWatchApi:
    """Lists and watches by script: each list or page, and each watch, takes the next answer; the
    last one stays.

    An answer that is an exception is raised. A watch's answer is a list of events, exceptions,
    seconds to wait, or HANG.
    """

    pages: list[Any] = field(default_factory=list)
    watches: list[list[Any]] = field(default_factory=lambda: [[HANG]])
    list_calls: list[tuple[int, str, str]] = field(default_factory=list)
    watch_calls: list[tuple[float, str]] = field(default_factory=list)
    open_watches: int = 0

    async def list_page(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        self.list_calls.append((limit, continue_token, resource_version))
        await asyncio.sleep(0)
        answer = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, ListPage)
        return answer

    async def watch(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        resource_version: str,
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        self.watch_calls.append((asyncio.get_running_loop().time(), resource_version))
        script = self.watches.pop(0) if len(self.watches) > 1 else self.watches[0]
        self.open_watches += 1
        try:
            for step in script:
                if step is HANG:
                    await asyncio.Event().wait()
                elif isinstance(step, ApiError):
                    raise step
                elif isinstance(step, int | float):
                    await asyncio.sleep(step)
                else:
                    await asyncio.sleep(0)
                    yield step
        finally:
            self.open_watches -= 1

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a reflector has no business with {name}")


@dataclass
class WholeList:
    """The listing of a sink that takes a list in one go: ``take`` gets its objects and version."""

    take: Callable[[list[Obj], str], None]
    objects: list[Obj] = field(default_factory=list)

    def add(self, objects: list[Obj]) -> None:
        self.objects += objects

    def end(self, resource_version: str) -> Iterator[None]:
        self.take(self.objects, resource_version)
        return iter(())


def give_list(sink: Sink, objects: Sequence[Obj], resource_version: str) -> None:
    """Give ``sink`` a whole list, as a reflector does."""
    listing = sink.listing()
    listing.add(list(objects))
    for _ in listing.end(resource_version):
        pass


@dataclass
class StoreApi:
    """Objects with versions and compare-and-swap. ``fail`` (per verb) gives errors to raise before
    the effect, ``lose`` (per verb) the number of next writes that happen but whose answers get
    lost; ``delay_s`` is the way there.
    """

    objects: dict[tuple[str, str, str], Obj] = field(default_factory=dict)
    fail: dict[str, deque[ApiError]] = field(default_factory=lambda: defaultdict(deque))
    lose: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    delay_s: float = 0.0
    down: bool = False
    calls: list[tuple[float, str]] = field(default_factory=list)
    version: int = 0

    async def _enter(self, verb: str) -> None:
        self.calls.append((asyncio.get_running_loop().time(), verb))
        await asyncio.sleep(self.delay_s)
        if self.down:
            raise OutcomeUnknown(0, "ConnectionFailed", "down")
        if self.fail[verb]:
            raise self.fail[verb].popleft()

    def _store(self, verb: str, key: tuple[str, str, str], obj: Obj) -> Obj:
        self.version += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self.objects[key] = stored
        if self.lose[verb]:
            self.lose[verb] -= 1
            raise OutcomeUnknown(0, "Timeout", "lost")
        return stored

    def count(self, verb: str) -> int:
        return sum(1 for _, called in self.calls if called == verb)

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Obj:
        await self._enter("get")
        try:
            return self.objects[resource.plural, namespace, name]
        except KeyError:
            raise NotFound(404, "NotFound", name) from None

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        await self._enter("create")
        key = (resource.plural, namespace, obj["metadata"]["name"])
        if key in self.objects:
            raise AlreadyExists(409, "AlreadyExists", key[2])
        return self._store("create", key, obj)

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Obj, *, subresource: str = ""
    ) -> Obj:
        await self._enter("update")
        key = (resource.plural, namespace, name)
        if key not in self.objects:
            raise NotFound(404, "NotFound", name)
        if (
            obj["metadata"].get("resourceVersion")
            != self.objects[key]["metadata"]["resourceVersion"]
        ):
            raise Conflict(409, "Conflict", name)
        return self._store("update", key, obj)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: list[Obj] | Obj,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> Obj:
        await self._enter("patch")
        assert isinstance(patch, dict)
        key = (resource.plural, namespace, name)
        if key not in self.objects:
            raise NotFound(404, "NotFound", name)
        return self._store("patch", key, {**self.objects[key], **patch})

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        await self._enter("delete")
        self.objects.pop((resource.plural, namespace, name))

    async def evict(self, namespace: str, name: str, *, preconditions: object = None) -> None:
        raise AssertionError(f"nothing here evicts pods: {namespace}/{name}")

    async def bind(self, binding: Binding) -> None:
        raise AssertionError("nothing here binds")

    async def list_page(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        raise AssertionError("nothing here lists")

    def watch(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        resource_version: str,
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        raise AssertionError("nothing here watches")
