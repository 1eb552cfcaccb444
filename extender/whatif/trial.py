"""``Trial``: changes to a state that are tried and taken back.

A copy of a large state costs more than a decision by a thousand times, so one copy is made, and
every change that is tried on it is undone by its opposite: what a state derives depends on what it
was told last, not on how it came there. But for the order of those that wait, by which pods that
are to come are filled: that is put back.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from extender.engine.placing.plan import Decision, place
from extender.engine.policy.profile import Profile
from extender.engine.state.pool_state import PoolState
from extender.engine.state.state import State
from extender.model.errors import VReplicaError
from extender.model.objects import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod

Object = AdapterPool | StatefulSet | Node | Namespace | AdapterPod | VPod
FOREVER: Final = float("inf")


def never() -> bool:
    """The time is not limited."""
    return False


class OutOfTime(VReplicaError):
    """The time for trying is up."""


class Trial:
    """Within the context the state is as changed; at its end it is as before. The state is nobody
    else's.
    """

    def __init__(self, state: State, expired: Callable[[], bool] = never) -> None:
        """``expired``: whether the time is up; then the next decision raises OutOfTime."""
        self.state = state
        self._expired = expired
        self._undo: list[Callable[[], None]] = []
        self._waiting: dict[str, list[str]] = {}

    def __enter__(self) -> Self:
        self._waiting = {key: list(pool.unplaced) for key, pool in self.state.pools.items()}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._undo:
            self._undo.pop()()
        for key, waiting in self._waiting.items():
            self.state.pool(key).keep_waiting(waiting)

    def exchange(self, old: Object | None, new: Object | None) -> None:
        """As if ``old`` had become ``new``; None for what is not there. Both are of one kind."""
        if old is None and new is None:
            return
        recall = self._memory_of(new or old)
        _tell(self.state, old, new)

        def undo() -> None:
            _tell(self.state, new, old)
            recall()

        self._undo.append(undo)

    def _memory_of(self, changed: Object | None) -> Callable[[], None]:
        """What brings back what is remembered of an ordinal beyond its pod: no opposite change does
        that.
        """
        if not isinstance(changed, AdapterPod):
            return lambda: None
        pool, name = self.state.pool(changed.pool), changed.name
        known = pool.pods.get(name)
        ledger = dict(known.last_ledger) if known is not None else {}
        old, place = (
            (known.last_ledger_old, known.last_place) if known is not None else (False, ("", ""))
        )

        def recall() -> None:
            if name in pool.pods or ledger:
                pool.recall(name, ledger, old=old, place=place)

        return recall

    def set_profile(self, pool: PoolState, profile: Profile) -> None:
        """Place the pool by another profile."""
        before = pool.profile
        pool.set_profile(profile)
        self._undo.append(lambda: pool.set_profile(before))

    def set_closed(self, pool: PoolState, closed: int) -> None:
        """Close these ordinals and open all others."""
        before = pool.closed
        pool.set_closed(closed)
        self._undo.append(lambda: pool.set_closed(before))

    def set_abandoned(self, pool: PoolState, names: frozenset[str]) -> None:
        """Take these pods for lost, and no others."""
        before = pool.abandoned
        pool.set_abandoned(names)
        self._undo.append(lambda: pool.set_abandoned(before))

    def check_time(self) -> None:
        """Raises OutOfTime once the time is up."""
        if self._expired():
            raise OutOfTime("the time for deciding is up")

    def decide(self, pool: PoolState, vpod: VPod) -> Decision:
        """Decide for a vpod as the service would, and reserve it: the next decision sees it. Raises
        OutOfTime.
        """
        self.check_time()
        decision = place(pool, vpod, allowed=self.state.selects(pool.key, vpod))
        self._reserve(pool, decision)
        return decision

    def _reserve(self, pool: PoolState, decision: Decision) -> None:
        key = decision.vpod
        before = {
            name: (claim.reserved, claim.owner, claim.expires_at)
            for name, claim in pool.claims_of(key).items()
            if claim.reserved is not None
        }
        pool.reserve(self, key, decision.shares(pool.placed_of(key)), expires_at=FOREVER)

        def release() -> None:
            pool.release(self, key)
            for name, (share, owner, expires_at) in before.items():
                if share is not None:
                    pool.reserve(owner, key, {name: share}, expires_at=expires_at)

        self._undo.append(release)


def _tell(state: State, old: Object | None, new: Object | None) -> None:
    """Feed a change to the state, by its kind."""
    match old, new:
        case (AdapterPool() | None, AdapterPool() | None):
            state.adapter_pool_changed(old, new)
        case (StatefulSet() | None, StatefulSet() | None):
            state.stateful_set_changed(old, new)
        case (Node() | None, Node() | None):
            state.node_changed(old, new)
        case (Namespace() | None, Namespace() | None):
            state.namespace_changed(old, new)
        case (AdapterPod() | None, AdapterPod() | None):
            state.pod_changed(old, new)
        case (VPod() | None, VPod() | None):
            state.vpod_changed(old, new)
        case _:
            raise TypeError(f"{type(old).__name__} cannot become {type(new).__name__}")
