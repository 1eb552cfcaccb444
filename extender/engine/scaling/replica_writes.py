"""``ReplicaWrites``: who changed a StatefulSet's replicas, and how long we leave them alone. Pure.

The watch shows our own writes in the order in which they were made, sometimes before a write's
reply, and not always all of them. So a number that we asked for is remembered until it is seen. Any
other number is somebody else's (KEDA, an HPA, a person).

::

    as asked --somebody else's--> foreign --our write, or their number is what we want--> as asked
       ^  our write, seen                 (a foreign number that undoes our last write is a strike)

A foreign number stays until the pool's needs change, or until its next scale-down period. Only
vreplicas without a place get pods at once. From the second strike on, even these wait, each time
twice as long, and scale-down periods become longer in the same way. Otherwise, two controllers that
undo each other's writes would restart pods for ever.
"""

from collections import deque
from typing import Final

UNSEEN_MAX: Final = 16
STRIKE_DELAY_S: Final = 10.0
STRIKES_MAX: Final = 6
"""The delay grows no more after so many strikes: 10 s doubled four times is 160 s."""
STRIKES_FORGOTTEN_S: Final = 3600.0


class ReplicaWrites:
    """What we asked for and what was seen, for one StatefulSet. Times are the caller's clock, in
    seconds.
    """

    def __init__(self) -> None:
        self._unseen: deque[int] = deque(maxlen=UNSEEN_MAX)
        self._last: tuple[int, int] | None = None
        """(replicas before, replicas asked for) of our last write."""
        self.strikes = 0
        """How many times in a row somebody else has undone what we wrote."""
        self.foreign: int | None = None
        """The replicas that somebody else has asked for, while that number stays."""
        self.back_off_until = 0.0
        self._struck_at = float("-inf")

    def asked(self, before: int, replicas: int) -> None:
        """We are about to write ``replicas``."""
        self._unseen.append(replicas)
        self._last = (before, replicas)

    def refused(self, replicas: int) -> None:
        """Take back ``asked``: that write certainly did not happen."""
        if self._unseen and self._unseen[-1] == replicas:
            self._unseen.pop()

    def settle(self) -> None:
        """End the foreign number: we have written since, we want the same number, or the needs have
        changed.
        """
        self.foreign = None

    def seen(self, old: int, new: int, now: float) -> bool:
        """The watch shows that replicas went from ``old`` to ``new``. True if somebody
        else did it.
        """
        if new in self._unseen:
            while self._unseen.popleft() != new:
                continue
            return False
        if new == old:
            return False
        self.foreign = new
        if now - self._struck_at > STRIKES_FORGOTTEN_S:
            self.strikes = 0
        # What is seen before our own write was there before it: a watch that was silent shows all
        # of it at once.
        last_is_seen = self._last is not None and self._last[1] not in self._unseen
        if self._last is not None and last_is_seen and _undoes(*self._last, new):
            self.strikes = min(self.strikes + 1, STRIKES_MAX)
            self._struck_at = now
        self.back_off_until = now + self.delay_s
        return True

    @property
    def delay_s(self) -> float:
        """How long vreplicas without a place wait after a foreign number; 0 the first time."""
        return STRIKE_DELAY_S * 2 ** (self.strikes - 2) if self.strikes > 1 else 0.0

    @property
    def patience(self) -> int:
        """The factor by which scale-down periods are longer."""
        return 1 << max(0, self.strikes - 1)


def _undoes(before: int, asked: int, new: int) -> bool:
    return new < asked if asked > before else new > asked
