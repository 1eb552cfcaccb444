"""``HostTexts``: prioritize's answer, joined from stored text: ``{"Host":"node-1","Score":7}`` for
each node.

The answer has an entry for each node of the request. All but a few nodes of a zone have one score
(``exposure``). So ``HostTexts`` stores:

- tables: the entries of a zone's nodes, for each score that the zone had;
- bases: the entries of all zones' nodes, for each recurring combination of zone scores. A request
  copies a base, replaces the entries of the few nodes that differ, and looks up its nodes;
- lists: for candidates that recur, in any order, the entries of each zone as a list. Then no node
  is looked up. The answer goes zone by zone, which is allowed because kube-scheduler adds up scores
  by host.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from extender.engine.pods.node_index import NodeIndex
from extender.model.bounded import put_bounded
from extender.node.candidates import Candidates
from extender.node.exposure import Alike

TABLES_MAX: Final = 64
"""(Zone, score) pairs whose entries are kept; some 150 bytes a node each."""
BASES_MAX: Final = 16
"""Combinations of zone scores whose entries are kept together; some 40 bytes a node each."""
LISTS_MAX: Final = 4
"""Candidates with lists of entries: one for each of at most ``TABLES_MAX`` (zone, score) pairs, 8
bytes a node each.
"""

_Scores = tuple[tuple[str, int], ...]
"""(Zone, score) pairs."""


@dataclass(frozen=True, slots=True)
class _ByZone:
    """Candidates by zone. ``position``: name -> its place in all zones' names joined, from 0."""

    names: Mapping[str, list[str]]
    position: Mapping[str, int]
    entries: OrderedDict[tuple[str, int | None], list[str]] = field(default_factory=OrderedDict)
    """(Zone, score) -> the entries of its names; empty strings for score None."""


class HostTexts:
    """Entries of HostPriorityList by node name, for the nodes of ``index``."""

    def __init__(self, index: NodeIndex) -> None:
        self._index = index
        self._revision = -1
        self._tables: OrderedDict[tuple[str, int], dict[str, str]] = OrderedDict()
        self._bases: OrderedDict[_Scores, dict[str, str]] = OrderedDict()
        """Score by zone -> the entries of those zones' nodes."""
        self._lists: OrderedDict[bytes, _ByZone | None] = OrderedDict()
        """Text of candidates -> their entries; None until these candidates come a second time."""

    def encode(self, candidates: Candidates, groups: Iterable[Alike]) -> bytes:
        """Return HostPriorityList for ``candidates``, which are all known. Each is named in one
        group, or is in a group that takes the rest of its zone.
        """
        if self._revision != self._index.revision:
            self._tables.clear()
            self._bases.clear()
            self._lists.clear()
            self._revision = self._index.revision
        groups = list(groups)
        by_zone = tuple((g.zone, g.score) for g in groups if g.names is None)
        told = [(self._table(g.zone, g.score), g.names) for g in groups if g.names is not None]
        listed = self._listed(candidates.in_any_order)
        if listed is not None:
            entries = self._entries(listed, by_zone)
            position = listed.position
            for table, names in told:
                for name in names:
                    entries[position[name]] = table[name]
            return f"[{','.join(entries)}]".encode()
        texts = self._base(by_zone).copy()
        for table, names in told:
            for name in names:
                texts[name] = table[name]
        return f"[{','.join(map(texts.__getitem__, candidates.names))}]".encode()

    def _listed(self, candidates: Candidates) -> _ByZone | None:
        """These candidates by zone; None if they are new."""
        if not candidates.text:
            return None
        if candidates.text not in self._lists:
            put_bounded(self._lists, candidates.text, None, LISTS_MAX)
            return None
        listed = self._lists[candidates.text]
        if listed is None:
            names = {
                zone: [name for name in candidates.names if name in there]
                for zone, there in self._index.in_zone.items()
            }
            ordered = (name for those in names.values() for name in those)
            listed = self._lists[candidates.text] = _ByZone(
                names, {name: place for place, name in enumerate(ordered)}
            )
        return listed

    def _entries(self, listed: _ByZone, by_zone: _Scores) -> list[str]:
        """The entries by the zones' scores alone, in the order of ``listed``; empty strings for a
        zone without a score.
        """
        scores, entries = dict(by_zone), list[str]()
        for zone, names in listed.names.items():
            key = zone, scores.get(zone)
            if key not in listed.entries:
                table = {} if key[1] is None else self._table(zone, key[1])
                put_bounded(
                    listed.entries, key, [table.get(name, "") for name in names], TABLES_MAX
                )
            entries += listed.entries[key]
        return entries

    def _base(self, by_zone: _Scores) -> dict[str, str]:
        """The entries of those zones' nodes by the zones' scores alone."""
        base = self._bases.get(by_zone)
        if base is None:
            base = {}
            for zone, score in by_zone:
                base |= self._table(zone, score)
            put_bounded(self._bases, by_zone, base, BASES_MAX)
        return base

    def _table(self, zone: str, score: int) -> dict[str, str]:
        table = self._tables.get((zone, score))
        if table is None:
            names = self._index.in_zone.get(zone, ())
            table = {name: _entry(name, score) for name in names}
            put_bounded(self._tables, (zone, score), table, TABLES_MAX)
        return table


def _entry(name: str, score: int) -> str:
    return orjson.dumps({"Host": name, "Score": score}).decode()
