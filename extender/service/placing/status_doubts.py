"""``StatusDoubts``: vpods whose stored status nobody here knows.

A status write without a reply may have arrived, or may still arrive. A write refused as a Conflict
shows that there is a newer version, which may publish anything: it may be an earlier write of this
replica. Until that version is seen, the decision stays reserved, and no ledger is lowered below
what the write may have published (I2).

A newer version of the vpod ends the doubt: the write was for the older one, so it has arrived
already or never will. The absence of a newer version proves nothing, because the watch may be
silent for minutes (seed 161002421). So the vpods are listed again: after a Conflict any list shows
the outcome, otherwise a list that begins when the write can no longer arrive (``UNDER_WAY_S``).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from extender.model.objects import VPod
from extender.service.placing.ledger_confirmations import UNDER_WAY_S
from extender.service.watching.caches import Caches
from extender.service.watching.pods_behind import LIST_PERIOD_S, PATIENCE_S

ListAgain = Callable[[str], Awaitable[bool]]
"""Source of vpods ("" for VPods) -> whether a list that began after the call is in the caches."""


class _Doubt(NamedTuple):
    owner: object
    pool: str
    version: str
    source: str
    list_tells_at: float
    """A list that begins at or after this time shows the outcome of the write."""
    look_at: float
    """Earliest time at which a list is worth its cost."""


class StatusDoubts:
    """Doubts by vpod key. ``clock``: the event loop's time, seconds."""

    def __init__(self, caches: Caches, clock: Callable[[], float], list_again: ListAgain) -> None:
        self._list_again = list_again
        self._caches = caches
        self._clock = clock
        self._doubts: dict[str, _Doubt] = {}
        self._lists: dict[str, asyncio.Task[None]] = {}
        """Lists under way, by source."""
        self._listed_at: dict[str, float] = {}
        caches.vpods.add_event_handler(self._vpod_changed)

    def note(self, owner: object, pool: str, vpod: VPod, *, conflict: bool) -> None:
        """A write for this version of the vpod, reserved by ``owner``, may or may not have arrived.

        ``conflict``: it has not arrived, but another write has.
        """
        latest = self._caches.vpods.latest(vpod.key)
        if latest is None or latest.resource_version != vpod.resource_version:
            # A newer version came while the write was under way, so there is no doubt (seed
            # 200003442).
            self._caches.state.release(owner, pool, vpod.key)
            return
        now = self._clock()
        tells_at = now if conflict else now + UNDER_WAY_S
        known = self._doubts.get(vpod.key)
        look_at = now + PATIENCE_S if conflict else tells_at
        if known is not None and known.version == vpod.resource_version:
            # The same version again: keep the earlier time, because a doubt that lasts is worth a
            # list.
            look_at = min(look_at, known.look_at)
            tells_at = max(tells_at, known.list_tells_at)
        self._doubts[vpod.key] = _Doubt(
            owner, pool, vpod.resource_version, vpod.source, tells_at, max(look_at, tells_at)
        )

    def take_over_doubt(self, owner: object, vpod_key: str) -> bool:
        """Whether a vpod's status is in doubt. Then its newest decision, of ``owner``, stays
        reserved until the doubt ends, even if that decision's own writes have certainly failed:
        those of an earlier one may be published (seed 9001469).
        """
        doubt = self._doubts.get(vpod_key)
        if doubt is not None:
            self._doubts[vpod_key] = doubt._replace(owner=owner)
        return doubt is not None

    def is_doubtful(self, vpod_key: str) -> bool:
        """Whether a vpod's status is in doubt."""
        return vpod_key in self._doubts

    def look_again(self, vpod_key: str) -> None:
        """Start the list that ends a vpod's doubt, once a list is worth its cost."""
        doubt = self._doubts.get(vpod_key)
        if doubt is not None and doubt.look_at <= self._clock():
            self._look(doubt.source)

    def _look(self, source: str) -> None:
        if source in self._lists:
            return
        if self._clock() - self._listed_at.get(source, float("-inf")) < LIST_PERIOD_S:
            return
        self._lists[source] = asyncio.create_task(self._list(source), name="list vpods in doubt")

    async def _list(self, source: str) -> None:
        began = self._clock()
        self._listed_at = {
            known: at for known, at in self._listed_at.items() if began - at < LIST_PERIOD_S
        }
        self._listed_at[source] = began
        try:
            listed = await self._list_again(source)
        finally:
            del self._lists[source]
        if not listed:
            return
        for key, doubt in list(self._doubts.items()):
            if doubt.source == source and doubt.list_tells_at <= began:
                self._end(key, doubt)

    def _vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        key = new.key if new is not None else old.key if old is not None else ""
        doubt = self._doubts.get(key)
        if doubt is not None and (new is None or new.resource_version != doubt.version):
            self._end(key, doubt)

    def _end(self, key: str, doubt: _Doubt) -> None:
        del self._doubts[key]
        self._caches.state.release(doubt.owner, doubt.pool, key)
