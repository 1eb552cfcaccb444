"""``StatusDoubts``: writes of vpods' statuses of which nobody knows whether they have arrived.

What such a write has decided stays reserved, and no ledger is lowered below what it may have published (I2). A newer
version of the vpod ends the doubt: the write was for the older one, so it has arrived already or never will. Where none
comes, it ends once no request lives that long.
"""

from collections.abc import Callable
from typing import NamedTuple

from extender.core.model import VPod
from extender.service.caches import Caches


class _Doubt(NamedTuple):
    owner: object
    pool: str
    version: str
    until: float


class StatusDoubts:
    """By vpod key. ``clock``: the event loop's time, seconds; ``lasts_s``: as long as what was reserved for the write."""

    def __init__(self, caches: Caches, clock: Callable[[], float], *, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self._caches = caches
        self._clock = clock
        self._doubts: dict[str, _Doubt] = {}
        caches.vpods.add_event_handler(self._vpod_changed)

    def note(self, owner: object, pool: str, vpod: VPod) -> None:
        """A write for this version of the vpod, which ``owner`` has reserved for, may or may not have arrived."""
        self._doubts[vpod.key] = _Doubt(owner, pool, vpod.resource_version, self._clock() + self._lasts_s)

    def hold(self, vpod_key: str) -> bool:
        """Whether there is doubt about a vpod's status."""
        doubt = self._doubts.get(vpod_key)
        if doubt is not None and doubt.until <= self._clock():
            del self._doubts[vpod_key]
            return False
        return doubt is not None

    def _vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        key = new.key if new is not None else old.key if old is not None else ""
        doubt = self._doubts.get(key)
        if doubt is not None and (new is None or new.resource_version != doubt.version):
            del self._doubts[key]
            self._caches.state.release(doubt.owner, doubt.pool, key)
