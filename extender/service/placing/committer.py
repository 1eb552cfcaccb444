"""``Committer``: writes decisions, in the one order that survives a crash at any point (DESIGN 3).

For a batch of decisions of one pool:

1. *ledgers up*: one compare-and-swap patch per pod, with everything that the batch adds there
   (group commit);
2. *statuses*: one patch per vpod, of what step 1 achieved;
3. *ledgers down*: one patch per pod, with everything that has left it.

So a status never publishes what no ledger covers (I2), and a move reaches its new pod before it
leaves the old one. A crash in between leaves a ledger larger than the status; the next leader
publishes or frees the excess. Vreplicas on a pod whose bind is unconfirmed are not published
either, because another replica may be binding the pod with fewer.

In a pool that hands shares over, steps 2 and 3 leave out what adapters are not ready for
(``HandOvers``). Then the decision stays reserved, and the vpod is decided again later.

A ledger write compares the pod's UID and the whole annotation with the text from which the patch
was made. If anybody else has written, such as another leader, it fails instead of overcommitting
the pod (I1). The batch's reservations are released at the end, when the caches hold what was
written. While a write's outcome or the stored status is not known, and while a vpod waits for
adapters, its reservations stay until they expire or the vpod is decided again.

``Batch`` has what became of each decision. ``publishable`` says what step 2 may write, and
``StatusDoubts`` and ``LedgerConfirmations`` what is not certain.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Final, Protocol

from extender.engine.placing.plan import Decision
from extender.engine.pods.claims import NOTHING, Claim
from extender.engine.state.availability import availability_of
from extender.kube.api import (
    Api,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    OutcomeUnknown,
    PatchType,
)
from extender.model.bucket import Bucket
from extender.model.ledger import Share, share_of
from extender.model.objects import NO_PLACEMENTS, AdapterPod, VPod, object_key
from extender.service.placing.batch import Batch, Committed
from extender.service.placing.handovers import HandOvers
from extender.service.placing.ledger_patch import publishable
from extender.service.placing.ledger_writer import LedgerWriter
from extender.service.placing.status_doubts import StatusDoubts
from extender.service.placing.unreported_moves import UnreportedMoves
from extender.service.placing.vpod_events import VPodEvents
from extender.service.placing.vpod_status import StatusWriter, vpod_status
from extender.service.placing.write_refusals import WriteRefusals, as_refused
from extender.service.watching.caches import Caches
from extender.service.watching.sources import StatusWrite
from extender.telemetry.metrics import Metrics
from extender.telemetry.tracing import span

WRITES_IN_FLIGHT_MAX: Final = 32
RESERVATION_TTL_S: Final = 30.0
"""How long a reservation lasts that nothing confirms (I5), as in kube-scheduler. A pool that hands
shares over adds ``HandOvers.longest_s``.
"""


class PoolLeadership(Protocol):
    """The part of ``Leadership`` that a writer asks before each write for a pool."""

    def leads(self, pool: str) -> bool:
        """Whether this replica may act for a pool now."""

    def leads_since(self, pool: str) -> float:
        """When this replica began to lead the pool: the event loop's time, seconds."""

    def no_predecessor_writes(self, pool: str) -> bool:
        """Whether no write of another leader of the pool can still be under way."""


class Lists(Protocol):
    """The part of ``Informers`` that a writer asks when its watches are silent."""

    async def list_again(self, source: str) -> bool:
        """List the vpods of one kind again: a foreign kind's key (``Source.key``), or "" for VPods.
        Return whether a list that began after the call is in the cache.
        """
        ...

    def request_pods(self) -> None:
        """Request a list of pods, without waiting."""
        ...


class Committer:
    """Writes decisions. The placer has it write one batch per pool at a time; pools are
    independent.
    """

    def __init__(  # noqa: PLR0913 (each is a different collaborator)
        self,
        api: Api,
        caches: Caches,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        leadership: PoolLeadership,
        lists: Lists,
        write_foreign_status: StatusWriter,
        vpod_events: VPodEvents,
        metrics: Metrics,
    ) -> None:
        """``write_foreign_status``: makes the status write of a vpod of a foreign kind."""
        self._api = api
        self._caches = caches
        self._clock = clock
        self._now = now
        self.leadership = leadership
        self._write_foreign_status = write_foreign_status
        self._vpod_events = vpod_events
        self.hand_overs = HandOvers(
            caches,
            clock=clock,
            now=now,
            leads_since=leadership.leads_since,
            vpod_events=vpod_events,
            metrics=metrics,
        )
        self._in_flight = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)
        self._refusals = WriteRefusals(metrics, vpod_events.write_refused)
        self._unreported_moves = UnreportedMoves()
        self.status_doubts = StatusDoubts(caches, clock, lists.list_again)
        self._ledger_writer = LedgerWriter(
            api,
            caches,
            clock=clock,
            in_flight=self._in_flight,
            refusals=self._refusals,
            request_pods=lists.request_pods,
            metrics=metrics,
        )
        self.ledger_confirmations = self._ledger_writer.ledger_confirmations
        self.own_writes = self._ledger_writer.own_writes

    def reserve(self, owner: object, decision: Decision) -> None:
        """Assume a decision: from now on no other decision gets its slots."""
        pool = self._caches.state.pool(decision.pool)
        # Includes pods that an earlier decision of unknown outcome has emptied: this decision has
        # to finish that.
        shares = decision.shares(pool.claims_of(decision.vpod))
        ttl_s = RESERVATION_TTL_S + self.hand_overs.longest_s(decision.pool)
        pool.reserve(owner, decision.vpod, shares, expires_at=self._clock() + ttl_s)

    def covered(self, decision: Decision, vpod: VPod) -> dict[str, int]:
        """Pod name -> vreplicas of a decision that ``vpod`` may publish now: those that ledgers
        cover beyond doubt, or that it publishes already.
        """
        confirmed, _ = self._publishable_ledgers(decision)
        return publishable(decision.target, confirmed, vpod.placements)

    async def commit(self, owner: object, pool: str, decisions: Iterable[Decision]) -> Committed:
        """Write decisions that ``owner`` has reserved."""
        batch = Batch(owner=owner, pool=pool, decisions={item.vpod: item for item in decisions})
        for key, decision in batch.decisions.items():
            batch.published[key] = self._published(key, pool)
            self.hand_overs.begin(decision)
        try:
            for step in (self._write_ups, self._write_statuses, self._write_downs):
                if not self.leadership.leads(pool):
                    # The process may have paused for longer than its Lease lasts. Then another
                    # leader decides by now.
                    batch.failed.update(dict.fromkeys(batch.decisions, "no longer leading"))
                    break
                await step(batch)
        finally:
            for key, decision in batch.decisions.items():
                in_doubt = self.status_doubts.take_over_doubt(owner, key)
                if not (in_doubt or key in batch.unknown or key in batch.waiting):
                    self._caches.state.release(owner, pool, key)
                elif key not in batch.reported or key in batch.unshown:
                    # If adapters are not ready, the status that was just written shows none of
                    # these moves. Then it is what was published before them.
                    before = key in batch.waiting and key in batch.written
                    published = self._published(key, pool) if before else batch.published[key]
                    self._unreported_moves.remember(decision, published)
            self.hand_overs.commit_ended(pool, batch.decisions, batch.waiting)
        return batch

    def forget(self, bucket: Bucket) -> None:
        """Forget what only counts if no other replica has led a bucket's pools meanwhile."""
        self.hand_overs.forget(bucket)
        self._unreported_moves.forget(bucket)

    def forget_gone(self) -> None:
        """Forget unreported moves of vpods that are gone and have nothing in any ledger."""
        pools = self._caches.state.pools
        self._unreported_moves.keep(
            lambda key: any(key in p.vpods or p.claims_of(key) for p in pools.values())
        )

    async def _write_ups(self, batch: Batch) -> None:
        await self._ledgers(batch, self._ups(batch))

    async def _write_statuses(self, batch: Batch) -> None:
        writes = (self._write_status(batch, key) for key in batch.decisions)
        await _all(writes, len(batch.decisions))

    async def _write_downs(self, batch: Batch) -> None:
        await self._ledgers(batch, self._downs(batch))

    async def _ledgers(self, batch: Batch, changes: Mapping[str, Mapping[str, Share]]) -> None:
        namespace = batch.pool.partition("/")[0]
        writes = (
            self._ledger_writer.write(object_key(namespace, name), batch, change)
            for name, change in changes.items()
        )
        await _all(writes, len(changes))

    # -- what to write -----------------------------------------------------------------------------

    def _ups(self, batch: Batch) -> dict[str, dict[str, Share]]:
        """Pod name -> vpod key -> share, for two kinds of ledgers of bound pods.

        A ledger that does not cover the decision yet gets its share. A ledger that covers it, would
        let the status publish more, and is not confirmed by a recent reply, gets the share that it
        has once more: the patch compares the ledger, and so confirms it.
        """
        ups: dict[str, dict[str, Share]] = {}
        pool = self._caches.state.pool(batch.pool)
        for key, decision in batch.decisions.items():
            claims = pool.claims_of(key)
            for name, count in decision.target.items():
                share = decision.share(count)
                there, claim = pool.pods.get(name), claims.get(name)
                if there is None or there.pod is None or not there.certainly_bound:
                    continue
                known = claim.ledger if claim is not None else NOTHING
                # A share with fewer vreplicas counts as less even if it takes more: the status must
                # be written before it (I2).
                more = share.vreplicas > known.vreplicas or (
                    share.vreplicas == known.vreplicas and share.is_heavier_than(known)
                )
                if more:
                    ups.setdefault(name, {})[key] = share
                elif (
                    claim is not None
                    and _lets_publish_more(claim, count)
                    and self._is_unconfirmed(pool.key, there.pod)
                ):
                    ups.setdefault(name, {})[key] = known
        return ups

    def _downs(self, batch: Batch) -> dict[str, dict[str, Share]]:
        """Pod name -> vpod key -> share, for ledgers that hold more than is published now."""
        downs: dict[str, dict[str, Share]] = {}
        for key in batch.decisions:
            # For failed vpods too: if a status is in doubt, this lists the vpods again, which ends
            # the doubt.
            self.status_doubts.look_again(key)
            if key in batch.failed or key in batch.stale:
                continue
            if self.status_doubts.is_doubtful(key):
                # Until the status is seen again, the ledgers have to cover all that it may say
                # (I2).
                batch.failed[key] = "what is published is in doubt"
                continue
            for name, share in self._lowered(batch, key).items():
                downs.setdefault(name, {})[key] = share
        return downs

    def _lowered(self, batch: Batch, key: str) -> dict[str, Share]:
        """Pod name -> share, for ledgers that hold more of a vpod than it publishes now. Records in
        ``batch`` why the vpod has to be decided again.

        A share is never lowered below what the vpod's status publishes on this pod, even if this
        batch failed to write it. Nor is it lowered below what the vpod still publishes here after
        it has left the pool (I2).
        """
        decision = batch.decisions[key]
        # A vpod recreated under its old name may want what the ledgers hold.
        if decision.decided_version != _version(self._of_pool(key, batch.pool)):
            return {}
        pool = self._caches.state.pool(batch.pool)
        target, elsewhere = decision.target, self._published_elsewhere(key, batch.pool)
        lowered: dict[str, Share] = {}
        for name, claim in pool.claims_of(key).items():
            if claim.reserved is None or claim.owner != batch.owner:
                continue  # a bind has added it since the decision
            published = max(claim.published, elsewhere.get(name, 0))
            count = target.get(name, 0)
            if published > max(count, claim.published):
                batch.failed[key] = "its new pool has not published yet where it goes"
            # If only the status keeps vreplicas here, the share keeps its weight and amounts: a
            # vpod that has left the pool has none in this decision.
            size = decision if count >= published else claim.ledger
            # If the status publishes more than the ledger has, the ledger is not raised: a caller's
            # pod may have come back with less, and the caller must hear of that first.
            stays = max(count, min(published, claim.ledger.vreplicas))
            share = share_of(stays, size.weight, size.amounts)
            pod = pool.pods[name].pod
            if (
                claim.ledger.vreplicas
                and claim.ledger != share
                and pod is not None
                and not pod.assumed
            ):
                if self.hand_overs.retain_or_report(
                    batch.pool, key, name, remaining=share.vreplicas
                ):
                    batch.waiting.add(key)  # an adapter still needs it
                    continue
                lowered[name] = share
                if pool.adapter_pool is not None and pool.adapter_pool.hands_over:
                    batch.assignment_at_check[name] = pod.assignment_text
        if lowered and not self._may_lower(batch, key):
            batch.failed[key] = "a status of the leader before may still be under way"
            return {}
        return lowered

    def _may_lower(self, batch: Batch, key: str) -> bool:
        """Whether no status of a former leader can still arrive and publish vreplicas unknown here
        (I2).

        Such a write names a version of the vpod from its sender's time, so it fails once this batch
        has written the status.
        """
        return (
            self.leadership.no_predecessor_writes(batch.pool)
            or key in batch.written
            or self._caches.vpods.latest(key) is None
        )

    def _is_unconfirmed(self, pool: str, pod: AdapterPod) -> bool:
        """Whether no recent reply has confirmed the ledger. Then no status may publish more because
        of this ledger (I2).
        """
        since = (
            float("-inf")
            if self.leadership.no_predecessor_writes(pool)
            else self.leadership.leads_since(pool)
        )
        return not self.ledger_confirmations.is_fresh(pod.uid, pod.ledger_text, changed_since=since)

    # -- statuses ----------------------------------------------------------------------------------

    async def _write_status(self, batch: Batch, key: str) -> None:
        """Write the status that follows from a decision, if it differs from the stored one. Records
        in ``batch`` what became of it.
        """
        decision = batch.decisions[key]
        vpod = self._of_pool(key, decision.pool)
        if (
            decision.decided_version != _version(vpod)
            or self._published(key, decision.pool) != batch.published[key]
        ):
            # The status would claim to be about a spec or a vpod that nobody has decided. Or it
            # would silently undo what somebody else, perhaps another leader, has published since
            # (I4).
            batch.stale.add(key)
            return
        if vpod is None:
            # A vpod that changed its pool still has to report in its new pool why it left.
            gone = self._caches.vpods.latest(key) is None
            batch.reported[key] = self._unreported_moves.reported(decision) if gone else decision
            return
        write = None
        try:
            async with self._in_flight:
                claims = self._caches.state.pool(decision.pool).claims_of(key)
                if decision.target.keys() - claims.keys():
                    batch.failed.setdefault(key, "what was reserved for it has expired")
                    return
                write = self._make_status_write(batch, decision, vpod)
                if write is None:
                    self._report(batch, decision, vpod.placements)
                    return
                with span("write_status", vpod=key):
                    reply = await self._api.patch(
                        write.resource,
                        vpod.namespace,
                        vpod.name,
                        write.patch,
                        patch_type=PatchType.MERGE,
                        subresource="status",
                    )
            written = write.decode(reply)
            self._caches.vpods.written(written)
            batch.written.add(key)
            self._vpod_events.status_written(vpod, written)
            self._report(batch, decision, decision.target)
        except ApiError as error:
            batch.failed[key] = str(error)
            if isinstance(error, Forbidden):
                self._refusals.status(vpod, error)
            if isinstance(error, Invalid) and write is not None:
                write.refused(error)
            if isinstance(error, OutcomeUnknown):
                batch.unknown.add(key)
            if isinstance(error, (OutcomeUnknown, Conflict)):
                conflict = isinstance(error, Conflict)
                self.status_doubts.note(batch.owner, decision.pool, vpod, conflict=conflict)

    def _make_status_write(
        self, batch: Batch, decision: Decision, vpod: VPod
    ) -> StatusWrite | None:
        """The status to write at this moment; None if the object says it already. Records in
        ``batch`` what has to wait. The caller must not await between this check of the
        confirmations and the write.
        """
        confirmed, unconfirmed = self._publishable_ledgers(decision)
        if unconfirmed:
            # Most often the batch has waited for other ledgers until these confirmations were too
            # old. The pods may have gone meanwhile (I2).
            batch.failed.setdefault(decision.vpod, "what its ledgers say has to be confirmed again")
        for name, count in self.hand_overs.withhold(decision).items():
            batch.waiting.add(decision.vpod)
            if name in confirmed:
                # Publish what the target has there, less what adapters are not ready for.
                confirmed[name] = min(confirmed[name], decision.target[name]) - count
        published = self.hand_overs.served_first(decision, vpod.placements)
        target = publishable(decision.target, confirmed, published)
        if not published and sum(target.values()) < vpod.least:
            target = {}  # what it needs together is published together
        reported = as_refused(
            self._unreported_moves.added_to(decision, vpod.placements),
            batch.refused.get(decision.vpod),
        )
        pool = self._caches.state.pool(decision.pool)
        asked = decision.explanation.asked
        availability = availability_of(pool, decision.vpod, target, asked)
        write = self._write_foreign_status if vpod.source else vpod_status
        return write(vpod, reported, target, availability, self._now())

    def _report(self, batch: Batch, decision: Decision, shown: Mapping[str, int]) -> None:
        """Pass the decision on for reporting, unless a write for it failed, or waits for adapters:
        then its moves wait to be reported in full. ``shown``: pod name -> vreplicas that the status
        shows of the target.

        There may be nothing to write because a target pod is not bound. Then what moves there is
        reported once its status is written (seed 30000223).
        """
        if decision.vpod in batch.failed or decision.vpod in batch.waiting:
            return
        is_shown = dict(shown) == dict(decision.target)
        if not is_shown:
            # If a doubt keeps it reserved, the next decision cannot know why vreplicas have moved
            # (seed 5028 of pools with tenancy).
            batch.unshown.add(decision.vpod)
        batch.reported[decision.vpod] = (
            self._unreported_moves.reported(decision) if is_shown else decision
        )

    def _of_pool(self, key: str, pool: str) -> VPod | None:
        """The newest version of a vpod. None if it is gone or has left the pool."""
        vpod = self._caches.vpods.latest(key)
        return vpod if vpod is not None and vpod.pool == pool else None

    def _published(self, key: str, pool: str) -> Mapping[str, int]:
        """What a vpod of the pool publishes, as far as this replica knows."""
        vpod = self._of_pool(key, pool)
        return vpod.placements if vpod is not None else {}

    def _published_elsewhere(self, key: str, pool: str) -> Mapping[str, int]:
        """Pod name -> vreplicas that a vpod which has left the pool still publishes there (I2)."""
        vpod = self._caches.vpods.latest(key)
        return vpod.placements if vpod is not None and vpod.pool != pool else NO_PLACEMENTS

    def _publishable_ledgers(self, decision: Decision) -> tuple[dict[str, int], list[str]]:
        """Return two things: pod name -> vreplicas of the vpod in a ledger that a status may rely
        on; and the names of the pods whose ledger would let the status publish more, and is not
        confirmed by a recent reply.

        A pod without a node, or one that has finished, has none in its ledger.
        """
        pool, target = self._caches.state.pool(decision.pool), decision.target
        confirmed: dict[str, int] = {}
        unconfirmed: list[str] = []
        for name, claim in pool.claims_of(decision.vpod).items():
            pod = pool.pods[name].pod
            if pod is None or pod.assumed:
                continue
            if _lets_publish_more(claim, target.get(name, 0)) and self._is_unconfirmed(
                pool.key, pod
            ):
                unconfirmed.append(name)
            else:
                confirmed[name] = claim.ledger.vreplicas
        return confirmed, unconfirmed


async def _all(writes: Iterable[Coroutine[None, None, None]], count: int) -> None:
    """Run all ``count`` writes, at most ``WRITES_IN_FLIGHT_MAX`` at a time. A task per write would
    cost more than many of the writes.
    """
    waiting = iter(writes)

    async def some() -> None:
        for write in waiting:
            await write

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(count, WRITES_IN_FLIGHT_MAX)):
            tasks.create_task(some())


def _lets_publish_more(claim: Claim, decided: int) -> bool:
    """Whether the ledger covers more of the decided vreplicas than the vpod publishes now."""
    return claim.published < min(decided, claim.ledger.vreplicas)


def _version(vpod: VPod | None) -> tuple[str, int]:
    return (vpod.uid, vpod.generation) if vpod is not None else ("", 0)
