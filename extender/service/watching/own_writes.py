"""``OwnWrites``: the ledger texts that this service is writing, to tell its writes from others'.

If the ledger of a bound pod changes, either the leader has written it, or somebody who should not
have. The watch does not say who. But the leader announces here what it is about to write, and the
reply updates the caches before the announcement ends. So a change that the watch brings and nobody
announced is another writer's. A write of unknown outcome stays announced until the next write of
that pod has its reply.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from extender.kube.api import ApiError, OutcomeUnknown

TEXTS_MAX: Final = 8
"""Per pod. There are never more writes under way, because each compares with what the one before
has written.
"""


class OwnWrites:
    """Announcements of one service, on one event loop."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}

    def __len__(self) -> int:
        """The number of pods with announced ledgers."""
        return len(self._texts)

    @contextmanager
    def sending(self, uid: str, text: str) -> Iterator[None]:
        """Announce ``text`` while it is written to the ledger of pod ``uid`` and the caches take
        the reply.
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
        # A cancelled write skips this: it may have arrived.
        self._end(uid, text, earlier=True)

    def is_ours(self, uid: str, text: str | None) -> bool:
        """Whether this text of the pod's ledger may be this service's write."""
        return text in self._texts.get(uid, ())

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._texts.pop(uid, None)

    def _end(self, uid: str, text: str, *, earlier: bool) -> None:
        texts = self._texts.get(uid, [])
        if text in texts:
            index = texts.index(text)
            del texts[0 if earlier else index : index + 1]
        if not texts:
            self._texts.pop(uid, None)
