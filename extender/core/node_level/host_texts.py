"""``HostTexts``: prioritize's answer put together from text that is kept: ``{"Host":"node-1","Score":7}`` of each node.

An answer has an entry for every node asked about, and all but a few nodes of a zone have one score (``exposure``). So the
entries of a zone's nodes are kept for every score that its nodes have had, and together for scores of all zones that come again;
a request copies those, puts in the entries of the nodes that differ, and looks up what it asks about. For nodes that are
asked about again, in whatever order, the entries are kept as a list, too, and none is looked up.
"""

from collections.abc import Iterable
from typing import Final

import orjson

from extender.core.candidates import Candidates
from extender.core.node_level.exposure import Alike
from extender.core.node_level.node_index import NodeIndex

TABLES_MAX: Final = 64
"""(zone, score) pairs of which the entries are kept; some 150 bytes a node each."""
BASES_MAX: Final = 16
"""Scores of all zones of which the entries are kept together; some 40 bytes a node each."""
LISTS_MAX: Final = 32
"""Lists of entries that are kept; 8 bytes a node each."""

_Scores = tuple[tuple[str, int], ...]
"""(Zone, score) pairs."""


class HostTexts:
    """Entries of HostPriorityList by node name, for the nodes of ``index``."""

    def __init__(self, index: NodeIndex) -> None:
        self._index = index
        self._revision = -1
        self._tables: dict[tuple[str, int], dict[str, str]] = {}
        self._bases: dict[_Scores, dict[str, str]] = {}
        """Score by zone -> the entries of those zones' nodes."""
        self._lists: dict[tuple[bytes, _Scores], list[str] | None] = {}
        """(Candidates as they were sent, score by zone) -> their entries, in the candidates' order; None until they come again."""

    def encode(self, candidates: Candidates, groups: Iterable[Alike]) -> bytes:
        """HostPriorityList for ``candidates``, all of them known; each is in one group, or in what is left of its zone."""
        if self._revision != self._index.revision:
            self._tables.clear()
            self._bases.clear()
            self._lists.clear()
            self._revision = self._index.revision
        groups = list(groups)
        by_zone = tuple((g.zone, g.score) for g in groups if g.names is None)
        told = [(self._table(g.zone, g.score), g.names) for g in groups if g.names is not None]
        first = candidates.in_any_order  # kube-scheduler adds scores up by host
        listed = self._listed(first, by_zone)
        if listed is not None:
            position = first.position()
            for table, names in told:
                for name in names:
                    listed[position[name]] = table[name]
            return f"[{','.join(listed)}]".encode()
        texts = self._base(by_zone).copy()
        for table, names in told:
            for name in names:
                texts[name] = table[name]
        return f"[{','.join(map(texts.__getitem__, candidates.names))}]".encode()

    def _listed(self, candidates: Candidates, by_zone: _Scores) -> list[str] | None:
        """What each would have by its zone alone, "" where that is not told; None where these candidates are new."""
        if not candidates.text:
            return None
        key = (candidates.text, by_zone)
        if key not in self._lists:
            if len(self._lists) >= LISTS_MAX:
                del self._lists[next(iter(self._lists))]
            self._lists[key] = None
            return None
        texts = self._lists[key]
        if texts is None:
            base = self._base(by_zone)
            texts = self._lists[key] = [base.get(name, "") for name in candidates.names]
        return texts.copy()

    def _base(self, by_zone: _Scores) -> dict[str, str]:
        """What each node of those zones would have by its zone alone."""
        base = self._bases.get(by_zone)
        if base is None:
            if len(self._bases) >= BASES_MAX:
                del self._bases[next(iter(self._bases))]
            base = self._bases[by_zone] = {}
            for zone, score in by_zone:
                base |= self._table(zone, score)
        return base

    def _table(self, zone: str, score: int) -> dict[str, str]:
        table = self._tables.get((zone, score))
        if table is None:
            if len(self._tables) >= TABLES_MAX:
                del self._tables[next(iter(self._tables))]
            names = self._index.in_zone.get(zone, ())
            table = self._tables[zone, score] = {name: _entry(name, score) for name in names}
        return table


def _entry(name: str, score: int) -> str:
    return orjson.dumps({"Host": name, "Score": score}).decode()
