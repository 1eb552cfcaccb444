"""I6: in an exclusive pool no share is served by two adapters at any moment.

Two machines, a scheduler as HANDOFF describes it, and a network that loses, delays and doubles what
is said. Each process has a clock of its own that runs up to 4 % too fast or too slow, and may be
paused for longer than its lease. Time is virtual; each seed is one history.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from vreplica_adapter.machine import Machine
from vreplica_adapter.progress import Outcome, Progress, Start
from vreplica_adapter.wire import Acknowledgement, Assignment, ShareDocument, State

KEY = "team-a/orders"
LEASE_S = 10.0
DRIFT = 0.1
WALL = datetime(2026, 12, 1, tzinfo=UTC)


class World:
    """What happens when, by the scheduler's clock."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + seconds, self._count, happens))

    def carry(self, happens: Callable[[], None]) -> None:
        """Over the network: lost, late, twice."""
        if self.chance.random() < 0.2:
            return
        for _ in range(1 + (self.chance.random() < 0.1)):
            late = self.chance.choice([0.01, 0.05, 0.5, 3.0, 15.0])
            self.after(late, happens)

    def step(self) -> None:
        self.now, _, happens = heapq.heappop(self._queue)
        happens()


@dataclass
class Leader:
    """The scheduler: it gives the share to one pod after the other."""

    world: World
    pods: list["Process"] = field(default_factory=list)
    generations: dict[str, int] = field(default_factory=dict)
    shares: dict[str, ShareDocument | None] = field(default_factory=dict)
    heard_at: dict[str, float] = field(default_factory=dict)
    epoch: int = 0
    moves: int = 0

    def tell(self, pod: str, share: ShareDocument | None) -> None:
        self.shares[pod] = share
        self.generations[pod] = self.generations.get(pod, 0) + 1

    def document(self, pod: str) -> Assignment:
        share = self.shares.get(pod)
        shares = {} if share is None else {KEY: share}
        generation = self.generations.get(pod, 0)
        return Assignment(generation, f"uid of {pod}", shares=shares, lease_s=LEASE_S)

    def hear(self, pod: str, said: Acknowledgement) -> int:
        generation = self.generations.get(pod, 0)
        if said.generation == generation:
            self.heard_at[pod] = self.world.now
            share = self.shares.get(pod)
            if share is not None and share.state is State.DRAIN and KEY in said.drained:
                self.hand_over(pod)
        return generation

    def begin(self) -> None:
        self.give(self.pods[0].name)
        self.world.after(5.0, self.look)

    def give(self, pod: str) -> None:
        self.epoch += 1
        self.heard_at[pod] = self.world.now
        self.tell(pod, ShareDocument(State.SERVE, 1, epoch=self.epoch))

    def hand_over(self, source: str) -> None:
        self.moves += 1
        self.tell(source, None)
        self.give(self.world.chance.choice([pod.name for pod in self.pods if pod.name != source]))

    def look(self) -> None:
        """Now and then move the share; take it away from one that is silent for its lease."""
        for pod, share in list(self.shares.items()):
            if share is None:
                continue
            if self.world.now >= self.heard_at[pod] + LEASE_S:
                self.hand_over(pod)
            elif share.state is State.SERVE and self.world.chance.random() < 0.2:
                self.tell(pod, ShareDocument(State.DRAIN, 1, epoch=share.epoch))
        self.world.after(1.0, self.look)


class Process:
    """An adapter's edge: it may be paused, and its clock may drift."""

    def __init__(self, name: str, world: World, leader: Leader) -> None:
        self.name, self.world, self.leader = name, world, leader
        self.machine = Machine()
        self.rate = 1 + world.chance.uniform(-DRIFT, DRIFT)
        self.paused_until = 0.0
        leader.pods.append(self)

    @property
    def now(self) -> float:
        return 100 + self.world.now * self.rate

    def awake(self, does: Callable[[], None]) -> None:
        """Do it now, or after the pause."""
        if self.world.now < self.paused_until:
            self.world.after(self.paused_until - self.world.now, lambda: self.awake(does))
            return
        does()
        self.act()

    def act(self) -> None:
        for action in self.machine.actions():
            match action:
                case Start():
                    takes = self.world.chance.choice([0.0, 0.1, 2.0])
                    self.ends_after(takes, action.progress, Outcome.DONE)
                case _:
                    pass  # A callback that is cancelled goes on to its end.

    def ends_after(self, seconds: float, progress: Progress, outcome: Outcome) -> None:
        def ends() -> None:
            self.machine.finished(progress, outcome, "", self.now)

        self.world.after(seconds, lambda: self.awake(ends))

    def run(self) -> None:
        def listens() -> None:
            document = self.leader.document(self.name)
            arrives = lambda: self.awake(lambda: self.take(document))  # noqa: E731
            self.world.carry(arrives)

        def speaks() -> None:
            said, sent_at = self.machine.acknowledgement(), self.now
            if said is not None:
                self.world.carry(lambda: self.arrive(said, sent_at))
            self.machine.tick(self.now)

        self.every(1.0, listens)
        self.every(1.5, speaks)
        self.every(20.0, self.pause)

    def take(self, document: Assignment) -> None:
        self.machine.assign(document, self.now, WALL, news=True)

    def arrive(self, said: Acknowledgement, sent_at: float) -> None:
        generation = self.leader.hear(self.name, said)

        def answered() -> None:
            self.machine.acknowledged(said, sent_at, self.now, generation)

        self.world.carry(lambda: self.awake(answered))

    def pause(self) -> None:
        if self.world.chance.random() < 0.3:
            self.paused_until = self.world.now + self.world.chance.choice([3.0, 12.0, 40.0])

    def every(self, seconds: float, does: Callable[[], None]) -> None:
        def again() -> None:
            self.world.after(seconds, again)
            self.awake(does)

        self.world.after(self.world.chance.uniform(0, seconds), again)

    def serves(self) -> bool:
        """Whether a worker that asks now is let on."""
        return any(
            self.machine.may_act(progress, progress.last_told.epoch, self.now)
            for progress in self.machine.progress.values()
        )


def run(seed: int, until: float = 400.0) -> tuple[int, int, int]:
    """Return how often two served, how often one did, and how many moves there were."""
    world = World(seed)
    leader = Leader(world)
    pods = [Process(name, world, leader) for name in ("a", "b")]
    leader.begin()
    for pod in pods:
        pod.run()
    twice = once = 0
    while world.now < until:
        world.step()
        serving = sum(pod.serves() for pod in pods)
        twice += serving > 1
        once += serving == 1
    return twice, once, leader.moves


@pytest.mark.parametrize("seed", range(40))
def test_no_share_is_served_by_two(seed):
    twice, once, moves = run(seed)
    assert twice == 0
    assert once > 100, "somebody works"
    assert moves > 3


@pytest.mark.parametrize(
    "break_it",
    [
        pytest.param(("vreplica_adapter.machine.LEASE_PART", 1.5), id="a lease used for too long"),
        pytest.param(("vreplica_adapter.machine.Machine.lease_until", 1e9), id="no lease"),
    ],
)
def test_the_search_finds_it_when_the_lease_is_broken(break_it, monkeypatch):
    monkeypatch.setattr(*break_it)
    assert any(run(seed)[0] for seed in range(40))
