"""``OwnWrites``: which texts of a pod's ledger are on their way from here, so that another's write
can be told apart.

A ledger that changes on a bound pod has been written by the leader, or by somebody who should not
have. The watch does not say who; but whatever the leader writes it has announced here before it
sends it, and the answer brings the caches up to date before the announcement ends. So a change that
comes by the watch and was not announced is another's. A write of which nobody knows whether it
arrived stays announced until the next one of that pod has been answered.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from extender.kube.api import ApiError, OutcomeUnknown

TEXTS_MAX: Final = 8
"""Of one pod. More are never on their way: each compares with what the one before has written."""


class OwnWrites:
    """Of one service. All on one loop."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}

    def __len__(self) -> int:
        """Pods of which ledgers are on their way."""
        return len(self._texts)

    @contextmanager
    def sending(self, uid: str, text: str) -> Iterator[None]:
        """While a ledger ``text`` is being written to the pod ``uid`` and its answer is taken into
        the caches.
        """
        texts = self._texts.setdefault(uid, [])
        texts.append(text)
        del texts[:-TEXTS_MAX]
        try:
            yield
        except ApiError as error:
            if not isinstance(error, OutcomeUnknown):
                self._end(uid, text, earlier=False)
            raise
        # A cancelled write may have arrived as well.
        self._end(uid, text, earlier=True)

    def is_ours(self, uid: str, text: str | None) -> bool:
        """Whether that text of the pod's ledger may have come from here."""
        return text in self._texts.get(uid, ())

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._texts.pop(uid, None)

    def _end(self, uid: str, text: str, *, earlier: bool) -> None:
        texts = self._texts.get(uid, [])
        if text in texts:
            index = texts.index(text)
            del texts[0 if earlier else index : index + 1]
        if not texts:
            self._texts.pop(uid, None)
