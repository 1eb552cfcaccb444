"""``DrainingOrdinals``: which ordinals of one pool take no new vreplicas, so that they can be
emptied and removed (DESIGN 5.4).

What the pool does not need is closed, what it needs again is opened. A vpod that is left over opens
all: each time that happens soon after closing, it takes twice as long until pods are closed again.
And what a scale-down of which nobody has heard may still remove stays closed, whatever the pool
needs (``engine.scaling.shrink_doubt``).
"""

from collections.abc import Callable
from typing import Final, Protocol

from extender.engine.scaling.scale_down import (
    ordinals_to_close,
    removable,
    still_closed,
    waits_for_closed,
)
from extender.engine.scaling.shrink_doubt import ShrinkDoubt
from extender.engine.scaling.size import ScalePlan
from extender.engine.state.pool_state import PoolState
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.objects import VPod
from extender.service.placing.committer import RESERVATION_TTL_S
from extender.service.placing.ledger_confirmations import UNDER_WAY_S
from extender.service.pools.scale_cache import Scale
from extender.service.watching.caches import Caches

LEFT_OVER_S: Final = 5.0
"""After so long a vpod that seems to have room on open pods gets closed ones, too: its profile
refuses that room.
"""
REOPENED_MAX: Final = 6
"""Each opening in vain doubles the time until pods are closed again; not beyond 64 periods."""


class ClosedChanged(Protocol):
    """Told after closed pods of a pool took new vreplicas again (``opened``), or others
    ceased to.
    """

    def __call__(self, pool: str, *, opened: bool) -> None:
        """``pool``: its key."""
        ...


class DrainingOrdinals:
    """Of pool ``key``. Times are ``clock``'s, in seconds.

    ``no_predecessor_writes``: whether what another leader of the pool has sent has arrived by now,
    or never will. Where it may not have, what it may still remove is closed at once, before
    anything is placed.
    """

    def __init__(
        self,
        key: str,
        caches: Caches,
        *,
        clock: Callable[[], float],
        changed: ClosedChanged,
        no_predecessor_writes: Callable[[str], bool],
    ) -> None:
        self.key = key
        self._caches = caches
        self._clock = clock
        self._changed = changed
        self._close_from = 0.0
        self._reopened = 0
        self._waiting = ("", 0.0)
        """The vpod that seems to wait for a closed pod, and since when."""
        self._only_in_doubt = 0
        """Ordinals that are closed because they are in doubt; the pool would keep them open."""
        self._doubt = ShrinkDoubt()
        if not no_predecessor_writes(key):
            self._take_over()

    @property
    def doubts(self) -> bool:
        """Whether pods are closed because a scale-down may still be under way, or were at the last
        look.
        """
        return self._doubt.noted

    @property
    def only_in_doubt(self) -> bool:
        """Whether some are closed that the pool would keep open: what is closed must not be removed
        now.
        """
        return bool(self._only_in_doubt)

    def close(self, state: PoolState, plan: ScalePlan, allows: Callable[[VPod], bool]) -> None:
        """Close what is not needed, unless pods were opened in vain lately."""
        if self._clock() >= self._close_from:
            self._set(state, ordinals_to_close(state, plan, allows))

    def reopen(
        self, state: PoolState, plan: ScalePlan, allows: Callable[[VPod], bool], period_s: float
    ) -> float:
        """Open what is wanted again, or what a vpod that is left over could use; when to look
        again, infinite for not at all.

        ``period_s``: the pool's scale-down period.
        """
        look_at = float("inf")
        doubtful = self._in_doubt(state)
        if doubtful:
            look_at = self._doubt.until
        if not state.closed & ~doubtful:
            return look_at
        keep = still_closed(state, plan) & ~self._only_in_doubt
        # Above maxPods stays closed, whoever waits: that is a person's order.
        waits = None if plan.limited else waits_for_closed(state, allows)
        now = self._clock()
        if waits is None or waits[0] != self._waiting[0]:
            self._waiting = (waits[0] if waits is not None else "", now)
        if waits is not None and (
            waits[1] or now - self._waiting[1] >= LEFT_OVER_S - TIMER_RESOLUTION_S
        ):
            keep = 0
            self.keep_open(period_s * 2**self._reopened)
            self._reopened = min(self._reopened + 1, REOPENED_MAX)
        elif waits is not None:
            look_at = min(look_at, self._waiting[1] + LEFT_OVER_S)
        self._set(state, keep)
        return look_at

    def keep_open(self, for_s: float) -> None:
        """Close nothing for so long."""
        self._close_from = self._clock() + for_s

    def removed(self) -> None:
        """Pods that were closed have been removed: closing them was right."""
        self._reopened = 0

    def open_all(self) -> None:
        """We lead no longer: whoever leads next decides for itself what to close."""
        self._doubt = ShrinkDoubt()
        state = self._caches.state.pools.get(self.key)
        if state is not None:
            self._set(state, 0)

    def may_still_shrink(self, scale: Scale, replicas: int) -> None:
        """Nobody knows whether the StatefulSet of ``scale`` was made ``replicas`` large, or will
        be.
        """
        state = self._caches.state.pools.get(self.key)
        if state is None or state.stateful_set is None or replicas >= scale.replicas:
            return
        start = state.stateful_set.ordinals_start
        removed = (1 << (start + scale.replicas)) - (1 << (start + replicas))
        until = self._clock() + RESERVATION_TTL_S
        self._doubt.begin(removed, uid=scale.uid, version=scale.resource_version, until=until)

    def _take_over(self) -> None:
        """What the leader before us has sent may still remove pods."""
        state = self._caches.state.pools.get(self.key)
        if state is None or state.stateful_set is None:
            return
        self._doubt.begin(
            removable(state),
            uid=state.stateful_set.uid,
            version=state.stateful_set.resource_version,
            until=self._clock() + UNDER_WAY_S,
        )
        self._set(state, state.closed)

    def _in_doubt(self, state: PoolState) -> int:
        if state.stateful_set is None:
            return 0
        return self._doubt.ordinals(state.stateful_set, self._clock())

    def _set(self, state: PoolState, closed: int) -> None:
        """Close these, and what is in doubt; open all others."""
        doubtful = self._in_doubt(state)
        self._only_in_doubt = doubtful & ~closed
        closed |= doubtful
        opened = state.closed & ~closed & state.schedulable
        more = closed & ~state.closed
        if state.closed != closed:
            state.set_closed(closed)
        if opened:
            self._changed(self.key, opened=True)
        if more:
            self._changed(self.key, opened=False)
