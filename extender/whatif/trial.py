"""``Trial``: changes to a state that are tried and undone.

Copying a large state costs a thousand times more than a decision. So one copy is made, and each
change is undone by the opposite change. This works because the values that a state derives depend
on the present objects, not on their history. The order in which vpods wait is an exception. It
decides how pods that are to come are filled, so it is restored explicitly.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from extender.engine.placing.plan import Decision, place
from extender.engine.policy.profile import Profile
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.engine.state.state_observer import Recorded
from extender.model.errors import VReplicaError
from extender.model.objects import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod
from extender.model.tenancy import VReplicaQuota

FOREVER: Final = float("inf")


def never() -> bool:
    """No time limit."""
    return False


class OutOfTime(VReplicaError):
    """The time for trying is up."""


class Trial:
    """Within the context, the state has the changes. At its end, they are undone. Nobody else may
    use the state.
    """

    def __init__(self, state: ClusterState, expired: Callable[[], bool] = never) -> None:
        """Once ``expired`` returns True, the next decision raises OutOfTime."""
        self.state = state
        self._expired = expired
        self._undo: list[Callable[[], None]] = []
        self._waiting: dict[str, list[str]] = {}

    def __enter__(self) -> Self:
        self._waiting = {
            key: list(pool.vpods_with_pending) for key, pool in self.state.pools.items()
        }
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

    def exchange(self, old: Recorded | None, new: Recorded | None) -> None:
        """Replace ``old`` by ``new`` of the same kind; None if there is none."""
        if old is None and new is None:
            return
        recall = self._memory_of(new or old)
        object_changed(self.state, old, new)

        def undo() -> None:
            object_changed(self.state, new, old)
            recall()

        self._undo.append(undo)

    def _memory_of(self, changed: Recorded | None) -> Callable[[], None]:
        """Return a function that restores what is known of an ordinal apart from its pod: the
        opposite change does not.
        """
        if not isinstance(changed, AdapterPod):
            return lambda: None
        pool, name = self.state.pool(changed.pool), changed.name
        known = pool.pods.get(name)
        ledger = dict(known.last_ledger) if known is not None else {}
        settled, location = (
            (known.last_ledger_settled, known.last_location)
            if known is not None
            else (False, ("", ""))
        )

        def recall() -> None:
            if name in pool.pods or ledger:
                pool.recall(name, ledger, settled=settled, location=location)

        return recall

    def set_profile(self, pool: PoolState, profile: Profile) -> None:
        """Place the pool by another profile."""
        before = pool.profile
        pool.set_profile(profile)
        self._undo.append(lambda: pool.set_profile(before))

    def set_closed(self, pool: PoolState, closed: int) -> None:
        """Close exactly these ordinals to new vreplicas."""
        before, in_doubt = pool.closed, pool.in_doubt
        pool.set_closed(closed)
        self._undo.append(lambda: pool.set_closed(before, in_doubt=in_doubt))

    def set_abandoned(self, pool: PoolState, names: frozenset[str]) -> None:
        """Give up exactly these pods, as if they had not been Ready for
        ``rescheduleAfterSeconds``.
        """
        before = pool.abandoned
        pool.set_abandoned(names)
        self._undo.append(lambda: pool.set_abandoned(before))

    def end_excuse(self, pool: PoolState, name: str) -> None:
        """Count what that pod holds as not served, as if it had been away for long."""
        known = pool.pods.get(name)
        if known is not None and known.excused:
            pool.end_excuse(name)
            self._undo.append(lambda: pool.excuse(name))

    def check_time(self) -> None:
        """Raise OutOfTime once the time is up."""
        if self._expired():
            raise OutOfTime("the time for deciding is up")

    def decide(self, pool: PoolState, vpod: VPod) -> Decision:
        """Decide for a vpod as the service would, and reserve the result for the next decision.
        Raises OutOfTime.
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
        start = pool.next_start_ordinal
        pool.reserve(self, key, decision.shares(pool.decided_of(key)), expires_at=FOREVER)

        def release() -> None:
            pool.release(self, key)
            for name, (share, owner, expires_at) in before.items():
                if share is not None:
                    pool.reserve(owner, key, {name: share}, expires_at=expires_at)
            pool.next_start_ordinal = start

        self._undo.append(release)


def object_changed(state: ClusterState, old: Recorded | None, new: Recorded | None) -> None:
    """Pass a change of an object of any kind to the state. ``old`` and ``new`` are of one kind."""
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
        case (VReplicaQuota() | None, VReplicaQuota() | None):
            state.quota_changed(old, new)
        case _:
            raise TypeError(f"{type(old).__name__} cannot become {type(new).__name__}")
