"""``HandOverViews``: what the rules of ``engine.placing.handover`` read of a vpod: its pool's
``spec.handoff``, the pool's state, and what each pod's adapter is told and has said.
"""

from typing import NamedTuple

from extender.engine.placing.handover import Adapter, Adapters
from extender.engine.state.pool_state import PoolState
from extender.model.assignment import decode_acknowledged, decode_assignment
from extender.model.bucket import Bucket
from extender.model.objects import AdapterPod, Handoff
from extender.service.watching.caches import Caches


class HandOverView(NamedTuple):
    """A pool that hands shares over, at this moment."""

    handoff: Handoff
    state: PoolState
    adapters: Adapters


class HandOverViews:
    """Reads the caches. An annotation is decoded once."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._adapters: dict[str, tuple[str | None, str | None, Adapter]] = {}
        """Pod key -> the texts that were decoded, and the result."""
        self._left_out: dict[str, frozenset[str]] = {}
        """Pod key -> the vpods that its adapter cannot be told of."""

    def handoff(self, pool: str) -> Handoff | None:
        """The pool's spec.handoff; None if it hands nothing over."""
        known = self._caches.pools.get(pool)
        return known.handoff if known is not None and known.hands_over else None

    def of(self, pool: str, vpod: str) -> HandOverView | None:
        """The view for a vpod. None if its pool hands nothing over, or if it is a caller's."""
        handoff = self.handoff(pool)
        state = self._caches.state.pools.get(pool) if handoff is not None else None
        if handoff is None or state is None:
            return None
        if vpod in state.vpods and self._caches.vpods.latest(vpod) is None:
            return None  # it is a caller's
        return HandOverView(handoff, state, self.adapters(state))

    def adapters(self, state: PoolState) -> Adapters:
        """The adapters of a pool's pods."""

        def adapter(name: str) -> Adapter:
            claims = state.pods.get(name)
            return self.adapter(claims.pod) if claims is not None else Adapter()

        return adapter

    def adapter(self, pod: AdapterPod | None) -> Adapter:
        """The adapter of a pod, as the pod's newest version has it."""
        if pod is None:
            return Adapter()
        pod = self._caches.pods.latest(pod.key) or pod
        decoded = self._adapters.get(pod.key)
        if decoded is not None and decoded[:2] == (pod.assignment_text, pod.acknowledged_text):
            return decoded[2]
        assignment = decode_assignment(pod.assignment_text, pod.uid)
        said = decode_acknowledged(pod.acknowledged_text) if assignment is not None else None
        adapter = Adapter(assignment, said, self._left_out.get(pod.key, frozenset()))
        self._adapters[pod.key] = (pod.assignment_text, pod.acknowledged_text, adapter)
        return adapter

    def leave_out(self, pod: AdapterPod, vpods: frozenset[str]) -> None:
        """The pod's adapter cannot be told of these vpods, because its assignment is full."""
        if vpods != self._left_out.get(pod.key, frozenset()):
            self._left_out[pod.key] = vpods
            self._adapters.pop(pod.key, None)

    def forget_left_out(self, bucket: Bucket) -> None:
        """Forget whose assignments are full, in the pools of a bucket: another replica has written
        them meanwhile.
        """
        for key in list(self._left_out):
            pod = self._caches.pods.latest(key)
            if pod is None or bucket.has(pod.pool):
                del self._left_out[key]
                self._adapters.pop(key, None)

    def forget(self, pod: AdapterPod) -> None:
        """The pod is gone."""
        self._adapters.pop(pod.key, None)
        self._left_out.pop(pod.key, None)
