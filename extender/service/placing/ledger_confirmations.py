"""``LedgerConfirmations``: the pods whose ledgers a recent reply of the API server has confirmed,
and that no write under way can change back.

The watch may be seconds behind: the pod may be gone, with another one under its name. Where that
matters (publishing a placement because a ledger covers it; I2), a reply to this replica's own read
or write is better.

A reply is not enough while a write under way may remove what it shows: one of this replica with
unknown outcome, or one of the former leader. Every write compares the ledger with the text that it
was made from. So it fails while the text differs; but the text may become the same again. It can no
longer arrive ``UNDER_WAY_S`` after its sender has given it up.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from extender.model.bounded import put_bounded

FRESH_S: Final = 5.0
"""Since the request was sent. ``ordinal_history.HOLD_S`` relies on it."""
UNDER_WAY_S: Final = 15.0
"""How long after its sender has given it up a request may still arrive, at the longest. Every doubt
about a write of unknown outcome relies on it (docs/reliability.md: I2 and the network).
"""
PODS_MAX: Final = 20_000

LATE_MAX: Final = 16
"""Texts that a pod's late writes may find. With more of them, any text counts."""
ANY: Final = "any text"
"""Stands for any ledger text. No ledger is this text, because it is not JSON."""


class LedgerConfirmations:
    """Confirmations by pod UID. ``clock``: the event loop's time, seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: OrderedDict[str, float] = OrderedDict()
        """When the request with the last reply about the pod was sent."""
        self._changed: OrderedDict[str, float] = OrderedDict()
        """When this replica sent the last write that changed the pod's ledger."""
        self._late: OrderedDict[str, dict[str | None, float]] = OrderedDict()
        """Ledger text -> until when a write that compares with it may still arrive. Several writes
        of a pod may be late at once.
        """

    def note(self, uid: str, sent_at: float) -> None:
        """The API server has replied about this pod to a request sent at ``sent_at``."""
        put_bounded(self._at, uid, sent_at, PODS_MAX)

    def changed(self, uid: str, sent_at: float) -> None:
        """As ``note``, for a request that changed the pod's ledger, or bound the pod with one."""
        self.note(uid, sent_at)
        put_bounded(self._changed, uid, sent_at, PODS_MAX)

    def late(self, uid: str, text: str | None) -> None:
        """A write that compares the ledger with ``text`` may still arrive."""
        now = self._clock()
        texts = {known: until for known, until in self._late.get(uid, {}).items() if now < until}
        texts[text if len(texts) < LATE_MAX and ANY not in texts else ANY] = now + UNDER_WAY_S
        put_bounded(self._late, uid, texts, PODS_MAX)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        for known in (self._at, self._changed, self._late):
            known.pop(uid, None)

    def is_fresh(self, uid: str, text: str | None, *, changed_since: float = float("-inf")) -> bool:
        """Whether ``text`` was confirmed less than ``FRESH_S`` ago, and no write under way can
        change it.

        ``changed_since``: until this replica has changed the ledger after that time, writes of
        others that compare with the present text may arrive.
        """
        late = self._late.get(uid)
        if late and self._clock() < max(late.get(text, 0.0), late.get(ANY, 0.0)):
            return False
        if changed_since > float("-inf") and self._changed.get(uid, float("-inf")) < changed_since:
            return False
        return self._clock() - self._at.get(uid, float("-inf")) < FRESH_S
