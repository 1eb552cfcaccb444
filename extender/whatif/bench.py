"""``Bench``: tries changes for one waiting vpod until one places it. The engine decides each time.

**In turn.** Other vpods may wait too, and the order in which they will be served is not known. So a
change is tried as if all others were decided before this vpod. The vpod then gets at least what the
trial shows, as long as placing one vpod more never makes room for another. If no change of a kind
is enough that way, the changes are tried as if nobody else waited, and the answer says so.

**At rest.** A change that a person makes is judged by the state that the cluster reaches after it:
waiting pods are bound, the autoscaler adds the pods that it needs, and the waiting vpods are
decided again. If all of this is enough without a change, it is left out of the trial: it would help
whatever the change was.

**Smallest.** The search doubles the step until a number is enough, then halves. So the answer is
enough, and the search has tried a number one less, which is not.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

from extender.engine.placing.plan import Decision
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.engine.state.state_observer import Recorded
from extender.model.objects import VPod
from extender.whatif.growth import autoscale, bind_missing, held_back
from extender.whatif.trial import OutOfTime, Trial, never

T = TypeVar("T")

RIVALS_MAX: Final = 100
"""Other waiting vpods that are decided first. If there are more, those that have waited longest."""

Change = Callable[[Trial], bool | None]
"""Makes the change in a trial; returns False if it cannot be made."""


class TrialResult(NamedTuple):
    """The result of a trial, in vreplicas of the vpod: ``left`` have no place, ``moves`` move.

    ``places``: how many more are placed than without the change and without rivals. ``gain``: how
    many more than without the change, with the rivals decided first in both cases.
    """

    places: int
    left: int
    moves: int
    gain: int


def exchanging(old: Recorded | None, new: Recorded | None) -> Change:
    """The change that replaces ``old`` by ``new``."""
    return lambda trial: trial.exchange(old, new)


def smallest(
    attempt: Callable[[int], T | None], enough: Callable[[T], bool], first: int, last: int
) -> tuple[int, T] | None:
    """Find the least number from ``first`` to ``last`` that is enough, with its result; None if
    there is none.

    ``attempt`` returns None for an impossible number. If a number is enough, each greater possible
    one must be; if a number is impossible, each greater one must be.
    """
    found: tuple[int, T] | None = None
    too_few, limit, step = first - 1, last + 1, 1
    while limit - too_few > 1:
        number = min(too_few + step, limit - 1) if step else (too_few + limit) // 2
        result = attempt(number)
        if result is not None and not enough(result):
            too_few, step = number, step * 2
            continue
        limit, step = number, 0
        if result is not None:
            found = number, result
    return found


def _nothing(_trial: Trial) -> None:
    """The change that changes nothing."""


class Bench:
    """Tries changes for the vpod ``key`` on ``state``, which nobody else uses. ``rivals`` are other
    waiting vpods of its pool. Once ``expired`` returns True, a trial raises OutOfTime.
    """

    def __init__(self, state: ClusterState, pool: PoolState, key: str) -> None:
        self.state = state
        self.key = key
        self.tried = 0
        self.rivals = tuple(other for other in pool.vpods_with_pending if other != key)[:RIVALS_MAX]
        self._pool_key = pool.key
        self.expired: Callable[[], bool] = never
        self._with_rivals = True
        self._at_rest = False
        self._held = held_back(pool, state)
        self._without_change: dict[tuple[bool, bool], tuple[int, int, int]] = {}
        """(With rivals, at rest) -> the result of ``_try`` without any change."""

    @property
    def pool(self) -> PoolState:
        """The vpod's pool. It is looked up each time: within a trial, a pool that nothing refers to
        is dropped and made again.
        """
        return self.state.pool(self._pool_key)

    @property
    def turns(self) -> tuple[str, ...]:
        """The order in which waiting vpods are decided."""
        return (*self.rivals, self.key) if self._with_rivals else (self.key, *self.rivals)

    @property
    def lacks_room(self) -> bool:
        """Whether the vpod lacks room. False if the pool or its StatefulSet is missing, or the vpod
        may get no place there.
        """
        pool = self.pool
        if pool.adapter_pool is None or pool.stateful_set is None:
            return False
        return self.state.selects(pool.key, self.vpod)

    @property
    def slots_waiting(self) -> int:
        """The slots that the vpod and its rivals still want."""
        pool = self.pool
        vpods = [pool.vpods[key] for key in (*self.rivals, self.key)]
        return sum(
            vpod.weight * max(0, vpod.vreplicas - pool.decided_vreplicas(vpod.key))
            for vpod in vpods
        )

    @property
    def vpod(self) -> VPod:
        """The vpod, from the state as it is within a trial."""
        return self.pool.vpods[self.key]

    @property
    def alone(self) -> bool:
        """Whether the rivals are left out."""
        return not self._with_rivals

    def go_alone(self) -> None:
        """From here on, try as if nobody else waited."""
        self._with_rivals = False

    @property
    def helps_itself(self) -> bool:
        """Whether everything is placed without any change, once the pods come. Raises OutOfTime."""
        return not self._unchanged(with_rivals=self._with_rivals, at_rest=True)[1]

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """In this context, judge changes by the state that the cluster reaches."""
        self._at_rest = True
        try:
            yield
        finally:
            self._at_rest = False

    def result(self, change: Change) -> TrialResult | None:
        """Return the result of the change; None if it cannot be made. Raises OutOfTime."""
        before = self._unchanged(with_rivals=self._with_rivals, at_rest=self._at_rest)
        alone = self._unchanged(with_rivals=False, at_rest=self._at_rest)
        found = self._try(change)
        if found is None:
            return None
        placed, left, moves = found
        return TrialResult(max(0, placed - alone[0]), left, moves, placed - before[0])

    def helps(self, change: Change) -> TrialResult | None:
        """Return the result of a change that places more, None for any other. Raises OutOfTime."""
        found = self.result(change)
        return found if found is not None and (found.gain > 0 or not found.left) else None

    def smallest(
        self, make: Callable[[int], Change], first: int, last: int
    ) -> tuple[int, TrialResult] | None:
        """Return the least number from ``first`` to ``last`` that leaves nothing without a place;
        None if there is none. Raises OutOfTime. See the function ``smallest`` for what it assumes.
        """
        return smallest(
            lambda number: self.result(make(number)), lambda result: not result.left, first, last
        )

    def most_with_least(
        self, make: Callable[[int], Change], numbers: Iterable[int]
    ) -> tuple[int, TrialResult] | None:
        """Used if none of ``numbers`` (ascending) places everything: return the first of those that
        leave the fewest without a place. Raises OutOfTime.
        """
        best: tuple[int, TrialResult] | None = None
        for number in numbers:
            result = self.helps(make(number))
            if result is not None and (best is None or result.left < best[1].left):
                best = number, result
        return best

    def _unchanged(self, *, with_rivals: bool, at_rest: bool) -> tuple[int, int, int]:
        """What ``_try`` returns without any change. Raises OutOfTime."""
        key = with_rivals, at_rest
        if key not in self._without_change:
            asked = self._with_rivals, self._at_rest
            self._with_rivals, self._at_rest = key
            try:
                self._without_change[key] = self._try(_nothing) or (0, 0, 0)
            finally:
                self._with_rivals, self._at_rest = asked
        return self._without_change[key]

    def _try(self, change: Change) -> tuple[int, int, int] | None:
        """Return (vreplicas placed, left, moved) with the change."""
        if self.expired():
            raise OutOfTime(f"the time is up after {self.tried} trials")
        self.tried += 1
        with Trial(self.state, self.expired) as trial:
            if change(trial) is False:
                return None
            decision, moved = self._decide(trial)
            if decision.pending and self._at_rest and not self._held:
                bind_missing(trial, self.pool)
                decision, more = self._decide(trial)
                moved += more
                if decision.pending:
                    autoscale(trial, self.pool, self.turns)
                    decision, more = self._decide(trial)
                    moved += more
            return decision.scheduled, decision.pending, moved

    def _decide(self, trial: Trial) -> tuple[Decision, int]:
        """Decide the rivals, then the vpod. Return its decision, and how many of its vreplicas
        move.
        """
        self._decide_rivals(trial)
        pool = self._pool_now()
        decision = trial.decide(pool, pool.vpods[self.key])
        return decision, sum(move.vreplicas for move in decision.moves)

    def _decide_rivals(self, trial: Trial) -> None:
        if not self._with_rivals:
            return
        for key in self.rivals:
            vpod = self.pool.vpods.get(key)
            if vpod is not None:
                trial.decide(self.pool, vpod)

    def _pool_now(self) -> PoolState:
        """The pool that the vpod asks for within the trial."""
        if self.key in self.pool.vpods:
            return self.pool
        return next(pool for pool in self.state.pools.values() if self.key in pool.vpods)
