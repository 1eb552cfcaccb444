"""``Candidates``: the nodes that a request of kube-scheduler asks about, and ``CandidateLists``:
the ones it asked about lately.

The list of names is nearly all of a request. Its nodes are mostly the same ones as a moment ago,
all that there are, but in another order: kube-scheduler's workers collect them side by side. So the
list is cut out of a request and read by itself, and known again by its ``Mark``, which does not
depend on the order: no name is looked up, and none is kept. (Thousands of look-ups at random cost
little where nothing else runs, and milliseconds where another process has had the caches in
between.) Prioritize asks about what filter has passed just as we sent it: its list is the very same
text, and is not read at all.

Whether a text is where the list belongs, and not somewhere within the pod, the parser says of the
rest: it has to find a mark there instead.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import orjson

NODES_MAX: Final = 20_000
"""Of a request."""
LISTS_MAX: Final = 4
"""Lists that are kept: of filter and prioritize, for two kube-schedulers."""
LIST_BYTES_MAX: Final = 2 * 1024 * 1024
"""A longer list is not kept."""
CUT_BYTES_MAX: Final = 2 * LIST_BYTES_MAX
"""A longer body is read whole, which refuses first what is nearly all structure: to look for the
list in 60 MB and to copy the rest takes a third of a second.
"""
KEY: Final = b'"NodeNames":['
"""As Go's encoder writes it. In a string of JSON its quotes would be escaped."""
MARK: Final = "\x00seen before"
MARK_JSON: Final = b'"\\u0000seen before"'
"""What stands for a list that was cut out. No request that is not cut has it: it is no name."""


Mark = tuple[int, int]
"""(Number of names, sum of their hashes). Python's hashes have 64 bits and a secret key: who does
not know it cannot make two lists of one mark, and by chance that happens once in 10^19.
"""


class Candidates(Collection[str]):
    """The nodes that a pod may go to as far as kube-scheduler is concerned: names, each once, in
    the order of the request.
    """

    __slots__ = ("_first", "_left", "_names", "_position", "asked", "known", "mark", "text")

    def __init__(
        self,
        names: tuple[str, ...] | None,
        asked: frozenset[str],
        *,
        known: bool = False,
        text: bytes = b"",
        mark: Mark | None = None,
        first: "Candidates | None" = None,
    ) -> None:
        """``names`` None: those of ``text``. ``first``: the same nodes as they were asked about
        first, in another order.
        """
        self._names = names
        self.asked = asked
        """The names as a set."""
        self.known = known
        """Whether they were all known to be nodes when the request was read."""
        self.text = text
        """The list as it was sent, or is answered, where they are all known."""
        self.mark = mark
        self._first = first
        self._position: dict[str, int] = {}
        self._left: tuple[frozenset[str], frozenset[str]] | None = None
        """(Who was refused last, who was left)."""

    @classmethod
    def of(cls, names: Iterable[str]) -> "Candidates":
        """Of names that are each there once."""
        ordered = tuple(names)
        return cls(ordered, frozenset(ordered))

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of the request; read only now where nobody has asked before."""
        if self._names is None:
            self._names = tuple(orjson.loads(self.text))
        return self._names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidates) and (self.names, self.known) == (
            other.names,
            other.known,
        )

    __hash__ = None  # type: ignore[assignment]  # names may be many

    def __len__(self) -> int:
        return len(self.asked)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.asked

    @property
    def in_any_order(self) -> "Candidates":
        """For what does not depend on the order: the same object for all orders that have been
        seen.
        """
        return self._first or self

    def position(self) -> Mapping[str, int]:
        """Name -> its place in ``names``, from 0."""
        if not self._position:
            self._position.update(zip(self.names, range(len(self.names)), strict=True))
        return self._position

    def without(self, refused: AbstractSet[str]) -> "Candidates":
        """Those that are left. ``refused``: some of these."""
        left = tuple([name for name in self.names if name not in refused])
        asked = self.in_any_order.left_without(refused)
        if not self.known:
            return Candidates(left, asked)
        mark = None
        if self.mark is not None:
            count, total = self.mark
            mark = count - len(refused), total - sum(map(hash, refused))
        return Candidates(left, asked, known=True, text=orjson.dumps(left), mark=mark)

    def left_without(self, refused: AbstractSet[str]) -> frozenset[str]:
        """As a set; the same one where the same are refused again, as they mostly are."""
        if self._left is None or self._left[0] != refused:
            self._left = frozenset(refused), self.asked.difference(refused)
        return self._left[1]


@dataclass
class CandidateLists:
    """Lists of known nodes by their text. Forgotten when ``revision``, which counts changes of the
    nodes, is another one.
    """

    _lists: dict[bytes, Candidates] = field(default_factory=dict)
    """The latest last."""
    _firsts: dict[Mark, Candidates] = field(default_factory=dict)
    """Of all orders of the same nodes the one that came first. The latest last."""
    _revision: int = -1

    def cut(
        self, body: bytes, known: Mapping[str, str], revision: int
    ) -> tuple[bytes, Candidates] | None:
        """A body with its list replaced by ``MARK``, and what the list says; None where it is not
        one of known nodes, each once.

        ``known``: names of nodes, each as the string to take for it, as of ``revision``.
        """
        if revision != self._revision:
            self._lists.clear()
            self._firsts.clear()
            self._revision = revision
        if len(body) > CUT_BYTES_MAX:
            return None
        found = _extent(body)
        if found is None or found[1] - found[0] > LIST_BYTES_MAX:
            return None
        begin, end = found
        text = body[begin:end]
        candidates = self._lists.get(text) or self._read(text, known)
        return (
            (body[:begin] + MARK_JSON + body[end:], candidates) if candidates is not None else None
        )

    def answered(self, passed: Candidates) -> None:
        """Filter has passed some of what was asked about just now: prioritize will ask about them,
        by the text of the answer.
        """
        if (
            passed.known
            and passed.text
            and passed.mark is not None
            and len(passed.text) <= LIST_BYTES_MAX
        ):
            first = self._firsts.get(passed.mark)
            if first is not None:
                passed = Candidates(
                    None, first.asked, known=True, text=passed.text, mark=passed.mark, first=first
                )
            self._keep(passed)

    def _read(self, text: bytes, known: Mapping[str, str]) -> Candidates | None:
        try:
            names = orjson.loads(text)
            mark = len(names), sum(map(hash, names))
        except (orjson.JSONDecodeError, TypeError):  # what is no name need not be hashable
            return None
        first = self._firsts.get(mark)
        if first is not None:
            return self._keep(
                Candidates(None, first.asked, known=True, text=text, mark=mark, first=first)
            )
        # As the strings that we have: they are told apart by identity.
        ordered = tuple(map(known.get, names))
        asked = frozenset(ordered)
        if None in asked or len(asked) != len(ordered) or len(ordered) > NODES_MAX:
            return None
        return self._keep(Candidates(ordered, asked, known=True, text=text, mark=mark))  # type: ignore[arg-type]  # mypy does not see that there is no None

    def _keep(self, candidates: Candidates) -> Candidates:
        if len(self._lists) >= LISTS_MAX:
            del self._lists[next(iter(self._lists))]
        self._lists[candidates.text] = candidates
        if candidates.mark is not None and candidates.mark not in self._firsts:
            if len(self._firsts) >= LISTS_MAX:
                del self._firsts[next(iter(self._firsts))]
            self._firsts[candidates.mark] = candidates
        return candidates


def _extent(body: bytes) -> tuple[int, int] | None:
    """From the list's bracket to behind its end; None where there is no such list, or more than
    one.

    Names of nodes have no brackets, so a list of known ones ends with the first.
    """
    at = body.rfind(KEY)
    if at < 0 or body.find(KEY) != at:
        return None
    begin = at + len(KEY) - 1
    end = body.find(b"]", begin)
    return (begin, end + 1) if end >= 0 else None
