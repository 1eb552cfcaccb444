"""``HandOvers``: the leader's view of the shares that are handed over from adapter to adapter, in
pools with ``spec.handoff.mode: Overlap`` or ``Exclusive``. The rules are pure, in
``engine.placing``: ``handover``, ``holders`` (``Exclusive``) and ``indexes``. What the leader
remembers is here, in ``exclusive`` and in ``indexed``.

The committer asks what may be published (``withhold``) and what may leave a ledger
(``retain_or_report``). A decision that has to wait stays reserved. Its vpod is decided again once
something changes for it: an adapter's assignment or acknowledgement, or a time that has come.

If the leader fails, what is remembered here is lost, but no share is. If the status was not written
yet, the next leader takes the vreplicas out of the new pod's ledger. If the old pod is drained or
evicted, it leaves them in the new pod's ledger and waits again. If the status was written, it goes
on from the assignments.

``AssignmentWriter`` asks what each adapter is to be told (``instruct``).

Vpods of callers of ``POST /v1/schedule`` are not handed over: their callers publish where they are.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.engine.placing import handover as rules
from extender.engine.placing.plan import Decision
from extender.engine.state.pool_state import PoolState
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.assignment import AssignedShare, ShareInstruction, ShareState
from extender.model.bounded import put_bounded
from extender.model.bucket import Bucket
from extender.model.eviction import VOLUNTARY_DISRUPTIONS, longest_s
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

ENDED_DRAINS_MAX: Final = 4096
"""Drains that are known to have ended, so that each is counted once."""

PREPARE, SERVE, DRAIN = "prepare", "serve", "drain"
"""The steps that wait for adapters."""


ForVPod = Callable[[str, str], None]
"""Called with a pool and a vpod."""


def _ignore(_pool: str, _vpod: str) -> None:
    pass


@dataclass(slots=True)
class _HandOver:
    """The hand-over of one vpod. Times are the event loop's, in seconds.

    Its state follows from which of them is set:

    .. code-block:: text

        prepare_until       it waits for adapters to get ready; the status waits
        serve_until         it waits for adapters to serve; ``Drain`` waits
        taken_back_at       it was taken back, because adapters did not get ready in time
        none of these       its last ``Drain`` is under way, or it ends with the next commit
    """

    prepare_until: float | None = None
    """Until when its status waits for adapters to get ready; None while it does not wait."""
    gaining: frozenset[str] = frozenset()
    """The pods that get vreplicas by it; empty if another leader has begun it."""
    serve_until: float | None = None
    """Until when its former pods keep its vreplicas, although the pods that it publishes do not all
    serve yet; None while nothing waits for that.
    """
    late_to_serve: bool = False
    """Whether that time has passed, which was reported."""
    taken_back_at: float | None = None
    """When it was taken back. For some time after that, the vpod does not leave draining pods."""
    reasons: dict[str, MoveReason] = field(default_factory=dict)
    """Pod -> why its vreplicas leave it."""
    timer: asyncio.TimerHandle | None = None
    partly_written: bool = False
    """Whether its last commit had to leave something for later."""

    def wait_to_serve(self, until: float | None) -> None:
        """Let the time in which adapters must serve end then; None: nothing waits for that."""
        self.serve_until, self.late_to_serve = until, False


class HandOvers:
    """The hand-overs that are under way. ``clock``: the event loop's time; ``now``: epoch seconds.

    Two callbacks are set by others. ``decide`` queues a vpod; the placer sets it.
    ``request_assignment`` has the assignments of a vpod's pods made anew; ``AssignmentWriter`` sets
    it.
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
        self._leads_since = leads_since
        self._metrics = metrics
        self.decide: ForVPod = _ignore
        self.request_assignment: ForVPod = _ignore
        self._hand_overs: dict[tuple[str, str], _HandOver] = {}
        """By pool and vpod."""
        self._ended_drains: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        """(pool, vpod, pod) -> deadline of the last drain that has ended."""
        self.views = HandOverViews(caches)
        """For other parts, too: each annotation is decoded once."""
        self.exclusive = ExclusiveShares(
            caches,
            adapter_of=self.views.adapter,
            leads_since=leads_since,
            clock=clock,
            request_assignment=self._request_assignment,
        )
        self.indexed = IndexedShares(
            caches, adapter_of=self.views.adapter, request_assignment=self._request_assignment
        )
        caches.pods.add_event_handler(self._pod_changed)

    def __len__(self) -> int:
        """Number of vpods that are handed over, or were taken back recently."""
        return len(self._hand_overs)

    # -- what the placer and the committer ask -----------------------------------------------------

    def longest_s(self, pool: str) -> float:
        """How long (s) a decision in the pool may wait for adapters in all."""
        handoff = self.views.handoff(pool)
        return longest_s(handoff) if handoff is not None else 0

    def was_taken_back(self, pool: str, vpod: str) -> bool:
        """Whether the vpod must not leave draining pods: its hand-over was taken back."""
        return self._clock() + TIMER_RESOLUTION_S < self._taken_back_until(pool, vpod)

    def _taken_back_until(self, pool: str, vpod: str) -> float:
        """When a hand-over that was taken back is tried again: after the pool's cool-down, or after
        at most ``LOOK_AGAIN_S`` if one of the vpod's pods is to go, for one of
        ``VOLUNTARY_DISRUPTIONS``. It goes at ``eviction.deadline_s`` in any case.
        """
        hand_over, state = self._hand_overs.get((pool, vpod)), self._caches.state.pools.get(pool)
        if hand_over is None or hand_over.taken_back_at is None:
            return 0.0
        if state is None or state.adapter_pool is None or self.views.handoff(pool) is None:
            return 0.0
        pause_s: float = state.adapter_pool.move_cooldown_s
        on = (state.pods[name] for name in state.claims_of(vpod))
        if any(pod.why_leaving in VOLUNTARY_DISRUPTIONS for pod in on):
            pause_s = min(pause_s, LOOK_AGAIN_S)
        return hand_over.taken_back_at + pause_s

    def take_back_overdue(self, pool: str, vpod: str) -> list[str]:
        """Take the vpod's hand-over back if adapters have not got ready in time. Return the names
        of their pods.
        """
        hand_over = self._hand_overs.get((pool, vpod))
        if hand_over is None or hand_over.prepare_until is None:
            return []
        if self._clock() + TIMER_RESOLUTION_S < self._with_whole_timeout(
            pool, hand_over.prepare_until
        ):
            return []
        state = self._caches.state.pools.get(pool)
        if state is None or state.adapter_pool is None:
            return []
        late = rules.unprepared(state, vpod, state.decided_of(vpod), self.views.adapters(state))
        if late:
            hand_over.prepare_until = None
            hand_over.taken_back_at = self._clock()
            self._arm(pool, vpod, hand_over)
            self._report(state, vpod, PREPARE, late)
        return late

    def begin(self, decision: Decision) -> None:
        """A decision is about to be written. If it must wait for adapters, its time begins now."""
        view = self.views.of(decision.pool, decision.vpod)
        if view is None:
            return
        waits = rules.withheld(view.state, decision.vpod, decision.target, view.adapters)
        if not (waits or decision.moves):
            return
        hand_over = self._hand_overs.setdefault((decision.pool, decision.vpod), _HandOver())
        claims = view.state.claims_of(decision.vpod)
        gaining = frozenset(
            name for name, count in decision.target.items() if count > claims[name].published
        )
        if waits and (hand_over.prepare_until is None or gaining - hand_over.gaining):
            hand_over.prepare_until = self._clock() + view.handoff.prepare_timeout_s
        hand_over.gaining |= gaining
        if decision.moves:
            hand_over.reasons |= {one.from_pod: one.reason for one in reversed(decision.moves)}

    def withhold(self, decision: Decision) -> Mapping[str, int]:
        """Return what of a decision may not be published yet: pod name -> vreplicas. If it is
        nothing, the wait for adapters to get ready is over.
        """
        view = self.views.of(decision.pool, decision.vpod)
        if view is None:
            return {}
        withheld = rules.withheld(view.state, decision.vpod, decision.target, view.adapters)
        hand_over = self._hand_overs.get((decision.pool, decision.vpod))
        if not withheld and hand_over is not None and hand_over.prepare_until is not None:
            began = hand_over.prepare_until - view.handoff.prepare_timeout_s
            self._metrics.handover_duration.labels(PREPARE).observe(self._clock() - began)
            hand_over.prepare_until = None
            hand_over.wait_to_serve(None)
        return withheld

    def served_first(self, decision: Decision, published: Mapping[str, int]) -> Mapping[str, int]:
        """Return what a vpod publishes, in the order in which ``publishable`` keeps it: first the
        pods that still serve what leaves them, and of these first those that it is moved off. If
        the vpod is also made smaller, what stays for a hand-over stays there, and the reason of the
        move is told when it leaves (seed 41000027).
        """
        view = self.views.of(decision.pool, decision.vpod)
        if view is None:
            return published
        serving = rules.still_served_on_old_pods(
            view.state, decision.vpod, decision.target, view.adapters
        )
        moved = [move.from_pod for move in decision.moves if move.from_pod in serving]
        order = dict.fromkeys((*moved, *serving, *published))
        return {name: published[name] for name in order if name in published}

    def retain_or_report(self, pool: str, vpod: str, pod: str, *, remaining: int) -> bool:
        """Return whether the pod's ledger has to keep vreplicas that are published no more.

        If not, and a drain is over, count how long it took, and report an adapter that has not let
        go in time. If it has to, the time in which others must serve may begin
        (``_check_taken_over``). ``remaining``: how many vreplicas stay.
        """
        view = self.views.of(pool, vpod)
        if view is None:
            return False
        state, adapters = view.state, view.adapters
        if remaining:
            retained = rules.retains_some(state.pods[pod], vpod, adapters)
            return retained and not self._check_taken_over(view, vpod, beside=pod)
        kept = rules.retains(state.pods[pod], vpod, adapters, self._now())
        assigned = adapters(pod).share_of(vpod)
        if kept or assigned is None or assigned.state is not ShareState.DRAIN:
            return kept
        if self._is_first_end(pool, vpod, pod, assigned):
            left_s = epoch_s(assigned.deadline, self._now()) - self._now()
            took_s = view.handoff.drain_timeout_s - left_s
            self._metrics.handover_duration.labels(DRAIN).observe(took_s)
            if state.pods[pod].serving and adapters(pod).may_serve(vpod):
                self._report(state, vpod, DRAIN, [pod])
        return kept

    def _is_first_end(self, pool: str, vpod: str, pod: str, drain: AssignedShare) -> bool:
        """Whether the end of a drain is seen for the first time. The ledger's write may be tried
        again.
        """
        key = (pool, vpod, pod)
        is_first = self._ended_drains.get(key) != drain.deadline
        put_bounded(self._ended_drains, key, drain.deadline, ENDED_DRAINS_MAX)
        return is_first

    def commit_ended(self, pool: str, vpods: Iterable[str], waiting: Collection[str]) -> None:
        """A commit of the decisions of ``vpods`` has ended. ``waiting``: those whose decision is
        written only in part, because adapters are not ready. Every other vpod's hand-over is over,
        or begins anew with its next decision.
        """
        for vpod in vpods:
            hand_over = self._hand_overs.get((pool, vpod))
            if vpod in waiting:
                hand_over = self._hand_overs.setdefault((pool, vpod), _HandOver())
                hand_over.partly_written = True
                self._arm(pool, vpod, hand_over)
                self.request_assignment(pool, vpod)
            elif hand_over is not None and not self.was_taken_back(pool, vpod):
                self._drop(pool, vpod)
            elif hand_over is not None:
                hand_over.partly_written = False
                hand_over.prepare_until = None
                hand_over.reasons, hand_over.gaining = {}, frozenset()
                hand_over.wait_to_serve(None)
                self._arm(pool, vpod, hand_over)

    # -- what adapters are told --------------------------------------------------------------------

    def instruct(
        self, pod: AdapterPod, vpod: str, current: AssignedShare | None
    ) -> ShareInstruction:
        """What a pod is to be told of a share in its ledger. ``current``: what it is told now.

        This may begin the time in which others must serve the share (``_check_taken_over``).
        """
        view = self.views.of(pod.pool, vpod)
        if view is None:
            return self.indexed.numbered(pod, vpod, current, ShareInstruction())
        hand_over = self._hand_overs.get((pod.pool, vpod))

        def drain() -> ShareInstruction | None:
            if not self._check_taken_over(view, vpod):
                return None
            reason = hand_over.reasons.get(pod.name) if hand_over is not None else None
            if reason is None and (known := view.state.pods.get(pod.name)) is not None:
                reason = known.why_leaving  # another leader may have begun the move
            return ShareInstruction(
                ShareState.DRAIN,
                next(rules.published_on(view.state, vpod), ""),
                timestamp(self._now() + view.handoff.drain_timeout_s, "milliseconds"),
                rules.intent_of(reason, exists=vpod in view.state.vpods),
            )

        preparing = hand_over is not None and hand_over.prepare_until is not None
        if current is not None and current.state is ShareState.DRAIN:
            preparing = preparing and not self.views.adapter(pod).may_serve(vpod)
        instruction = rules.instruction(
            view.state, vpod, pod.name, current, preparing=preparing, drain=drain
        )
        instruction = self.indexed.numbered(pod, vpod, current, instruction)
        return self.exclusive.narrowed(view.state, pod, vpod, current, instruction)

    def _check_taken_over(self, view: HandOverView, vpod: str, *, beside: str = "") -> bool:
        """Return whether others serve what the vpod publishes, or have had their time for that,
        which is reported. If not, that time begins, or goes on. With ``Exclusive`` the former pod
        lets go first, so it waits for nobody. ``beside``: a pod that gives only some vreplicas up,
        and is not waited for.
        """
        if view.handoff.mode is HandoffMode.EXCLUSIVE:
            return True
        hand_over = self._hand_overs.get((view.state.key, vpod))
        late = [name for name in self._late_to_serve(view, vpod) if name != beside]
        if not late:
            late = list(self.indexed.behind(view.state, vpod))
        if not late:
            if hand_over is not None and hand_over.serve_until is not None:
                began = hand_over.serve_until - view.handoff.prepare_timeout_s
                self._metrics.handover_duration.labels(SERVE).observe(self._clock() - began)
                hand_over.wait_to_serve(None)  # the next pods have their own time
            return True
        hand_over = self._hand_overs.setdefault((view.state.key, vpod), _HandOver())
        if hand_over.serve_until is None:
            hand_over.wait_to_serve(self._clock() + view.handoff.prepare_timeout_s)
        until = self._with_whole_timeout(view.state.key, hand_over.serve_until or 0.0)
        if self._clock() + TIMER_RESOLUTION_S < until:
            return False
        if not hand_over.late_to_serve:
            hand_over.late_to_serve = True
            self._report(view.state, vpod, SERVE, late)
        return True

    def _late_to_serve(self, view: HandOverView, vpod: str) -> list[str]:
        """Names of the pods that are to serve the vpod by its hand-over, and do not yet."""
        hand_over = self._hand_overs.get((view.state.key, vpod))
        # Pods that the move does not concern are not waited for. If another leader has begun it,
        # nobody knows which ones these are: then those that are down are left out.
        gaining = hand_over.gaining if hand_over is not None else frozenset()
        gaining = gaining and gaining | self.indexed.taking_over(view.state, vpod)
        return [
            name
            for name in rules.unserving(view.state, vpod, view.adapters)
            if (name in gaining if gaining else view.state.pods[name].serving)
        ]

    def _with_whole_timeout(self, pool: str, until: float) -> float:
        """``until``, but at least a whole time-out after this replica began to lead: nobody could
        tell adapters anything before.
        """
        handoff = self.views.handoff(pool)
        timeout_s = handoff.prepare_timeout_s if handoff is not None else 0
        return max(until, self._leads_since(pool) + timeout_s)

    def routable(self, vpod: VPod) -> Mapping[str, int]:
        """Pod name -> vreplicas, for those who send work to the vpod's adapters."""
        view = self.views.of(vpod.pool, vpod.key)
        if view is None:
            return vpod.placements
        return rules.routable(view.state, vpod.key, view.adapters)

    def describe_waits(self, pool: str, vpod: str) -> list[str]:
        """What the vpod's hand-over waits for, in sentences."""
        view = self.views.of(pool, vpod)
        if view is None:
            return []
        handoff, state, adapters = view
        clock, found = self._clock(), []
        hand_over = self._hand_overs.get((pool, vpod), _HandOver())
        if hand_over.prepare_until is not None:
            since_s = clock - hand_over.prepare_until + handoff.prepare_timeout_s
            late = rules.unprepared(state, vpod, state.decided_of(vpod), adapters)
            found += [_wait(pod, "get ready", since_s, handoff.prepare_timeout_s) for pod in late]
        elif hand_over.serve_until is not None:
            since_s = clock - hand_over.serve_until + handoff.prepare_timeout_s
            late = self._late_to_serve(view, vpod) or list(self.indexed.behind(state, vpod))
            found += [_wait(pod, "serve", since_s, handoff.prepare_timeout_s) for pod in late]
        for pod, left_s in rules.unreleased(state, vpod, adapters, self._now()).items():
            since_s = handoff.drain_timeout_s - left_s
            found.append(_wait(pod, "let go", since_s, handoff.drain_timeout_s))
        found += self.exclusive.describe_waits(pool, vpod)
        if (again_at := self._taken_back_until(pool, vpod)) > clock:
            found.append(
                f"a move was taken back, because an adapter did not get ready in time: it is not "
                f"tried again for {again_at - clock:.0f} s"
            )
        return found

    # -- what brings a vpod back -------------------------------------------------------------------

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self.views.forget(old)
        if new is None:
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
        self.request_assignment(pool, vpod)

    def _request_assignment(self, pool: str, vpod: str) -> None:
        self.request_assignment(pool, vpod)

    def _arm(self, pool: str, vpod: str, hand_over: _HandOver) -> None:
        """Come back to the vpod when its next time has come."""
        if hand_over.timer is not None:
            hand_over.timer.cancel()
        clock, state = self._clock(), self._caches.state.pools.get(pool)
        times = [
            *(
                self._with_whole_timeout(pool, at)
                for at in (hand_over.prepare_until, hand_over.serve_until)
                if at is not None
            ),
            self._taken_back_until(pool, vpod),
        ]
        if hand_over.partly_written and state is not None:
            left = rules.unreleased(state, vpod, self.views.adapters(state), self._now())
            times += [clock + left_s for left_s in left.values()]
        due = [at for at in times if at > clock + TIMER_RESOLUTION_S]
        if hand_over.partly_written:
            due.append(clock + LOOK_AGAIN_S)
        if due:
            hand_over.timer = asyncio.get_running_loop().call_at(min(due), self._due, pool, vpod)

    def _due(self, pool: str, vpod: str) -> None:
        hand_over = self._hand_overs.get((pool, vpod))
        if hand_over is None:
            return
        hand_over.timer = None
        if hand_over.partly_written or self.was_taken_back(pool, vpod):
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
        self.views.forget_left_out(bucket)

    def _report(self, state: PoolState, vpod: str, step: str, pods: list[str]) -> None:
        self._metrics.handover_timeouts.labels(step).inc()
        stored = state.vpods.get(vpod)
        if stored is not None:
            self._vpod_events.handover_timed_out(stored, step, pods)


def handover_facts(pod: AdapterPod) -> tuple[object, ...]:
    """What the pod itself tells of a hand-over. Its node counts, too."""
    told = pod.assignment_text, pod.acknowledged_text
    return pod.uid, *told, pod.ready, pod.deleting, pod.finished, pod.assumed


def _wait(pod: str, what: str, since_s: float, limit_s: float) -> str:
    return f"waits for the adapter of {pod} to {what} ({since_s:.0f} s of {limit_s:.0f})"
