"""``Reflector``: mirrors one resource of the API server into a sink, for ever.

.. code-block:: text

    LIST -(replace)-> WATCH -(ended)-> WATCH from the last version seen
      ^                 |  '-(idle, broken, ended at once)-> back off -> the same
      '- 410 Expired, request_relist(), or WATCH_FAILURES_MAX watches in a row that brought nothing

**Every list is a consistent read.** client-go first lists with resourceVersion "0", which any API
server may answer from a cache that is minutes old. After a failover we could then see pods without
the ledgers that our predecessor wrote, and plan the same slots twice. Compare-and-swap would refuse
the writes, but the decisions would be wrong until the watch caught up. So every list asks for the
newest version (""), and a relist never goes back behind what was seen.

After a relist, watches start from the version of that list, never from an older one. A watch that
keeps failing or stays silent leads to a relist too: a server that was restored from a backup may
know none of our versions. Such a server waits for them, and sends neither a 410 nor an event. A
list of a lower version than the last one comes from such a server, and ends the process
(``HistoryReplaced``).
"""

import asyncio
import contextlib
import logging
import random
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from extender.kube.api import (
    EVERYWHERE,
    Api,
    ApiError,
    Expired,
    ListOptions,
    ListPage,
    NotFound,
    Obj,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.kube.first_errors import listing_trouble
from extender.kube.history import check_history
from extender.kube.ratelimit import Backoff
from extender.kube.relists import Relists
from extender.kube.sink import Sink
from extender.kube.troubles import Troubles
from extender.model.bounded import put_bounded
from extender.model.decode import SLICE_OBJECTS
from extender.model.errors import InvalidObject
from extender.model.objects import object_key

WATCH_FAILURES_MAX: Final = 4
"""We list again after so many failed watches without an event or bookmark between them. A silent
watch (``idle_timeout_s``) counts twice.
"""
SHORT_WATCH_S: Final = 1.0
"""A watch that ends sooner, and has brought nothing, counts as failed (client-go's "very short
watch"). After one that has brought something, the next begins so long after it began.
"""
RELIST_PERIOD_MIN_S: Final = 1.0
EXPIRED_QUIET_S: Final = 30.0
"""An Expired is answered by a relist without delay if the last list began at least so long ago."""
REPORTED_MAX: Final = 1000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorSettings:
    """Limits of a reflector."""

    idle_timeout_s: float = 150.0
    """A watch without an event or bookmark for so long counts as dead. API servers send a bookmark
    a minute.
    """
    watch_timeout_s: float = 300.0
    """A watch is asked to last one to two times this, as in client-go, so that watches spread over
    servers.
    """
    page_items: int = 500
    objects_max: int = 200_000
    """A longer list is refused, and the reflector does not sync: better than to run out of
    memory.
    """
    may_be_absent: bool = False
    """Whether a server that does not know the resource counts as one that has no objects."""


DEFAULTS: Final = ReflectorSettings()


IDLE: Final = "Idle"


class _OwnError(ApiError):
    """A failure that the reflector itself detects; its reason is TooManyObjects, ShortWatch or
    Idle.
    """


class Reflector:
    """Lists and watches ``resource`` into ``sink``. Run ``run`` in one task; everything else may be
    read at any time.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        sink: Sink,
        *,
        rng: random.Random,
        options: ListOptions = EVERYWHERE,
        settings: ReflectorSettings = DEFAULTS,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        """Set once the first list is in the sink, and never cleared."""
        self.last_sync_version = ""
        """resourceVersion up to which the sink is complete."""
        self.first_version = ""
        """resourceVersion of the first list."""
        self.lists = 0
        self.listed = 0
        """Objects that the list under way, or the last one, has brought so far."""
        self.listed_of: int | None = None
        """About how many objects that list has; None if the server does not say."""
        self.watches = 0
        self.events = 0
        """ADDED, MODIFIED and DELETED received."""
        self.bookmarks = 0
        self.heard_at = float("-inf")
        """When the last list, watch event or bookmark came, by asyncio's clock."""
        self.invalid_objects = 0
        """Objects that the sink could not read, once per version."""
        self.errors: Counter[str] = Counter()
        """Failed lists and watches, by the error's class. Those that the reflector itself detects:
        by the reason (``_OwnError``).
        """
        self.relists = Relists()
        self.troubles = Troubles()
        """What was logged. Reflectors of other kinds may share it, because their troubles often
        have one cause.
        """
        self.problem = ""
        """Why there is no first list yet, in one line; "" if none has failed, or once there is
        one.
        """
        self._api = api
        self._sink = sink
        self._options = options
        self._settings = settings
        self._rng = rng
        self._backoff = Backoff(rng)
        self._failures = 0
        self._relist = True
        self._wake = asyncio.Event()
        self._watchdog: asyncio.Timeout | None = None
        self._reported: OrderedDict[str, str] = OrderedDict()
        """Subject of InvalidObject -> the version that was reported last."""

    @property
    def silence_s(self) -> float:
        """Seconds since the last list, event or bookmark; 0 before the first."""
        return (
            max(0.0, asyncio.get_running_loop().time() - self.heard_at) if self.is_synced else 0.0
        )

    @property
    def is_synced(self) -> bool:
        """Whether the first list is in the sink."""
        return self.synced.is_set()

    def request_relist(self) -> int:
        """List again soon (at most once in ``RELIST_PERIOD_MIN_S``), ending the watch or a
        back-off. Return which list that is, for ``relists``.
        """
        self._relist = True
        self._wake.set()
        if self._watchdog is not None and not self._watchdog.expired():
            self._watchdog.reschedule(asyncio.get_running_loop().time())
        return self.relists.following

    async def relist(self) -> None:
        """Wait until a list that begins after this call is in the sink: a consistent read."""
        await self.relists.wait(self.request_relist())

    async def run(self) -> None:
        """List and watch until cancelled. ApiErrors are counted, logged and waited out; other
        errors are bugs and raised.

        Raises HistoryReplaced: what the sink has is then no longer reliable.
        """
        loop = asyncio.get_running_loop()
        listed_at = loop.time() - RELIST_PERIOD_MIN_S
        while True:
            try:
                if self._relist:
                    await asyncio.sleep(listed_at + RELIST_PERIOD_MIN_S - loop.time())
                    listed_at = loop.time()
                    await self._list()
                else:
                    await self._watch()
            except Expired as error:
                self._relist = True
                self._note(error)
                # A version may expire at any time, and the sink gets no events until the next list.
                # So list without delay, unless versions expire repeatedly.
                if loop.time() - listed_at < EXPIRED_QUIET_S:
                    await self._back_off(error)
            except ApiError as error:
                self._note(error)
                await self._back_off(error)

    async def _list(self) -> None:
        """Read the whole collection, give it to the sink and start from its version."""
        self._relist = False
        self._wake.clear()
        which = self.relists.begin()
        try:
            version = await self._read_into_sink()
        except BaseException:
            self._relist = True
            raise
        self.relists.end(which)
        self.lists += 1
        self._failures = 0
        self.last_sync_version = version
        self.first_version = self.first_version or version
        self.heard_at = asyncio.get_running_loop().time()
        self.synced.set()
        if self.problem:
            self.problem = ""
            _log.info("%s: listed after all", self.resource.plural)

    async def _read_into_sink(self) -> str:
        """List into the sink. Return the list's version. Raises ApiError."""
        listing, version = self._sink.listing(), ""
        async with contextlib.aclosing(self._pages()) as pages:
            async for page in pages:
                version = page.resource_version
                check_history(f"a list of {self.resource.plural}", version, self.last_sync_version)
                for start in range(0, len(page.items), SLICE_OBJECTS):
                    listing.add(page.items[start : start + SLICE_OBJECTS])
                    await asyncio.sleep(0)
        for _ in listing.end(version):
            await asyncio.sleep(0)
        return version

    async def read(self) -> tuple[list[Obj], str]:
        """Return the whole collection as it is now, and its version. The sink gets nothing of it.
        Raises ApiError.
        """
        objects: list[Obj] = []
        version = ""
        async with contextlib.aclosing(self._pages()) as pages:
            async for page in pages:
                objects += page.items
                version = page.resource_version
        return objects, version

    async def _pages(self) -> AsyncGenerator[ListPage, None]:
        """Yield the pages of the collection as it is now. Each is requested while the one before is
        processed.

        Raises ApiError: Expired if the pages' snapshot was compacted meanwhile. client-go's pager
        then reads the list in one piece. We do not, because ten thousand pods are more than a
        response may have (``transport.RESPONSE_BYTES_MAX``). A new list with pages can succeed.
        """
        page, count = await self._page(""), 0
        while True:
            count += len(page.items)
            self._check_size(count)
            self.listed = count
            self.listed_of = None if page.remaining is None else count + page.remaining
            if not page.continue_token:
                yield page
                return
            following = asyncio.create_task(self._page(page.continue_token))
            try:
                yield page
                page = await following
            finally:
                following.cancel()

    async def _page(self, continue_token: str) -> ListPage:
        return await self._api.list_page(
            self.resource,
            self._options,
            limit=self._settings.page_items,
            continue_token=continue_token,
        )

    def _check_size(self, count: int) -> None:
        if count > self._settings.objects_max:
            raise _OwnError(
                0,
                "TooManyObjects",
                f"{count} {self.resource.plural} or more, and the limit is "
                f"{self._settings.objects_max}",
            )

    async def _watch(self) -> None:
        """Run one watch to its end. Raises ApiError if it failed, ended too soon or fell silent."""
        loop = asyncio.get_running_loop()
        started_at, seen_before = loop.time(), self.events + self.bookmarks
        timeout_s = self._settings.watch_timeout_s * (1.0 + self._rng.random())
        stream = self._api.watch(
            self.resource,
            self._options,
            resource_version=self.last_sync_version,
            timeout_s=timeout_s,
        )
        self.watches += 1
        try:
            async with asyncio.timeout(self._settings.idle_timeout_s) as self._watchdog:
                async for event in stream:
                    self.heard_at = loop.time()
                    self._watchdog.reschedule(self.heard_at + self._settings.idle_timeout_s)
                    self._receive(event)
                    if self._relist:
                        return
        except TimeoutError:
            if self._relist:
                return
            raise _OwnError(0, IDLE, f"nothing for {self._settings.idle_timeout_s} s") from None
        finally:
            self._watchdog = None
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        left_s = started_at + SHORT_WATCH_S - loop.time()
        if left_s > 0 and self.events + self.bookmarks == seen_before:
            raise _OwnError(0, "ShortWatch", "the server ended the watch at once")
        # A server that sends something and ends every watch at once would be asked in a loop.
        await self._wait(left_s)

    def _receive(self, event: WatchEvent) -> None:
        """Process one event. The version advances even if the sink cannot read the object."""
        self._failures = 0
        if event.type is WatchEventType.BOOKMARK:
            self.bookmarks += 1
            # Events are not checked: an aggregated API server may report a deletion with an older
            # version.
            check_history(
                f"a bookmark of {self.resource.plural}",
                _metadata(event.object, "resourceVersion"),
                self.last_sync_version,
            )
        else:
            self.events += 1
            try:
                self._sink.apply(event)
            except InvalidObject as error:
                self._report(event.object, error)
            if event.type is WatchEventType.DELETED:
                self._reported.pop(self._subject(event.object), None)
        if version := _metadata(event.object, "resourceVersion"):
            self.last_sync_version = version

    def _subject(self, obj: Obj) -> str:
        """The object as InvalidObject names it."""
        return (
            f"{self.resource.kind} "
            f"{object_key(_metadata(obj, 'namespace'), _metadata(obj, 'name'))}"
        )

    def _report(self, obj: Obj, error: InvalidObject) -> None:
        subject, version = self._subject(obj), _metadata(obj, "resourceVersion")
        if self._reported.get(subject) == version:
            return
        self.invalid_objects += 1
        put_bounded(self._reported, subject, version, REPORTED_MAX)
        _log.warning("version %s cannot be read and is left out: %s", version, error)

    def _note(self, error: ApiError) -> None:
        self.errors[error.reason if isinstance(error, _OwnError) else type(error).__name__] += 1
        if self._settings.may_be_absent and isinstance(error, NotFound):
            self.heard_at = asyncio.get_running_loop().time()
            if not self.is_synced:
                for _ in self._sink.listing().end(""):
                    pass
                self.synced.set()
        if not self.is_synced:
            self.problem = listing_trouble(self.resource, error).line
        if line := self.troubles.line(self.resource, error, asyncio.get_running_loop().time()):
            _log.warning("%s", line)
        # A silent watch counts twice: API server 1.36, asked for a version from its future, neither
        # refuses nor sends anything.
        self._failures += 2 if error.reason == IDLE else 1
        if self._failures >= WATCH_FAILURES_MAX:
            self._relist = True

    async def _back_off(self, error: ApiError) -> None:
        """Wait out a failure."""
        now = asyncio.get_running_loop().time()
        await self._wait(self._backoff.next_s(now, at_least_s=error.retry_after_s))

    async def _wait(self, delay_s: float) -> None:
        """Wait; ``request_relist`` ends it."""
        if delay_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()


def _metadata(obj: Obj, name: str) -> str:
    metadata = obj.get("metadata")
    value = metadata.get(name) if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else ""
