"""SIGKILL at every await point: ``python -m tests.simulation.await_points [--scenario NAME] [--jobs
N] [--seconds S]``.

A scenario runs once undisturbed, and every suspension of a replica's tasks is noted by its
``Place``. Then it runs again for each place, and for the first, second and last time that it is
reached, with a SIGKILL there. Whatever was half done: everything settles, nothing is overcommitted,
lost, or moved beyond what the scenario asks for, and the checkers of I1 to I5 have nothing to say.

Equal seeds give equal runs, so a place is found again. The reverse is checked too: ``unreached``
names every await expression of the modules in ``CHECKED`` at which no scenario was suspended.
"""

import argparse
import ast
import asyncio
import logging
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from extender.lab.clock import run_virtual
from extender.lab.simulation.checkers.all import Checkers
from extender.lab.simulation.checkers.replica_state import state_problems
from extender.lab.simulation.run import wait_settled
from extender.lab.simulation.world.world import World
from extender.model.errors import VReplicaError
from tests.simulation.awaiting_modules import CHECKED
from tests.simulation.kill_run import Run
from tests.simulation.kill_scenarios import SCENARIOS
from tests.simulation.suspensions import ROOT, Expression, Place

SEED: Final = 1
QUIET_S: Final = 2.0
RESTARTED_S: Final = 1.5
"""Who was killed in the last moment runs again by then."""


class Kill(NamedTuple):
    """At the ``occurrence``-th time (from 1) that ``place`` is reached in the scenario.

    ``lost``: what is under way to the API server is lost with the process; else it arrives.
    """

    scenario: str
    place: Place
    occurrence: int
    lost: bool = False

    def __str__(self) -> str:
        lost = ", and its call is lost" if self.lost else ""
        return f"{self.scenario}: {self.occurrence}. time at {self.place}{lost}"


@dataclass
class Result:
    """What a run came to. ``problems`` empty: it passed."""

    places: Counter[Place] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    killed: str = ""
    problems: list[str] = field(default_factory=list)


def play(scenario: str, kill: Kill | None = None, reference: Result | None = None) -> Result:
    """Run a scenario, with a kill or without. ``reference``: the run without, for what may be
    moved.
    """
    result = Result()
    try:
        run_virtual(_play(scenario, kill, result))
    except (VReplicaError, AssertionError) as error:
        result.problems.append(f"{type(error).__name__}: {error}")
    if kill is not None and not result.killed:
        result.problems.append("the place was not reached again")
    allowed = SCENARIOS[scenario].moves
    for reason, count in result.moves.items():
        most = (
            reference.moves[reason] + SCENARIOS[scenario].again if reference is not None else count
        )
        if reason not in allowed or count > most:
            result.problems.append(f"moved {count} for {reason}, and {most} without a kill")
    return result


async def _play(name: str, kill: Kill | None, result: Result) -> None:
    scenario = SCENARIOS[name]
    world = World(SEED, scenario.scale)
    checkers = Checkers(world.trace)
    world.cluster.server.store.subscribers.append(checkers.on_change)

    def suspended(run: Run, process: str, place: Place) -> None:
        result.places[place] += 1
        if kill is not None and place == kill.place and result.places[place] == kill.occurrence:
            result.killed = process
            run.kill(process, lost=kill.lost)

    async with world:
        run = Run(world, checkers, suspended)
        await scenario.play(run)
        await asyncio.sleep(RESTARTED_S)
        result.problems += await wait_settled(world, checkers)
        await asyncio.sleep(QUIET_S)
        run.end()
        result.problems += checkers.differences()
        result.problems += [*checkers.violations, *world.problems]
        result.problems += [line for replica in world.replicas for line in state_problems(replica)]
        result.moves.update(checkers.moves)


# -- which kills there are -------------------------------------------------------------------------


def occurrences(count: int) -> list[int]:
    """First, second and last."""
    return sorted({1, min(2, count), count})


def every_kill(references: dict[str, Result]) -> Iterator[Kill]:
    """One for each place of each scenario, and each of its occurrences that is tried."""
    for scenario, result in references.items():
        for place, count in sorted(result.places.items()):
            for occurrence in occurrences(count):
                yield Kill(scenario, place, occurrence)
                if place.phase:
                    yield Kill(scenario, place, occurrence, lost=True)


def sample(kills: Iterable[Kill], count: int, rng: random.Random) -> list[Kill]:
    """The first time at each innermost expression, its call lost or not, and ``count`` of the
    others.
    """
    chosen: dict[tuple[Expression, bool], Kill] = {}
    others = []
    for kill in kills:
        key = (kill.place.path[-1], kill.lost)
        if key in chosen:
            others.append(kill)
        else:
            chosen[key] = kill
    return [*chosen.values(), *rng.sample(others, min(count, len(others)))]


# -- the await expressions that there are ----------------------------------------------------------

NEVER_SUSPENDS: Final = (
    "asyncio.timeout(",
    "asyncio.timeout_at(",
    "contextlib.aclosing(self._pages())",
)
"""Context managers whose ``async with`` has no await inside, and a generator that has none left
when it is closed.
"""

WAITS_FOR_CHILDREN: Final = (
    "its body never ends: it waits only for children that are cancelled, at the end of the process"
)
PAGES: Final = "lists of more than 500 objects; the first page's await is reached"
SLICES: Final = "more objects than one turn takes"
AT_ONCE: Final = "more than 32 writes at once, of several pools"
PROCESS_START: Final = (
    "the command's own start, with sockets; the simulation calls the service without them"
)
LAST_EVENTS: Final = (
    "events still unwritten when everything else has stopped: nothing else happens any more"
)
READ_BACK: Final = (
    "what is there is read after a lost answer: only the simulation's faults reach it"
)
BEHIND: Final = (
    "a replica whose watch is behind, or has a gap: only the simulation's faults reach it"
)
UNREACHED: Final = {
    (
        "quarantine.py",
        "await asyncio.sleep(RETRY_S)",
    ): "a condition is not written; nothing is under way then",
    ("autoscaler.py", "asyncio.TaskGroup()"): WAITS_FOR_CHILDREN,
    ("events.py", "asyncio.TaskGroup()"): WAITS_FOR_CHILDREN,
    ("sources.py", "asyncio.TaskGroup()"): WAITS_FOR_CHILDREN,
    (
        "descheduler.py",
        "await write_mark(self._caches, self._fenced, one.pod, mark._replace(",
    ): "a mark that is renewed, which is written as the first one is",
    (
        "evictions.py",
        "await fenced(pod.pool).patch( PODS, pod.namespace, pod.name, patch, patch_type",
    ): "no scenario gives an eviction up; the next leader removes what is left",
    ("assignments.py", "asyncio.TaskGroup()"): WAITS_FOR_CHILDREN,
    ("assignments.py", "await in_flight.acquire()"): AT_ONCE,
    ("assignments.py", "await asyncio.sleep(0)"): SLICES,
    ("assignments.py", "await self._note_epochs(list(due.pods))"): SLICES,
    ("ledger_writer.py", "self._in_flight"): AT_ONCE,
    ("committer.py", "self._in_flight"): AT_ONCE,
    (
        "placer.py",
        "self._lock(pool)",
    ): "a move that waits for a batch: as a batch that waits for a caller",
    ("reflector.py", "await following"): PAGES,
    ("reflector.py", "await asyncio.sleep(0)"): SLICES,
    (
        "reflector.py",
        "await self._wait(left_s)",
    ): "a watch that ends at once, which the simulation's faults bring: as one that fails",
    ("reconciler.py", "await asyncio.sleep(0)"): SLICES,
    ("reconciler.py", "await self._requeue_differences(bucket)"): SLICES,
    (
        "reconciler.py",
        "await give_up_evictions(self._caches, self._fenced, bucket, self._marks)",
    ): "no scenario evicts a pod; the next leader gives up what is left",
    ("reconciler.py", "await self._unexpected_writes.begin(bucket)"): SLICES,
    (
        "reflector.py",
        "await stream.aclose()",
    ): "a stream that ends without waiting for its connection",
    (
        "leader.py",
        "await self._release()",
    ): "lead() that ends by itself, which the service's does not",
    ("leadership.py", "asyncio.TaskGroup()"): WAITS_FOR_CHILDREN,
    ("leadership.py", "await lead(WHOLE)"): "without an election",
    (
        "leadership.py",
        "await asyncio.sleep(wait_s)",
    ): "another number of buckets, which is rolled out in the simulation",
    ("status_doubts.py", "await self._list_again(source)"): BEHIND,
    ("informers.py", "await self.sources.list_again(source)"): BEHIND,
    ("sources.py", "await running.watch.relist("): BEHIND,
    ("app.py", "await KubeApi.connect("): PROCESS_START,
    ("app.py", "await self.schedule_server.start()"): PROCESS_START,
    ("app.py", "await self.schedule_server.stop()"): PROCESS_START,
    ("app.py", "await self.adapter_server.start()"): PROCESS_START,
    ("app.py", "await self.adapter_server.stop()"): PROCESS_START,
    ("app.py", "await self.server.start()"): PROCESS_START,
    ("app.py", "await self.server.stop()"): PROCESS_START,
    ("app.py", "await service.run()"): PROCESS_START,
    ("app.py", "asyncio.TaskGroup()"): PROCESS_START,
    ("app.py", "await self.recorder.drain("): LAST_EVENTS,
    ("events.py", "await self._queues.idle.wait()"): LAST_EVENTS,
    (
        "sources.py",
        "await asyncio.sleep(0)",
    ): "selectors that change while there are more objects than one turn takes",
    ("binder.py", "await self._is_bound("): READ_BACK,
    ("binder.py", "await self._api.get(PODS"): READ_BACK,
    (
        "leader.py",
        "await self._api.get(LEASES, self._lease.namespace, self._lease.name)",
    ): READ_BACK,
    ("informers.py", "await self.relist_all_vpods()"): BEHIND,
    (
        "informers.py",
        "self._rounds.turn",
    ): "many buckets that are taken at once, and a slow list",
    ("informers.py", "await self.relist_own_vpods()"): BEHIND,
    ("informers.py", "await self.sources.catch_up()"): BEHIND,
    ("informers.py", "await self._pods.relist()"): BEHIND,
    ("informers.py", "await asyncio.sleep(REACH_PERIOD_S)"): BEHIND,
    ("ordinal_history_reader.py", "await self._close()"): BEHIND,
    ("ordinal_history_reader.py", "await asyncio.wait({self._closing}"): BEHIND,
    ("ordinal_history_reader.py", "await self._relist_all_vpods()"): BEHIND,
    ("unexpected_writes.py", "await asyncio.sleep(0)"): SLICES,
    (
        "sources.py",
        "await asyncio.sleep(self._backoff.next_s(",
    ): "a foreign kind that is not served, of which nothing is known",
    (
        "sources.py",
        "await self._probe([reflector.resource])",
    ): "a watch of a foreign kind that fails: as the other reflectors'",
    ("app.py", "await self.shadow.run()"): "shadow mode, which writes nothing",
}
"""(module, beginning of the text) -> why no scenario is suspended there."""


def expressions(file: str) -> dict[Expression, str]:
    """Every ``await``, ``async with`` and ``async for`` of a module, with its text."""
    source = (ROOT / file).read_text()
    found: dict[Expression, str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AsyncWith):
            shown: ast.expr = node.items[0].context_expr
        elif isinstance(node, ast.AsyncFor):
            shown = node.iter
        elif isinstance(node, ast.Await):
            shown = node
        else:
            continue
        # Python gives what waits inside ``async with`` and ``async for`` the place of the whole
        # statement.
        where = Expression(
            file, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0
        )
        found[where] = " ".join((ast.get_source_segment(source, shown) or "").split())
    return found


def reached(references: Iterable[Result]) -> set[Expression]:
    """The expressions at which some task was suspended."""
    return {
        expression for result in references for place in result.places for expression in place.path
    }


def unreached(references: Iterable[Result]) -> dict[Expression, str]:
    """Expressions of the modules ``CHECKED`` at which nothing was suspended, and no reason says
    why; their texts.
    """
    seen = reached(references)
    return {
        expression: text
        for file in CHECKED
        for expression, text in expressions(file).items()
        if expression not in seen
        and not text.startswith(NEVER_SUSPENDS)
        and not reason_of(expression, text)
    }


def reason_of(expression: Expression, text: str) -> str:
    """Why no scenario is suspended there; "" where nothing says so."""
    module = expression.file.rpartition("/")[2]
    reasons = (
        why for (file, start), why in UNREACHED.items() if file == module and text.startswith(start)
    )
    return next(reasons, "")


# -- the command -----------------------------------------------------------------------------------


def _tried(job: tuple[Kill, Result]) -> tuple[Kill, list[str]]:
    kill, reference = job
    logging.disable(logging.CRITICAL)
    return kill, play(kill.scenario, kill, reference).problems


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.await_points", description=__doc__
    )
    parser.add_argument(
        "--scenario", choices=sorted(SCENARIOS), action="append", help="only this one"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--sample", type=int, metavar="N", help="first times, and so many others")
    parser.add_argument("--seed", type=int, default=SEED, help="of the sample")
    parser.add_argument("--list", action="store_true", help="print the places and kill nobody")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    started = time.monotonic()
    references = {}
    for name in options.scenario or SCENARIOS:
        references[name] = play(name)
        say(f"{name}: {len(references[name].places)} places, moves {dict(references[name].moves)}")
        for problem in references[name].problems:
            say(f"  without a kill: {problem}")
    kills = list(every_kill(references))
    if options.list:
        for kill in kills:
            say(f"{kill}")
        for expression, text in unreached(references.values()).items():
            say(f"not reached: {expression} {text}")
        return 0
    if options.sample is not None:
        kills = sample(kills, options.sample, random.Random(options.seed))
    failed = sum(bool(result.problems) for result in references.values())
    with multiprocessing.Pool(options.jobs) as pool:
        jobs = [(kill, references[kill.scenario]) for kill in kills]
        for kill, problems in pool.imap_unordered(_tried, jobs, chunksize=4):
            failed += bool(problems)
            for problem in problems[:3]:
                say(f"{kill}: {problem}")
    say(f"{len(kills)} kills in {time.monotonic() - started:.0f} s, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
