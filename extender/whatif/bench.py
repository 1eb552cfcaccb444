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
from extender.engine.state.pool_state import PoolState
from extender.engine.state.state import State
from extender.model.objects import VPod
from extender.whatif.growth import autoscale, bind_missing, held_back
from extender.whatif.trial import OutOfTime, Trial, never

T = TypeVar("T")

RIVALS_MAX: Final = 100
"""Other waiting vpods that are decided first. If there are more, those that have waited longest."""

Change = Callable[[Trial], bool]
"""Makes the change in a trial; False if it cannot be made."""


class Outcome(NamedTuple):
    """The result of a trial, in vreplicas of the vpod: ``left`` have no place, ``moves`` move.

    ``places``: how many more are placed than without the change and without rivals. ``gain``: how
    many more than without the change, with the rivals decided first in both cases.
    """

    places: int
    left: int
    moves: int
    gain: int


def fewest_enough(
    attempt: Callable[[int], T | None], failed: int, enough: int, found: T
) -> tuple[int, T]:
    """Find by halving the least number that is enough, with its result. ``failed`` is too few;
    ``found`` is the result of ``enough``.

    ``attempt`` returns None if a number is too few. A greater number must never be worse.
    """
    while enough - failed > 1:
        middle = (failed + enough) // 2
        other = attempt(middle)
        if other is not None:
            enough, found = middle, other
        else:
            failed = middle
    return enough, found


def _nothing(_trial: Trial) -> bool:
    return True


class Bench:
    """Tries changes for the vpod ``key`` on ``state``, which nobody else uses. ``rivals`` are other
    waiting vpods of its pool. Once ``expired`` returns True, a trial raises OutOfTime.
    """

    def __init__(self, state: State, pool: PoolState, key: str) -> None:
        self.state = state
        self.key = key
        self.tried = 0
        self.rivals = tuple(other for other in pool.unplaced if other != key)[:RIVALS_MAX]
        self._pool_key = pool.key
        self.expired: Callable[[], bool] = never
        self._with_rivals = True
        self._at_rest = False
        self._held = held_back(pool, state)
        self._helps_itself: dict[bool, bool] = {}
        self._placed: dict[tuple[bool, bool], int] = {}
        """(With rivals, at rest) -> vreplicas placed without any change."""

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
        """Whether the vpod lacks room. False if the pool or its StatefulSet is missing, or the
        namespace may not use the pool.
        """
        pool = self.pool
        if pool.adapter_pool is None or pool.stateful_set is None:
            return False
        return self.state.allows(pool.adapter_pool, self.vpod.namespace)

    @property
    def slots_waiting(self) -> int:
        """The slots that the vpod and its rivals still want."""
        pool = self.pool
        vpods = [pool.vpods[key] for key in (*self.rivals, self.key)]
        return sum(
            vpod.weight * max(0, vpod.vreplicas - pool.placed_vreplicas(vpod.key)) for vpod in vpods
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
        known = self._helps_itself.get(self._with_rivals)
        if known is None:
            with self.at_rest():
                found = self._try(_nothing)
            known = self._helps_itself[self._with_rivals] = found is not None and not found[1]
        return known

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """In this context, judge changes by the state that the cluster reaches."""
        self._at_rest = True
        try:
            yield
        finally:
            self._at_rest = False

    def outcome(self, change: Change) -> Outcome | None:
        """Return the result of the change; None if it cannot be made. Raises OutOfTime."""
        before, alone = (
            self._placed_before(self._with_rivals),
            self._placed_before(with_rivals=False),
        )
        found = self._try(change)
        if found is None:
            return None
        placed, left, moves = found
        return Outcome(max(0, placed - alone), left, moves, placed - before)

    def helps(self, change: Change) -> Outcome | None:
        """Return the result of a change that places more, None for any other. Raises OutOfTime."""
        found = self.outcome(change)
        return found if found is not None and (found.gain > 0 or not found.left) else None

    def smallest(
        self, make: Callable[[int], Change], first: int, last: int
    ) -> tuple[int, Outcome] | None:
        """Return the least number from ``first`` to ``last`` that leaves nothing without a place;
        None if there is none. Raises OutOfTime.

        Assumes of the changes of ``make``: if a number is enough, each greater one is; if a number
        is impossible, each greater one is.
        """
        failed, impossible, step = first - 1, last + 1, 1
        while impossible - failed > 1:
            number = min(failed + step, impossible - 1) if step else (failed + impossible) // 2
            found = self.outcome(make(number))
            if found is None:
                impossible, step = number, 0
            elif found.left:
                failed, step = number, step * 2
            else:
                return fewest_enough(lambda count: self._enough(make(count)), failed, number, found)
        return None

    def _enough(self, change: Change) -> Outcome | None:
        """The result of a change that leaves nothing without a place, None for any other."""
        found = self.outcome(change)
        return found if found is not None and not found.left else None

    def most_with_least(
        self, make: Callable[[int], Change], numbers: Iterable[int]
    ) -> tuple[int, Outcome] | None:
        """Used if none of ``numbers`` (ascending) places everything: return the first of those that
        leave the fewest without a place. Raises OutOfTime.
        """
        best: tuple[int, Outcome] | None = None
        for number in numbers:
            outcome = self.helps(make(number))
            if outcome is not None and (best is None or outcome.left < best[1].left):
                best = number, outcome
        return best

    def _placed_before(self, with_rivals: bool) -> int:
        key = with_rivals, self._at_rest
        if key not in self._placed:
            asked, self._with_rivals = self._with_rivals, with_rivals
            try:
                found = self._try(_nothing)
            finally:
                self._with_rivals = asked
            self._placed[key] = found[0] if found is not None else 0
        return self._placed[key]

    def _try(self, change: Change) -> tuple[int, int, int] | None:
        """Return (vreplicas placed, left, moved) with the change."""
        if self.expired():
            raise OutOfTime(f"the time is up after {self.tried} trials")
        self.tried += 1
        with Trial(self.state, self.expired) as trial:
            if not change(trial):
                return None
            decision, moved = self._decide(trial)
            if decision.left and self._at_rest and not self._held:
                bind_missing(trial, self.pool)
                decision, more = self._decide(trial)
                moved += more
                if decision.left:
                    autoscale(trial, self.pool, self.turns)
                    decision, more = self._decide(trial)
                    moved += more
            return decision.scheduled, decision.left, moved

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
