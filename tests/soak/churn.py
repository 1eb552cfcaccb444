"""What tenants and people do while the soak runs: vpods come, change and go, pods are deleted,
drained, upgraded.

Theory of operation. ``Churn.step`` does one thing, drawn from ``WEIGHTS`` by a seeded
``random.Random``, and holds the number of vpods between bounds, so that a long run is no larger
than a short one. A thing that cannot be done now (no pod to drain) is not done. ``calm`` takes back
what would keep the cluster from settling.
"""

import logging
import random
from collections import Counter
from typing import Final

from extender.kube.api import NotFound
from tests.e2e.operations import delete_pod, fail_pod, mark_unschedulable, remove_vpods, upgrade
from tests.e2e.scenario import System

log: Final = logging.getLogger(__name__)

VPODS_MIN: Final = 15
VPODS_MAX: Final = 40
VREPLICAS_MAX: Final = 12
DRAINING_MAX: Final = 2
WEIGHTS: Final = {
    "create": 6,
    "resize": 10,
    "remove": 4,
    "replace": 1,
    "delete pod": 3,
    "delete pod by force": 1,
    "fail pod": 1,
    "drain": 1,
    "end drain": 1,
    "upgrade": 0.3,
}


class Churn:
    """The workload of one tenant namespace, in the pool of ``system``."""

    def __init__(self, system: System, tenant: str, rng: random.Random) -> None:
        self._system = system
        self._tenant = tenant
        self._rng = rng
        self._vpods: list[str] = []
        self._draining: list[str] = []
        self._named = 0
        self.done: Counter[str] = Counter()

    async def step(self) -> None:
        """One thing."""
        (what,) = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if len(self._vpods) < VPODS_MIN:
            what = "create"
        elif what == "create" and len(self._vpods) >= VPODS_MAX:
            what = "remove"
        if await self._do(what):
            self.done[what] += 1

    async def calm(self) -> None:
        """Nothing is being drained any more."""
        for pod in self._draining:
            await self._mark(pod, unschedulable=False)
        self._draining.clear()

    async def _do(self, what: str) -> bool:
        match what:
            case "create":
                await self._create()
            case "resize":
                name = self._rng.choice(self._vpods)
                await self._system.want(self._tenant, name, self._rng.randrange(VREPLICAS_MAX + 1))
            case "remove" | "replace":
                await self._remove(what == "replace")
            case "end drain":
                if not self._draining:
                    return False
                await self._mark(self._draining.pop(0), unschedulable=False)
            case "upgrade":
                await upgrade(self._system, f"registry.invalid/adapter:{self._rng.randrange(1000)}")
            case _:
                return await self._to_a_pod(what)
        return True

    async def _create(self) -> None:
        name = f"source{self._named}"
        self._named += 1
        await self._system.vpods(
            1, self._rng.randrange(1, VREPLICAS_MAX + 1), tenant=self._tenant, prefix=name
        )
        self._vpods.append(f"{name}-0")

    async def _remove(self, again: bool) -> None:
        name = self._vpods.pop(self._rng.randrange(len(self._vpods)))
        await remove_vpods(self._system, self._tenant, [name])
        if again:  # under the same name, at once
            await self._system.vpods(1, 3, tenant=self._tenant, prefix=name.removesuffix("-0"))
            self._vpods.append(name)

    async def _to_a_pod(self, what: str) -> bool:
        names = [str(obj["metadata"]["name"]) for obj in await self._system.adapters()]
        if not names:
            return False
        pod = self._rng.choice(names)
        try:
            match what:
                case "delete pod":
                    await delete_pod(self._system, pod)
                case "delete pod by force":
                    await delete_pod(self._system, pod, grace_s=0)
                case "fail pod":
                    await fail_pod(self._system, pod)
                case _:  # drain
                    if pod in self._draining or len(self._draining) >= DRAINING_MAX:
                        return False
                    await mark_unschedulable(self._system, pod)
                    self._draining.append(pod)
        except NotFound:  # gone since it was listed
            return False
        return True

    async def _mark(self, pod: str, *, unschedulable: bool) -> None:
        try:
            await mark_unschedulable(self._system, pod, unschedulable=unschedulable)
        except NotFound:
            log.info("%s is gone, and its drain with it", pod)
