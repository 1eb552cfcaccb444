"""``SeenLease``: what a Lease was seen to say, and what follows from it for one candidate: whose it
is, and until when.

Synchronous: the elector reads and writes the Lease, and tells us what it has found and what it is
about to write.

.. code-block:: text

    holder    and                                                 it is
    us        by a write of ours                                  ours
    us        by somebody else's                                  another's until it has stood
                                                                  still for as long as it says
    another   changed a moment ago                                another's
    another   has stood still for as long as it says              to be taken
    nobody    given up for somebody else, for ``KEPT_S``          kept
    nobody    released, or as installed and nobody can have led   free
    nobody    else                                                another's until it has stood
                                                                  still, or until ours runs out
    no Lease  by what was ours, and lasts                         to be made anew at once
    no Lease  else                                                to be made once any would have
                                                                  run out

Time is our monotonic clock's, since *we* have seen the record change; the times in the record are
for people.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.kube.api import Obj
from extender.kube.history import check_history
from extender.kube.lease import RELEASED_S, LeaseConfig, asked_by, buckets_said, is_new, is_newer
from extender.model.decode import mapping, text

KEPT_S: Final = 6.0
"""How long a Lease that was given up for somebody is left to that one."""
STAMPS_MAX: Final = 32
"""More writes than that without an answer, and a record of our own looks like another's: nothing
worse than waiting for it.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """What a candidate makes of its Lease beside holding it."""

    untouched: Callable[[], bool] = lambda: True
    """Whether nothing is there yet that a leader has written."""
    began: Callable[[], str] = lambda: ""
    """Version of what we have read first of all, of any kind; "" where that is not known."""
    may: Callable[[], bool] = lambda: True
    """Whether it may lead at all, asked again and again."""
    gives: Callable[[str], bool] = lambda _identity: False
    """Whether to give the Lease up for another replica that asks for it."""
    others: Callable[[], None] = lambda: None
    """Told whenever the Lease is seen as somebody else has written it, or may have before it was
    deleted.
    """
    buckets: int = 1
    """In how many buckets the pools are led, which is said on the Lease while we hold it; of a
    later bucket's Lease 1.
    """


class SeenLease:
    """What the Lease has said so far to the candidate ``identity``."""

    def __init__(self, lease: LeaseConfig, identity: str, candidacy: Candidacy) -> None:
        self._lease = lease
        self._identity = identity
        self._candidacy = candidacy
        self.record: Obj = {}
        """The Lease as it was read or written last; {} where there was none yet."""
        self._seen_at = 0.0
        self._seen_held = False
        """Whether we have ever seen that somebody else held the Lease."""
        self.began_at = self.read_at = (float("-inf"), float("-inf"))
        """When the last try began, and the last one that has told what the Lease says: by the
        monotonic clock, and by the wall clock, which goes on while a machine is suspended.
        """
        self.asked_by = ""
        """Who has asked us for the Lease and was not answered yet."""
        self._missing_since: float | None = None
        """Monotonic time since which we have found no Lease."""
        self._stamps: deque[str] = deque(maxlen=STAMPS_MAX)
        """renewTime of our own last writes, those included of which we do not know whether they
        have arrived.
        """
        self.founded = False
        """Whether nobody but us has ever held the Lease: no other leader can ever have written
        anything.
        """

    @property
    def holder(self) -> str:
        """As last seen; "" for nobody."""
        return text(self.record, "spec", "holderIdentity")

    @property
    def buckets_said(self) -> int:
        """In how many buckets the pools are led by whoever holds the Lease, as last seen."""
        return buckets_said(self.record)

    def tries(self, wall_clock: float) -> None:
        """The Lease is about to be read or written."""
        self.began_at = (asyncio.get_running_loop().time(), wall_clock)

    def writes(self, stamp: str) -> None:
        """It is about to be written with that renewTime."""
        self._stamps.append(stamp)

    def has_not_written(self, stamp: str) -> None:
        """That write was refused, and will never arrive."""
        self._stamps.remove(stamp)

    def has_taken(self, before: Obj | None) -> None:
        """We hold it now; ``before`` is what was there, None where it did not exist."""
        self.founded = self.founded or (
            before is not None and is_new(before) and not self._seen_held
        )

    def observe(self, found: Obj) -> None:
        """Remember the record, and when we first saw it so. Raises HistoryReplaced where it is
        older than the last one.
        """
        check_history(
            f"lease {self._lease.namespace}/{self._lease.name}",
            text(found, "metadata", "resourceVersion"),
            text(self.record, "metadata", "resourceVersion"),
        )
        if not self.record or mapping(found, "spec") != mapping(self.record, "spec"):
            self._seen_at = asyncio.get_running_loop().time()
        self.record, self._missing_since, self.read_at = found, None, self.began_at
        if asks := asked_by(found):
            self.asked_by = asks
        self._seen_held = self._seen_held or not (self._is_ours() or self._is_free())
        if text(found, "spec", "renewTime") not in self._stamps:
            self.founded = False  # somebody else has written it, be it only to release it
            self._candidacy.others()

    def may_make_one(self, still_leading: Callable[[], bool]) -> bool:
        """Whether nobody can be leading by a Lease that is gone: ours, as long as it lasts, or it
        is gone for as long as any lasts.

        What we saw last says nothing: whoever was paused, or cut off, has not seen who took it when
        that had run out (seed 281000556).
        """
        if self._is_ours() and still_leading():
            return True
        now = asyncio.get_running_loop().time()
        if self._missing_since is None:
            self._missing_since = now
            _log.info(
                "no lease %s/%s: it may have been deleted, waiting for %d s",
                self._lease.namespace,
                self._lease.name,
                self._lease.duration_s,
            )
        may = now >= self._missing_since + max(self._lease.duration_s, self._lasts_s())
        if may:
            self._candidacy.others()
        return may

    def is_others(self, still_leading: Callable[[], bool]) -> bool:
        """Whether somebody else may act by the record that we saw last, or by the one that was
        there before it.
        """
        if self.holder:
            return not self._is_ours() and not self._expired()
        if self._is_kept():
            return True
        # Without a holder: while ours lasts, nobody who waits for it can have taken it.
        return not self._is_free() and not still_leading() and not self._expired()

    def _is_free(self) -> bool:
        """Whether nobody acts by the Lease: its holder has released it, or there was none yet."""
        if self.holder:
            return False
        if mapping(self.record, "spec").get("leaseDurationSeconds") == RELEASED_S:
            return True
        return (
            is_new(self.record)
            and not self._seen_held
            and not is_newer(self.record, self._candidacy.began())
            and self._candidacy.untouched()
        )

    def _is_kept(self) -> bool:
        """Whether it was given up for somebody else a moment ago."""
        kept_for = asked_by(self.record)
        kept_until = self._seen_at + KEPT_S
        return (
            kept_for not in {"", self._identity} and asyncio.get_running_loop().time() < kept_until
        )

    def _is_ours(self) -> bool:
        """Whether we hold the lease by a write of our own.

        A person may have put our name there: whoever led until then goes on until it looks, so we
        wait as for any other.
        """
        written = text(self.record, "spec", "renewTime") in self._stamps
        return self.holder == self._identity and written

    def _expired(self) -> bool:
        """Whether the record that we saw has stood unchanged for as long as it says."""
        return asyncio.get_running_loop().time() >= self._seen_at + self._lasts_s()

    def _lasts_s(self) -> float:
        """For how long the record says that it lasts."""
        duration = mapping(self.record, "spec").get("leaseDurationSeconds")
        return duration if isinstance(duration, int) else self._lease.duration_s
