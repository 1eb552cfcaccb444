"""``ClosedOrdinals``: which ordinals of one pool are *closed*: they take no new vreplicas, so
that they can be emptied and removed (DESIGN 5.4).

What the pool does not need is closed, and what it needs again is opened. A vpod without a place
opens all. Each time this happens soon after closing, the pause before the next closing doubles. In
the end nothing is closed any more until the pool or what its vpods ask for has changed.
Ordinals that a scale-down of unknown outcome may still remove stay closed, whatever the pool needs
(``engine.scaling.shrink_doubt``).
"""

from collections.abc import Callable
from typing import Final, Protocol

from extender.engine.rebalance.repetition import surroundings
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
from extender.service.placing.ledger_confirmations import UNDER_WAY_S
from extender.service.pools.scale_cache import Scale
from extender.service.watching.caches import Caches

SHOWN_S: Final = 2 * UNDER_WAY_S
"""How long a scale-down without an answer is in doubt: until it can no longer arrive, and as long
again for the watch to show one that has.
"""
LEFT_OVER_S: Final = 5.0
"""After this time, closed pods are opened even for a vpod that seems to have room on open pods: its
profile refuses that room.
"""
REOPENED_MAX: Final = 6
"""Each useless closing doubles the pause before the next one, up to 64 periods. The next one waits
for a change (seed 206268750).
"""


class ClosedChanged(Protocol):
    """Called after closed pods of a pool take new vreplicas again (``opened``), or others cease
    to.
    """

    def __call__(self, pool: str, *, opened: bool) -> None:
        """``pool``: its key."""
        ...


class ClosedOrdinals:
    """For pool ``key``. Times are ``clock``'s, in seconds.

    ``no_predecessor_writes``: whether every write of another leader of the pool has arrived or
    never will. If not, what such a write may still remove is closed at once, before anything is
    placed.
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
        self._useless_in = 0
        """``surroundings`` in which nothing is closed; 0 for none."""
        self._waiting = ("", 0.0)
        """The vpod that seems to wait for a closed pod, and since when."""
        self._only_in_doubt = 0
        """Ordinals that are closed only because they are in doubt."""
        self._doubt = ShrinkDoubt()
        if not no_predecessor_writes(key):
            self._take_over()

    @property
    def doubts(self) -> bool:
        """Whether a scale-down that may still be under way keeps pods closed, or did at the last
        look.
        """
        return self._doubt.noted

    @property
    def only_in_doubt(self) -> bool:
        """Whether any ordinal is closed only because it is in doubt. Then no closed ordinal may be
        removed now.
        """
        return bool(self._only_in_doubt)

    def close(self, state: PoolState, plan: ScalePlan, allows: Callable[[VPod], bool]) -> None:
        """Close what is not needed, unless pods were opened for a waiting vpod lately, or too often
        since the last change. What is above maxPods, or announced to go, is closed at once: nothing
        opens it again.
        """
        useless = self._useless_in and self._useless_in == surroundings(state)
        if not plan.cannot_grow and (self._clock() < self._close_from or useless):
            return
        self._set(state, ordinals_to_close(state, plan, allows))

    def reopen(
        self, state: PoolState, plan: ScalePlan, allows: Callable[[VPod], bool], period_s: float
    ) -> float:
        """Open what is needed again, or what a waiting vpod could use. Return when to look again;
        infinite for not at all.

        ``period_s``: the pool's scale-down period.
        """
        look_at = float("inf")
        doubtful = self._in_doubt(state)
        if doubtful:
            look_at = self._doubt.until
        if not state.closed & ~doubtful:
            return look_at
        keep = still_closed(state, plan) & ~self._only_in_doubt
        # Ordinals above maxPods stay closed, whoever waits, because a person set maxPods; and those
        # that others have announced to remove.
        waits = None if plan.cannot_grow else waits_for_closed(state, allows, in_doubt=doubtful)
        now = self._clock()
        if waits is None or waits[0] != self._waiting[0]:
            self._waiting = (waits[0] if waits is not None else "", now)
        if waits is not None and (
            waits[1] or now - self._waiting[1] >= LEFT_OVER_S - TIMER_RESOLUTION_S
        ):
            keep = 0
            self.keep_open(period_s * 2**self._reopened)
            if self._reopened == REOPENED_MAX:
                self._useless_in = surroundings(state)
            self._reopened = min(self._reopened + 1, REOPENED_MAX)
        elif waits is not None:
            look_at = min(look_at, self._waiting[1] + LEFT_OVER_S)
        self._set(state, keep)
        return look_at

    def keep_open(self, for_s: float) -> None:
        """Close nothing for this time."""
        self._close_from = self._clock() + for_s

    def removed(self) -> None:
        """Closed pods have been removed, so closing them was right."""
        self._reopened = self._useless_in = 0

    def open_all(self) -> None:
        """Open everything when leading ends: the next leader decides what to close."""
        self._doubt = ShrinkDoubt()
        state = self._caches.state.pools.get(self.key)
        if state is not None:
            self._set(state, 0)

    def may_still_shrink(self, scale: Scale, replicas: int) -> None:
        """A write of unknown outcome may have reduced, or may still reduce, the StatefulSet of
        ``scale`` to ``replicas``.
        """
        state = self._caches.state.pools.get(self.key)
        if state is None or state.stateful_set is None or replicas >= scale.replicas:
            return
        start = state.stateful_set.ordinals_start
        removed = (1 << (start + scale.replicas)) - (1 << (start + replicas))
        until = self._clock() + SHOWN_S
        self._doubt.begin(removed, uid=scale.uid, version=scale.resource_version, until=until)

    def _take_over(self) -> None:
        """Close what a write of the former leader may still remove."""
        state = self._caches.state.pools.get(self.key)
        if state is None or state.stateful_set is None:
            return
        self._doubt.begin(
            removable(state),
            uid=state.stateful_set.uid,
            version=state.stateful_set.resource_version,
            # No time for the watch to show a write that comes at the last moment: the caches have
            # caught up with what had been written by then, and no ledger depends on it.
            until=self._clock() + UNDER_WAY_S,
        )
        self._set(state, state.closed & ~state.in_doubt)

    def _in_doubt(self, state: PoolState) -> int:
        if state.stateful_set is None:
            return 0
        return self._doubt.ordinals(state.stateful_set, self._clock())

    def _set(self, state: PoolState, closed: int) -> None:
        """Close these ordinals and those in doubt, and open all others."""
        doubtful = self._in_doubt(state)
        self._only_in_doubt = doubtful & ~closed
        closed |= doubtful
        opened = state.closed & ~closed & state.schedulable
        more = closed & ~state.closed
        if (state.closed, state.in_doubt) != (closed, self._only_in_doubt):
            state.set_closed(closed, in_doubt=self._only_in_doubt)
        if opened:
            self._changed(self.key, opened=True)
        if more:
            self._changed(self.key, opened=False)
