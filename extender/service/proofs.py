"""``Proofs``: which pods' ledgers the API server has told us of in an answer of its own, not long ago, and for good.

What the watch has told may be seconds old, and the pod gone by now with another one under its name. Where that matters
(a placement that is to be published by what a ledger says; I2), an answer to a write or a read of ours is better.

It is not enough while a write may be under way that will take away what the answer shows: a lowering of ours whose outcome
nobody knows, or one of the leader before us. Each compares the ledger's text with the one that it was made from. So it has
failed once the text is another one, and it will not come any more once no request lives that long.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

FRESH_S: Final = 5.0
"""From when the request was sent: ``succession.HOLD_S`` counts on it."""
UNDER_WAY_S: Final = 15.0
"""No request lives that long, whoever has given up waiting for it."""
PODS_MAX: Final = 20_000

T = TypeVar("T")


class _Late(NamedTuple):
    text: str | None
    until: float


class Proofs:
    """By pod UID. ``clock``: the event loop's time, seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: OrderedDict[str, float] = OrderedDict()
        """When what was last answered about it was asked."""
        self._changed: OrderedDict[str, float] = OrderedDict()
        """When a write of ours that has changed its ledger was sent."""
        self._late: OrderedDict[str, _Late] = OrderedDict()

    def note(self, uid: str, sent_at: float) -> None:
        """The API server has answered about this very pod; the request was sent at that time."""
        _put(self._at, uid, sent_at)

    def changed(self, uid: str, sent_at: float) -> None:
        """... and the request has changed its ledger, or bound it with one."""
        self.note(uid, sent_at)
        _put(self._changed, uid, sent_at)

    def late(self, uid: str, text: str | None) -> None:
        """A write that has found the ledger ``text``, or will, may still arrive."""
        _put(self._late, uid, _Late(text, self._clock() + UNDER_WAY_S))

    def is_fresh(self, uid: str, text: str | None, *, changed_since: float = float("-inf")) -> bool:
        """Whether that was less than ``FRESH_S`` ago, the ledger is still ``text``, and nothing under way can change that.

        ``changed_since``: before that, others may have sent what compares with the text as it was.
        """
        late = self._late.get(uid)
        if late is not None and late.text == text and self._clock() < late.until:
            return False
        if changed_since > float("-inf") and self._changed.get(uid, float("-inf")) < changed_since:
            return False
        return self._clock() - self._at.get(uid, float("-inf")) < FRESH_S


def _put(there: OrderedDict[str, T], uid: str, value: T) -> None:
    there[uid] = value
    there.move_to_end(uid)
    while len(there) > PODS_MAX:
        there.popitem(last=False)
