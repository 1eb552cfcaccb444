"""I6: in a pool with ``handoff.mode: Exclusive``, a vpod's adapters never serve more vreplicas
together than it publishes, and in a pool with indexes no two serve the same one.

Each time an adapter begins to serve, all that serve the vpod at that moment are counted: also those
that are cut off, or whose pods are gone. What a vpod has published lately counts as published: an
adapter may be told of fewer vreplicas later. A lease that the leader says has run out must have run
out. After a restore of etcd, nothing is promised, nor of the vpods of callers.
"""

from typing import Final

from extender.kube.api import Obj
from extender.lab.simulation.checkers.context import Checker, CheckerContext
from extender.lab.simulation.world.adapters import Served
from extender.lab.simulation.world.callers import CALLERS
from extender.lab.simulation.world.facts import VPod, lease_expired
from extender.lab.simulation.world.scale import pool_of
from extender.model.indexes import indexes_text

LATELY_S: Final = 300.0


class ExclusiveChecker(Checker):
    """Counts what is served at once. ``checked``: how often."""

    def __init__(self, context: CheckerContext) -> None:
        super().__init__(context)
        self._before: dict[tuple[str, str], list[tuple[float, int]]] = {}
        """Pool and vpod -> (until when, vreplicas) it published."""
        self.checked = 0
        self.expired = 0
        """Leases that were said to have run out."""

    def pod_changed(self, before: Obj | None, after: Obj) -> None:
        """A pod was written."""
        if not lease_expired(after) or (before is not None and lease_expired(before)):
            return
        self.expired += 1
        name = after["metadata"]["name"]
        adapter = self._circumstances.adapter(name)
        if adapter is not None and adapter.serving and adapter.may_serve(self._clock()):
            left_s = adapter.lease_until - self._clock()
            has = f"has it for {left_s:.1f} s more" if adapter.lease_s else "knows of none"
            self._violated(
                f"the lease of {name} counts as run out, and its adapter serves, and {has}"
            )

    def status_written(self, old: VPod) -> None:
        """Anybody has written a status; ``old``: the vpod before."""
        for pool in {pool_of(name) for name in old.placements}:
            known = self._before.setdefault((pool, old.key), [])
            known[:] = [one for one in known if one[0] > self._clock() - LATELY_S]
            known.append((self._clock(), _published(old, pool)))

    def served(self, pod: str, key: str, served: list[tuple[str, Served]]) -> None:
        """An adapter has begun to serve; ``served``: what each pod serves of the vpod."""
        pool, vpod = pool_of(pod), self._stored.vpods.get(key)
        if self._circumstances.restored() or not self._stored.pool(pool).exclusive:
            return
        if key.endswith(CALLERS):
            return
        since = self._clock() - LATELY_S
        lately = [count for until, count in self._before.get((pool, key), ()) if until > since]
        most = max([_published(vpod, pool) if vpod is not None else 0, *lately])
        self.checked += 1
        total = sum(one.vreplicas for _, one in served)
        where = ", ".join(
            f"{one.vreplicas} [{indexes_text(one.indexes)}] on {name}" for name, one in served
        )
        if total > most:
            self._violated(f"{key} is served {total} times ({where}), and publishes {most}")
        once = 0
        for _, one in served:
            if once & one.indexes:
                self._violated(f"an index of {key} is served twice ({where})")
            once |= one.indexes


def _published(vpod: VPod, pool: str) -> int:
    return sum(count for name, count in vpod.placements.items() if pool_of(name) == pool)
