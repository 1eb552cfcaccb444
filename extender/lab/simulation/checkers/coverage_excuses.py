"""Excuses for I2: published placements that a ledger may fail to cover for a while, by pod and
vpod.

There are three causes, and none is a fault of the service:

- A person writes a ledger, or another scheduler binds a pod without one.
- Two replicas lead.
- A new pod carries only what fits (I1) of its predecessor's ledger, because slotsPerPod, capacities
  or a weight has changed since.

Each cause excuses the vpods that have lost something by it, until the ledger covers them again and
for ``LATE_S`` after that: a status that is under way may be based on the state before.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from extender.lab.simulation.world.facts import Pod

LATE_S: Final = 15.0
"""For so long after a ledger covers everything again, a status based on its former content may
still arrive.
"""
EVERYTHING: Final = "*"

Shares = Mapping[str, tuple[int, int]]
"""vpod -> (vreplicas, weight)."""


class Dimensions(NamedTuple):
    """What a pod has beside slots: the least lately, by dimension. ``amounts``: vpod -> dimension
    -> what one vreplica takes.
    """

    capacities: Mapping[str, int]
    amounts: Mapping[str, Mapping[str, int]]

    def each(self, vpod: str, dimension: str) -> int:
        """Return what one vreplica takes of a dimension."""
        return self.amounts.get(vpod, {}).get(dimension, 0)


NO_DIMENSIONS: Final = Dimensions(MappingProxyType({}), MappingProxyType({}))


class CoverageExcuses:
    """Excuses by pod name. They continue for the next pod of the name, which has the same statuses
    to cover.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[tuple[str, str], float] = {}
        self._held: dict[str, Shares] = {}

    def excuses(self, pod_name: str, vpod: str) -> bool:
        """Return whether the pod's ledger may have less of this vpod than is published."""
        now = self._clock()
        return any(self._until.get((pod_name, key), -1.0) >= now for key in (vpod, EVERYTHING))

    def published(self, pod_name: str, vpod: str) -> None:
        """A status publishes what is excused. Only the next write of the ledger can correct this,
        so the excuse lasts until then.
        """
        if (pod_name, vpod) in self._until:
            self._until[pod_name, vpod] = inf

    def forgotten(self, pod_name: str, vpod: str) -> None:
        """Excuse a caller's vpod that the replica which bound the pod could not know."""
        self._until[pod_name, vpod] = inf

    def held(self, pod_name: str) -> Shares:
        """Return the content of the last readable ledger of a bound pod of that name."""
        return self._held.get(pod_name, {})

    def ledger(self, pod: Pod, uncovered: Iterable[str]) -> None:
        """Record the ledger of a bound pod, and the vpods that it does not cover. The excuses of
        the others end after ``LATE_S``.
        """
        if pod.ledger is not None:
            self._held[pod.name] = pod.ledger
        short = {*uncovered, EVERYTHING} if list(uncovered) else set()
        for (name, key), until in list(self._until.items()):
            if name == pod.name and until == inf and key not in short:
                self._until[name, key] = self._clock() + LATE_S

    def edited(self, pod: Pod, published: Mapping[str, int]) -> None:
        """Excuse the vpods on a pod whose ledger somebody other than the service has written, or
        which somebody else has bound. ``published``: vpod -> vreplicas on the pod.
        """
        self._excuse(pod, published)

    def all_of(self, pod_name: str) -> None:
        """Excuse all vpods on the pod, because two replicas lead and their writes may cross."""
        self._until[pod_name, EVERYTHING] = inf

    def bound(
        self,
        pod: Pod,
        published: Mapping[str, int],
        slots: int,
        weight: Callable[[str], int],
        is_forged: Callable[[str], bool] = lambda _key: False,
        dimensions: Dimensions = NO_DIMENSIONS,
    ) -> None:
        """Excuse what a bound pod lacks because it does not fit. ``slots`` is the lowest number
        that the pod or its pool has had lately.

        The predecessor's content returns (I2) as far as it fits (I1). The same holds for what an
        edited status claims (``is_forged``). ``weight``: vpod -> its highest weight lately.
        """
        capacities, each = dimensions.capacities, dimensions.each

        held = dict(self.held(pod.name))
        for key in filter(is_forged, published):
            count, was = held.get(key, (0, 1))
            held[key] = (max(count, published[key]), was)
        needed = sum(count * max(was, weight(key)) for key, (count, was) in held.items())
        if needed <= slots and all(
            sum(count * each(key, name) for key, (count, _) in held.items()) <= most
            for name, most in capacities.items()
        ):
            # Everything fits, so nothing may be missing.
            return
        self._excuse(
            pod,
            published,
            lambda key: (
                pod.total + max(weight(key), held.get(key, (0, 0))[1]) > slots
                or any(
                    pod.taken_of(name) + each(key, name) > most for name, most in capacities.items()
                )
            ),
        )

    def _excuse(
        self, pod: Pod, published: Mapping[str, int], may: Callable[[str], bool] = lambda _key: True
    ) -> None:
        for key in {*published, *self.held(pod.name)}:
            had = max(published.get(key, 0), self.held(pod.name).get(key, (0, 1))[0])
            if had > pod.count(key) and may(key):
                # If only the ledger had it, a status under way may still publish it. If it is
                # published, the excuse lasts until it is corrected.
                short = published.get(key, 0) > pod.count(key)
                self._until[pod.name, key] = inf if short else self._clock() + LATE_S
