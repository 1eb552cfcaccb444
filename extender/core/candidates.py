"""``Candidates``: the nodes that a request of kube-scheduler asks about, and ``CandidateLists``: the ones it asked about lately.

The list of names is nearly all of a request. Its nodes are mostly the same ones as a moment ago, all that there are, but in
another order: kube-scheduler's workers collect them side by side. So the list is cut out of a request and read by itself;
as a set it is one that was seen before, of which texts are known. Prioritize asks about what filter has passed
just as we sent it: its list is the very same text, and is not read at all.

Whether a text is where the list belongs, and not somewhere within the pod, the parser says of the rest: it has to find a
mark there instead.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

NODES_MAX: Final = 20_000
"""Of a request."""
LISTS_MAX: Final = 4
"""Lists that are kept: of filter and prioritize, for two kube-schedulers."""
LIST_BYTES_MAX: Final = 2 * 1024 * 1024
"""A longer list is not kept."""
KEY: Final = b'"NodeNames":['
"""As Go's encoder writes it. In a string of JSON its quotes would be escaped."""
MARK: Final = "\x00seen before"
MARK_JSON: Final = b'"\\u0000seen before"'
"""What stands for a list that was cut out. No request that is not cut has it: it is no name."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes that a pod may go to as far as kube-scheduler is concerned: names, each once."""

    names: tuple[str, ...]
    """In the order of the request."""
    asked: frozenset[str]
    """The same as a set."""
    known: bool = False
    """Whether they were all known to be nodes when the request was read."""
    text: bytes = b""
    """The list as it was sent, where they are all known."""
    first: "Candidates | None" = field(default=None, compare=False, repr=False)
    """The same nodes as they were asked about first, where that was in another order."""
    _position: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, names: Iterable[str]) -> "Candidates":
        """Of names that are each there once."""
        ordered = tuple(names)
        return cls(ordered, frozenset(ordered))

    @property
    def in_any_order(self) -> "Candidates":
        """For what does not depend on the order: the same object for all orders that have been seen."""
        return self.first or self

    def position(self) -> Mapping[str, int]:
        """Name -> its place in ``names``, from 0."""
        if not self._position:
            self._position.update(zip(self.names, range(len(self.names)), strict=True))
        return self._position


@dataclass
class CandidateLists:
    """Lists of known nodes by their text. Forgotten when ``revision``, which counts changes of the nodes, is another one."""

    _lists: dict[bytes, Candidates] = field(default_factory=dict)
    """The latest last."""
    _revision: int = -1

    def cut(self, body: bytes, known: Mapping[str, str], revision: int) -> tuple[bytes, Candidates] | None:
        """A body with its list replaced by ``MARK``, and what the list says; None where it is not one of known nodes, each once.

        ``known``: names of nodes, each as the string to take for it, as of ``revision``.
        """
        if revision != self._revision:
            self._lists.clear()
            self._revision = revision
        found = _extent(body)
        if found is None or found[1] - found[0] > LIST_BYTES_MAX:
            return None
        begin, end = found
        text = body[begin:end]
        candidates = self._lists.get(text) or self._read(text, known)
        return (body[:begin] + MARK_JSON + body[end:], candidates) if candidates is not None else None

    def _read(self, text: bytes, known: Mapping[str, str]) -> Candidates | None:
        try:
            # As the strings that we have: their hashes are known, and they are told apart by identity.
            names = tuple(map(known.get, orjson.loads(text)))
        except (orjson.JSONDecodeError, TypeError):  # what is no name need not be hashable
            return None
        asked = frozenset(names)
        if None in asked or len(asked) != len(names) or len(names) > NODES_MAX:
            return None
        alike = next((one.in_any_order for one in self._lists.values() if one.asked == asked), None)
        candidates = Candidates(
            names,  # type: ignore[arg-type]  # mypy does not see that there is no None
            alike.asked if alike is not None else asked,  # type: ignore[arg-type]
            known=True,
            text=text,
            first=alike,
        )
        if len(self._lists) >= LISTS_MAX:
            del self._lists[next(iter(self._lists))]
        self._lists[text] = candidates
        return candidates


def _extent(body: bytes) -> tuple[int, int] | None:
    """From the list's bracket to behind its end; None where there is no such list, or more than one.

    Names of nodes have no brackets, so a list of known ones ends with the first.
    """
    at = body.rfind(KEY)
    if at < 0 or body.find(KEY) != at:
        return None
    begin = at + len(KEY) - 1
    end = body.find(b"]", begin)
    return (begin, end + 1) if end >= 0 else None
