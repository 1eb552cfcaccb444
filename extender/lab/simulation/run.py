"""One run: a trial, which is a seed and what is left out of it; a world, a workload with faults,
then calm, and a verdict.

Safety while everything happens (the checkers, after each write), liveness once it has stopped:
within ``SETTLE_TIMEOUT_S`` everything is as it should be. What is worth it is then compacted and
scaled down, period by period, for at most ``REST_TIMEOUT_S``; that must end, with nothing written
for ``QUIET_S``, and with no pod left that is not needed. Incremental state is compared with rebuilt
state on each replica at the end.
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
from extender.kube.api import ADAPTERPOOLS
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

SETTLE_TIMEOUT_S: Final = 420.0
"""kube-scheduler tries a pod again after 5 minutes whatever happens; a lease runs out, and the
reconciler comes round.
"""
GRACE_S: Final = 45.0
"""What reflectors that were refused again and again may wait before they look: only then does
everybody know it is over.
"""
IDLE_S: Final = ReflectorSettings().idle_timeout_s + GRACE_S
"""... and what a watch that has fallen silent is waited for."""
LAST_ANSWERS_S: Final = 5.0
"""For what callers have asked last to be carried out."""
QUIET_S: Final = 60.0
"""Besides a pool's period and cool-down: for so long nothing is written at rest."""
REST_TIMEOUT_S: Final = 3600.0
"""Scale-down waits for moves, moves for their budget and cool-down, and closing in vain waits twice
as long each time.
"""
PATIENCE_MAX: Final = 1 << STRIKES_MAX - 1
"""Scale-down periods that the autoscaler waits at the most where somebody else has undone what it
wrote again and again.
"""
RUN_MAX_S: Final = 2 * (SETTLE_TIMEOUT_S + REST_TIMEOUT_S)
EVENT_MAX_S: Final = 60.0
"""Of virtual time, an event in the mean; half a second is usual. Nothing in a run may wait without
a limit.
"""
EVENTS: Final = 500
"""Of the workload, that do something."""
UNANSWERED: Final = (
    "write_late",
    "status_reply_lost",
    "patch_reply_lost",
    "reply_lost",
    "partition",
)
"""Faults after which a writer does not know what of its moves was made."""
LATENING: Final = tuple(
    item.name
    for item in fields(FaultRates)
    if item.metadata.get("per") in {"write", "call", "list", "event"}
)
"""Faults of calls and watches: each makes somebody look or write again, later."""
PROMPT_S: Final = 5.0
"""A decision's age where no fault makes views or writes late: nothing but the network's
milliseconds, and retries.
"""
COUNTS_OTHERWISE: Final = 0.25
"""Of the replicas, where pools are led in buckets."""
LOUD: Final = frozenset({"leases", "events", "nodes"})
"""Kinds that are written all the time."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is run. Everything follows from the seed; the rest replaces or leaves out some of what
    it has drawn.

    ``only``: numbers of the events that happen; ``faults``: kinds that may happen; None: all.
    ``plain``: one pool with the defaults, and no acts on what is not in it.
    """

    seed: int
    plain: bool = False
    profile: FaultProfile = DRAWN
    events: int = EVENTS
    only: frozenset[int] | None = None
    faults: frozenset[str] | None = None

    def command(self) -> str:
        """The arguments of ``vreplica simulate`` that run it again."""
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
    """1,4-7: sorted numbers, neighbours together."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found) or "none"


@dataclass
class Outcome:
    """What a run came to. ``problems`` empty: it passed. ``events`` are those that did something,
    by their number.
    """

    trial: Trial
    problems: list[str] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    tried: int = 0
    """Events that came to their turn, those included that did nothing."""
    faults: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    settled_s: float | None = None
    rested_s: float | None = None
    digest: str = ""
    moves: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every invariant held, and everything settled."""
        return not self.problems

    def line(self) -> str:
        """In one line."""
        settled = (
            f"settled in {self.settled_s:.1f} s" if self.settled_s is not None else "not settled"
        )
        if self.rested_s is not None:
            settled += f", at rest in {self.rested_s:.0f} s"
        return (
            f"seed {self.trial.seed}: {len(self.events)} events, {self.faults.total()} faults of "
            f"{len(self.faults)} kinds, "
            f"{settled}, moves {sum(self.moves.values())}, trace {self.digest}, "
            f"{'ok' if self.passed else 'FAILED'}"
        )


def simulate(trial: Trial | int, *, keep_trace: bool = False) -> Outcome:
    """Run a trial, or a seed as it is, in virtual time. Whatever error ends it is a problem of the
    run, too.

    So it is told with the line that runs it again, and no other seed is the worse for it. Only a
    person ends all of them.
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
    """The innermost line that an error comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f"in {frames[-1].name}, {Path(frames[-1].filename).name}:{frames[-1].lineno}"
        if frames
        else "nowhere"
    )


def parts_of(trial: Trial, rng: random.Random) -> frozenset[str]:
    """What the world has besides vpods, nodes and pools."""
    drawn = frozenset[str]() if trial.plain else drawn_parts(rng) | drawn_parts_last(trial.seed)
    return trial.profile.parts_of(drawn)


def rates_of(
    trial: Trial, rng: random.Random, of_parts: Mapping[str, float]
) -> tuple[FaultRates, dict[str, float]]:
    """Rates of calls and watches, and of acts by kind: of all of them, also where a trial leaves
    some out.
    """
    drawn = drawn_faults(rng)
    delays = {**drawn_delays(rng), **trial.profile.delays}
    rates = trial.profile.rates_of({**drawn, **drawn_last(rng), **of_parts})
    acts = {kind.name: rates.pop(kind.name) for kind in ACT_KINDS}
    if trial.faults is not None:
        rates = {kind: rate if kind in trial.faults else 0.0 for kind, rate in rates.items()}
    return FaultRates().with_rates({**rates, **delays}), acts


def is_late(rates: FaultRates, mischief: Mapping[str, float], left_out: Collection[str]) -> bool:
    """Whether any fault of a run delays what replicas see, or what they write."""
    of_network = any(getattr(rates, kind) for kind in LATENING)
    return of_network or any(
        mischief.get(kind) and kind not in left_out
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
    apart = random.Random(
        f"{trial.seed}/parts"
    )  # of their own dice: seeds without parts are what they were
    parts = parts_of(trial, apart)
    scale = replace(
        scale, pools=pools, buckets=trial.profile.buckets, counts_otherwise=COUNTS_OTHERWISE
    )
    scale = with_parts(scale, apart, parts)
    rates, mischief = rates_of(trial, rng, drawn_of_parts(apart, parts))
    left_out = mischief.keys() - trial.faults if trial.faults is not None else frozenset[str]()
    world = World(trial.seed, scale, rates=rates, keep_trace=keep_trace)
    # Where watches fall silent, a decision may be as old as that goes unnoticed.
    excuse_s = EXCUSE_S + (IDLE_S if rates.watch_hung else 0.0)
    circumstances = Circumstances(
        excuse_s=excuse_s,
        late_s=excuse_s if is_late(rates, mischief, left_out) else PROMPT_S,
        now_of=world.now_of,
        two_lead=world.leadership.two_lead,
        unsure=lambda: sum(world.faults.counts[kind] for kind in UNANSWERED),
        listed_at=world.listed_at,
        ledger_failed_at=world.ledger_failed_at,
        failed_at=world.failed_at,
        runs_since=world.runs_since,
    )
    checkers = Checkers(world.trace, circumstances)
    world.cluster.server.store.subscribers.append(checkers.on_change)
    world.callers.watchers.append(checkers.callers)
    given_up = _Once(asyncio.current_task())
    checkers.give_up = given_up.cancel
    workload = Workload(
        world, mischief=mischief, left_out=left_out, plain=trial.plain, parts=parts, only=trial.only
    )
    try:
        async with world:
            await workload.run(trial.events)
            await workload.calm_down()
            outcome.problems += await settle(
                world, checkers, outcome, workload.counts["replicasEdited"]
            )
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
            {k: n for k, n in workload.counts.items() if k in mischief}
        )
        outcome.moves, outcome.trace = checkers.moves, world.trace.lines


async def settle(world: World, checkers: Checkers, outcome: Outcome, edits: int) -> list[str]:
    """Wait until nothing differs, then for silence; what is wrong with it, if anything.

    ``edits``: times that somebody else has changed replicas.
    """
    loop = asyncio.get_running_loop()
    calm_at = loop.time()
    if problems := await wait_settled(world, checkers):
        return problems
    outcome.settled_s = loop.time() - calm_at
    await asyncio.sleep(GRACE_S if not world.faults.counts["watch_hung"] else IDLE_S)
    if problems := await wait_quiet(world, checkers):
        return problems
    outcome.rested_s = loop.time() - calm_at
    unrest = [f"settled, and then not: {line}" for line in checkers.differences()]
    return unrest or await never_scaled_down(world, checkers, edits)


async def never_scaled_down(world: World, checkers: Checkers, edits: int) -> list[str]:
    """The pods that should have been removed by now.

    Who undoes what the autoscaler has written, twice or more often, makes it wait up to
    ``PATIENCE_MAX`` of its periods.
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
    """Wait until nobody has written anything for long enough; who still writes after
    ``REST_TIMEOUT_S``.
    """
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
            return [
                f"still writing at {loop.time():.1f} s: {', '.join(loud)}",
                *world.trace.lines[-40:],
            ]
        await asyncio.sleep(quiet_at - loop.time())
    return []


def _last_write(checkers: Checkers) -> float:
    return max(
        (at for plural, at in checkers.last_write_s.items() if plural not in LOUD), default=0.0
    )


async def wait_settled(world: World, checkers: Checkers) -> list[str]:
    """Wait until nothing differs, for at most ``SETTLE_TIMEOUT_S``; what still differs then."""
    end = asyncio.get_running_loop().time() + SETTLE_TIMEOUT_S
    while differences := checkers.differences() or unanswered(world):
        if asyncio.get_running_loop().time() > end:
            return [f"not settled after {SETTLE_TIMEOUT_S:g} s: {line}" for line in differences]
        world.callers.release_again(max(checkers.callers.led_since, world.leadership.led_since()))
        await asyncio.sleep(0.5)
    return []


async def left_over(world: World) -> list[str]:
    """What is wrong with processes once all is at rest: what they keep, and have not told
    or seen.
    """
    changed = world.cluster.server.store.changed_by_readers()
    found = [f"the event of {name} was changed by who has read it" for _, name in changed]
    for replica in world.replicas:
        found += state_problems(replica)
        if not await replica.service.recorder.drain(LAST_ANSWERS_S):
            found.append(f"{replica.name} has not written all its events")
    # Where calls fail, versions may pass what a replica has seen before it reads its Lease.
    if not any(world.faults.counts[kind] for kind in LATENING):
        found += [f"{name} has not seen that etcd was restored" for name in world.outdated()]
    return found


def unanswered(world: World) -> list[str]:
    """A dead leader's lease has to run out before anything is repaired, written or answered."""
    return [f"nobody leads {pool}" for pool in world.leadership.unled()] + [
        f"{key} has not been told that all is taken back" for key in world.callers.leaving()
    ]
