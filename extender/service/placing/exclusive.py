"""``ExclusiveShares``: who may serve which vpod, in pools with ``handoff.mode: Exclusive``.

Every replica follows the assignments and acknowledgements of such pools (``placing.holders``), and
the leader asks before it tells an adapter to serve.

A replica that begins to lead does not know of pods that went before it watched. So it tells nobody
to serve more for as long as a lease: by then their adapters have stopped. What is served meanwhile
goes on. A pool that becomes exclusive waits as long.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from extender.engine.placing.handover import Adapter
from extender.engine.placing.holders import Holders
from extender.engine.state.pool_state import PoolState
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.assignment import AssignedShare, Assignment, ShareInstruction, ShareState
from extender.model.indexes import indexes_from, lowest
from extender.model.objects import AdapterPod, AdapterPool
from extender.service.watching.caches import Caches

_NO_SHARE: Final = AssignedShare(0, 1, 0, 0)


class ExclusiveShares:
    """``adapter_of`` reads a pod's annotations. ``leads_since``: pool -> the clock's time.

    ``request_assignment`` has the assignments of a vpod's pods made anew: one of them may be
    allowed more now.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        adapter_of: Callable[[AdapterPod], Adapter],
        leads_since: Callable[[str], float],
        clock: Callable[[], float],
        request_assignment: Callable[[str, str], None],
    ) -> None:
        self._caches = caches
        self._adapter_of = adapter_of
        self._leads_since = leads_since
        self._clock = clock
        self._request_assignment = request_assignment
        self._holders: dict[str, Holders] = {}
        """By pool."""
        self._since: dict[str, float] = {}
        """Pool -> since when it is followed."""
        self._postponed: dict[str, dict[str, None]] = {}
        """Pool -> vpods of which nobody is told to serve more, because the leader is new."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        caches.pools.add_event_handler(self._pool_changed)
        caches.pods.add_event_handler(self._pod_changed)

    # -- what is told ------------------------------------------------------------------------------

    def narrowed(
        self,
        state: PoolState,
        pod: AdapterPod,
        vpod: str,
        current: AssignedShare | None,
        told: ShareInstruction,
    ) -> ShareInstruction:
        """``told``, but no more vreplicas to serve than the pod is allowed to."""
        holders = self._holders.get(pod.pool)
        if told.state is not ShareState.SERVE or holders is None:
            return told
        serves = current if current is not None and current.state is ShareState.SERVE else _NO_SHARE
        is_new = self._wait_s(pod.pool) > 0
        allowed = serves.vreplicas if is_new else self._allowed(state, pod, vpod)
        allowed = max(allowed, serves.vreplicas)
        if told.indexes is None:
            # Not from the claims: they may not have this ledger yet.
            wanted = pod.ledger[vpod].vreplicas if vpod in pod.ledger else 0
            if wanted <= allowed:
                return told
            less = told._replace(vreplicas=allowed)
        else:
            free = told.indexes & ~holders.others_indexes(vpod, pod.uid)
            kept = free & indexes_from(serves.indexes)
            if not (is_new and serves.indexes):
                kept |= lowest(free & ~kept, allowed - kept.bit_count())
            if kept == told.indexes:
                return told
            # If it is to serve others than before, and none of them is free yet, it goes on.
            kept = kept or lowest(indexes_from(serves.indexes), told.indexes.bit_count())
            less = told._replace(vreplicas=kept.bit_count(), indexes=kept)
        if is_new:
            self._postponed.setdefault(pod.pool, {})[vpod] = None
            self._arm(pod.pool)
        if less.vreplicas:
            return less
        peer = next((name for name, _ in holders.others(vpod, pod.uid)), "")
        return told._replace(state=ShareState.PREPARE, peer=peer)

    def _allowed(self, state: PoolState, pod: AdapterPod, vpod: str) -> int:
        # A vpod that has changed its pool publishes the former one's pods for a moment. While no
        # StatefulSet is known, the pods that are there tell which ones are the pool's.
        published = sum(
            claim.published
            for name, claim in state.claims_of(vpod).items()
            if state.pods[name].pod is not None or state.is_member(state.pods[name])
        )
        return self._holders[pod.pool].allowed(vpod, pod.uid, published)

    def asked(self, pod: AdapterPod, before: Assignment | None, after: Assignment) -> None:
        """``after`` is about to be written on a pod that has ``before``."""
        if (holders := self._holders.get(pod.pool)) is not None:
            holders.ask(pod.uid, pod.name, before, after, self._clock())
            self._arm(pod.pool)

    def describe_waits(self, pool: str, vpod: str) -> list[str]:
        """What the vpod's adapters wait for before they serve, in sentences."""
        state, holders = self._caches.state.pools.get(pool), self._holders.get(pool)
        if state is None or holders is None:
            return []
        published = {name: claim.published for name, claim in state.claims_of(vpod).items()}
        found = []
        for name, held in holders.others(vpod, ""):
            if held.until is not None:
                left_s = held.until - self._clock()
                found.append(f"waits until the lease of {name} has run out ({left_s:.0f} s more)")
            elif held.vreplicas > published.get(name, 0) and not self._drains(state, name, vpod):
                found.append(f"waits until the adapter of {name} has let go")
        for name, until in holders.in_doubt(vpod):
            if not published.get(name):
                left_s = until - self._clock()
                found.append(
                    f"waits until it is certain that {name} is not told to serve it "
                    f"({left_s:.0f} s more)"
                )
        if found == [] and (left_s := self._wait_s(pool)) > 0 and self._wants_more(state, vpod):
            found.append(
                f"the leader is new: it tells nobody to serve more until the leases of pods that "
                f"are gone have run out ({left_s:.0f} s more)"
            )
        return found

    def _drains(self, state: PoolState, name: str, vpod: str) -> bool:
        """Whether a pod is told to drain the vpod. ``HandOvers`` says that this is waited for."""
        known = state.pods.get(name)
        told = (
            self._adapter_of(known.pod).share_of(vpod)
            if known is not None and known.pod is not None
            else None
        )
        return told is not None and told.state is ShareState.DRAIN

    def _wants_more(self, state: PoolState, vpod: str) -> bool:
        """Whether the vpod publishes more vreplicas somewhere than the pod is told to serve."""
        for name, claim in state.claims_of(vpod).items():
            pod = state.pods[name].pod
            told = self._adapter_of(pod).share_of(vpod) if pod is not None else None
            serves = told.vreplicas if told is not None and told.state is ShareState.SERVE else 0
            if claim.published > serves:
                return True
        return False

    def _wait_s(self, pool: str) -> float:
        """Seconds that are left until more may be served."""
        since = max(self._since[pool], self._leads_since(pool))
        known = self._caches.pools.get(pool)
        return since + (known.lease_s if known is not None else 0) - self._clock()

    # -- what is seen ------------------------------------------------------------------------------

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        pool = new or old
        if pool is None:
            return
        if new is None or not new.is_exclusive:
            self._holders.pop(pool.key, None)
            self._since.pop(pool.key, None)
            self._postponed.pop(pool.key, None)
            self._arm(pool.key)
        elif pool.key not in self._holders:
            self._holders[pool.key] = Holders()
            self._since[pool.key] = self._clock()
            state = self._caches.state.pools.get(pool.key)
            for known in list(state.pods.values()) if state is not None else ():
                if known.pod is not None:
                    self._pod_changed(None, known.pod)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is not None and (new is None or (new.uid, new.pool) != (old.uid, old.pool)):
            self._gone(old, stopped=_has_ended(old))
        if new is None or (holders := self._holders.get(new.pool)) is None:
            return
        same = (
            old is not None
            and old.uid == new.uid
            and old.assignment_text == new.assignment_text
            and old.acknowledged_text == new.acknowledged_text
            and _has_ended(old) == _has_ended(new)
        )
        if same:
            return
        if _has_ended(new):
            self._gone(new, stopped=True)
            return
        fewer = holders.seen(new.uid, new.name, self._adapter_of(new), self._clock())
        self._tell_all(new.pool, fewer)

    def _gone(self, pod: AdapterPod, *, stopped: bool) -> None:
        if (holders := self._holders.get(pod.pool)) is not None:
            self._tell_all(pod.pool, holders.gone(pod.uid, self._clock(), stopped=stopped))

    def _tell_all(self, pool: str, vpods: Iterable[str]) -> None:
        for vpod in sorted(vpods):
            self._request_assignment(pool, vpod)
        self._arm(pool)

    def _arm(self, pool: str) -> None:
        """Look again when the next lease has run out, or the wait of a new leader is over."""
        if (timer := self._timers.pop(pool, None)) is not None:
            timer.cancel()
        if (holders := self._holders.get(pool)) is None:
            return
        due = [at] if (at := holders.next_at()) is not None else []
        if self._postponed.get(pool):
            due.append(self._clock() + self._wait_s(pool))
        if due:
            loop = asyncio.get_running_loop()
            self._timers[pool] = loop.call_at(min(due) + TIMER_RESOLUTION_S, self._look, pool)

    def _look(self, pool: str) -> None:
        self._timers.pop(pool, None)
        if (holders := self._holders.get(pool)) is None:
            return
        vpods = holders.run_out(self._clock())
        if self._wait_s(pool) <= 0:
            vpods.update(self._postponed.pop(pool, ()))
        self._tell_all(pool, vpods)


def _has_ended(pod: AdapterPod) -> bool:
    """Whether its containers have stopped for good. Those of a pod that stays start again."""
    return pod.stopped and (pod.deleting or pod.finished)
