"""``HandOvers``: the leader's view of the shares that are handed over from adapter to adapter, in
pools with ``spec.handoff.mode: Overlap`` or ``Exclusive``. ``engine.placing.handover`` has the
rules, and ``exclusive`` what is different with ``Exclusive``.

The committer asks what may be published (``withhold``) and what may leave a ledger
(``must_retain``). A decision that has to wait stays reserved. Its vpod is decided again once
something changes for it: an adapter's assignment or acknowledgement, or a time that has come.

If the leader fails, what is remembered here is lost, but no share is. If the status was not written
yet, the next leader takes back what the destination's ledger has. Off a pod that is drained, it
leaves it there and waits again. If the status was written, it goes on from the assignments.

The placer sets ``decide``. ``AssignmentWriter`` asks ``choose_telling``, and sets ``tell``.

Vpods of callers of ``POST /v1/schedule`` are not handed over: their callers publish where they are.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from extender.engine.placing import handover as rules
from extender.engine.placing.plan import Decision
from extender.engine.state.pool_state import PoolState
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.assignment import AssignedShare, ShareState, Telling
from extender.model.bucket import Bucket
from extender.model.eviction import PLANNED_EVENTS, longest_s
from extender.model.moves import MoveReason
from extender.model.objects import AdapterPod, HandoffMode, VPod
from extender.model.timestamps import epoch_s, timestamp
from extender.service.placing.exclusive import ExclusiveShares
from extender.service.placing.handover_view import HandOverView, HandOverViews
from extender.service.placing.indexed import IndexedShares
from extender.service.placing.vpod_events import VPodEvents
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics

LOOK_AGAIN_S: Final = 10.0
"""A vpod that waits is decided again after this time (s), if nothing else brings it back."""

PREPARE, DRAIN = "prepare", "drain"
"""The steps that wait for adapters."""


OnChange = Callable[[str, str], None]
"""Called with a pool and a vpod."""


def _ignore(_pool: str, _vpod: str) -> None:
    pass


@dataclass(slots=True)
class _HandOver:
    """The hand-over of one vpod. Times are the event loop's, in seconds. What is set is its state.

    .. code-block:: text

        prepared_by      it waits for adapters to get ready; the status waits
        served_by        it waits for adapters to serve; ``Drain`` waits
        stays_until      it was taken back, because adapters did not get ready in time
        none of these    its last ``Drain`` is under way, or it is dropped at the next ``written``
    """

    prepared_by: float | None = None
    """Until when its status waits for adapters to get ready; None while it does not wait."""
    served_by: float | None = None
    """Until when its former pods keep its vreplicas, although the pods that it publishes do not all
    serve yet; None while nothing waits for that.
    """
    stays_until: float = 0.0
    """Until then the vpod does not leave draining pods, because its hand-over was taken back."""
    reason: MoveReason | None = None
    timer: asyncio.TimerHandle | None = None
    partly_written: bool = False
    """Whether its last commit had to leave something for later."""


class HandOvers:
    """The hand-overs that are under way. ``clock``: the event loop's time; ``now``: epoch seconds.

    ``decide`` has a vpod decided again, and ``tell`` writes what its adapters are told.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        leads_since: Callable[[str], float],
        vpod_events: VPodEvents,
        metrics: Metrics,
    ) -> None:
        """``leads_since``: pool -> when this replica began to lead it, by ``clock``."""
        self._caches = caches
        self._clock = clock
        self._now = now
        self._vpod_events = vpod_events
        self._metrics = metrics
        self.decide: OnChange = _ignore
        self.tell: OnChange = _ignore
        self._hand_overs: dict[tuple[str, str], _HandOver] = {}
        """By pool and vpod."""
        self._views = HandOverViews(caches)
        self.exclusive = ExclusiveShares(
            caches,
            adapter_of=self._views.adapter,
            leads_since=leads_since,
            clock=clock,
            tell=self._tell,
        )
        self.indexed = IndexedShares(caches, adapter_of=self._views.adapter, tell=self._tell)
        caches.pods.add_event_handler(self._pod_changed)

    def __len__(self) -> int:
        """Number of vpods that are handed over, or were taken back recently."""
        return len(self._hand_overs)

    # -- what the placer and the committer ask -----------------------------------------------------

    def longest_s(self, pool: str) -> float:
        """How long (s) a decision in the pool may wait for adapters in all."""
        handoff = self._views.handoff(pool)
        return longest_s(handoff) if handoff is not None else 0

    def stays(self, pool: str, vpod: str) -> bool:
        """Whether the vpod must not leave pods that drain: its last hand-over was taken back."""
        hand_over = self._hand_overs.get((pool, vpod))
        return hand_over is not None and self._clock() + TIMER_RESOLUTION_S < hand_over.stays_until

    def take_back_overdue(self, pool: str, vpod: str) -> list[str]:
        """Take the vpod's hand-over back if adapters have not got ready in time. Return the names
        of their pods. The vpod ``stays`` for the pool's cool-down, or for ``LOOK_AGAIN_S`` if the
        pod is evicted.
        """
        hand_over = self._hand_overs.get((pool, vpod))
        if hand_over is None or hand_over.prepared_by is None:
            return []
        if self._clock() + TIMER_RESOLUTION_S < hand_over.prepared_by:
            return []
        state = self._caches.state.pools.get(pool)
        if state is None or state.adapter_pool is None:
            return []
        late = rules.unprepared(state, vpod, state.placed_of(vpod), self._views.adapters(state))
        if late:
            hand_over.prepared_by = None
            pause_s: float = state.adapter_pool.move_cooldown_s
            if hand_over.reason in PLANNED_EVENTS:
                pause_s = min(pause_s, LOOK_AGAIN_S)  # the pod goes at ``eviction.deadline_s``
            hand_over.stays_until = self._clock() + pause_s
            self._arm(pool, vpod, hand_over)
            self._report(state, vpod, PREPARE, late)
        return late

    def begin(self, decision: Decision) -> None:
        """A decision is about to be written. If it must wait for adapters, its time begins now."""
        view = self._views.of(decision.pool, decision.vpod)
        if view is None:
            return
        waits = rules.withheld(view.state, decision.vpod, decision.target, view.adapters)
        if not (waits or decision.moves):
            return
        hand_over = self._hand_overs.setdefault((decision.pool, decision.vpod), _HandOver())
        if waits and hand_over.prepared_by is None:
            hand_over.prepared_by = self._clock() + view.handoff.prepare_timeout_s
        if decision.moves:
            hand_over.reason = decision.moves[0].reason

    def withhold(self, decision: Decision) -> Mapping[str, int]:
        """Return what of a decision may not be published yet: pod name -> vreplicas. If it is
        nothing, the wait for adapters to get ready is over.
        """
        view = self._views.of(decision.pool, decision.vpod)
        if view is None:
            return {}
        withheld = rules.withheld(view.state, decision.vpod, decision.target, view.adapters)
        hand_over = self._hand_overs.get((decision.pool, decision.vpod))
        if not withheld and hand_over is not None and hand_over.prepared_by is not None:
            began = hand_over.prepared_by - view.handoff.prepare_timeout_s
            self._metrics.handover_duration.labels(PREPARE).observe(self._clock() - began)
            hand_over.prepared_by = hand_over.served_by = None
        return withheld

    def served_first(self, decision: Decision, published: Mapping[str, int]) -> Mapping[str, int]:
        """Return what a vpod publishes, in the order in which ``publishable`` keeps it: first the
        pods that still serve what leaves them.
        """
        view = self._views.of(decision.pool, decision.vpod)
        if view is None:
            return published
        serving = rules.served_by_sources(view.state, decision.vpod, decision.target, view.adapters)
        return {name: published[name] for name in serving if name in published} | {**published}

    def must_retain(self, pool: str, vpod: str, pod: str, *, remaining: int) -> bool:
        """Return whether the pod's ledger has to keep vreplicas that are published no more. Count
        the drain that is over, and report an adapter that has not let go in time. ``remaining``:
        how many vreplicas stay.
        """
        view = self._views.of(pool, vpod)
        if view is None:
            return False
        state, adapters = view.state, view.adapters
        if remaining:
            retained = rules.retains_some(state.pods[pod], vpod, adapters)
            return retained and not self._is_taken_over(view, vpod)
        kept = rules.retains(state.pods[pod], vpod, adapters, self._now())
        assigned = adapters(pod).share_of(vpod)
        if not kept and assigned is not None and assigned.state is ShareState.DRAIN:
            left_s = epoch_s(assigned.deadline, self._now()) - self._now()
            took_s = view.handoff.drain_timeout_s - left_s
            self._metrics.handover_duration.labels(DRAIN).observe(took_s)
            if state.pods[pod].serving and adapters(pod).may_serve(vpod):
                self._report(state, vpod, DRAIN, [pod])
        return kept

    def written(self, pool: str, vpods: Iterable[str], partly: Collection[str]) -> None:
        """The decisions of ``vpods`` were written, those of ``partly`` only in part."""
        for vpod in vpods:
            hand_over = self._hand_overs.get((pool, vpod))
            if vpod in partly:
                hand_over = self._hand_overs.setdefault((pool, vpod), _HandOver())
                hand_over.partly_written = True
                self._arm(pool, vpod, hand_over)
                self.tell(pool, vpod)
            elif hand_over is not None and not self.stays(pool, vpod):
                self._drop(pool, vpod)
            elif hand_over is not None:
                hand_over.partly_written = False
                hand_over.prepared_by = hand_over.served_by = None

    # -- what adapters are told --------------------------------------------------------------------

    def choose_telling(self, pod: AdapterPod, vpod: str, had: AssignedShare | None) -> Telling:
        """What a pod is to be told of a share in its ledger. ``had``: what it is told now."""
        view = self._views.of(pod.pool, vpod)
        if view is None:
            return self.indexed.numbered(pod, vpod, had, Telling())
        hand_over = self._hand_overs.get((pod.pool, vpod))

        def drain() -> Telling | None:
            if not self._is_taken_over(view, vpod):
                return None
            reason = hand_over.reason if hand_over is not None else None
            if reason is None and (known := view.state.pods.get(pod.name)) is not None:
                reason = known.why_leaving  # another leader may have begun the move
            return Telling(
                ShareState.DRAIN,
                next(rules.published_on(view.state, vpod), ""),
                timestamp(self._now() + view.handoff.drain_timeout_s, "milliseconds"),
                rules.intent_of(reason, exists=vpod in view.state.vpods),
            )

        preparing = hand_over is not None and hand_over.prepared_by is not None
        if had is not None and had.state is ShareState.DRAIN:
            preparing = preparing and not self._views.adapter(pod).may_serve(vpod)
        telling = rules.telling(view.state, vpod, pod.name, had, preparing=preparing, drain=drain)
        telling = self.indexed.numbered(pod, vpod, had, telling)
        return self.exclusive.narrowed(view.state, pod, vpod, had, telling)

    def _is_taken_over(self, view: HandOverView, vpod: str) -> bool:
        """Whether others serve what the vpod publishes, or have had their time. Otherwise that time
        begins, or goes on. If only one may serve, the former one lets go first.
        """
        if view.handoff.mode is HandoffMode.EXCLUSIVE:
            return True
        hand_over = self._hand_overs.get((view.state.key, vpod))
        late = rules.unserving(view.state, vpod, view.adapters)
        if not (late or self.indexed.behind(view.state, vpod)):
            if hand_over is not None:
                hand_over.served_by = None  # the next pods have their own time
            return True
        hand_over = self._hand_overs.setdefault((view.state.key, vpod), _HandOver())
        if hand_over.served_by is None:
            hand_over.served_by = self._clock() + view.handoff.prepare_timeout_s
        return self._clock() + TIMER_RESOLUTION_S >= hand_over.served_by

    def routable(self, vpod: VPod) -> Mapping[str, int]:
        """Pod name -> vreplicas, for those who send work to the vpod's adapters."""
        view = self._views.of(vpod.pool, vpod.key)
        if view is None:
            return vpod.placements
        return rules.routable(view.state, vpod.key, view.adapters)

    def describe_waits(self, pool: str, vpod: str) -> list[str]:
        """What the vpod's hand-over waits for, in sentences."""
        view = self._views.of(pool, vpod)
        if view is None:
            return []
        handoff, state, adapters = view
        clock, found = self._clock(), []
        hand_over = self._hand_overs.get((pool, vpod), _HandOver())
        if hand_over.prepared_by is not None:
            since_s = clock - hand_over.prepared_by + handoff.prepare_timeout_s
            late = rules.unprepared(state, vpod, state.placed_of(vpod), adapters)
            found += [_wait(pod, "get ready", since_s, handoff.prepare_timeout_s) for pod in late]
        elif hand_over.served_by is not None:
            since_s = clock - hand_over.served_by + handoff.prepare_timeout_s
            late = rules.unserving(state, vpod, adapters)
            found += [_wait(pod, "serve", since_s, handoff.prepare_timeout_s) for pod in late]
        for pod, left_s in rules.unreleased(state, vpod, adapters, self._now()).items():
            since_s = handoff.drain_timeout_s - left_s
            found.append(_wait(pod, "let go", since_s, handoff.drain_timeout_s))
        found += self.exclusive.describe_waits(pool, vpod)
        if hand_over.stays_until > clock:
            found.append(
                f"an adapter did not get ready in time: it leaves no pod that is drained for "
                f"{hand_over.stays_until - clock:.0f} s more"
            )
        return found

    # -- what brings a vpod back -------------------------------------------------------------------

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if new is None:
            if old is not None:
                self._views.forget(old)
            return
        if not self._hand_overs or (old is not None and handover_facts(old) == handover_facts(new)):
            return
        state = self._caches.state.pools.get(new.pool)
        pod = state.pods.get(new.name) if state is not None else None
        for vpod in list(pod.claims) if pod is not None else ():
            hand_over = self._hand_overs.get((new.pool, vpod))
            if hand_over is not None and hand_over.partly_written:
                self._changed(new.pool, vpod)

    def _changed(self, pool: str, vpod: str) -> None:
        self.decide(pool, vpod)
        self.tell(pool, vpod)

    def _tell(self, pool: str, vpod: str) -> None:
        self.tell(pool, vpod)

    def _arm(self, pool: str, vpod: str, hand_over: _HandOver) -> None:
        """Come back to the vpod when its next time has come."""
        if hand_over.timer is not None:
            hand_over.timer.cancel()
        clock, state = self._clock(), self._caches.state.pools.get(pool)
        times = [hand_over.prepared_by, hand_over.served_by, hand_over.stays_until]
        if hand_over.partly_written and state is not None:
            left = rules.unreleased(state, vpod, self._views.adapters(state), self._now())
            times += [clock + left_s for left_s in left.values()]
        due = [at for at in times if at is not None and at > clock]
        if hand_over.partly_written:
            due.append(clock + LOOK_AGAIN_S)
        if due:
            hand_over.timer = asyncio.get_running_loop().call_at(min(due), self._due, pool, vpod)

    def _due(self, pool: str, vpod: str) -> None:
        hand_over = self._hand_overs.get((pool, vpod))
        if hand_over is None:
            return
        hand_over.timer = None
        if hand_over.partly_written or self.stays(pool, vpod):
            self._arm(pool, vpod, hand_over)
        else:
            self._drop(pool, vpod)
        self._changed(pool, vpod)

    def _drop(self, pool: str, vpod: str) -> None:
        hand_over = self._hand_overs.pop((pool, vpod), None)
        if hand_over is not None and hand_over.timer is not None:
            hand_over.timer.cancel()

    def forget(self, bucket: Bucket) -> None:
        """Forget the pools of a bucket that this replica does not lead."""
        for pool, vpod in [key for key in self._hand_overs if bucket.has(key[0])]:
            self._drop(pool, vpod)

    def _report(self, state: PoolState, vpod: str, step: str, pods: list[str]) -> None:
        self._metrics.handover_timeouts.labels(step).inc()
        stored = state.vpods.get(vpod)
        if stored is not None:
            self._vpod_events.handover_timed_out(stored, step, pods)


def handover_facts(pod: AdapterPod) -> tuple[object, ...]:
    """What of a pod a hand-over depends on."""
    return pod.uid, pod.assignment_text, pod.acknowledged_text, pod.ready, pod.deleting


def _wait(pod: str, what: str, since_s: float, limit_s: float) -> str:
    return f"waits for the adapter of {pod} to {what} ({since_s:.0f} s of {limit_s:.0f})"
