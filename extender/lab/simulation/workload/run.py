"""``Workload``: a number of events, one after the other. Most follow at once, some after a pause in
which everything may settle.

This is swarm testing: a seed first draws which acts and faults it has at all, and how often. A run
with everything at once hides what a run with only two of them shows.

Each event has its own dice. So a failing run can be shortened: any event or kind of fault can be
left out, the event that would have been of that kind does nothing, and the others keep their draws.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from extender.kube.api import NODES, ApiError
from extender.lab.faults import CALM
from extender.lab.simulation.workload.acts import ActsOfPart, Scene
from extender.lab.simulation.workload.callers import CallerActs
from extender.lab.simulation.workload.crashes import CrashActs
from extender.lab.simulation.workload.crowds import Crowds
from extender.lab.simulation.workload.dimensions import DimensionActs
from extender.lab.simulation.workload.drains import Drains
from extender.lab.simulation.workload.evictions import EvictionActs
from extender.lab.simulation.workload.fault_acts import FaultActs
from extender.lab.simulation.workload.gangs import GangActs
from extender.lab.simulation.workload.load_source import LoadSourceActs
from extender.lab.simulation.workload.operators import Operators
from extender.lab.simulation.workload.placement import PlacementActs
from extender.lab.simulation.workload.priorities import PriorityActs
from extender.lab.simulation.workload.quotas import QuotaActs
from extender.lab.simulation.workload.selectors import SelectorActs
from extender.lab.simulation.workload.streams import StreamActs
from extender.lab.simulation.workload.tenants import Tenants
from extender.lab.simulation.world.world import World

PAUSES_S: Final = (0.01, 0.1, 1.0, 1.0, 5.0, 20.0)
AT_ONCE: Final = 0.86
"""Probability that an event follows the one before without a pause."""
FIRST_VPODS: Final = 6
OF_PARTS: Final[dict[str, Callable[[Scene], ActsOfPart]]] = {
    "callers": CallerActs,
    "sources": StreamActs,
    "selectors": SelectorActs,
    "longNames": Crowds,
    "dimensions": DimensionActs,
    "loadSource": LoadSourceActs,
    "handoff": EvictionActs,
    "tenancy": QuotaActs,
    "priorities": PriorityActs,
    "gangs": GangActs,
    "placement": PlacementActs,
    "crashes": CrashActs,
}


class Workload:
    """Acts on a world until ``calm_down``.

    ``counts`` is how often each act had an effect, ``done`` the numbers of events with an effect,
    and ``tried`` the number of events that had their turn. ``left_out`` are kinds of faults that
    do nothing when they are drawn.
    """

    def __init__(
        self,
        world: World,
        *,
        act_rates: Mapping[str, float],
        left_out: Collection[str] = (),
        plain: bool = False,
        parts: Collection[str] = (),
        only: Collection[int] | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.done: list[int] = []
        self.tried = 0
        self._left_out = frozenset(left_out)
        self._hands_over = "handoff" in parts
        self._deschedules = "descheduling" in parts
        self._world = world
        self._scene = Scene(world)
        self._only = None if only is None else frozenset(only)
        self._rates = {kind: rate for kind, rate in act_rates.items() if rate > 0.0}
        tenants, operators = Tenants(self._scene), Operators(self._scene)
        self._first = tenants.create
        self._fault_acts = FaultActs(self._scene)
        self._acts = [*tenants.always]
        rng = world.rng("acts")
        sometimes = [*tenants.sometimes, *operators.sometimes]
        if not plain:
            sometimes += [*tenants.among_pools, *operators.among_pools]
        self._acts += [act for act in sometimes if rng.random() < 0.6]
        for part, of_part in OF_PARTS.items():
            if part in parts:
                acts = of_part(self._scene)
                self._acts += acts.always
                self._acts += [act for act in acts.sometimes if rng.random() < 0.6]

    async def run(self, events: int) -> None:
        """Do ``events`` events that have an effect, or only those of ``only``. At most twice as
        many are tried.
        """
        for number in range(2 * events):
            if len(self.done) >= events:
                return
            self.tried = number + 1
            self._scene.rng = random.Random(f"{self._world.seed}/event/{number}")
            pause_s = self._pause_s()
            if self._only is not None and number not in self._only:
                continue
            await asyncio.sleep(pause_s)
            name, do = self._choose(number)
            await self._do(number, name, do)
            self._world.drop_crashed()
            if not self._world.replicas and self._scene.rng.random() < 0.3:
                self._world.start_replica()

    def _pause_s(self) -> float:
        rng = self._scene.rng
        at_once, longest, share = rng.random() < AT_ONCE, rng.choice(PAUSES_S), rng.random()
        return 0.0 if at_once else longest * share

    def _choose(self, number: int) -> tuple[str, Callable[[], Awaitable[bool]]]:
        if number < FIRST_VPODS:
            return "create vpod", self._first
        rng = self._scene.rng
        for kind, rate in self._rates.items():
            if rng.random() < rate:
                return (
                    (kind, _nothing)
                    if kind in self._left_out
                    else (kind, self._fault_acts.acts[kind])
                )
        act = rng.choices(self._acts, [act.weight for act in self._acts])[0]
        return act.name, act.do

    async def _do(self, number: int, name: str, do: Callable[[], Awaitable[bool]]) -> None:
        self._world.trace(f"event {number}: {name}")
        try:
            if await do():
                self.counts[name] += 1
                self.done.append(number)
        except ApiError as error:
            self._world.trace(f"event {number}: {error.reason}")

    async def calm_down(self) -> None:
        """End the faults. Nodes recover and processes run. Changes by operators stay."""
        world = self._world
        world.faults.rates = CALM
        await self._fault_acts.calm_down()
        for _, name in world.stored(NODES):
            await self._scene.merge(NODES, "", name, {"spec": {"unschedulable": None}})
        world.callers.calm_down()
        world.load.calm = True
        world.adapters.calm_down()
        world.drop_crashed()
        while len(world.replicas) < 2:
            world.start_replica()

    async def drain_pods(self) -> None:
        """Once everything has settled: drain pods, and roll a pool out, if their pools hand
        shares over (the part handoff).
        """
        if self._hands_over:
            drains = Drains(self._scene)
            await drains.run()
            await drains.roll_out()

    async def pods_leave(self) -> list[str]:
        """Once everything has settled: one node gets a taint, if pools evict pods (the part
        descheduling). Return the pods that stay there without a reason.
        """
        if not self._deschedules or "nodeTainted" in self._left_out:
            return []
        return await self._fault_acts.taints.pods_leave()


async def _nothing() -> bool:
    return False
