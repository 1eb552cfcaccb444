"""``Proofs``: which pods the API server has told us of in an answer of its own, not long ago.

What the watch has told may be seconds old, and the pod gone by now with another one under its name. Where that matters
(a placement that is to be published by what a ledger says; I2), an answer to a write or a read of ours is better.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

FRESH_S: Final = 5.0
"""From when the request was sent: ``succession.HOLD_S`` counts on it."""
PODS_MAX: Final = 20_000


class Proofs:
    """Pod UID -> when what was last answered about it was asked. ``clock``: the event loop's time, seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: OrderedDict[str, float] = OrderedDict()

    def note(self, uid: str, sent_at: float) -> None:
        """The API server has answered about this very pod; the request was sent at that time."""
        self._at[uid] = sent_at
        self._at.move_to_end(uid)
        while len(self._at) > PODS_MAX:
            self._at.popitem(last=False)

    def is_fresh(self, uid: str) -> bool:
        """Whether that was less than ``FRESH_S`` ago."""
        return self._clock() - self._at.get(uid, float("-inf")) < FRESH_S
