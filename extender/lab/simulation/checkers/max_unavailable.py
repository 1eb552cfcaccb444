"""I8: voluntary disruptions together never take more pods than ``handoff.maxUnavailable`` says.

A voluntary disruption takes a pod when the service writes that the pod hands its shares over: for a
rollout, or because an eviction or descheduling gets its turn. It has the pod until a new pod of
that name is Ready, or until the service gives the event up. When a pod is taken, the pods of the
pool that voluntary disruptions have are at most ``pool``, and those of each vpod on it at most
``perVPod``.

Pods that faults take down are not counted here. The service counts them, too, so it only takes
fewer. Not counted either: what another replica has taken a short time ago, because a new leader may
not have seen it yet; and two leaders. What goes after the longest wait for a turn is compared with
the pods alone that hand their shares over at that moment.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from extender.kube.api import Obj
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.context import Checker, CheckerContext, by_service
from extender.lab.simulation.world.facts import Pod, Pool, in_force
from extender.lab.simulation.world.scale import pool_of
from extender.model.decode import pod_from
from extender.model.eviction import TURN_MAX_S, Eviction, eviction_of
from extender.model.moves import MoveReason

CLOCKS_APART_S: Final = 60.0
"""The webhook dates the first attempt, and the leader judges it."""


class _Taken(NamedTuple):
    uid: str
    actor: str
    at_s: float


class MaxUnavailableChecker(Checker):
    """Counts the pods that voluntary disruptions have."""

    def __init__(self, context: CheckerContext) -> None:
        super().__init__(context)
        self._taken: dict[str, _Taken] = {}
        """By name of the pod."""
        self._replicas: dict[str, list[tuple[float, int]]] = {}
        """Pool -> (since when, number of pods)."""
        self._limits: dict[str, list[tuple[float, Mapping[str, int | str]]]] = {}
        """Pool -> (since when, maxUnavailable)."""
        self.checked = 0
        """Pods that were taken while others were."""

    def pool_changed(self, name: str) -> None:
        """The AdapterPool was written."""
        seen, limits = self._limits.setdefault(name, []), self._stored.pool(name).max_unavailable
        if not seen or seen[-1][1] != limits:
            seen.append((self._clock(), limits))

    def stateful_set_changed(self, pool: Pool) -> None:
        """The StatefulSet was written."""
        seen = self._replicas.setdefault(pool.name, [])
        if not seen or seen[-1][1] != len(pool.ordinals):
            seen.append((self._clock(), len(pool.ordinals)))
        # A pod whose ordinal has gone is taken no more, even if the ordinal comes again.
        for name in [name for name in self._taken if pool_of(name) == pool.name]:
            if name not in pool.names:
                del self._taken[name]

    def pod_changed(self, after: Obj) -> None:
        """A pod was written. One that has gone is taken until its name is Ready again."""
        pod = pod_from(after)
        known, eviction = self._taken.get(pod.name), eviction_of(pod)
        takes = eviction is not None and (
            eviction.turn_s is not None or eviction.reason is MoveReason.ROLLOUT
        )
        if takes and (known is None or known.uid != pod.uid) and not pod.deleting:
            self._taken[pod.name] = _Taken(pod.uid, ACTOR.get(), self._clock())
            if by_service() and eviction is not None and pod.ready:
                self._check(pod.name, eviction)
        elif known is not None and (
            pod.ready and not pod.deleting if known.uid != pod.uid else not takes
        ):
            del self._taken[pod.name]

    def _check(self, name: str, eviction: Eviction) -> None:
        pool = self._stored.pool(pool_of(name))
        since = self._clock() - self._circumstances.late_s
        limits = in_force(self._limits.get(pool.name, []), since)
        if self._two_lead() or pool.deleted or not limits or not all(limits):
            return
        others = set(self._others(pool, name, since))
        waited_s = self._circumstances.now_of(ACTOR.get()) - eviction.first_s
        overdue = waited_s > TURN_MAX_S - CLOCKS_APART_S
        if overdue:
            others = {other for other in others if self._hands_over(other)}
        self.checked += bool(others)
        pods = max(in_force(self._replicas[pool.name], since))
        most = max(_of(limit["pool"], pods) for limit in limits)
        if len(others) >= most:
            self._violated(f"I8: {name} is taken beside {sorted(others)}, and {most} may be")
        self._check_vpods(name, others, limits)

    def _hands_over(self, name: str) -> bool:
        """Whether the pod that a voluntary disruption has is still there."""
        pod = self._stored.pods.get(name)
        return pod is not None and pod.uid == self._taken[name].uid and not pod.deleting

    def _check_vpods(
        self, name: str, others: set[str], limits: list[Mapping[str, int | str]]
    ) -> None:
        stored = self._stored
        for key in _carried(stored.pods[name]) | stored.published(name).keys():
            vpod = stored.vpods.get(key)
            on = set(vpod.placements) if vpod is not None else set()
            on |= {other.name for other in stored.pods.values() if key in _carried(other)}
            taken = others & on
            most = max(_of(limit["perVPod"], len(on) + 1) for limit in limits)
            if len(taken) >= most:
                self._violated(
                    f"I8: {name} is taken beside {sorted(taken)}, which have {key}, too, and "
                    f"{most} of them may be"
                )

    def _others(self, pool: Pool, name: str, since: float) -> Iterator[str]:
        """The other pods of the pool that voluntary disruptions have, as the leader knows them."""
        for other, taken in self._taken.items():
            seen = taken.actor == ACTOR.get() or taken.at_s < since
            if other in pool.names and other != name and seen:
                yield other


def _carried(pod: Pod) -> set[str]:
    return set(pod.ledger or ())


def _of(limit: int | str, pods: int) -> int:
    if isinstance(limit, int):
        return limit
    return max(1, -(-pods * int(limit.removesuffix("%")) // 100))
