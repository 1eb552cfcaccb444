"""``Bench``: one vpod that waits, and changes that are tried until it does not. Each answer is what
the engine decided.

**In turn.** Others may wait, too, and who is served first is not known beforehand. So each change
counts as if all others that wait were decided before the vpod: what it gives then, it gives at the
least, as far as placing one more never makes room for another. Only where nothing helps that way it
is tried alone, and says so.

**At rest.** What a person changes is judged by what the cluster comes to then: pods that wait are
bound, the autoscaler adds those that it needs, and what waits is decided again. But not where all
of that is enough without any change: it would be what helps, whatever was changed.

**Smallest.** A number is looked for by doubling the step until it is enough, then by halving: so
the answer is enough and one less was tried and is not.
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
"""Others that wait and are decided before; of more, those that have waited longest."""

Change = Callable[[Trial], bool]
"""Does it within a trial; False where it cannot be done."""


class Outcome(NamedTuple):
    """What a trial came to, in vreplicas of the vpod: ``places`` more than it gets as things are,
    ``left``, ``moves``.

    ``gain``: more than it would get as things are, were the others that count served first, too.
    """

    places: int
    left: int
    moves: int
    gain: int


def fewest_enough(
    attempt: Callable[[int], T | None], failed: int, enough: int, found: T
) -> tuple[int, T]:
    """The least number that is enough, by halving, and what came of it; ``failed`` is too few,
    ``found`` came of ``enough``.

    ``attempt``: None where a number is too few; more is never worse.
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
    """Tries changes for the vpod ``key`` on ``state``, which is its own. ``expired``: whether the
    time is up; then OutOfTime is raised.
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
        """Its pool. One that nothing refers to any more, within a trial, is forgotten and made
        anew.
        """
        return self.state.pool(self._pool_key)

    @property
    def turns(self) -> tuple[str, ...]:
        """In which order vpods that wait are decided."""
        return (*self.rivals, self.key) if self._with_rivals else (self.key, *self.rivals)

    @property
    def lacks_room(self) -> bool:
        """Whether it is room that is missing, and not the pool, its StatefulSet or the right to use
        it.
        """
        pool = self.pool
        if pool.adapter_pool is None or pool.stateful_set is None:
            return False
        return self.state.allows(pool.adapter_pool, self.vpod.namespace)

    @property
    def slots_waiting(self) -> int:
        """Slots that the vpod and those before it want."""
        pool = self.pool
        vpods = [pool.vpods[key] for key in (*self.rivals, self.key)]
        return sum(
            vpod.weight * max(0, vpod.vreplicas - pool.placed_vreplicas(vpod.key)) for vpod in vpods
        )

    @property
    def vpod(self) -> VPod:
        """The vpod as it now is."""
        return self.pool.vpods[self.key]

    @property
    def alone(self) -> bool:
        """Whether the others that wait are left out."""
        return not self._with_rivals

    def go_alone(self) -> None:
        """From now on as if nobody else waited."""
        self._with_rivals = False

    @property
    def helps_itself(self) -> bool:
        """Whether nobody has to change anything: pods come, and all is placed. Raises OutOfTime."""
        known = self._helps_itself.get(self._with_rivals)
        if known is None:
            with self.at_rest():
                found = self._try(_nothing)
            known = self._helps_itself[self._with_rivals] = found is not None and not found[1]
        return known

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Within it, changes are judged by what the cluster comes to."""
        self._at_rest = True
        try:
            yield
        finally:
            self._at_rest = False

    def outcome(self, change: Change) -> Outcome | None:
        """What the change comes to; None where it cannot be made. Raises OutOfTime."""
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
        """The outcome of a change with which more is placed, None of any other. Raises
        OutOfTime.
        """
        found = self.outcome(change)
        return found if found is not None and (found.gain > 0 or not found.left) else None

    def smallest(
        self, make: Callable[[int], Change], first: int, last: int
    ) -> tuple[int, Outcome] | None:
        """The least number from ``first`` to ``last`` that leaves nothing over; None where none
        does. Raises OutOfTime.

        Of ``make``'s changes a greater number is taken to be enough where a smaller one is, and not
        to be possible where a smaller one is not.
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
        """The outcome of a change that leaves nothing over, None of any other."""
        found = self.outcome(change)
        return found if found is not None and not found.left else None

    def most_with_least(
        self, make: Callable[[int], Change], numbers: Iterable[int]
    ) -> tuple[int, Outcome] | None:
        """Where none of ``numbers`` (ascending) leaves nothing over: the one with which least is
        left, the least of those.
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
        """(vreplicas placed, left, moved) with the change."""
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
        """The vpod's decision after those of the others that count, and vreplicas of it
        that move.
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
