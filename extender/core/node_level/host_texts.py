"""``HostTexts``: prioritize's answer put together from text that is kept: ``{"Host":"node-1","Score":7}`` of each node.

An answer has an entry for every node asked about, and all but a few nodes of a zone have one score (``exposure``). So the
entries of a zone's nodes are kept for every score that its nodes have had, and so is the list of them for lists of
candidates that come again; a request copies it, and puts in the entries of the nodes that differ.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import orjson

from extender.core.candidates import Candidates
from extender.core.node_level.exposure import Alike
from extender.core.node_level.node_index import NodeIndex

TABLES_MAX: Final = 64
"""(zone, score) pairs of which the entries are kept; some 150 bytes a node each."""
BASES_MAX: Final = 32
"""Lists of entries that are kept; 8 bytes a node each."""


class HostTexts:
    """Entries of HostPriorityList by node name, for the nodes of ``index``."""

    def __init__(self, index: NodeIndex) -> None:
        self._index = index
        self._revision = -1
        self._tables: dict[tuple[str, int], dict[str, str]] = {}
        self._bases: dict[tuple[bytes, tuple[tuple[str, int], ...]], list[str]] = {}
        """(Candidates as they were sent, score by zone) -> their entries, in the candidates' order."""

    def encode(self, candidates: Candidates, groups: Iterable[Alike]) -> bytes:
        """HostPriorityList for ``candidates``, all of them known; each is in one group, or in what is left of its zone."""
        if self._revision != self._index.revision:
            self._tables.clear()
            self._bases.clear()
            self._revision = self._index.revision
        groups = list(groups)
        candidates = candidates.in_any_order  # kube-scheduler adds scores up by host
        texts = self._base(candidates, {g.zone: g.score for g in groups if g.names is None})
        position = candidates.position()
        for zone, score, names in groups:
            if names is not None:
                table = self._table(zone, score)
                for name in names:
                    texts[position[name]] = table[name]
        return f"[{','.join(texts)}]".encode()

    def _base(self, candidates: Candidates, by_zone: Mapping[str, int]) -> list[str]:
        """What each would have by its zone alone; "" where that is not told."""
        key = (candidates.text, tuple(by_zone.items()))
        base = self._bases.get(key) if candidates.text else None
        if base is None:
            texts: dict[str, str] = {}
            for zone, score in by_zone.items():
                texts |= self._table(zone, score)
            base = [texts.get(name, "") for name in candidates.names]
            if not candidates.text:
                return base
            if len(self._bases) >= BASES_MAX:
                del self._bases[next(iter(self._bases))]
            self._bases[key] = base
        return base.copy()

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
