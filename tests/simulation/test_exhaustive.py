"""Two replicas over three pods and three vpods in every order, to a small depth; and the explorer
itself on toys.
"""

import asyncio
import multiprocessing
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.simulation.exhaustive.__main__ import run_into
from tests.simulation.exhaustive.explorer import (
    THREAD,
    Director,
    EndlessRun,
    ExploredLoop,
    Fork,
    Known,
    Step,
    run_explored,
)
from tests.simulation.exhaustive.situations import SITUATIONS

pytestmark = pytest.mark.sim

SECONDS_EACH: Final = 120.0
"""The slowest needs 8 on an idle machine. One that does not end by then fails: it has not tried
all.
"""
FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([run_into.__module__])


class Ended(NamedTuple):
    """An exploration's exit status, and what it printed."""

    status: int | None
    printed: str


def explored(tmp: Path, *arguments: str) -> Ended:
    """In a process of its own, because exploring forks; of one that has imported all."""
    printed = tmp / "printed"
    process = FORKS.Process(target=run_into, args=(printed, arguments))
    process.start()
    process.join()
    return Ended(process.exitcode, printed.read_text())


@pytest.mark.timeout(SECONDS_EACH + 20.0)
@pytest.mark.parametrize("watches", ["--late", "--no-late"])
@pytest.mark.parametrize("name", SITUATIONS)
def test_every_order_with_at_most_one_change_keeps_the_invariants_and_settles(
    name: str, watches: str, tmp_path: Path
):
    ended = explored(
        tmp_path, "--depth", "1", "--situation", name, watches, "--seconds", str(SECONDS_EACH)
    )
    assert ended.status == 0, ended.printed
    assert " (all), " in ended.printed


def test_an_exploration_that_its_time_cuts_off_says_so_and_fails(tmp_path: Path):
    ended = explored(
        tmp_path, "--depth", "1", "--situation", "both bind", "--no-late", "--seconds", "0"
    )
    assert ended.status == 2, ended.printed
    assert ended.printed.endswith("not all that there are\n")


def test_a_replica_that_does_not_lead_binds_in_an_exploration(tmp_path: Path):
    """Else every situation in which it competes with the leader for a pod is none."""
    ended = explored(tmp_path, "--situation", "place and bind", "--no-late", "--replay", "")
    assert "replica-B: bind of dispatcher-2 is answered ok" in ended.printed


def test_a_call_that_its_sender_gives_up_is_served_later(tmp_path: Path):
    ended = explored(
        tmp_path,
        "--situation",
        "late lower, given up by its sender",
        "--no-late",
        "--replay",
        "0,0,0,0,0,2",
    )
    assert "replica-A: patch of pods dispatcher-2 is given up, under way" in ended.printed
    assert "late, patch of pods dispatcher-2 of replica-A is served" in ended.printed


# -- the explorer ----------------------------------------------------------------------------------


class Counter:
    """Two processes that add 1 to a number by reading and writing it; ``seen`` is where results of
    all runs go.
    """

    def __init__(self, *, compare_and_swap: bool) -> None:
        self.value = 0
        self.compare_and_swap = compare_and_swap

    async def add(self, director: Director, process: str) -> None:
        THREAD.set(process)
        while True:
            await director.step(process, "reads", self.value)
            read = self.value
            await director.step(process, "writes")
            if self.value == read or not self.compare_and_swap:
                self.value = read + 1
                return


def results(
    tmp: Path, *, depth: int, compare_and_swap: bool, events: int = 0
) -> tuple[list[int], Known]:
    """What the number was at the end of each run; by its own process, as the explorer forks."""
    known = Known(states_max=1000)
    written = tmp / "results"

    async def main(loop: ExploredLoop) -> None:
        counter, left = Counter(compare_and_swap=compare_and_swap), [events]
        fork = Fork(known, depth=depth, go_on=lambda: True)

        def more() -> Iterator[Step]:
            if left[0]:
                yield Step("events", "a", f"event {left[0]}", partial(_take, left))

        director = Director(
            fork=fork,
            order=["a", "b", "events"],
            more_steps=more,
            world=lambda: (counter.value, left[0]),
        )
        tasks = [loop.create_task(counter.add(director, process)) for process in ("a", "b")]
        await asyncio.sleep(0)
        loop.director = director.turn
        await director.ended
        loop.director = None
        known.count("runs", 1)
        with written.open("a") as file:
            file.write("" if director.trail.merged else f"{counter.value}\n")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    parent = os.getpid()
    try:
        run_explored(main)
    finally:
        if os.getpid() != parent:
            os._exit(0)
    return [int(line) for line in written.read_text().split()], known


def _take(left: list[int]) -> None:
    left[0] -= 1


def test_without_a_change_the_first_thread_runs_to_its_end(tmp_path: Path):
    found, known = results(tmp_path, depth=0, compare_and_swap=False)
    assert (found, known.count("runs")) == ([2], 1)


def test_one_change_finds_the_lost_update(tmp_path: Path):
    found, _ = results(tmp_path, depth=1, compare_and_swap=False)
    assert set(found) == {1, 2}


def test_compare_and_swap_loses_no_update_in_any_order(tmp_path: Path):
    found, known = results(tmp_path, depth=4, compare_and_swap=True)
    assert set(found) == {2}
    assert known.count("runs") > 5


def test_events_come_at_any_moment_and_equal_states_are_met_once(tmp_path: Path):
    found, known = results(tmp_path, depth=2, compare_and_swap=True, events=2)
    assert set(found) == {2}
    assert known.count("runs") > len(found)


def test_a_state_is_known_only_with_as_much_depth_left():
    known = Known(states_max=10)
    met = [
        known.met("a", 1),
        known.met("a", 1),
        known.met("a", 0),
        known.met("a", 2),
        known.met("a", 1),
    ]
    assert met == [False, True, True, False, True]
    assert known.count("states") == 1


def test_more_states_than_there_is_room_for_are_an_error():
    known = Known(states_max=3)
    for number in range(3):
        assert not known.met(("state", number), 0)
    with pytest.raises(EndlessRun, match="more than 3 states"):
        known.met("one more", 0)
