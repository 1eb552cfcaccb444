"""``LeaderElector``: elects one leader among our replicas by a Lease, with client-go's algorithm
and its 15/10/2 seconds.

.. code-block:: text

    COMPETE --(lease free, expired or ours: CAS write)--> LEAD --(renewed every 2 s)--> LEAD
       ^                                                   |
       '---- lead() cancelled and over <-- LOST <----------'  another holder, or not renewed for
                                                              10 s
    cancelled while leading: lead() cancelled and over --> RELEASE (holder "", 1 s) --> end
    given up for a replica that asked: the same, and the Lease is kept for it for some seconds
                                                                                    --> COMPETE

**No two machines' clocks are compared.** Another's lease has expired when *we* have seen its record
unchanged for as long as the record says, by our monotonic clock. The times in the record are for
people. Every write is a compare-and-swap on the Lease's resourceVersion, so one of two candidates
gets a Conflict.

**A lease is not a lock.** Our process may be paused (SIGSTOP, a frozen VM) between a check and an
act, and wake up when another leads. So callers check ``still_leading()`` right before they act. It
is False as soon as the lease could have expired, counted from *before* the last successful renewal
was sent, even if no task of ours has run since. It also compares our wall clock with itself,
because CLOCK_MONOTONIC stands still while a machine is suspended. The API server stops what still
slips through: every write of ours is a compare-and-swap.

**A missing Lease proves nothing.** It may have been deleted a moment ago, and its leader goes on
until it looks. So a candidate that finds none waits as long as a lease lasts. It also waits if the
Lease has no holder and was not released, because a person may have emptied it. An installer can
state that nobody has ever led, with a Lease that nobody has held (manifests/base/lease.yaml, an
empty spec). That one is taken at once, on three conditions: nothing exists yet that a leader would
have written; we have never seen the Lease held; and it is older than our first list. A younger
Lease may have been deleted and applied again while somebody leads (seed 181000534).

Differences from client-go:

- the renew deadline counts from the last renewal and not from the first failed try;
- seeing another holder ends leadership at once instead of at the deadline;
- after losing we compete again instead of exiting;
- a lease that somebody else has deleted or put our name on is taken only once it has expired.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Final

from extender.kube.api import (
    LEASES,
    AlreadyExists,
    Api,
    ApiError,
    Conflict,
    NotFound,
    Obj,
    OutcomeUnknown,
)
from extender.kube.lease import (
    LeaseConfig,
    annotated,
    announced_buckets,
    held_spec,
    is_new,
    released_spec,
)
from extender.kube.seen_lease import Candidacy, SeenLease
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.errors import VReplicaError
from extender.model.names import BUCKETS_ANNOTATION, PREFERRED_HOLDER_ANNOTATION
from extender.model.reading import mapping, text
from extender.model.timestamps import micro_time

ACQUIRE_JITTER_FACTOR: Final = 0.2
"""A candidate waits 1 to 1.2 retry periods between tries (client-go: to 2.2). So with the shipped 2
s a released lease has its next holder within 3 s. The few candidates need not be spread further.
"""

_log = logging.getLogger(__name__)


class LeadStuck(VReplicaError):
    """``lead`` did not end within ``stop_timeout_s`` of being cancelled: the process must exit, not
    compete again.
    """


class _Try(Enum):
    HELD = "we hold the lease, just written"
    FAILED = "not now; try again"
    OTHER = "somebody else holds it"


def new_identity(hostname: str, rng: random.Random) -> str:
    """``hostname_hex``, different for each process, as Kubernetes' components call themselves."""
    return f"{hostname}_{rng.getrandbits(128):032x}"


class LeaderElector:
    """Competes for a Lease and runs ``lead`` while holding it. One ``run`` at a time."""

    def __init__(
        self,
        api: Api,
        lease: LeaseConfig,
        *,
        identity: str,
        now: Callable[[], float],
        rng: random.Random,
        candidacy: Candidacy | None = None,
    ) -> None:
        if not identity:
            raise ValueError("identity must not be empty")
        self.identity = identity
        self.is_leader = False
        """Whether ``lead`` may run; before acting, ask ``still_leading``."""
        self.fenced_until = 0.0
        """Monotonic time at which our lease can have expired."""
        self.transitions = 0
        """Times that we became leader."""
        self.errors = 0
        """Failed reads and writes of the Lease."""
        self._api = api
        self._lease = lease
        self._now = now
        self._rng = rng
        self._candidacy = candidacy or Candidacy()
        self.seen = SeenLease(lease, identity, self._candidacy)
        self.buckets_before = 1
        """Into how many buckets the pools were divided when we took the Lease. Becomes our own
        number once nobody can lead by the old one.
        """
        self.leading_since = self.acts_since = float("inf")
        """Monotonic times at which we became leader, and from which nobody else leads by another
        number of buckets. Infinite while we do not lead.
        """
        self._successor = ""
        """The replica for which the Lease is given up."""
        self._fenced_until_wall = 0.0
        self._unanswered = False
        """Whether a write of the Lease was sent whose outcome is unknown."""

    @property
    def leader_identity(self) -> str:
        """The leader as last seen; "" for nobody."""
        return self.seen.holder

    @property
    def lease_name(self) -> str:
        """The name of the Lease."""
        return self._lease.name

    def still_leading(self) -> bool:
        """Whether we lead and the lease cannot have expired, even if this process was paused
        meanwhile.
        """
        return (
            self.is_leader
            and self._candidacy.may_lead()
            and asyncio.get_running_loop().time() < self.fenced_until
            and self._now() < self._fenced_until_wall
        )

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Compete for ever, running ``lead()`` while leading. If ``lead`` ends by itself, return or
        raise as it does.

        If cancelled, cancel ``lead``, wait for its end, and release the lease. Raises LeadStuck.
        """
        while True:
            try:
                await self._acquire()
            except asyncio.CancelledError:
                await self._release()
                raise
            # Between here and the try there is no await: a cancellation cannot leave a lease
            # unreleased.
            leading = asyncio.ensure_future(_as_coroutine(lead))
            renewing = asyncio.create_task(self._renew(), name="lease renewal")
            try:
                await asyncio.wait({leading, renewing}, return_when=asyncio.FIRST_COMPLETED)
                finished = leading.done()
            except asyncio.CancelledError:
                await self._stop(leading, renewing)
                await self._release()
                raise
            await self._stop(leading, renewing)
            if finished:
                await self._release()
                leading.result()
                return
            renewing.result()
            if self._successor or not self._candidacy.may_lead():
                try:
                    await self._release()
                except asyncio.CancelledError:
                    await self._release()
                    raise

    async def _stop(self, leading: "asyncio.Future[None]", renewing: "asyncio.Task[None]") -> None:
        """Stop acting as leader: clear ``is_leader`` first, then end ``lead``."""
        self.is_leader = False
        self.leading_since = self.acts_since = float("inf")
        renewing.cancel()
        leading.cancel()
        _, stuck = await asyncio.wait({leading, renewing}, timeout=self._lease.stop_timeout_s)
        if leading in stuck:
            raise LeadStuck(
                f"lead() did not end within {self._lease.stop_timeout_s} s of being cancelled"
            )
        if not leading.cancelled() and (error := leading.exception()) is not None:
            _log.warning("lead() ended with an error: %r", error)

    async def _acquire(self) -> None:
        """Try until the lease is ours."""
        _log.info(
            "competing for lease %s/%s as %s",
            self._lease.namespace,
            self._lease.name,
            self.identity,
        )
        while (
            not self._candidacy.may_lead()
            or await self._try_within(self._lease.renew_deadline_s) is not _Try.HELD
        ):
            period_s = self._lease.retry_period_s
            await asyncio.sleep(period_s * (1.0 + ACQUIRE_JITTER_FACTOR * self._rng.random()))
        self._successor = self.seen.asked_by = ""
        self.is_leader = True
        self.leading_since = self.acts_since = asyncio.get_running_loop().time()
        if self._is_unsettled():
            self.acts_since += self._lease.duration_s
            _log.info(
                "pools were led in other buckets: waiting for %d s until nobody does",
                self._lease.duration_s,
            )
        self.transitions += 1
        _log.info("leading as %s", self.identity)

    async def _renew(self) -> None:
        """Renew until leadership is lost."""
        loop = asyncio.get_running_loop()
        slack_s = self._lease.duration_s - self._lease.renew_deadline_s
        while True:
            deadline = self.fenced_until - slack_s
            await asyncio.sleep(min(self._lease.retry_period_s, deadline - loop.time()))
            left_s = deadline - loop.time()
            if not self._candidacy.may_lead():
                _log.warning("lease %s: not to be led any more", self.lease_name)
                return
            if left_s < TIMER_RESOLUTION_S or await self._try_within(left_s) is _Try.OTHER:
                break
            if self._is_unsettled() and loop.time() >= self.acts_since:
                self.buckets_before = self._candidacy.buckets  # and the next renewal says so
            asks, self.seen.asked_by = self.seen.asked_by, ""
            if asks not in {"", self.identity} and self._candidacy.yields_to(asks):
                self._successor = asks
                _log.info("lease %s is given to %r, which leads less", self.lease_name, asks)
                return
        _log.warning("leadership lost, the holder is %r", self.leader_identity)

    async def _try_within(self, timeout_s: float) -> _Try:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._try()
        except TimeoutError:
            self.errors += 1
            return _Try.FAILED
        except (Conflict, AlreadyExists):
            # Somebody else was faster; the next try reads what there is now.
            return _Try.FAILED
        except ApiError as error:
            self.errors += 1
            _log.warning("lease %s/%s: %s", self._lease.namespace, self._lease.name, error)
            return _Try.FAILED

    async def _try(self) -> _Try:
        """One try to get or renew the lease."""
        self.seen.tries(self._now())
        if self.still_leading() and self.leader_identity == self.identity:
            try:
                await self._write(self.seen.record)
            except ApiError as error:
                # It may be our own write whose answer was lost: read the Lease and decide by that.
                _log.info("optimistic renewal failed, reading the lease: %s", error)
            else:
                return _Try.HELD
        lease = self._lease
        try:
            self.seen.observe(await self._api.get(LEASES, lease.namespace, lease.name))
        except NotFound:
            # A person may have deleted it. Its leader goes on until it looks, and then creates it
            # again.
            if not self.seen.may_make_one(self.still_leading):
                return _Try.OTHER
            await self._write(None)
            return _Try.HELD
        if self.is_leader and not self.still_leading() and not self.seen.is_ours():
            # This machine was suspended, and somebody else has led meanwhile, whoever holds it now.
            return _Try.OTHER
        if self.seen.is_others(self.still_leading):
            return _Try.OTHER
        await self._write(self.seen.record)
        return _Try.HELD

    async def _write(self, current: Obj | None) -> None:
        """Write ourselves as the holder over ``current`` (None: create). Raises Conflict,
        AlreadyExists.
        """
        sent_at, sent_at_wall = asyncio.get_running_loop().time(), self._now()
        stamp = micro_time(sent_at_wall)
        self.seen.writes(stamp)
        if not self.is_leader:
            self.buckets_before = 1 if is_new(self.seen.record) else self.seen.announced_buckets
        spec = held_spec(current, self.identity, self._lease.duration_s, stamp)
        try:
            self.seen.observe(await self._put(current, spec))
        except (Conflict, AlreadyExists):
            self.seen.has_not_written(stamp)
            raise
        self.seen.has_taken(current)
        # Others count from when they see this write, which is later than ``sent_at``.
        self.fenced_until = sent_at + self._lease.duration_s
        self._fenced_until_wall = sent_at_wall + self._lease.duration_s

    async def _put(self, current: Obj | None, spec: Obj) -> Obj:
        lease = self._lease
        self._unanswered = True
        try:
            if current is None:
                metadata = {"namespace": lease.namespace, "name": lease.name}
                obj = annotated({"metadata": metadata, "spec": spec}, self._notes(spec))
                stored = await self._api.create(LEASES, lease.namespace, obj)
            else:
                obj = {**current, "spec": {**mapping(current, "spec"), **spec}}
                obj = annotated(obj, self._notes(spec))
                stored = await self._api.update(LEASES, lease.namespace, lease.name, obj)
        except OutcomeUnknown:
            raise
        except ApiError:
            self._unanswered = False
            raise
        self._unanswered = False
        return stored

    def _notes(self, spec: Obj) -> dict[str, str]:
        """Our annotations for the Lease. A released Lease says into how many buckets we divided the
        pools, because others may still lead by that number.

        While somebody may lead by the number that it had before, it says 0, by which nobody leads.
        Whoever takes it from us then, or we ourselves after a lost answer, begins to wait anew.
        """
        buckets = 0 if self._is_unsettled() else self._candidacy.buckets
        notes = {BUCKETS_ANNOTATION: str(buckets)} if buckets != 1 else {}
        if self._successor and not spec["holderIdentity"]:
            notes[PREFERRED_HOLDER_ANNOTATION] = self._successor
        return notes

    def _is_unsettled(self) -> bool:
        """Whether others may lead by the number of buckets before us. If it was one, its leader led
        by this Lease alone.
        """
        return self.buckets_before not in {1, self._candidacy.buckets}

    async def ask(self) -> None:
        """Ask the holder to give the Lease up for us. Raises ApiError: Conflict if it was just
        renewed.
        """
        lease = self._lease
        found = await self._api.get(LEASES, lease.namespace, lease.name)
        if text(found, "spec", "holderIdentity") in {"", self.identity}:
            return
        notes = {PREFERRED_HOLDER_ANNOTATION: self.identity}
        if (announced := announced_buckets(found)) != 1:
            notes[BUCKETS_ANNOTATION] = str(announced)
        await self._api.update(LEASES, lease.namespace, lease.name, annotated(found, notes))

    async def _release(self) -> None:
        """Give the lease up, so that the next leader need not wait until it expires
        (ReleaseOnCancel).
        """
        try:
            async with asyncio.timeout(self._lease.duration_s - self._lease.renew_deadline_s):
                if not self._unanswered:
                    with suppress(Conflict):
                        await self._put_released()
                        return
                # A cancelled write may have arrived: the lease may be ours, or newer. Or a replica
                # has written its request on it.
                self.seen.observe(
                    await self._api.get(LEASES, self._lease.namespace, self._lease.name)
                )
                await self._put_released()
        except (ApiError, TimeoutError) as error:
            _log.warning("lease not released, it will run out: %r", error)

    async def _put_released(self) -> None:
        if self.leader_identity != self.identity:
            return
        spec = released_spec(micro_time(self._now()))
        self.seen.observe(await self._put(self.seen.record, spec))
        _log.info("lease released by %s", self.identity)


async def _as_coroutine(lead: Callable[[], Awaitable[None]]) -> None:
    await lead()
