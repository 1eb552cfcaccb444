"""``HandOvers``: the leader's view of the shares that are handed over from adapter to adapter, in
pools with ``spec.handoff.mode: Overlap`` or ``Exclusive``. ``engine.placing.handover`` has the
rules, and ``exclusive`` what is different with ``Exclusive``.

The committer asks what may be published (``withheld``) and what may leave a ledger (``retains``).
A decision that has to wait stays reserved. Its vpod is decided again once something changes for it:
an adapter's assignment or acknowledgement, or a time that has come.

If the leader fails, what is remembered here is lost, but no share is. If the status was not written
yet, the next leader takes back what the destination's ledger has, and the evictor plans anew. If it
was written, the next leader goes on from the assignments.

Vpods of callers of ``POST /v1/schedule`` are not handed over: their callers publish where they are.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from extender.engine.placing.handover import (
    Adapter,
    Adapters,
    intent_of,
    leaving,
    published_on,
    retains,
    retains_some,
    routable,
    telling,
    unprepared,
    unreleased,
    unserving,
    withheld,
)
from extender.engine.placing.plan import Decision
from extender.engine.state.pool_state import PoolState
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.assignment import (
    AssignedShare,
    ShareState,
    Telling,
    decode_acknowledged,
    decode_assignment,
    is_full,
)
from extender.model.bucket import Bucket
from extender.model.eviction import longest_s
from extender.model.moves import MoveReason
from extender.model.objects import AdapterPod, Handoff, HandoffMode, VPod
from extender.model.timestamps import epoch_s, timestamp
from extender.service.placing.exclusive import ExclusiveShares
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
    """The hand-over of one vpod. Times are the event loop's, in seconds."""

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
    waits: bool = False
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
        self._known: dict[tuple[str, str], _HandOver] = {}
        """By pool and vpod."""
        self._adapters: dict[str, tuple[str | None, str | None, Adapter]] = {}
        """Pod key -> the texts that were decoded, and the result."""
        self.exclusive = ExclusiveShares(
            caches,
            adapter_of=self._adapter,
            leads_since=leads_since,
            clock=clock,
            tell=self._tell,
        )
        caches.pods.add_event_handler(self._pod_changed)

    def __len__(self) -> int:
        """Number of vpods that are handed over, or were taken back recently."""
        return len(self._known)

    # -- what the placer and the committer ask -----------------------------------------------------

    def longest_s(self, pool: str) -> float:
        """How long (s) a decision in the pool may wait for adapters in all."""
        handoff = self._handoff(pool)
        return longest_s(handoff) if handoff is not None else 0

    def stays(self, pool: str, vpod: str) -> bool:
        """Whether the vpod must not leave pods that drain: its last hand-over was taken back."""
        known = self._known.get((pool, vpod))
        return known is not None and self._clock() + TIMER_RESOLUTION_S < known.stays_until

    def overdue(self, pool: str, vpod: str) -> list[str]:
        """Names of the pods whose adapters have not got ready in time. If there are any, this takes
        the vpod's hand-over back, and the vpod ``stays`` for the pool's cool-down, or for
        ``LOOK_AGAIN_S`` if the pod is evicted.
        """
        known = self._known.get((pool, vpod))
        if known is None or known.prepared_by is None:
            return []
        if self._clock() + TIMER_RESOLUTION_S < known.prepared_by:
            return []
        state = self._caches.state.pools.get(pool)
        if state is None or state.adapter_pool is None:
            return []
        late = unprepared(state, vpod, state.placed_of(vpod), self._adapter_of(state))
        if late:
            known.prepared_by = None
            pause_s: float = state.adapter_pool.move_cooldown_s
            if known.reason in {MoveReason.EVICTED, MoveReason.ROLLOUT}:
                pause_s = min(pause_s, LOOK_AGAIN_S)  # the pod goes at ``eviction.deadline_s``
            known.stays_until = self._clock() + pause_s
            self._arm(pool, vpod, known)
            self._report(state, vpod, PREPARE, late)
        return late

    def begin(self, decision: Decision) -> None:
        """A decision is about to be written. If it must wait for adapters, its time begins now."""
        handoff, state = self._of(decision.pool, decision.vpod)
        if handoff is None or state is None:
            return
        if not withheld(state, decision.vpod, decision.target, self._adapter_of(state)):
            return
        known = self._known.setdefault((decision.pool, decision.vpod), _HandOver())
        if known.prepared_by is None:
            known.prepared_by = self._clock() + handoff.prepare_timeout_s
        if decision.moves:
            known.reason = decision.moves[0].reason

    def withheld(self, decision: Decision) -> Mapping[str, int]:
        """Pod name -> vreplicas of a decision that may not be published yet."""
        handoff, state = self._of(decision.pool, decision.vpod)
        if handoff is None or state is None:
            return {}
        waiting = withheld(state, decision.vpod, decision.target, self._adapter_of(state))
        known = self._known.get((decision.pool, decision.vpod))
        if not waiting and known is not None and known.prepared_by is not None:
            began = known.prepared_by - handoff.prepare_timeout_s
            self._metrics.handover_duration.labels(PREPARE).observe(self._clock() - began)
            known.prepared_by = known.served_by = None
        return waiting

    def served_first(self, decision: Decision, published: Mapping[str, int]) -> Mapping[str, int]:
        """What a vpod publishes, first the pods that serve what the decision takes from them: what
        is withheld stays there.
        """
        handoff, state = self._of(decision.pool, decision.vpod)
        if handoff is None or state is None:
            return published
        serving = leaving(state, decision.vpod, decision.target, self._adapter_of(state))
        return {name: published[name] for name in serving if name in published} | {**published}

    def retains(self, pool: str, vpod: str, pod: str, *, left: int) -> bool:
        """Whether the pod's ledger has to keep vreplicas that are published no more. ``left``: how
        many stay.
        """
        handoff, state = self._of(pool, vpod)
        if handoff is None or state is None:
            return False
        adapters = self._adapter_of(state)
        if left:
            return retains_some(state.pods[pod], vpod, adapters) and not self._is_taken_over(
                handoff, state, vpod
            )
        kept = retains(state.pods[pod], vpod, adapters, self._now())
        told = adapters(pod).is_told(vpod)
        if not kept and told is not None and told.state is ShareState.DRAIN:
            left_s = epoch_s(told.deadline, self._now()) - self._now()
            self._metrics.handover_duration.labels(DRAIN).observe(handoff.drain_timeout_s - left_s)
            if state.pods[pod].serving and adapters(pod).may_serve(vpod):
                self._report(state, vpod, DRAIN, [pod])
        return kept

    def written(self, pool: str, vpods: Iterable[str], waiting: Collection[str]) -> None:
        """The decisions of ``vpods`` were written, those of ``waiting`` only in part."""
        for vpod in vpods:
            known = self._known.get((pool, vpod))
            if vpod in waiting:
                known = self._known.setdefault((pool, vpod), _HandOver())
                known.waits = True
                self._arm(pool, vpod, known)
                self.tell(pool, vpod)
            elif known is not None and not self.stays(pool, vpod):
                self._drop(pool, vpod)
            elif known is not None:
                known.waits, known.prepared_by, known.served_by = False, None, None

    # -- what adapters are told --------------------------------------------------------------------

    def telling(self, pod: AdapterPod, vpod: str, had: AssignedShare | None) -> Telling:
        """What a pod is told of a share in its ledger. ``had``: what it is told now."""
        handoff, state = self._of(pod.pool, vpod)
        if handoff is None or state is None:
            return Telling()
        known = self._known.get((pod.pool, vpod))

        def drain() -> Telling | None:
            if not self._is_taken_over(handoff, state, vpod):
                return None
            reason = known.reason if known is not None else None
            return Telling(
                ShareState.DRAIN,
                next(published_on(state, vpod), ""),
                timestamp(self._now() + handoff.drain_timeout_s, "milliseconds"),
                intent_of(reason, exists=vpod in state.vpods),
            )

        preparing = known is not None and known.prepared_by is not None
        if had is not None and had.state is ShareState.DRAIN:
            preparing = preparing and not self._adapter(pod).may_serve(vpod)
        told = telling(state, vpod, pod.name, had, preparing=preparing, drain=drain)
        return self.exclusive.narrowed(state, pod, vpod, had, told)

    def _is_taken_over(self, handoff: Handoff, state: PoolState, vpod: str) -> bool:
        """Whether what the vpod publishes is served, or was waited for long enough. If only one may
        serve, the former one lets go first.
        """
        if handoff.mode is HandoffMode.EXCLUSIVE:
            return True
        known = self._known.get((state.key, vpod))
        if not unserving(state, vpod, self._adapter_of(state)):
            if known is not None:
                known.served_by = None  # the next pods have their own time
            return True
        known = self._known.setdefault((state.key, vpod), _HandOver())
        if known.served_by is None:
            known.served_by = self._clock() + handoff.prepare_timeout_s
        return self._clock() + TIMER_RESOLUTION_S >= known.served_by

    def routable(self, vpod: VPod) -> Mapping[str, int]:
        """Pod name -> vreplicas, for those who send work to the vpod's adapters."""
        handoff, state = self._of(vpod.pool, vpod.key)
        if handoff is None or state is None:
            return vpod.placements
        return routable(state, vpod.key, self._adapter_of(state))

    def waits(self, pool: str, vpod: str) -> list[str]:
        """What the vpod's hand-over waits for, in sentences."""
        handoff, state = self._of(pool, vpod)
        if handoff is None or state is None:
            return []
        adapters, clock, found = self._adapter_of(state), self._clock(), []
        known = self._known.get((pool, vpod), _HandOver())
        if known.prepared_by is not None:
            since_s = clock - known.prepared_by + handoff.prepare_timeout_s
            late = unprepared(state, vpod, state.placed_of(vpod), adapters)
            found += [_wait(pod, "get ready", since_s, handoff.prepare_timeout_s) for pod in late]
        elif known.served_by is not None:
            since_s = clock - known.served_by + handoff.prepare_timeout_s
            late = unserving(state, vpod, adapters)
            found += [_wait(pod, "serve", since_s, handoff.prepare_timeout_s) for pod in late]
        for pod, left_s in unreleased(state, vpod, adapters, self._now()).items():
            since_s = handoff.drain_timeout_s - left_s
            found.append(_wait(pod, "let go", since_s, handoff.drain_timeout_s))
        found += self.exclusive.waits(pool, vpod)
        if known.stays_until > clock:
            found.append(
                f"an adapter did not get ready in time: it leaves no pod that is drained for "
                f"{known.stays_until - clock:.0f} s more"
            )
        return found

    # -- what brings a vpod back -------------------------------------------------------------------

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if new is None:
            if old is not None:
                self._adapters.pop(old.key, None)
            return
        if not self._known or (old is not None and handover_facts(old) == handover_facts(new)):
            return
        state = self._caches.state.pools.get(new.pool)
        pod = state.pods.get(new.name) if state is not None else None
        for vpod in list(pod.claims) if pod is not None else ():
            known = self._known.get((new.pool, vpod))
            if known is not None and known.waits:
                self._changed(new.pool, vpod)

    def _changed(self, pool: str, vpod: str) -> None:
        self.decide(pool, vpod)
        self.tell(pool, vpod)

    def _tell(self, pool: str, vpod: str) -> None:
        self.tell(pool, vpod)

    def _arm(self, pool: str, vpod: str, known: _HandOver) -> None:
        """Come back to the vpod when its next time has come."""
        if known.timer is not None:
            known.timer.cancel()
        clock, state = self._clock(), self._caches.state.pools.get(pool)
        times = [known.prepared_by, known.served_by, known.stays_until]
        if known.waits and state is not None:
            left = unreleased(state, vpod, self._adapter_of(state), self._now())
            times += [clock + left_s for left_s in left.values()]
        due = [at for at in times if at is not None and at > clock]
        if known.waits:
            due.append(clock + LOOK_AGAIN_S)
        if due:
            known.timer = asyncio.get_running_loop().call_at(min(due), self._due, pool, vpod)

    def _due(self, pool: str, vpod: str) -> None:
        known = self._known.get((pool, vpod))
        if known is None:
            return
        known.timer = None
        if known.waits or self.stays(pool, vpod):
            self._arm(pool, vpod, known)
        else:
            self._drop(pool, vpod)
        self._changed(pool, vpod)

    def _drop(self, pool: str, vpod: str) -> None:
        known = self._known.pop((pool, vpod), None)
        if known is not None and known.timer is not None:
            known.timer.cancel()

    def forget(self, bucket: Bucket) -> None:
        """Forget the pools of a bucket that this replica does not lead."""
        for pool, vpod in [key for key in self._known if bucket.has(key[0])]:
            self._drop(pool, vpod)

    def _report(self, state: PoolState, vpod: str, step: str, pods: list[str]) -> None:
        self._metrics.handover_timeouts.labels(step).inc()
        known = state.vpods.get(vpod)
        if known is not None:
            self._vpod_events.handover_timed_out(known, step, pods)

    # -- reading -----------------------------------------------------------------------------------

    def _handoff(self, pool: str) -> Handoff | None:
        known = self._caches.pools.get(pool)
        return known.handoff if known is not None and known.hands_over else None

    def _of(self, pool: str, vpod: str) -> tuple[Handoff | None, PoolState | None]:
        handoff = self._handoff(pool)
        state = self._caches.state.pools.get(pool) if handoff is not None else None
        if state is None or (vpod in state.vpods and self._caches.vpods.latest(vpod) is None):
            return None, None  # it is a caller's
        return handoff, state

    def _adapter_of(self, state: PoolState) -> Adapters:
        def adapter(name: str) -> Adapter:
            known = state.pods.get(name)
            return self._adapter(known.pod) if known is not None else Adapter()

        return adapter

    def _adapter(self, pod: AdapterPod | None) -> Adapter:
        if pod is None:
            return Adapter()
        pod = self._caches.pods.latest(pod.key) or pod
        known = self._adapters.get(pod.key)
        if known is not None and known[:2] == (pod.assignment_text, pod.acknowledged_text):
            return known[2]
        assignment = decode_assignment(pod.assignment_text, pod.uid)
        said = decode_acknowledged(pod.acknowledged_text) if assignment is not None else None
        adapter = Adapter(assignment, said, is_full(pod.assignment_text or ""))
        self._adapters[pod.key] = (pod.assignment_text, pod.acknowledged_text, adapter)
        return adapter


def handover_facts(pod: AdapterPod) -> tuple[object, ...]:
    """What of a pod a hand-over depends on."""
    return pod.uid, pod.assignment_text, pod.acknowledged_text, pod.ready, pod.deleting


def _wait(pod: str, what: str, since_s: float, limit_s: float) -> str:
    return f"waits for the adapter of {pod} to {what} ({since_s:.0f} s of {limit_s:.0f})"
