"""One run of a situation, checked: the invariants after each write, then everything settles, with
nothing lost or moved.
"""

import asyncio
import os
import tempfile
import time
import traceback
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from extender.kube.api import PODS, NotFound
from extender.lab.simulation.checkers.all import Checkers
from extender.lab.simulation.checkers.excuses import Circumstances
from extender.lab.simulation.checkers.replica_state import state_problems
from tests.simulation.exhaustive.adapters import SteppedAdapters
from tests.simulation.exhaustive.explorer import (
    THREAD,
    Director,
    ExploredLoop,
    Fork,
    Known,
    Step,
    Trail,
    run_explored,
)
from tests.simulation.exhaustive.parties import Fingerprints, Party
from tests.simulation.exhaustive.situations import SITUATIONS, SLOTS, A, B, Situation
from tests.support.service import World, schedule

EXCUSES_OVER_S: Final = 100.0
"""What the checkers excuse for a while after the cluster was made is over by then."""
SETTLE_S: Final = 45.0
"""Doubts end after 30 s; back-offs are 1 to 10 s."""
ROUNDS_MAX: Final = 4
SERVED_AFTER: Final = 3
"""Rounds of telling and acknowledging, from nothing on."""
WORLD: Final = "world"


@dataclass(frozen=True)
class Bounds:
    """``late_events``: by default watches lag behind everything else; else they are up to date.
    ``faults``: how many at most.
    """

    late_events: bool = False
    faults: int = 0


class CheckedWorld(World):
    """With checkers that have seen everything from the beginning. ``two_lead``: whether two
    replicas may lead at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.two_lead = False
        self.stepped = SteppedAdapters(self.cluster)
        self.checkers = Checkers(
            circumstances=Circumstances(
                adapter=self.stepped.adapter, two_lead=lambda: self.two_lead
            )
        )
        self.stepped.on_serve = self.checkers.exclusive.served
        self.cluster.server.store.subscribers.append(self.checkers.on_change)


class Scene:
    """One run: the cluster, both replicas, the director."""

    def __init__(self, situation: Situation, bounds: Bounds) -> None:
        self.situation = situation
        self.bounds = bounds
        self.parties: dict[str, Party] = {}
        self.fingerprints = Fingerprints()
        self.faults = 0
        self.problems: list[str] = []
        self._acts: list[asyncio.Task[None]] = []

    async def furnish(self) -> None:
        """Everything before the director takes over."""
        # No pod is ever Ready here, and no time passes in which one would be given up for that.
        world = await CheckedWorld.create(
            slots=SLOTS, replicas=3, rescheduleAfterSeconds=None, **self.situation.pool
        )
        assert isinstance(world, CheckedWorld)
        self.world = world
        self.world.two_lead = len(self.situation.leaders) > 1
        self.checkers = self.world.checkers
        store = self.world.cluster.server.store
        store.subscribers.append(self.fingerprints.changed)
        await self.situation.furnish(self.world)
        for name in (A, B):
            party = Party(self.world.cluster, name, self.fingerprints)
            party.api.may_lose = lambda: self.faults < self.bounds.faults
            party.api.may_give_up = self._may_give_up
            party.api.on_lost = self._count_fault
            await party.list()
            self.parties[name] = party
            store.subscribers.append(party.changed)
        await asyncio.sleep(EXCUSES_OVER_S)
        # Of one leader alone all is known; two have both just begun, and neither knows what the
        # other has sent.
        since = asyncio.get_running_loop().time() if len(self.situation.leaders) > 1 else 0.0
        for party in self.parties.values():
            await party.close_the_past()
            if party.name in self.situation.leaders:
                party.elector.appoint(since=since)
        if self.situation.hands_over:
            await self._serve_all()
            await asyncio.sleep(EXCUSES_OVER_S)
            await self._serve_all()  # with leases that have not run out

    async def _serve_all(self) -> None:
        """All adapters serve what is placed."""
        for _ in range(SERVED_AFTER):
            for ordinal in range(3):
                await self.parties[A].tell(ordinal)
                await self.parties[A].hear(self.world.stepped, ordinal)
            await asyncio.sleep(1)

    def _may_give_up(self, call: str) -> bool:
        given_up = self.situation.gives_up
        return bool(given_up) and call.startswith(given_up) and not self.faults

    def _count_fault(self) -> None:
        self.faults += 1

    # -- exploring ---------------------------------------------------------------------------------

    async def explore(self, loop: ExploredLoop, choices: Sequence[int], fork: Fork | None) -> Trail:
        """Run everything in the order that is chosen."""
        streams = [thread for party in self.parties.values() for thread in party.streams]
        work = [f"{what} at {name}" for name, what in self.situation.work]
        threads = [*work, WORLD] if self.situation.acts_last else [WORLD, *work]
        order = [*threads, *streams] if self.bounds.late_events else [*streams, *threads]
        director = Director(
            fork=fork, choices=choices, order=order, more_steps=self._events, world=self._stored
        )
        for party in self.parties.values():
            party.api.director = director
        for (name, what), operation in self.situation.work.items():
            self.parties[name].start(f"{what} at {name}", partial(operation, self.world))
        context = copy_context()
        context.run(THREAD.set, WORLD)
        self._acts = [loop.create_task(self._act(director), context=context)]
        await asyncio.sleep(0)
        loop.director = director.turn
        await director.ended
        loop.director = None
        return director.trail

    async def _act(self, director: Director) -> None:
        for what, act in self.situation.acts.items():
            # What a replica does tells it something; whatever else happens it learns from its
            # watches.
            await director.step(
                next((name for name in self.parties if what.startswith(name)), ""), what
            )
            await act(self.world, self.parties)

    def _events(self) -> Iterator[Step]:
        for party in self.parties.values():
            yield from party.events()

    def _stored(self) -> Hashable:
        return (
            self.fingerprints.world(),
            self.world.stepped.state(),
            *(party.undelivered() for party in self.parties.values()),
            self.faults,
        )

    async def stop(self) -> None:
        """Leave it as it is."""
        tasks = list(self._acts)
        for party in self.parties.values():
            tasks += [*party.operations, *party.api.under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- settling ----------------------------------------------------------------------------------

    async def settle(self) -> None:
        """One leader goes on, with everything that it would do by itself, until nothing differs."""
        for party in self.parties.values():
            party.end_exploring()
            if party.name != A:
                party.elector.depose()
            elif not party.elector.is_leader:
                party.elector.appoint(since=asyncio.get_running_loop().time())
        operations = [task for party in self.parties.values() for task in party.operations]
        _, stuck = await asyncio.wait(operations, timeout=SETTLE_S)
        self.problems += [f"{task.get_name()} does not end" for task in stuck]
        self.problems += [
            f"{task.get_name()} ended with {task.exception()!r}"
            for task in operations
            if task.done() and not task.cancelled() and task.exception() is not None
        ]
        leader = self.parties[A].service
        loops = [
            asyncio.create_task(leader.placer.run()),
            asyncio.create_task(leader.reconciler.run()),
        ]
        loops += [
            asyncio.create_task(p.service.reconciler.run_expiry()) for p in self.parties.values()
        ]
        if self.situation.hands_over:
            loops.append(asyncio.create_task(leader.assignments.run()))
            loops.append(asyncio.create_task(self._look_all_the_time()))
        for _ in range(ROUNDS_MAX):
            await self._schedule_pods()
            await asyncio.sleep(SETTLE_S)
            if not self.checkers.differences():
                break
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def _look_all_the_time(self) -> None:
        while True:
            for ordinal in range(3):
                with suppress(NotFound):
                    await self.parties[A].hear(self.world.stepped, ordinal)
            await asyncio.sleep(1)

    async def _schedule_pods(self) -> None:
        """What kube-scheduler does with pods whose bind was refused."""
        for pod in (await self.world.cluster.list_page(PODS)).items:
            if not pod["spec"].get("nodeName"):
                await schedule(self.parties[A].service, pod, ["node-0", "node-1", "node-2"])
        await asyncio.sleep(0.1)

    def found(self) -> list[str]:
        """What is wrong."""
        moved = {
            reason for reason, count in self.checkers.moves.items() if count
        } - self.situation.moves
        self.problems += self.checkers.violations
        self.problems += [f"moved for {sorted(moved)}"] if moved else []
        self.problems += self.checkers.differences()
        for party in self.parties.values():
            # It has what is looked at: a name, and a service.
            self.problems += state_problems(party)  # type: ignore[arg-type]
        return self.problems


def play(
    name: str, bounds: Bounds, *, choices: Sequence[int] = (), fork: Fork | None = None
) -> tuple[Trail, list[str]]:
    """One run of a situation, or with ``fork`` all of them: what was done, and what is wrong with
    it.
    """

    async def main(loop: ExploredLoop) -> tuple[Trail, list[str]]:
        scene = Scene(SITUATIONS[name], bounds)
        await scene.furnish()
        trail = await scene.explore(loop, choices, fork)
        if trail.merged:
            problems = scene.checkers.violations
        else:
            await scene.settle()
            problems = scene.found()
        await scene.stop()
        return trail, problems

    return run_explored(main)


@dataclass(frozen=True)
class Failure:
    """A run with problems: its choices, to be replayed, and its steps."""

    problems: list[str]
    choices: list[int]
    steps: list[str]


@dataclass
class Explored:
    """What an exploration came to. ``complete``: all runs within the depth were tried."""

    runs: int
    states: int
    merged: int
    steps: int
    complete: bool
    failures: list[Failure]


def explore(
    name: str, bounds: Bounds, *, depth: int, seconds: float, failures_max: int = 10
) -> Explored:
    """Every run of a situation with at most ``depth`` changes. Forks: for a process without other
    threads.
    """
    known = Known()
    until = time.monotonic() + seconds
    with tempfile.TemporaryFile("ab+", buffering=0) as failures:

        def go_on() -> bool:
            return time.monotonic() < until and known.count("failed") < failures_max

        fork = Fork(known, depth=depth, go_on=go_on)
        try:
            trail, problems = play(name, bounds, fork=fork)
        except Exception:  # noqa: BLE001 - a child must not go on as if it were its parent
            trail, problems = Trail(), [traceback.format_exc()]
        known.count("runs", 1)
        known.count("merged", int(trail.merged))
        known.count("steps", len(trail.steps))
        if problems:
            known.count("failed", 1)
            failures.write(orjson.dumps([problems, trail.chosen, trail.steps]) + b"\n")
        if fork.is_child:
            os._exit(0)
        failures.seek(0)
        found = [Failure(*orjson.loads(line)) for line in failures.read().splitlines()]
    return Explored(
        runs=known.count("runs"),
        states=known.count("states"),
        merged=known.count("merged"),
        steps=known.count("steps"),
        complete=not known.count("stopped"),
        failures=found,
    )
