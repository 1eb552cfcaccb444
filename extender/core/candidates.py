"""``Candidates``: the nodes that a request of kube-scheduler asks about, and ``CandidateLists``: the ones it asked about lately.

The list of names is nearly all of a request, and often the very same text as a moment ago: prioritize asks about what filter
has passed, and the next pod about the nodes that the last one was asked about, wherever kube-scheduler looks at all
of them. So the text of the last few lists is kept with what was read from it. A request that has it again is parsed
without it. Whether that text is where the list belongs, and not somewhere within the pod, the parser says: it has to find a
mark there instead.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

LISTS_MAX: Final = 4
"""Lists that are kept: of filter and prioritize, for two kube-schedulers."""
SEEN_MAX: Final = 8
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
    """The list as it was sent, where that is kept."""
    _in_zone: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    _position: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, names: Iterable[str]) -> "Candidates":
        """Of names that are each there once."""
        ordered = tuple(names)
        return cls(ordered, frozenset(ordered))

    def count_in(self, zones: Mapping[str, AbstractSet[str]]) -> Mapping[str, int]:
        """Zone -> how many of them are there. ``zones``: names of nodes by zone; the same ones each time."""
        if not self._in_zone:
            self._in_zone.update({zone: len(self.asked & names) for zone, names in zones.items()})
        return self._in_zone

    def position(self) -> Mapping[str, int]:
        """Name -> its place in ``names``, from 0."""
        if not self._position:
            self._position.update(zip(self.names, range(len(self.names)), strict=True))
        return self._position


@dataclass
class CandidateLists:
    """Lists of known nodes by their text. Forgotten when ``revision``, which counts changes of the nodes, is another one."""

    _lists: dict[bytes, Candidates] = field(default_factory=dict)
    _seen: deque[int] = field(default_factory=lambda: deque(maxlen=SEEN_MAX))
    """Hashes of texts that have come lately."""
    _revision: int = -1

    def cut(self, body: bytes, revision: int) -> tuple[bytes, Candidates] | None:
        """A body with its list replaced by ``MARK``, and what the list says; None where it is not a known one."""
        if revision != self._revision:
            self._lists.clear()
            self._revision = revision
        found = _extent(body) if self._lists else None
        if found is None:
            return None
        begin, end = found
        candidates = self._lists.get(body[begin:end])
        return (body[:begin] + MARK_JSON + body[end:], candidates) if candidates is not None else None

    def keep(self, body: bytes, candidates: Candidates) -> None:
        """Take note of the list of a body that was read whole. It is kept when it comes the second time."""
        found = _extent(body) if candidates.known else None
        if found is None or found[1] - found[0] > LIST_BYTES_MAX:
            return
        text = body[found[0] : found[1]]
        if (digest := hash(text)) not in self._seen:
            self._seen.append(digest)
            return
        if not _says(text, candidates.names):
            return
        if len(self._lists) >= LISTS_MAX:
            del self._lists[next(iter(self._lists))]
        self._lists[text] = replace(candidates, text=text)


def _says(text: bytes, names: tuple[str, ...]) -> bool:
    """Whether the text is that list, and not one from within the pod."""
    try:
        return tuple(orjson.loads(text)) == names
    except (orjson.JSONDecodeError, TypeError):
        return False


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
