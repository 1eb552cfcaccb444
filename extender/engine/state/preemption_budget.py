"""``PreemptionBudget``: how many slots vpods of a higher priority may still take in a pool now.

``spec.preemption.slotsPerPeriod`` is the limit for one scaleDownPeriodSeconds. A slot counts when
it is decided that a vpod gives it back. Until the vpod has done so, each later decision takes the
same slot again. It is not counted twice: ``_levels`` remembers what a vpod was left with.
"""

from collections.abc import Iterable, Mapping, Sequence

from extender.engine.state.admission import Admitted, Wanted


class PreemptionBudget:
    """What one pool remembers."""

    __slots__ = ("_began_at", "_left", "_levels", "is_spent", "limit")

    def __init__(self) -> None:
        self.limit: int | None = None
        """Slots in one period; None: any number."""
        self.is_spent = False
        """Whether somebody would take more if it might."""
        self._left = 0
        self._began_at: float | None = None
        self._levels: dict[str, int] = {}
        """vpod key -> the vreplicas that it was left with."""

    def copy(self) -> "PreemptionBudget":
        """The same memory, for another state of the pool."""
        other = PreemptionBudget()
        other.limit, other.is_spent = self.limit, self.is_spent
        other._left, other._began_at = self._left, self._began_at
        other._levels = dict(self._levels)
        return other

    def set_limit(self, limit: int | None) -> None:
        """Follow ``slotsPerPeriod``. A new limit counts at once."""
        if limit != self.limit:
            self.limit, self._left = limit, limit or 0

    def renew(self, now: float, period_s: float, known: Mapping[str, object]) -> bool:
        """Begin a new period if the last one is over (``now``: seconds, of any clock), and forget
        vpods that are not ``known``. Return whether somebody waits for what may be taken now.
        """
        if self._began_at is None:
            self._began_at = now
        if self.limit is None or 0 <= now - self._began_at < period_s:
            return False
        self._began_at, self._left = now, self.limit
        self._levels = {key: level for key, level in self._levels.items() if key in known}
        was_spent, self.is_spent = self.is_spent, False
        return was_spent

    def may_take(
        self, keys: Sequence[str], wanted: Sequence[Wanted], used: Sequence[int]
    ) -> int | None:
        """How many slots may be taken of these vpods, with those that were taken before and that
        they have not given back yet. ``used``: what each of them uses.
        """
        if self.limit is None:
            return None
        return self._left + self._outstanding(keys, wanted, used)

    def take(
        self, keys: Sequence[str], wanted: Sequence[Wanted], used: Sequence[int], gets: Admitted
    ) -> None:
        """Count what a decision about these vpods takes."""
        if self.limit is None:
            return
        taken = sum([count * one.weight for count, one in zip(gets.taken, wanted, strict=True)])
        self._left -= max(0, min(self._left, taken - self._outstanding(keys, wanted, used)))
        self.forget(keys)
        rows = zip(keys, gets.taken, gets.vreplicas, strict=True)
        self._levels |= {key: level for key, count, level in rows if count}

    def forget(self, keys: Iterable[str]) -> None:
        """Nothing is taken of these vpods any more."""
        if self._levels:
            for key in keys:
                self._levels.pop(key, None)

    def _outstanding(
        self, keys: Sequence[str], wanted: Sequence[Wanted], used: Sequence[int]
    ) -> int:
        levels = self._levels
        if not levels:
            return 0
        return sum(
            [
                max(0, min(have, one.now) - levels[key]) * one.weight
                for key, one, have in zip(keys, wanted, used, strict=True)
                if key in levels
            ]
        )
