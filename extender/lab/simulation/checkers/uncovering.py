"""Which published placements a ledger may fail to cover for a while (I2), and why: each by its pod
and its vpod.

Three things uncover what is published, and none is the service's fault: a person writes a ledger,
or another scheduler binds a pod without one; two lead; and a pod that is bound anew carries what
fits (I1) of what its last one held, which slotsPerPod or a weight has made too much since. Each
excuses those vpods that it has taken something from, until the ledger covers them again and
``LATE_S`` after: a status that is under way then may have been made of what was there before. What
nothing was taken from is excused by nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final

from extender.lab.simulation.world.facts import Pod

LATE_S: Final = 15.0
"""For so long after a ledger covers all again, a write may still come that was made of what it
said.
"""
EVERYTHING: Final = "*"

Shares = Mapping[str, tuple[int, int]]
"""vpod -> (vreplicas, weight)."""


class Uncovering:
    """By pod name: the next pod of the name has the same statuses to cover."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[tuple[str, str], float] = {}
        self._held: dict[str, Shares] = {}

    def excuses(self, pod_name: str, vpod: str) -> bool:
        """Whether this pod's ledger may have less of this vpod than is published."""
        now = self._clock()
        return any(self._until.get((pod_name, key), -1.0) >= now for key in (vpod, EVERYTHING))

    def published(self, pod_name: str, vpod: str) -> None:
        """A status says now what an excuse was waiting for: nobody can put that right but who
        writes the ledger next.
        """
        if (pod_name, vpod) in self._until:
            self._until[pod_name, vpod] = inf

    def forgotten(self, pod_name: str, vpod: str) -> None:
        """Who has bound a pod could not know that it had some of this vpod: only its caller can
        tell.
        """
        self._until[pod_name, vpod] = inf

    def held(self, pod_name: str) -> Shares:
        """What the last readable ledger of a bound pod of that name has."""
        return self._held.get(pod_name, {})

    def ledger(self, pod: Pod, uncovered: Iterable[str]) -> None:
        """What a bound pod has now, and what of its statuses it does not cover. The rest has its
        time.
        """
        if pod.ledger is not None:
            self._held[pod.name] = pod.ledger
        short = {*uncovered, EVERYTHING} if list(uncovered) else set()
        for (name, key), until in list(self._until.items()):
            if name == pod.name and until == inf and key not in short:
                self._until[name, key] = self._clock() + LATE_S

    def edited(self, pod: Pod, published: Mapping[str, int]) -> None:
        """Not the service has written this ledger, or bound this pod. ``published``: vpod ->
        vreplicas there.
        """
        self._excuse(pod, published)

    def all_of(self, pod_name: str) -> None:
        """Two lead: what they write may cross."""
        self._until[pod_name, EVERYTHING] = inf

    def bound(
        self,
        pod: Pod,
        published: Mapping[str, int],
        slots: int,
        weight: Callable[[str], int],
        is_forged: Callable[[str], bool] = lambda _key: False,
    ) -> None:
        """The service has bound a pod of so many ``slots``, as its pod or its pool may have said
        lately.

        What the last one held comes back (I2), as far as it fits (I1), and so does what a status
        claims that a person has written (``is_forged``): nobody knows better. ``weight``: the
        heaviest that a vpod was lately.
        """
        held = dict(self.held(pod.name))
        for key in filter(is_forged, published):
            count, was = held.get(key, (0, 1))
            held[key] = (max(count, published[key]), was)
        needed = sum(count * max(was, weight(key)) for key, (count, was) in held.items())
        if needed <= slots:
            return  # all fits, so all has to be there
        self._excuse(
            pod,
            published,
            lambda key: pod.total + max(weight(key), held.get(key, (0, 0))[1]) > slots,
        )

    def _excuse(
        self, pod: Pod, published: Mapping[str, int], may: Callable[[str], bool] = lambda _key: True
    ) -> None:
        for key in {*published, *self.held(pod.name)}:
            had = max(published.get(key, 0), self.held(pod.name).get(key, (0, 1))[0])
            if had > pod.count(key) and may(key):
                # What only its ledger had may be published by a status under way; what is
                # published, until it is put right.
                short = published.get(key, 0) > pod.count(key)
                self._until[pod.name, key] = inf if short else self._clock() + LATE_S
