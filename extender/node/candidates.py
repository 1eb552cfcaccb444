"""``Candidates``: the nodes that a request of kube-scheduler asks about. ``CandidateLists``: the
lists that it sent lately.

The list of names is nearly all of a request. Mostly it has the same nodes as the request before, in
another order, because kube-scheduler's workers collect them in parallel. So the list is cut out of
the body and recognised by its ``Fingerprint``, which does not depend on the order. For a known
fingerprint no name is looked up and none is stored. (Thousands of random look-ups are cheap on an
idle machine. They take milliseconds if another process has used the CPU caches in between.)
Prioritize sends the list that filter answered, byte for byte. It is recognised by its text and not
parsed.

The cut does not know whether the text is the request's ``NodeNames`` or lies inside the pod. The
parser of the rest finds out: ``PLACEHOLDER`` must stand in ``NodeNames``.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import orjson

from extender.model.bounded import put_bounded

NODES_MAX: Final = 20_000
"""Nodes in one request."""
LISTS_MAX: Final = 4
"""Lists that are kept: those of filter and prioritize, for two kube-schedulers."""
LIST_BYTES_MAX: Final = 2 * 1024 * 1024
"""A longer list is not kept."""
CUT_BYTES_MAX: Final = 2 * LIST_BYTES_MAX
"""A longer body is read whole, by a reader that first refuses a body that is nearly all JSON
structure. To search 60 MB for the list and copy the rest takes a third of a second.
"""
KEY: Final = b'"NodeNames":['
"""As Go's encoder writes it. Inside a JSON string its quotes would be escaped."""
PLACEHOLDER: Final = "\x00seen before"
PLACEHOLDER_JSON: Final = b'"\\u0000seen before"'
"""The placeholder for a list that was cut out. No other request has it: it cannot be a node
name.
"""


Fingerprint = tuple[int, int]
"""(Number of names, sum of their hashes). Python's hashes have 64 bits and a secret key. Without
the key nobody can make two lists with one fingerprint; by chance that happens once in 10^19.
"""


class Candidates(Collection[str]):
    """The nodes that kube-scheduler offers for a pod: names, each once, in the order of the
    request.
    """

    __slots__ = ("_first", "_left", "_names", "_position", "asked", "fingerprint", "known", "text")

    def __init__(
        self,
        names: tuple[str, ...] | None,
        asked: frozenset[str],
        *,
        known: bool = False,
        text: bytes = b"",
        fingerprint: Fingerprint | None = None,
        first: "Candidates | None" = None,
    ) -> None:
        """``names`` None: they are parsed from ``text`` when needed. ``first``: the first list that
        had the same nodes, in another order.
        """
        self._names = names
        self.asked = asked
        """The names as a set."""
        self.known = known
        """Whether all of them were known nodes when the request was read."""
        self.text = text
        """The list as JSON, as it was sent or is answered; may be empty."""
        self.fingerprint = fingerprint
        self._first = first
        self._position: dict[str, int] = {}
        self._left: tuple[frozenset[str], frozenset[str]] | None = None
        """(The nodes refused last, the nodes left then)."""

    @classmethod
    def of(cls, names: Iterable[str]) -> "Candidates":
        """Candidates of distinct names."""
        ordered = tuple(names)
        return cls(ordered, frozenset(ordered))

    @classmethod
    def none(cls) -> "Candidates":
        """No candidates."""
        return cls((), frozenset())

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of the request. They are parsed at the first use."""
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
        """The same object for every order in which these nodes were sent, for uses where order does
        not matter.
        """
        return self._first or self

    def in_another_order(self, text: bytes) -> "Candidates":
        """The same known nodes in the order of ``text``. This is the first list that had them."""
        return Candidates(
            None, self.asked, known=True, text=text, fingerprint=self.fingerprint, first=self
        )

    def position(self) -> Mapping[str, int]:
        """Name -> its place in ``names``, from 0."""
        if not self._position:
            self._position.update(zip(self.names, range(len(self.names)), strict=True))
        return self._position

    def without(self, refused: AbstractSet[str]) -> "Candidates":
        """The candidates without ``refused``, which are some of them."""
        left = tuple([name for name in self.names if name not in refused])
        asked = self.in_any_order.left_without(refused)
        if not self.known:
            return Candidates(left, asked)
        fingerprint = None
        if self.fingerprint is not None:
            count, total = self.fingerprint
            fingerprint = count - len(refused), total - sum(map(hash, refused))
        return Candidates(left, asked, known=True, text=orjson.dumps(left), fingerprint=fingerprint)

    def left_without(self, refused: AbstractSet[str]) -> frozenset[str]:
        """``asked`` without ``refused``. The last result is kept, since mostly the same nodes are
        refused again.
        """
        if self._left is None or self._left[0] != refused:
            self._left = frozenset(refused), self.asked.difference(refused)
        return self._left[1]


@dataclass
class CandidateLists:
    """Lists of known nodes by their text. They are dropped when ``revision``, which counts changes
    of the nodes, changes.
    """

    _lists: OrderedDict[bytes, Candidates] = field(default_factory=OrderedDict)
    """Oldest first."""
    _firsts: OrderedDict[Fingerprint, Candidates] = field(default_factory=OrderedDict)
    """The first list of each fingerprint. Oldest first."""
    _revision: int = -1

    def cut(
        self, body: bytes, known: Mapping[str, str], revision: int
    ) -> tuple[bytes, Candidates] | None:
        """Return the body with its list replaced by ``PLACEHOLDER``, and the list. None if there is
        no single list, it is too long, or its names are not distinct known nodes.

        ``known`` maps the names of nodes, as of ``revision``, to the strings to use for them.
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
        if candidates is None:
            return None
        return body[:begin] + PLACEHOLDER_JSON + body[end:], candidates

    def answered(self, passed: Candidates) -> None:
        """Remember the nodes that filter just passed: prioritize will send the same text."""
        if (
            passed.known
            and passed.text
            and passed.fingerprint is not None
            and len(passed.text) <= LIST_BYTES_MAX
        ):
            first = self._firsts.get(passed.fingerprint)
            if first is not None:
                passed = first.in_another_order(passed.text)
            self._keep(passed)

    def _read(self, text: bytes, known: Mapping[str, str]) -> Candidates | None:
        try:
            names = orjson.loads(text)
            fingerprint = len(names), sum(map(hash, names))
        except (orjson.JSONDecodeError, TypeError):  # an entry that is no string may be unhashable
            return None
        first = self._firsts.get(fingerprint)
        if first is not None:
            return self._keep(first.in_another_order(text))
        # Use the strings of ``known``: equal strings that are one object compare by identity.
        ordered = tuple(map(known.get, names))
        asked = frozenset(ordered)
        if None in asked or len(asked) != len(ordered) or len(ordered) > NODES_MAX:
            return None
        found = Candidates(ordered, asked, known=True, text=text, fingerprint=fingerprint)  # type: ignore[arg-type]  # mypy does not see that there is no None
        return self._keep(found)

    def _keep(self, candidates: Candidates) -> Candidates:
        put_bounded(self._lists, candidates.text, candidates, LISTS_MAX)
        if candidates.fingerprint is not None and candidates.fingerprint not in self._firsts:
            put_bounded(self._firsts, candidates.fingerprint, candidates, LISTS_MAX)
        return candidates


def _extent(body: bytes) -> tuple[int, int] | None:
    """The span from the list's bracket to behind its end; None if there is no such list, or more
    than one.

    Node names have no brackets, so a list of known names ends at the first closing bracket.
    """
    at = body.rfind(KEY)
    if at < 0 or body.find(KEY) != at:
        return None
    begin = at + len(KEY) - 1
    end = body.find(b"]", begin)
    return (begin, end + 1) if end >= 0 else None
