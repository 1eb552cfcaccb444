"""``Placer``: the leader's loop that keeps every vpod placed (DESIGN 4, *A vpod changes*).

Each pool has one queue and one task. The task takes a batch and decides its vpods one after the
other. It reserves each decision before the next one is made. Then the committer writes the batch.
``Activation`` says which changes bring a vpod into the queue.

Two others decide through the placer, between two batches of a pool, so decisions of one pool never
overlap: the evictor (``move``), and callers of ``POST /v1/schedule`` (``schedule``). Callers keep
the status of their vpods themselves. These are the *external* vpods.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakValueDictionary

from extender.engine.placing.burst import best_of, may_fit_better
from extender.engine.placing.explain import Explanation
from extender.engine.placing.plan import Decision, place, release_all
from extender.engine.rebalance.relocation import relocate
from extender.engine.state.pool_state import PoolState
from extender.model.bucket import WHOLE, Bucket
from extender.model.errors import VReplicaError
from extender.model.moves import Move, by_vpod
from extender.model.objects import VPod
from extender.model.reasons import ConflictReason
from extender.service.placing.activation import Activation
from extender.service.placing.batch import Committed
from extender.service.placing.committer import Committer
from extender.service.placing.decision_history import ASKED, EVICTOR, DecisionHistory
from extender.service.placing.queue import VPodQueues
from extender.service.placing.vpod_events import VPodEvents, has_grown
from extender.service.placing.vpod_status import is_scheduled
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics
from extender.telemetry.tracing import span
from extender.whatif.recording.entries import Cause

log: Final = logging.getLogger(__name__)

BATCH_VPODS_MAX: Final = 256
EXTERNAL_VPODS_MAX: Final = 100_000
"""vpods of callers. Beyond this, a new one is refused until others are released."""
PLACER: Final = "placer"
"""The owner of the placer's reservations is (this, the number of the batch)."""


class NotCommitted(VReplicaError):
    """The decision for a caller's vpod was not made, or not wholly written. The next call continues
    from what was written.
    """


class ScaleTrigger(Protocol):
    """Called when vreplicas of a pool have no place, or were moved."""

    def trigger(self, pool: str) -> None:
        """Compute the pool's size now."""
        ...


class OnDecided(Protocol):
    """Called for every decision, before it is reserved. If a batch is decided in another order in
    the end, it is called for both orders.
    """

    def __call__(self, cause: Cause, decision: Decision, asked: Sequence[Move] = (), /) -> None:
        """``asked``: the moves that the decision carries out."""
        ...


def _ignore_decision(_cause: Cause, _decision: Decision, _asked: Sequence[Move] = (), /) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Reporting:
    """Where decisions are reported."""

    vpod_events: VPodEvents
    history: DecisionHistory
    metrics: Metrics


class Placer:
    """Decides the vpods of all pools that this replica leads."""

    def __init__(
        self,
        caches: Caches,
        committer: Committer,
        autoscaler: ScaleTrigger,
        *,
        reporting: Reporting,
        clock: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._committer = committer
        self._hand_overs = committer.hand_overs
        self._autoscaler = autoscaler
        self._vpod_events = reporting.vpod_events
        self.history = reporting.history
        self._metrics = reporting.metrics
        self._clock = clock
        self.on_decided: OnDecided = _ignore_decision
        self._batches = 0
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One per pool, while a task decides there or waits to."""
        self._untold: dict[str, str] = {}
        """Vpod -> its pool, of those that were Scheduled by a commit of which another write failed.
        Their event follows with the next one (seed 83402902 of pools in buckets).
        """
        self.external_vpods = caches.external_vpods
        self.external_vpods.on_forgotten = self._forget_vpod
        self.queues = VPodQueues(clock, rank=self._rank)
        self.activation = Activation(caches, self.queues)
        self._hand_overs.decide = self.queues.add
        caches.vpods.add_event_handler(self._vpod_changed)

    def _rank(self, pool: str, key: str) -> tuple[int, int]:
        known = self._caches.state.pools.get(pool)
        return known.rank_of(key) if known is not None else (0, 0)

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Place vpods of the bucket's pools until cancelled. It begins with all of them, because
        the last leader may have stopped at any point.
        """
        self.queues.begin(bucket)
        try:
            for pool in [pool for pool in self._caches.state.pools if bucket.has(pool)]:
                self.activation.add_all(pool)
            await self._serve(bucket)
        finally:
            self.queues.end(bucket)
            self.activation.forget(bucket)

    async def _serve(self, bucket: Bucket) -> None:
        """Run a task for each queue of the bucket's pools, until cancelled."""
        running: set[str] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                for pool in [
                    pool for pool in self.queues if pool not in running and bucket.has(pool)
                ]:
                    running.add(pool)
                    tasks.create_task(self._run_pool(pool, running), name=f"placer {pool}")
                self.queues.changed.clear()
                await self.queues.changed.wait()

    async def _run_pool(self, pool: str, running: set[str]) -> None:
        """Place the vpods of a pool. End once nothing refers to the pool, because tenants may name
        any number of pools that do not exist.

        ``running``: pools that have a task. This one is removed when the task ends.
        """
        queue = self.queues.of(pool)
        while True:
            keys = await queue.pop_batch(BATCH_VPODS_MAX)
            try:
                if keys:
                    await self.place_batch(pool, keys)
            except BaseException:
                # Usually this replica no longer leads. The keys must not be in flight when it leads
                # again.
                for key in keys:
                    queue.retry(key)
                raise
            known = self._caches.state.pools.get(pool)
            if (
                queue.empty
                and (known is None or known.forgettable)
                and not self._lock(pool).locked()
            ):
                self.queues.forget(pool)
                running.discard(pool)
                return

    async def place_batch(self, pool: str, keys: list[str]) -> None:
        """Decide these vpods of a pool and write the decisions."""
        async with self._lock(pool):
            with span("place_batch", pool=pool, vpods=len(keys)):
                await self._place(pool, keys)

    async def _place(self, pool: str, keys: list[str]) -> None:
        started = self._clock()
        unscheduled = {key for key in keys if not self._is_scheduled(pool, key)}
        # These may belong to callers that have not asked this leader yet. Their ledgers stay.
        kept = dict.fromkeys(
            key for key in keys if self.external_vpods.may_belong_to_unknown_caller(pool, key)
        )
        state = self._caches.state.pool(pool)
        decisions, committed = await self._carry_out(
            pool,
            (self._decide_and_report(pool, key) for key in keys if key not in kept),
            # To try another order, reservations are released. That would also release those of
            # earlier decisions that are in doubt or wait for adapters.
            any_order=not any(state.is_reserved(key) for key in keys),
        )
        for decision in decisions:
            self._settle(decision, committed, started, newly=decision.vpod in unscheduled)
        for key in kept:
            self.queues.of(pool).done(key)
        self.external_vpods.forget_given_back()

    async def _carry_out(
        self, pool: str, decided: Iterable[Decision | None], *, any_order: bool = False
    ) -> tuple[list[Decision], Committed]:
        """Reserve each decision before the next one is made, then write all of them. ``any_order``:
        the vpods may be decided in another order, if not all find room.
        """
        self._batches += 1
        owner = (PLACER, self._batches)
        started = self._clock()
        decisions = self._reserve(owner, decided)
        state = self._caches.state.pool(pool)
        if any_order and may_fit_better(state, decisions):
            decisions = self._in_best_order(owner, state, decisions)
        self._metrics.scheduling_algorithm_duration.observe(self._clock() - started)
        return decisions, await self._committer.commit(owner, pool, decisions)

    def _reserve(self, owner: object, decided: Iterable[Decision | None]) -> list[Decision]:
        """Reserve each decision before the next one is made."""
        decisions = []
        for decision in decided:
            if decision is not None:
                self._committer.reserve(owner, decision)
                decisions.append(decision)
        return decisions

    def _in_best_order(
        self, owner: object, pool: PoolState, decisions: list[Decision]
    ) -> list[Decision]:
        """Decide the vpods of reserved decisions in other orders too. In the end, the decisions of
        the best order are reserved.
        """
        queue = self.queues.of(pool.key)
        found = best_of(
            pool,
            decisions,
            lambda order: self._reserve(
                owner, (self._take_back_and_decide(pool, key)[1] for key in order)
            ),
            lambda vpods: self._release(owner, pool, vpods),
            ages={one.vpod: queue.age(one.vpod) for one in decisions},
        )
        # Nothing is reserved now. The first order has been reported (``on_decided``). Another one
        # is decided again: what is reported follows from the state without the orders tried.
        if found is decisions:
            return self._reserve(owner, decisions)
        return self._reserve(owner, (self._decide_and_report(pool.key, one.vpod) for one in found))

    @staticmethod
    def _release(owner: object, pool: PoolState, vpods: Iterable[str]) -> None:
        for key in vpods:
            pool.release(owner, key)

    def _decide_and_report(self, pool_key: str, key: str) -> Decision:
        cause, decision = self._take_back_and_decide(self._caches.state.pool(pool_key), key)
        self.on_decided(cause, decision)
        return decision

    def _take_back_and_decide(self, pool: PoolState, key: str) -> tuple[Cause, Decision]:
        watched = self._watched(pool, key)
        vpod = pool.admitted(watched) if watched is not None else pool.vpods.get(key)
        if vpod is None:
            return Cause.GONE, release_all(pool, key)
        taken_back = False
        if self._hand_overs:
            self._take_back(pool, key)
            taken_back = self._hand_overs.was_taken_back(pool.key, key)
        allowed = self._caches.state.selects(pool.key, vpod)
        decision = place(pool, vpod, allowed=allowed, taken_back=taken_back)
        return Cause.STAY if taken_back else Cause.PLACE, decision

    def _take_back(self, pool: PoolState, key: str) -> None:
        """Give up all that batches have reserved for a vpod, if adapters have not got ready in
        time. What binds have reserved stays.
        """
        if self._hand_overs.take_back_overdue(pool.key, key):
            owners = {claim.owner for claim in pool.claims_of(key).values()}
            for owner in filter(_is_placers, owners):
                pool.release(owner, key)

    def _watched(self, pool: PoolState, key: str) -> VPod | None:
        """A caller's vpod as the watch shows it, if it is of a watched kind and in this pool; else
        None.

        The committer lowers ledgers only for a decision about the object's present version, and a
        request names none. So such a vpod is decided as the watch shows it.
        """
        vpod = self.external_vpods.as_watched(key)
        return vpod if vpod is not None and vpod.pool == pool.key else None

    def _relocate(self, pool: PoolState, vpod: VPod, moves: Sequence[Move]) -> Decision | None:
        decision = relocate(pool, vpod, moves)
        if decision is not None:
            self.on_decided(Cause.MOVE, decision, moves)
        return decision

    # -- the evictor and callers -------------------------------------------------------------------

    async def move(self, pool: str, moves: Sequence[Move]) -> list[Move]:
        """Carry out the evictor's moves that are still possible. Return those that were written, or
        were begun and wait for adapters.
        """
        state = self._caches.state.pool(pool)
        async with self._lock(pool):
            decisions, committed = await self._carry_out(
                pool,
                (
                    self._relocate(state, vpod, group)
                    for key, group in by_vpod(moves).items()
                    if (vpod := state.vpods.get(key)) is not None
                    and key not in self.external_vpods
                    and not self._hand_overs.was_taken_back(pool, key)
                ),
            )
            done: list[Move] = []
            for decision in decisions:
                key = decision.vpod
                if key in committed.failed:
                    log.info(
                        "move of vpod %s was not finished: %s",
                        key,
                        committed.failed[key],
                        extra={"vpod": key, "pool": pool},
                    )
                    # The placer continues from what was written: it takes back what is on the new
                    # pod and not published.
                    self.queues.add(pool, key)
                if key in committed.reported or key in committed.waiting:
                    # What waits for adapters is begun: it counts for the budget and the cool-down.
                    done += decision.moves
                if (reported := committed.reported.get(key)) is not None:
                    if key in state.vpods:
                        self.history.note(
                            key,
                            decision.explanation,
                            why=EVICTOR,
                            generation=decision.decided_version[1],
                        )
                    self._vpod_events.moved(state, reported)
        return done

    async def schedule(self, vpod: VPod) -> Decision:
        """Decide for a vpod whose caller keeps its status, and write the ledgers. The returned
        target is what the ledgers cover, or the vpod publishes already.

        From then on the vpod counts for its pool. It is forgotten once it wants nothing and
        publishes nothing. Raises NotCommitted if not all is written; the next call finds the part
        that was. Raises StaleVPod if a newer version of the object was scheduled before.
        """
        since = self._committer.leadership.leads_since(vpod.pool)
        async with self._lock(vpod.pool):
            self._know(vpod, since)
            pool = self._caches.state.pool(vpod.pool)
            allowed = self._caches.state.selects(vpod.pool, vpod)
            # Only the caller can publish a move, so vreplicas may leave closed pods now, when it
            # asks.
            decided = place(pool, pool.admitted(vpod), allowed=allowed, leave_closed=True)
            self.on_decided(Cause.SCHEDULE, decided)
            (decision,), committed = await self._carry_out(vpod.pool, [decided])
            if (why := committed.failed.get(vpod.key)) is not None:
                raise NotCommitted(f"vpod {vpod.key} was not written: {why}")
            covered = self._committer.covered(decision, vpod)
            self._count_refusal(decision.explanation)
            if decision.pending:
                self._autoscaler.trigger(vpod.pool)
            self.history.note(vpod.key, decision.explanation, why=ASKED)
            self._vpod_events.moved(pool, decision)
            self.external_vpods.note_answer(vpod, covered)
            self._lower_later(pool, vpod.key, covered)
            left = max(0, decision.explanation.asked - sum(covered.values()))
            return decision._replace(target=covered, pending=left)

    def _lower_later(self, pool: PoolState, key: str, covered: Mapping[str, int]) -> None:
        """Decide the vpod again if a source shows it too and ledgers hold more of it than its
        caller was told.

        A request lowers no ledger of such a vpod (``_watched``). A decision about the watched
        object does, but the last one may have come before the caller published fewer.
        """
        held = pool.claims_of(key).items()
        if self._watched(pool, key) is not None and any(
            claim.ledger.vreplicas > covered.get(name, 0) for name, claim in held
        ):
            self.queues.add(pool.key, key)

    def _know(self, vpod: VPod, since: float) -> None:
        """Make the vpod known to its pool. ``since``: when this replica began to lead, as of the
        caller's request.

        Raises NotCommitted if this replica no longer leads, or if it lost the lead and leads again:
        the caller may have asked another leader meanwhile. Raises it too if too many vpods of
        callers are known.
        """
        if (
            not self._committer.leadership.leads(vpod.pool)
            or self._committer.leadership.leads_since(vpod.pool) != since
        ):
            raise NotCommitted(f"vpod {vpod.key} was not decided: this replica no longer leads")
        if vpod.key not in self.external_vpods and len(self.external_vpods) >= EXTERNAL_VPODS_MAX:
            raise NotCommitted(
                f"vpod {vpod.key} is refused: {EXTERNAL_VPODS_MAX} vpods of callers are known"
            )
        known = self.external_vpods.ask(vpod)
        if known is not None and known.pool != vpod.pool:
            self.queues.add(known.pool, vpod.key)
        if not vpod.vreplicas and not vpod.placements:
            # The vpod publishes nothing, so what other pools hold for it stems from a request to a
            # former leader.
            for pool in self.external_vpods.others_holding(vpod):
                self.queues.add(pool, vpod.key)

    def _vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        if old is not None and new is None:
            self._forget_vpod(old.key)

    def _forget_vpod(self, key: str) -> None:
        self.history.forget(key)
        self._untold.pop(key, None)

    def forget(self, bucket: Bucket) -> None:
        """Forget what callers asked about a bucket that another replica has led meanwhile.

        Also release the placer's reservations there. They are for writes of unknown outcome, or for
        vpods that wait for adapters. Ledgers and statuses show by now what was written.
        """
        self.external_vpods.forget(bucket)
        self._committer.forget(bucket)
        self._untold = {key: pool for key, pool in self._untold.items() if not bucket.has(pool)}
        for pool in [pool for key, pool in self._caches.state.pools.items() if bucket.has(key)]:
            for owner, key in pool.owners():
                if _is_placers(owner):
                    pool.release(owner, key)
                    pool.reconsider(key)

    def _lock(self, pool: str) -> asyncio.Lock:
        return self._locks.setdefault(pool, asyncio.Lock())

    # -- after a decision --------------------------------------------------------------------------

    def _is_scheduled(self, pool: str, key: str) -> bool:
        vpod = self._caches.state.pool(pool).vpods.get(key)
        return vpod is not None and is_scheduled(vpod)

    def _settle(
        self, decision: Decision, committed: Committed, started: float, *, newly: bool
    ) -> None:
        """Count and remember a decision that was committed, put its vpod where the queue should
        have it, and tell the vpod's users.
        """
        error = committed.failed.get(decision.vpod)
        pool = self._caches.state.pool(decision.pool)
        self._note(pool, decision, error)
        self._count_refusal(decision.explanation)
        result = "scheduled" if decision.explanation.is_satisfied else "unschedulable"
        self._metrics.schedule_attempt("error" if error else result, self._clock() - started)
        self._requeue(pool, decision, committed, error, newly=newly)
        self._tell(pool, decision, committed, newly=newly)

    def _requeue(
        self,
        pool: PoolState,
        decision: Decision,
        committed: Committed,
        error: str | None,
        *,
        newly: bool,
    ) -> None:
        """Take the vpod out of the queue, or park it there, or have it decided again."""
        key, queue = decision.vpod, self.queues.of(decision.pool)
        if error is not None:
            log.info(
                "vpod %s was not written and is decided again: %s",
                key,
                error,
                extra={"vpod": key, "pool": decision.pool},
            )
            queue.retry(key)
        elif not decision.explanation.is_satisfied:
            queue.park(key)
            self._autoscaler.trigger(decision.pool)
        elif key in committed.waiting:
            queue.done(key)  # it has its place; the hand-over brings it back
        elif _publishes_less(pool, decision):
            queue.park(key)
        else:
            waited = queue.done(key, agrees=key in committed.reported and _agrees(pool, decision))
            if waited is not None and decision.target and (newly or has_grown(decision)):
                self._metrics.placed(self._clock() - waited.since, waited.attempts)

    def _tell(
        self, pool: PoolState, decision: Decision, committed: Committed, *, newly: bool
    ) -> None:
        """Send the Events of a decision that was written."""
        key = decision.vpod
        if (reported := committed.reported.get(key)) is not None:
            newly = newly or key in self._untold
            self._vpod_events.decided(pool, reported, newly=newly)
            self._untold.pop(key, None)
        elif key in committed.failed and newly and key in pool.vpods:
            self._untold[key] = decision.pool

    def _note(self, pool: PoolState, decision: Decision, error: str | None) -> None:
        """Remember the decision and its cause, for ``explain``."""
        key, explanation = decision.vpod, decision.explanation
        vpod = pool.vpods.get(key)
        if vpod is None:
            self.history.forget(key)
            return
        why = self.history.why(key, vpod, explanation)
        self.history.note(
            key, explanation, why=why, generation=decision.decided_version[1], error=error or ""
        )

    def _count_refusal(self, explanation: Explanation) -> None:
        if explanation.reason is ConflictReason.LEDGER_TOO_LARGE:
            self._metrics.refused(str(explanation.reason))


def _is_placers(owner: object) -> bool:
    """Whether a reservation is of a batch of the placer's, and not of a bind."""
    return isinstance(owner, tuple) and owner[0] == PLACER


def _publishes_less(pool: PoolState, decision: Decision) -> bool:
    """Whether the vpod publishes fewer vreplicas than have a place. Usually a pod is not bound yet:
    its watch event activates the queue.
    """
    vpod = pool.vpods.get(decision.vpod)
    return vpod is not None and sum(vpod.placements.values()) < decision.scheduled


def _agrees(pool: PoolState, decision: Decision) -> bool:
    """Whether a vpod publishes what was decided, and the ledgers of all bound pods have exactly
    that.
    """
    key = decision.vpod
    vpod = pool.vpods.get(key)
    if vpod is None or vpod.placements != decision.target:
        return False
    for name, claim in pool.claims_of(key).items():
        if claim.ledger != claim.status and pool.pods[name].certainly_bound:
            return False
    return True
