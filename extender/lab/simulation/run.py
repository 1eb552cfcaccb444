"""One run of the simulation: a world and a workload with faults, then calm, then a verdict. A trial
says which seed runs, and what is left out of it.

Safety is checked while the faults happen, after each write (the checkers). Liveness is checked
after they have stopped: within ``SETTLE_TIMEOUT_S`` everything must be correct. Then the service
may compact and scale down, for at most ``REST_TIMEOUT_S``. This must end with no writes for
``QUIET_S``, and with no pod that is not needed. At the end, the incremental state of each replica
is compared with a rebuilt one.
"""

import asyncio
import random
import shlex
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final

from extender.engine.scaling.replica_writes import STRIKES_MAX
from extender.kube.api import ADAPTERPOOLS, VPODS
from extender.kube.reflector import ReflectorSettings
from extender.lab.clock import run_virtual
from extender.lab.faults import FaultRates, named
from extender.lab.simulation.checkers.all import Checkers
from extender.lab.simulation.checkers.excuses import EXCUSE_S, Circumstances
from extender.lab.simulation.checkers.replica_state import state_problems
from extender.lab.simulation.workload import Workload
from extender.lab.simulation.world.draws import (
    drawn_delays,
    drawn_faults,
    drawn_last,
    drawn_of_parts,
    drawn_parts,
    drawn_parts_last,
    drawn_scale,
    with_parts,
)
from extender.lab.simulation.world.profile import ACT_KINDS, DRAWN, FaultProfile
from extender.lab.simulation.world.world import World
from extender.model.errors import VReplicaError

SETTLE_TIMEOUT_S: Final = 720.0
"""kube-scheduler tries a pod again after 5 minutes at the latest. If a rollout deletes a pod then,
and its node is full, its vreplicas wait for ``rescheduleAfterSeconds``, which is 5 minutes, too
(seed 20621196). A Lease must run out, and the reconciler must have its turn.
"""
GRACE_S: Final = 45.0
"""Reflectors that were refused repeatedly may wait this long. Only then does every process know
that the faults are over.
"""
IDLE_S: Final = ReflectorSettings().idle_timeout_s + GRACE_S
"""``GRACE_S`` and the time until a silent watch is given up."""
LAST_ANSWERS_S: Final = 5.0
"""The time to process the last requests of callers."""
QUIET_S: Final = 60.0
"""At rest nothing is written for this time, in addition to a pool's period and cool-down."""
REST_TIMEOUT_S: Final = 3600.0
"""Scale-down waits for moves, and moves wait for their budget and cool-down. After each scale-down
that fails, the autoscaler waits twice as long.
"""
PATIENCE_MAX: Final = 1 << STRIKES_MAX - 1
"""The maximum number of scale-down periods that the autoscaler waits after somebody else has undone
its writes repeatedly.
"""
RUN_MAX_S: Final = 2 * (SETTLE_TIMEOUT_S + REST_TIMEOUT_S)
EVENT_MAX_S: Final = 60.0
"""The virtual time allowed for an event, on average; half a second is usual. Nothing in a run may
wait without a limit.
"""
EVENTS: Final = 500
"""Events of the workload that have an effect."""
UNANSWERED: Final = (
    "write_late",
    "status_reply_lost",
    "patch_reply_lost",
    "reply_lost",
    "partition",
)
"""Faults after which a writer does not know which of its moves were made."""
DELAYING_FAULTS: Final = tuple(
    item.name
    for item in fields(FaultRates)
    if item.metadata.get("per") in {"write", "call", "list", "event"}
)
"""Faults of calls and watches. Each makes a process see or write something later."""
PROMPT_S: Final = 5.0
"""The age of a decision if no fault delays views or writes. Only the network's milliseconds and
retries remain.
"""
OTHER_BUCKETS_SHARE: Final = 0.25
"""The share of replicas with another number of buckets, in runs with buckets."""
LOUD: Final = frozenset({"leases", "events", "nodes"})
"""Kinds that are always being written."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What to run. Everything follows from the seed. The other fields replace or omit some of what
    the seed draws.

    ``only``: numbers of the events that happen. ``faults``: kinds that may happen. None means all.
    ``plain``: one pool with the defaults, and only acts that concern it.
    """

    seed: int
    plain: bool = False
    profile: FaultProfile = DRAWN
    events: int = EVENTS
    only: frozenset[int] | None = None
    faults: frozenset[str] | None = None

    def command(self) -> str:
        """Return the arguments of ``vreplica simulate`` that repeat the trial."""
        words = [f"--seed {self.seed} --seeds 1"]
        words += ["--plain"] if self.plain else []
        words += [f"--profile {shlex.quote(self.profile.file)}"] if self.profile.file else []
        words += [f"--events {self.events}"] if self.events != EVENTS else []
        words += [f"--only {as_ranges(self.only)}"] if self.only is not None else []
        words += (
            [f"--only-faults {','.join(sorted(self.faults)) or 'none'}"]
            if self.faults is not None
            else []
        )
        return " ".join(words)


def as_ranges(numbers: Iterable[int]) -> str:
    """Return sorted numbers as text such as "1,4-7"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found) or "none"


@dataclass
class Outcome:
    """The result of a run. It passed if ``problems`` is empty. ``events`` are the numbers of the
    events that had an effect.
    """

    trial: Trial
    problems: list[str] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    tried: int = 0
    """The number of events that had their turn, with or without an effect."""
    faults: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    settled_s: float | None = None
    rested_s: float | None = None
    digest: str = ""
    moves: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every invariant held and everything settled."""
        return not self.problems

    def line(self) -> str:
        """Return the result in one line."""
        settled = (
            f"settled in {self.settled_s:.1f} s" if self.settled_s is not None else "not settled"
        )
        if self.rested_s is not None:
            settled += f", at rest in {self.rested_s:.0f} s"
        return (
            f"seed {self.trial.seed}: {len(self.events)} events, {self.faults.total()} faults of "
            f"{len(self.faults)} kinds, {settled}, moves {sum(self.moves.values())}, trace "
            f"{self.digest}, {'ok' if self.passed else 'FAILED'}"
        )


def simulate(trial: Trial | int, *, keep_trace: bool = False) -> Outcome:
    """Run a trial, or a whole seed, in virtual time. Any error that ends it becomes a problem of
    the run.

    So each error is reported with the command that repeats it, and other seeds still run. Only
    KeyboardInterrupt and SystemExit are raised.
    """
    trial = Trial(trial) if isinstance(trial, int) else trial
    outcome = Outcome(trial)
    try:
        run_virtual(
            _run(trial, outcome, keep_trace=keep_trace),
            seconds_max=RUN_MAX_S + EVENT_MAX_S * trial.events,
        )
    except (KeyboardInterrupt, SystemExit):
        raise
    except (VReplicaError, AssertionError) as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    except BaseException as error:  # noqa: BLE001 - also what is no Exception: a Crashed or a group that nobody has caught
        outcome.problems.append(f"{type(error).__name__}: {error}, raised {_where(error)}")
    return outcome


def _where(error: BaseException) -> str:
    """Return the innermost line of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f"in {frames[-1].name}, {Path(frames[-1].filename).name}:{frames[-1].lineno}"
        if frames
        else "nowhere"
    )


def parts_of(trial: Trial, rng: random.Random) -> frozenset[str]:
    """Return the parts of the world besides vpods, nodes and pools."""
    drawn = frozenset[str]() if trial.plain else drawn_parts(rng) | drawn_parts_last(trial.seed)
    return trial.profile.parts_of(drawn)


def rates_of(
    trial: Trial, rng: random.Random, of_parts: Mapping[str, float]
) -> tuple[FaultRates, dict[str, float]]:
    """Return the rates of faults of calls and watches, and of acts by kind. Acts that the trial
    leaves out keep their rates.
    """
    drawn = drawn_faults(rng)
    delays = {**drawn_delays(rng), **trial.profile.delays}
    rates = trial.profile.rates_of({**drawn, **drawn_last(rng), **of_parts})
    acts = {kind.name: rates.pop(kind.name) for kind in ACT_KINDS}
    if trial.faults is not None:
        rates = {kind: rate if kind in trial.faults else 0.0 for kind, rate in rates.items()}
    return FaultRates().with_rates({**rates, **delays}), acts


def is_late(rates: FaultRates, act_rates: Mapping[str, float], left_out: Collection[str]) -> bool:
    """Return whether a fault of the run delays what replicas see or write."""
    of_network = any(getattr(rates, kind) for kind in DELAYING_FAULTS)
    return of_network or any(
        act_rates.get(kind) and kind not in left_out
        for kind in ("pauseReplica", "apiServerOutage", "etcdRestored")
    )


class _Once:
    """Cancels a task, once."""

    def __init__(self, task: "asyncio.Task[None] | None") -> None:
        self._task = task
        self.cancelled = False

    def cancel(self) -> None:
        if self._task is not None and not self.cancelled:
            self.cancelled = True
            self._task.cancel()


async def _run(trial: Trial, outcome: Outcome, *, keep_trace: bool) -> None:
    rng = random.Random(f"{trial.seed}/run")
    scale = drawn_scale(rng, plain=trial.plain)
    pools = tuple({**pool, **trial.profile.pools} for pool in scale.pools)
    # Parts have their own dice, so that seeds without parts do not change.
    apart = random.Random(f"{trial.seed}/parts")
    parts = parts_of(trial, apart)
    scale = replace(
        scale, pools=pools, buckets=trial.profile.buckets, other_buckets_share=OTHER_BUCKETS_SHARE
    )
    scale = with_parts(scale, apart, parts, trial.seed)
    rates, act_rates = rates_of(trial, rng, drawn_of_parts(apart, parts, trial.seed))
    left_out = act_rates.keys() - trial.faults if trial.faults is not None else frozenset[str]()
    world = World(trial.seed, scale, rates=rates, keep_trace=keep_trace)
    # If watches fall silent, a decision may be older by the time until this is noticed.
    excuse_s = EXCUSE_S + (IDLE_S if rates.watch_hung else 0.0)
    circumstances = Circumstances(
        excuse_s=excuse_s,
        late_s=excuse_s if is_late(rates, act_rates, left_out) else PROMPT_S,
        now_of=world.now_of,
        two_lead=world.leadership.two_lead,
        unsure=lambda: sum(world.faults.counts[kind] for kind in UNANSWERED),
        listed_at=world.listed_at,
        failed_at=world.failed_at,
        restored=lambda: world.restored,
        runs_since=world.runs_since,
        adapter=world.adapters.adapter,
    )
    checkers = Checkers(world.trace, circumstances)
    world.cluster.server.store.subscribers.append(checkers.on_change)
    world.callers.watchers.append(checkers.callers)
    world.adapters.on_serve = checkers.exclusive.served
    given_up = _Once(asyncio.current_task())
    checkers.give_up = given_up.cancel
    workload = Workload(
        world,
        act_rates=act_rates,
        left_out=left_out,
        plain=trial.plain,
        parts=parts,
        only=trial.only,
    )
    try:
        async with world:
            await workload.run(trial.events)
            await workload.calm_down()
            outcome.problems += await settle(world, checkers, outcome, workload)
            world.callers.stop()
            await asyncio.sleep(LAST_ANSWERS_S)
            outcome.problems += checkers.violations + world.problems
            outcome.problems += await left_over(world)
    except asyncio.CancelledError:
        if not given_up.cancelled:
            raise
        outcome.problems += [*checkers.violations, "given up: there is no end of it"]
    finally:
        outcome.events, outcome.tried = workload.done, workload.tried
        outcome.digest, outcome.lines = world.trace.digest, world.trace.count
        outcome.faults = named(world.faults.counts) + Counter(
            {k: n for k, n in workload.counts.items() if k in act_rates}
        )
        outcome.moves, outcome.trace = checkers.moves, world.trace.lines


async def settle(
    world: World, checkers: Checkers, outcome: Outcome, workload: Workload
) -> list[str]:
    """Wait until nothing differs, then until nothing is written. Return the problems."""
    loop = asyncio.get_running_loop()
    calm_at = loop.time()
    if problems := await wait_settled(world, checkers):
        return problems
    outcome.settled_s = loop.time() - calm_at
    await asyncio.sleep(GRACE_S if not world.faults.counts["watch_hung"] else IDLE_S)
    await workload.drain_pods()
    # A pod that found no room while a node was tainted may wait for kube-scheduler's next try.
    if problems := await workload.pods_leave() or await wait_settled(world, checkers):
        return problems
    if problems := await wait_quiet(world, checkers):
        return problems
    outcome.rested_s = loop.time() - calm_at
    unrest = [f"settled, and then not: {line}" for line in checkers.differences()]
    return unrest or await never_scaled_down(world, checkers, workload.counts["replicasEdited"])


async def never_scaled_down(world: World, checkers: Checkers, edits: int) -> list[str]:
    """Return the pods that should have been removed by now.

    ``edits``: how often somebody else has changed the replicas. If somebody else has undone the
    autoscaler's writes twice or more often, it waits up to ``PATIENCE_MAX`` of its periods.
    """
    period_s = max(
        pool["spec"].get("scaleDownPeriodSeconds", 100) * 1.2
        for pool in world.stored(ADAPTERPOOLS).values()
    )
    for _ in range(PATIENCE_MAX if edits > 1 else 0):
        if not any(checkers.stored.idle()):
            break
        await asyncio.sleep(period_s)
    return [f"not scaled down: {line}" for line in checkers.stored.idle()]


async def wait_quiet(world: World, checkers: Checkers) -> list[str]:
    """Wait until nothing has been written for long enough. Return what is still written after
    ``REST_TIMEOUT_S``, and after the time in which every vreplica can move once within its pool's
    budget.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + REST_TIMEOUT_S + min(_moving_s(world), REST_TIMEOUT_S)
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
            return [
                f"still writing at {loop.time():.1f} s: {', '.join(loud)}",
                *world.trace.lines[-40:],
            ]
        await asyncio.sleep(quiet_at - loop.time())
    return []


def _moving_s(world: World) -> float:
    """How long it takes to move every vreplica once, in seconds (seeds 242697847, 261765341)."""
    placed = sum(
        placement["vreplicas"]
        for vpod in world.stored(VPODS).values()
        for placement in vpod.get("status", {}).get("placements") or ()
    )
    paces = [
        pool["spec"].get("scaleDownPeriodSeconds", 100) * 1.2 / moves
        for pool in world.stored(ADAPTERPOOLS).values()
        if (moves := (pool["spec"].get("rebalance") or {}).get("movesPerPeriod", 0))
    ]
    return float(placed * max(paces, default=0.0))


def _last_write(checkers: Checkers) -> float:
    return max(
        (at for plural, at in checkers.last_write_s.items() if plural not in LOUD), default=0.0
    )


async def wait_settled(world: World, checkers: Checkers) -> list[str]:
    """Wait for at most ``SETTLE_TIMEOUT_S`` until nothing differs. Return what still does."""
    end = asyncio.get_running_loop().time() + SETTLE_TIMEOUT_S
    while differences := checkers.differences() or unanswered(world):
        if asyncio.get_running_loop().time() > end:
            return [f"not settled after {SETTLE_TIMEOUT_S:g} s: {line}" for line in differences]
        world.callers.release_again(max(checkers.callers.led_since, world.leadership.led_since()))
        await asyncio.sleep(0.5)
    return []


async def left_over(world: World) -> list[str]:
    """Return what is wrong with the processes at rest: what they still hold, and what they have not
    reported or seen.
    """
    changed = world.cluster.server.store.changed_by_readers()
    found = [f"the event of {name} was changed by who has read it" for _, name in changed]
    for replica in world.replicas:
        found += state_problems(replica)
        if not await replica.service.recorder.drain(LAST_ANSWERS_S):
            found.append(f"{replica.name} has not written all its events")
    # If calls fail, the versions may pass what a replica has seen before it reads its Lease.
    if not any(world.faults.counts[kind] for kind in DELAYING_FAULTS):
        found += [f"{name} has not seen that etcd was restored" for name in world.outdated()]
    return found


def unanswered(world: World) -> list[str]:
    """Return the pools that nobody leads, and the callers that still wait for the answer to their
    last request. A dead leader's Lease must run out before anything is repaired or answered.
    """
    return [f"nobody leads {pool}" for pool in world.leadership.unled()] + [
        f"{key} has not been told that all is taken back" for key in world.callers.leaving()
    ]
