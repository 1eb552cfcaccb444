"""``LedgerConfirmations``: which pods' ledgers the API server has told us of in an answer of its
own, not long ago, and for good.

What the watch has told may be seconds old, and the pod gone by now with another one under its name.
Where that matters (a placement that is to be published by what a ledger says; I2), an answer to a
write or a read of ours is better.

It is not enough while a write may be under way that will take away what the answer shows: a
lowering of ours whose outcome nobody knows, or one of the leader before us. Each compares the
ledger's text with the one that it was made from. So it fails while the text is another one, which
may become the same again, and it will not come any more once no request lives that long.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

FRESH_S: Final = 5.0
"""From when the request was sent: ``ordinal_history.HOLD_S`` counts on it."""
UNDER_WAY_S: Final = 15.0
"""No request lives that long, whoever has given up waiting for it."""
PODS_MAX: Final = 20_000

LATE_MAX: Final = 16
"""Texts of a pod that late writes may find; with more of them, any text may be one."""
ANY: Final = "any text"
"""No ledger: it is not JSON."""

T = TypeVar("T")


class LedgerConfirmations:
    """By pod UID. ``clock``: the event loop's time, seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: OrderedDict[str, float] = OrderedDict()
        """When what was last answered about it was asked."""
        self._changed: OrderedDict[str, float] = OrderedDict()
        """When a write of ours that has changed its ledger was sent."""
        self._late: OrderedDict[str, dict[str | None, float]] = OrderedDict()
        """Text -> until when a write that looks for it may still arrive. Several writes of a pod
        may be late at once.
        """

    def note(self, uid: str, sent_at: float) -> None:
        """The API server has answered about this very pod; the request was sent at that time."""
        _put(self._at, uid, sent_at)

    def changed(self, uid: str, sent_at: float) -> None:
        """... and the request has changed its ledger, or bound it with one."""
        self.note(uid, sent_at)
        _put(self._changed, uid, sent_at)

    def late(self, uid: str, text: str | None) -> None:
        """A write that has found the ledger ``text``, or will, may still arrive."""
        now = self._clock()
        texts = {known: until for known, until in self._late.get(uid, {}).items() if now < until}
        texts[text if len(texts) < LATE_MAX and ANY not in texts else ANY] = now + UNDER_WAY_S
        _put(self._late, uid, texts)

    def forget(self, uid: str) -> None:
        """The pod is gone, and none of that UID will come."""
        for known in (self._at, self._changed, self._late):
            known.pop(uid, None)

    def is_fresh(self, uid: str, text: str | None, *, changed_since: float = float("-inf")) -> bool:
        """Whether that was less than ``FRESH_S`` ago, the ledger is still ``text``, and nothing
        under way can change that.

        ``changed_since``: before that, others may have sent what compares with the text as it was.
        """
        late = self._late.get(uid)
        if late and self._clock() < max(late.get(text, 0.0), late.get(ANY, 0.0)):
            return False
        if changed_since > float("-inf") and self._changed.get(uid, float("-inf")) < changed_since:
            return False
        return self._clock() - self._at.get(uid, float("-inf")) < FRESH_S


def _put(there: OrderedDict[str, T], uid: str, value: T) -> None:
    there[uid] = value
    there.move_to_end(uid)
    while len(there) > PODS_MAX:
        there.popitem(last=False)
