"""Lists and watches over a collection.

A watch sees the collection through its selectors. An object that begins to match is ADDED. An
object that ceases to match is DELETED, with its last matching content at the version of the change,
as the real watch cache reports it.

Bookmarks tell the version that a watch has reached, once a period and at the server's timeout. So a
client whose own objects do not change can still resume from a recent version.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import orjson

from extender.kube.api import ListPage, Obj, Resource, WatchEvent, WatchEventType
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.lab.apiserver.selectors import Predicate
from extender.lab.apiserver.statuses import (
    bad_request,
    expired_continue,
    expired_watch,
    unparsable_version,
)
from extender.lab.apiserver.store import Change, Collection, Entry, Key, Store, at_version

BOOKMARK_PERIOD_S: Final = 60.0
EVENTS_PER_TURN_MAX: Final = 256
"""After this many events in a row, a watch lets other tasks run."""


@dataclass(frozen=True, slots=True)
class View:
    """What a list or watch reads: a collection, its resource and selectors (None: all)."""

    store: Store
    collection: Collection
    resource: Resource
    matches: Predicate | None
    namespace: str = ""
    bare_items: bool = False
    """Items of lists come without kind and apiVersion, as for built-in kinds."""


def parse_version(text: str) -> int:
    """Parse a resourceVersion. Raises ApiError 500, as the real API server does."""
    if not text.isascii() or not text.isdigit():
        raise unparsable_version(text, "resourceVersion")
    return int(text)


def list_page(view: View, *, limit: int, continue_token: str) -> ListPage:
    """Return a page of a list. ``limit`` 0 means all. Raises Expired for a too old token."""
    if continue_token:
        version, after = _decode_continue(continue_token)
        entries = view.collection.entries_at(version)
        if entries is None:
            raise expired_continue()
        keys = [key for key in sorted(entries) if key > after]
    else:
        version, entries, keys = (
            view.store.version,
            view.collection.entries,
            view.collection.ordered(),
        )
    items: list[Obj] = []
    last: Key | None = None
    for key in keys:
        if view.namespace not in ("", key[0]):
            continue
        if limit and len(items) == limit and last is not None:
            # Nobody checks whether a remaining object matches, so the next page may be empty.
            return ListPage(items, str(version), _encode_continue(version, last))
        entry = entries[key]
        if view.matches is not None and not view.matches(entry.obj):
            continue
        items.append(_item(view, entry))
        last = key
    return ListPage(items, str(version))


def _item(view: View, entry: Entry) -> Obj:
    """Return an item of a list. Built-in kinds do not repeat the list's kind and apiVersion."""
    item = entry.copy()
    if view.bare_items:
        del item["kind"], item["apiVersion"]
    return item


def list_at(view: View, version: int) -> ListPage | None:
    """Return the whole list as it was at a version; None if the history is too short."""
    entries = view.collection.entries_at(version)
    if entries is None:
        return None
    found = [entries[key] for key in sorted(entries)]
    items = [
        _item(view, entry) for entry in found if view.matches is None or view.matches(entry.obj)
    ]
    return ListPage(items, str(version))


def _encode_continue(version: int, after: Key) -> str:
    token = orjson.dumps({"rv": version, "start": after})
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def _decode_continue(token: str) -> tuple[int, Key]:
    try:
        decoded = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, name = decoded["start"]
        return int(decoded["rv"]), (str(namespace), str(name))
    except (ValueError, KeyError, TypeError) as problem:
        raise bad_request(
            "continue key is not valid: continue token could not be decoded"
        ) from problem


def event_of(change: Change, matches: Predicate | None) -> WatchEvent | None:
    """Return the event that a watch with that selector reports for a change, if any. All watches
    share the object.
    """
    before, after = change.before, change.after
    was = before is not None and (matches is None or matches(before.obj))
    if after is not None and (matches is None or matches(after.obj)):
        return WatchEvent(WatchEventType.MODIFIED if was else WatchEventType.ADDED, after.obj)
    if was and before is not None:
        return WatchEvent(WatchEventType.DELETED, at_version(before, change.version))
    return None


def start_of(view: View, resource_version: str) -> tuple[int, list[Entry]]:
    """Return the cursor of a new watch, and the entries to report first as ADDED (for version ""
    and "0": all).

    A watch from a future version reports no change up to that version. Raises Expired.
    """
    version = parse_version(resource_version) if resource_version else 0
    if version == 0:
        cursor = view.collection.cursor_after(view.store.version)
        entries = [view.collection.entries[key] for key in view.collection.ordered()]
        return cursor or 0, [
            entry for entry in entries if view.matches is None or view.matches(entry.obj)
        ]
    cursor = view.collection.cursor_after(version)
    if cursor is None:
        raise expired_watch(version, view.collection.horizon)
    return cursor, []


async def watch(
    look: Callable[[], View], *, resource_version: str, timeout_s: float
) -> AsyncIterator[WatchEvent]:
    """Yield events until ``timeout_s`` have passed, then a bookmark. Raises Expired once overtaken
    by the history.

    ``look`` returns the view. It is called when the first event is requested, and its errors are
    raised then.
    """
    view = look()
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    bookmark_due = loop.time() + BOOKMARK_PERIOD_S
    cursor, present = start_of(view, resource_version)
    from_version = parse_version(resource_version or "0")
    for entry in present:
        yield WatchEvent(WatchEventType.ADDED, entry.obj)
    told, withdrawals = 0, view.collection.withdrawals
    while True:
        change = _next_change(view, cursor)
        if change is not None:
            cursor += 1
            if change.version <= from_version:
                continue
            if (event := event_of(change, view.matches)) is not None:
                yield event
                told += 1
                if told % EVENTS_PER_TURN_MAX == 0:
                    await asyncio.sleep(0)
            continue
        if view.collection.withdrawals != withdrawals:
            return
        now = loop.time()
        if now >= min(end, bookmark_due) - TIMER_RESOLUTION_S:
            yield bookmark(view)
            if now >= end - TIMER_RESOLUTION_S:
                return
            bookmark_due = now + BOOKMARK_PERIOD_S
            continue
        await _changed(view.collection, min(end, bookmark_due))


def _next_change(view: View, cursor: int) -> Change | None:
    try:
        return view.collection.change_at(cursor)
    except LookupError:
        raise expired_watch(view.collection.horizon - 1, view.collection.horizon) from None


async def _changed(collection: Collection, until: float) -> None:
    """Return at the collection's next change or at loop time ``until``."""
    waiter = collection.waiter()
    timer = asyncio.get_running_loop().call_at(until, _finish, waiter)
    try:
        await waiter
    finally:
        timer.cancel()
        collection.forget(waiter)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def bookmark(view: View) -> WatchEvent:
    """Return a bookmark at the store's version: everything up to it has been reported."""
    return WatchEvent(
        WatchEventType.BOOKMARK,
        {
            "kind": view.resource.kind,
            "apiVersion": view.resource.api_version,
            "metadata": {"resourceVersion": str(view.store.version), "creationTimestamp": None},
        },
    )
