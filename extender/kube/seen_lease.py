"""``SeenLease``: what one candidate has seen of a Lease, and what follows: whose it is, and until
when.

It does no I/O: the elector reads and writes the Lease, and reports what it found and what it is
about to write. In the table, "still" means unchanged for as long as the record says.

.. code-block:: text

    holder    and                                                 the Lease is
    us        we wrote it                                         ours
    us        somebody else wrote it                              another's until it is still
    another   not yet still                                       another's
    another   still                                               free to take
    nobody    given up for another replica within ``KEPT_S``      kept for that one
    nobody    released, or as installed and nobody can have led   free
    nobody    else                                                another's until it is still, but
                                                                  never while our own lease lasts
    no Lease  it was ours, and our lease lasts                    to be created at once
    no Lease  else                                                to be created once any lease
                                                                  would have expired

Time is our monotonic clock's, from when *we* saw the record change. The times in the record are for
people.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.kube.api import Obj
from extender.kube.history import check_history
from extender.kube.lease import (
    RELEASED_S,
    LeaseConfig,
    announced_buckets,
    asked_by,
    is_new,
    is_newer,
)
from extender.model.reading import mapping, text

KEPT_S: Final = 6.0
"""How long a Lease that was given up for a replica is kept for it."""
LOOKS_MISSED_MAX: Final = 3
"""Retry periods between two looks that find no Lease. After more, the wait begins anew."""
STAMPS_MAX: Final = 32
"""After more unanswered writes, a record of our own looks like another's. The only harm is that we
wait for it to expire.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """A candidate's conditions and callbacks, apart from the Lease itself."""

    nothing_written: Callable[[], bool] = lambda: True
    """Whether nothing exists yet that a leader has written."""
    first_version: Callable[[], str] = lambda: ""
    """Version of the first thing of any kind that we have read; "" if unknown."""
    may_lead: Callable[[], bool] = lambda: True
    """Whether the candidate may lead at all. Asked again and again."""
    yields_to: Callable[[str], bool] = lambda _identity: False
    """Whether to give the Lease up for another replica that asks for it."""
    on_other_writer: Callable[[], None] = lambda: None
    """Called when somebody else has written the Lease, or may have written it before it was
    deleted.
    """
    buckets: int = 1
    """Into how many buckets the pools are divided. The Lease says it while we hold it. 1 for the
    Lease of a later bucket.
    """


class SeenLease:
    """What the candidate ``identity`` has seen of the Lease."""

    def __init__(self, lease: LeaseConfig, identity: str, candidacy: Candidacy) -> None:
        self._lease = lease
        self._identity = identity
        self._candidacy = candidacy
        self.record: Obj = {}
        """The Lease as it was last read or written; {} if there was none yet."""
        self._seen_at = 0.0
        self._seen_held = False
        """Whether we have ever seen that somebody else held the Lease."""
        self.began_at = self.read_at = (float("-inf"), float("-inf"))
        """When the last try began, and the last try that read the Lease. Both by the monotonic
        clock, and by the wall clock, which goes on while a machine is suspended.
        """
        self.asked_by = ""
        """The replica that has asked us for the Lease and was not answered yet."""
        self._missing: tuple[float, float] | None = None
        """Monotonic times since which we have found no Lease, and when we last looked."""
        self._stamps: deque[str] = deque(maxlen=STAMPS_MAX)
        """renewTime of our own last writes, also of those that may not have arrived."""
        self.never_held_by_others = False
        """Whether nobody but us has ever held the Lease, so that no other leader can have written
        anything.
        """

    @property
    def holder(self) -> str:
        """The holder as last seen; "" for nobody."""
        return text(self.record, "spec", "holderIdentity")

    @property
    def announced_buckets(self) -> int:
        """Into how many buckets the holder divides the pools, as last seen."""
        return announced_buckets(self.record)

    def tries(self, wall_clock: float) -> None:
        """The Lease is about to be read or written."""
        self.began_at = (asyncio.get_running_loop().time(), wall_clock)

    def writes(self, stamp: str) -> None:
        """The Lease is about to be written with ``stamp`` as its renewTime."""
        self._stamps.append(stamp)

    def has_not_written(self, stamp: str) -> None:
        """The write with ``stamp`` was refused, and will never arrive."""
        self._stamps.remove(stamp)

    def has_taken(self, before: Obj | None) -> None:
        """We hold the Lease now; ``before`` is what it replaced, None if there was none."""
        self.never_held_by_others = self.never_held_by_others or (
            before is not None and is_new(before) and not self._seen_held
        )

    def observe(self, found: Obj) -> None:
        """Remember the record, and since when it has been unchanged. Raises HistoryReplaced if it
        is older than the last one.
        """
        check_history(
            f"lease {self._lease.namespace}/{self._lease.name}",
            text(found, "metadata", "resourceVersion"),
            text(self.record, "metadata", "resourceVersion"),
        )
        if not self.record or mapping(found, "spec") != mapping(self.record, "spec"):
            self._seen_at = asyncio.get_running_loop().time()
        self.record, self._missing, self.read_at = found, None, self.began_at
        if asks := asked_by(found):
            self.asked_by = asks
        self._seen_held = self._seen_held or not (self.is_ours() or self._is_free())
        if text(found, "spec", "renewTime") not in self._stamps:
            self.never_held_by_others = (
                False  # somebody else has written it, even if only to release it
            )
            self._candidacy.on_other_writer()

    def may_make_one(self, still_leading: Callable[[], bool]) -> bool:
        """Whether nobody can be leading by a Lease that is gone: it was ours and our lease lasts,
        or it has been gone for as long as any lease lasts.

        What we saw last proves nothing: a replica that was paused or cut off has not seen who took
        the Lease after it expired (seed 281000556). For the same reason we have to look all the
        time: while we could not, another may have made one, and lead by it although somebody has
        deleted it since (seed 60000119).
        """
        if self.is_ours() and still_leading():
            return True
        now = asyncio.get_running_loop().time()
        since, looked = self._missing or (now, now)
        if self._missing is None or now - looked > LOOKS_MISSED_MAX * self._lease.retry_period_s:
            since = now
            _log.info(
                "no lease %s/%s: it may have been deleted, waiting for %d s",
                self._lease.namespace,
                self._lease.name,
                self._lease.duration_s,
            )
        self._missing = (since, now)
        may = now >= since + max(self._lease.duration_s, self._lasts_s())
        if may:
            self._candidacy.on_other_writer()
        return may

    def is_others(self, still_leading: Callable[[], bool]) -> bool:
        """Whether somebody else may act by the record that we saw last, or by the one before it."""
        if self.holder:
            return not self.is_ours() and not self._expired()
        if self._is_kept():
            return True
        # No holder: while our lease lasts, nobody who waits for it can have taken it.
        return not self._is_free() and not still_leading() and not self._expired()

    def _is_free(self) -> bool:
        """Whether nobody acts by the Lease: its holder released it, or it never had one."""
        if self.holder:
            return False
        if mapping(self.record, "spec").get("leaseDurationSeconds") == RELEASED_S:
            return True
        return (
            is_new(self.record)
            and not self._seen_held
            and not is_newer(self.record, self._candidacy.first_version())
            and self._candidacy.nothing_written()
        )

    def _is_kept(self) -> bool:
        """Whether it was given up for another replica a moment ago."""
        kept_for = asked_by(self.record)
        kept_until = self._seen_at + KEPT_S
        return (
            kept_for not in {"", self._identity} and asyncio.get_running_loop().time() < kept_until
        )

    def is_ours(self) -> bool:
        """Whether we hold the lease by a write of our own.

        A person may have put our name there. The leader until then goes on until it reads the
        Lease, so we wait as for any other holder.
        """
        written = text(self.record, "spec", "renewTime") in self._stamps
        return self.holder == self._identity and written

    def _expired(self) -> bool:
        """Whether the record has been unchanged for as long as it says."""
        return asyncio.get_running_loop().time() >= self._seen_at + self._lasts_s()

    def _lasts_s(self) -> float:
        """For how long the record says that it lasts."""
        duration = mapping(self.record, "spec").get("leaseDurationSeconds")
        return duration if isinstance(duration, int) else self._lease.duration_s
