"""One run: a seed, a world, a workload with faults, then calm, and a verdict.

Safety while everything happens (the checkers, after each write), liveness once it has stopped: within ``SETTLE_TIMEOUT_S``
everything is as it should be. What is worth it is then compacted and scaled down, period by period, for at most
``REST_TIMEOUT_S``; that must end, with nothing written for ``QUIET_S``, and with no pod left that is not needed.
Incremental state is compared with rebuilt state on each replica at the end.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

from extender.core.errors import VReplicaError
from extender.core.state import State
from extender.kube.api import ADAPTERPOOLS
from extender.sim.clock import run_virtual
from extender.simulation.checkers import Checkers
from extender.simulation.draws import drawn_rates, drawn_scale
from extender.simulation.workload import Workload
from extender.simulation.world import Replica, World

SETTLE_TIMEOUT_S: Final = 420.0
"""kube-scheduler tries a pod again after 5 minutes whatever happens; a lease runs out, and the reconciler comes round."""
GRACE_S: Final = 45.0
"""What reflectors that were refused again and again may wait before they look: only then does everybody know it is over."""
QUIET_S: Final = 60.0
"""Besides a pool's period and cool-down: for so long nothing is written at rest."""
REST_TIMEOUT_S: Final = 3600.0
"""Scale-down waits for moves, moves for their budget and cool-down, and closing in vain waits twice as long each time."""
LOUD: Final = frozenset({"leases", "events", "nodes"})
"""Kinds that are written all the time."""


@dataclass
class Outcome:
    """What a run came to. ``problems`` empty: it passed."""

    seed: int
    problems: list[str] = field(default_factory=list)
    events: int = 0
    faults: int = 0
    settled_s: float | None = None
    rested_s: float | None = None
    digest: str = ""
    moves: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.problems

    def line(self) -> str:
        settled = f"settled in {self.settled_s:.1f} s" if self.settled_s is not None else "not settled"
        if self.rested_s is not None:
            settled += f", at rest in {self.rested_s:.0f} s"
        return (
            f"seed {self.seed}: {self.events} events, {self.faults} faults, {settled}, "
            f"moves {sum(self.moves.values())}, trace {self.digest}, {'ok' if self.passed else 'FAILED'}"
        )


def simulate(seed: int, *, keep_trace: bool = False, plain: bool = False) -> Outcome:
    """Run a seed in virtual time. An error of the simulation itself is a problem of the run, too.

    ``plain``: one pool with the defaults, and no acts on what is not in it.
    """
    outcome = Outcome(seed)
    try:
        run_virtual(_run(outcome, keep_trace=keep_trace, plain=plain))
    except (VReplicaError, AssertionError) as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    return outcome


async def _run(outcome: Outcome, *, keep_trace: bool, plain: bool) -> None:
    rng = random.Random(f"{outcome.seed}/run")
    scale = drawn_scale(rng, plain=plain)
    world = World(outcome.seed, scale, rates=drawn_rates(rng), keep_trace=keep_trace)
    checkers = Checkers(world.trace)
    world.cluster.server.store.subscribers.append(checkers.on_change)
    async with world:
        workload = Workload(world, plain=plain)
        await workload.run(steps=rng.randint(10, 80))
        await workload.calm_down()
        outcome.problems += await settle(world, checkers, outcome)
        outcome.problems += checkers.violations + world.problems
        outcome.problems += [line for replica in world.replicas for line in state_problems(replica)]
    outcome.events, outcome.digest = world.trace.count, world.trace.digest
    outcome.faults = world.faults.counts.total()
    outcome.moves = checkers.moves
    outcome.trace = world.trace.lines


async def settle(world: World, checkers: Checkers, outcome: Outcome) -> list[str]:
    """Wait until nothing differs, then for silence; what is wrong with it, if anything."""
    loop = asyncio.get_running_loop()
    calm_at = loop.time()
    if problems := await wait_settled(world, checkers):
        return problems
    outcome.settled_s = loop.time() - calm_at
    await asyncio.sleep(GRACE_S)
    if problems := await wait_quiet(world, checkers):
        return problems
    outcome.rested_s = loop.time() - calm_at
    unrest = [f"settled, and then not: {line}" for line in checkers.differences()]
    return unrest + [f"not scaled down: {line}" for line in checkers.stored.idle()]


async def wait_quiet(world: World, checkers: Checkers) -> list[str]:
    """Wait until nobody has written anything for long enough; who still writes after ``REST_TIMEOUT_S``."""
    loop = asyncio.get_running_loop()
    end = loop.time() + REST_TIMEOUT_S
    pauses = [
        pool["spec"].get("scaleDownPeriodSeconds", 100) * 1.2
        + (pool["spec"].get("rebalance") or {}).get("cooldownSeconds", 300)
        for pool in world.stored(ADAPTERPOOLS).values()
    ]
    while (quiet_at := _last_write(checkers) + max(pauses) + QUIET_S) > loop.time():
        if quiet_at > end:
            loud = [
                f"{plural} at {at:.1f} s"
                for plural, at in checkers.last_write_s.items()
                if plural not in LOUD
            ]
            return [f"still writing at {loop.time():.1f} s: {', '.join(loud)}", *world.trace.lines[-40:]]
        await asyncio.sleep(quiet_at - loop.time())
    return []


def _last_write(checkers: Checkers) -> float:
    return max((at for plural, at in checkers.last_write_s.items() if plural not in LOUD), default=0.0)


async def wait_settled(world: World, checkers: Checkers) -> list[str]:
    """Wait until nothing differs, for at most ``SETTLE_TIMEOUT_S``; what still differs then."""
    end = asyncio.get_running_loop().time() + SETTLE_TIMEOUT_S
    while differences := checkers.differences() or leaderless(world):
        if asyncio.get_running_loop().time() > end:
            return [f"not settled after {SETTLE_TIMEOUT_S:g} s: {line}" for line in differences]
        await asyncio.sleep(0.5)
    return []


def leaderless(world: World) -> list[str]:
    """A dead leader's lease has to run out before anything is repaired, or written."""
    return [] if world.leader is not None else ["nobody leads"]


def state_problems(replica: Replica) -> list[str]:
    """Reservations that nobody has dropped, and incremental state that differs from rebuilt state."""
    caches = replica.service.caches
    rebuilt = State(caches.state.profiles)
    for node in caches.nodes.list():
        rebuilt.node_changed(None, node)
    for namespace in caches.namespaces.list():
        rebuilt.namespace_changed(None, namespace)
    for stateful_set in caches.stateful_sets.list():
        rebuilt.stateful_set_changed(None, stateful_set)
    for pool in caches.pools.list():
        rebuilt.adapter_pool_changed(None, pool)
    for pod in caches.pods.list():
        rebuilt.pod_changed(None, pod)
    for vpod in caches.vpods.list():
        rebuilt.vpod_changed(None, vpod)
    for key, known in caches.state.pools.items():
        # Decided by the leader's loops, and not derived from any object.
        rebuilt.pool(key).set_closed(known.closed)
        rebuilt.pool(key).set_abandoned(known.abandoned)
    problems = [
        f"I5: {replica.name} still reserves {claim.reserved} of {key} on {name} for {claim.owner}"
        for state in caches.state.pools.values()
        for key, claims in state.placements.items()
        for name, claim in claims.items()
        if claim.reserved is not None
    ]
    if not problems and caches.state.digest() != rebuilt.digest():
        problems.append(f"{replica.name}: incremental {caches.state.digest()} is not {rebuilt.digest()}")
    return problems
