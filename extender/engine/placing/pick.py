"""Which pod gets the next vreplica: the one with the greatest weighted score of those that pass all
filters.

``best_of_all`` is the definition: score every pod with room. ``ClassPicker`` gives the same answer
in time that does not grow with the pool. It goes through zones, their nodes and their pods. As a
plugin's ``Scope`` allows, it asks the plugin once for a zone, a node or a kind of pod:

- Nodes of one zone without any of the vpod's vreplicas are equal, and the lowest pod with room
  represents them all.
- Nodes with the same number of vreplicas are equal, and so are pods with the same number on equal
  nodes.

No score is over ``MAX_SCORE``. So a zone or node is skipped if it could not win even with the
greatest scores for the rest. Of equal pods the profile's ``Ties`` choose: the lowest ordinal, the
lowest one of the zone with the most free slots or, with a ``start``, the next one from there,
counting around.
"""

from collections.abc import Callable, Iterator, Sequence

from extender.engine.pods.bits import bits
from extender.engine.policy.framework import (
    FilterPlugin,
    Scope,
    ScorePlugin,
    Weighted,
)
from extender.engine.policy.profile import Profile, Ties
from extender.engine.policy.spread import Candidate, Spread


def refusal(candidate: Candidate, spread: Spread, filters: Sequence[FilterPlugin]) -> str:
    """Why the first filter that refuses does so; "" if none refuses."""
    for plugin in filters:
        if why := plugin.filter(candidate, spread):
            return why
    return ""


def totals(
    candidates: Sequence[Candidate], spread: Spread, scores: Sequence[Weighted[ScorePlugin]]
) -> list[int]:
    """The weighted sum of each candidate's scores, normalized if a plugin does that."""
    sums = [0] * len(candidates)
    for item in scores:
        found: Sequence[int] = [item.plugin.score(candidate, spread) for candidate in candidates]
        normalize = getattr(item.plugin, "normalize", None)
        if normalize is not None:
            found = normalize(found)
        sums = [total + item.weight * score for total, score in zip(sums, found, strict=True)]
    return sums


def best_of_all(spread: Spread, profile: Profile, start: int = 0) -> int | None:
    """The ordinal that gets the next vreplica, after every pod with room is scored; None if none
    passes.
    """
    passing = [
        candidate
        for ordinal in bits(spread.room)
        if spread.fits(ordinal)
        and not refusal(candidate := spread.candidate(ordinal), spread, profile.filters)
    ]
    by_zone = profile.ties is Ties.MOST_FREE_ZONE
    best: tuple[int, int, bool, int] | None = None
    for candidate, total in zip(passing, totals(passing, spread, profile.choosing), strict=True):
        free = spread.free_in(candidate.zone) if by_zone else 0
        rank = (total, free, candidate.ordinal >= start, -candidate.ordinal)
        if best is None or rank > best:
            best = rank
    return None if best is None else -best[3]


def picker(spread: Spread, profile: Profile, start: int = 0) -> Callable[[], int | None]:
    """A function that gives the next ordinal for ``spread`` as it is at each call."""
    if profile.ties is not Ties.ROUND_ROBIN:
        start = 0
    # With a start, the first pod of a class is not its lowest.
    if profile.widest_scope <= (Scope.COUNT if start else Scope.ORDINAL):
        return ClassPicker(spread, profile, start).best
    return lambda: best_of_all(spread, profile, start)


class _Zone:
    """What the picker remembers of one zone until a pod in it gets a vreplica.

    ``fresh``: the pod that represents those on nodes without any of the vreplicas. ``any``: this
    pod or, if there is none, another with room. ``used``: node -> its pods, for nodes with some of
    the vreplicas. ``unused``: the pods of all other nodes. ``nodes``: for each kind of node, one
    pod and all pods of that kind (0 for the kind without vreplicas); None until it is asked for.
    """

    __slots__ = ("any", "fresh", "members", "nodes", "stale", "unused", "used")

    def __init__(self, members: int) -> None:
        self.members = members
        self.unused = members
        self.used: dict[str, int] = {}
        self.fresh: Candidate | None = None
        self.any: Candidate | None = None
        self.nodes: list[tuple[Candidate, int]] | None = None
        self.stale = True


class ClassPicker:
    """``best_of_all`` by classes of equal pods, for plugins whose scope allows it.

    Between two calls of ``best``, the spread may get one more vreplica, on the pod that the first
    call gave.
    """

    __slots__ = (
        "_by_zone",
        "_fitting",
        "_node",
        "_node_and_pod_most",
        "_pod",
        "_spread",
        "_start",
        "_zone",
        "_zones",
    )

    def __init__(self, spread: Spread, profile: Profile, start: int = 0) -> None:
        self._spread = spread
        self._start = start
        self._by_zone = profile.ties is Ties.MOST_FREE_ZONE
        self._zone, self._node, self._pod = profile.tiers
        self._node_and_pod_most = self._node.most + self._pod.most
        self._fitting = spread.room
        self._zones = {zone: _Zone(members) for zone, members in spread.zone_bits.items()}
        for nodes in (spread.nodes, spread.away_nodes):
            for node in nodes:
                self._use(node, spread.topology.zone_of.get(node, ""))

    def _use(self, node: str, zone: str) -> None:
        if (view := self._zones.get(zone)) is not None and (
            pods := self._spread.node_bits.get(node)
        ):
            view.used[node] = pods
            view.unused &= ~pods

    def best(self) -> int | None:
        """The ordinal that gets the next vreplica; None if no pod passes."""
        self._fitting &= self._spread.room
        best, chosen = (-1, 0), -1
        for total, zone in self._best_zones_first():
            if total + self._node_and_pod_most < best[0]:
                break
            score, ordinal = best[0] - 1, -1
            for candidate, pods in self._nodes_of(self._zones[zone]):
                score, ordinal = self._best_on(candidate, pods, total, (score, ordinal))
            if ordinal < 0:
                continue
            rank = (score, self._spread.free_in(zone) if self._by_zone else 0)
            if rank > best or (rank == best and self._before(ordinal, chosen)):
                best, chosen = rank, ordinal
        if chosen < 0:
            return None
        node, zone = self._spread.by_ordinal[chosen].location
        self._zones[zone].stale = True
        self._use(node, zone)
        return chosen

    def _best_zones_first(self) -> list[tuple[int, str]]:
        """(score, zone) of the zones that have a pod with room and pass the filters."""
        tier = self._zone
        zones: list[tuple[int, str]] = []
        for zone, view in self._zones.items():
            if view.stale:
                self._look_at(view)
            if view.any is not None:
                total = 0 if tier.empty else tier.score(view.any, self._spread)
                if total >= 0:
                    zones.append((total, zone))
        if len(zones) > 1:
            zones.sort(reverse=True)
        return zones

    def _look_at(self, view: _Zone) -> None:
        candidate = self._spread.candidate
        first = self._first(view.unused)
        view.fresh = view.any = None if first is None else candidate(first)
        if first is None and (first := self._first(view.members)) is not None:
            view.any = candidate(first)
        view.nodes = None
        view.stale = False

    def _nodes_of(self, view: _Zone) -> list[tuple[Candidate, int]]:
        nodes = view.nodes
        if nodes is None:
            nodes = view.nodes = [] if view.fresh is None else [(view.fresh, 0)]
            spread = self._spread
            kinds: dict[tuple[int, int], int] = {}
            for node, pods in view.used.items():
                kind = (spread.nodes.get(node, 0), spread.away_nodes.get(node, 0))
                kinds[kind] = kinds.get(kind, 0) | pods
            for pods in kinds.values():
                if (first := self._first(pods)) is not None:
                    nodes.append((spread.candidate(first), pods))
        return nodes

    def _best_on(
        self, candidate: Candidate, pods: int, total: int, best: tuple[int, int]
    ) -> tuple[int, int]:
        """The better of ``best`` (total, ordinal) and the best pod of one node, or of
        equal nodes.
        """
        spread, tier = self._spread, self._pod
        if not self._node.empty:
            on_node = self._node.score(candidate, spread)
            if on_node < 0:
                return best
            total += on_node
        if total + tier.most < best[0]:
            return best
        own = pods & spread.own if pods else 0
        for one in self._kinds(pods, own) if own else (candidate,):
            on_pod = tier.score(one, spread)
            if on_pod >= 0:
                found = total + on_pod
                if found > best[0] or (found == best[0] and self._before(one.ordinal, best[1])):
                    best = (found, one.ordinal)
        return best

    def _before(self, ordinal: int, other: int) -> bool:
        start = self._start
        return (ordinal < start, ordinal) < (other < start, other) if start else ordinal < other

    def _kinds(self, pods: int, own: int) -> Iterator[Candidate]:
        """One pod without any of the vreplicas, and one pod for each number of them."""
        spread = self._spread
        if (first := self._first(pods & ~own)) is not None:
            yield spread.candidate(first)
        for some in spread.by_count.values():
            if (first := self._first(own & some)) is not None:
                yield spread.candidate(first)

    def _first(self, pods: int) -> int | None:
        """The first pod, from the start on, that has room for one more vreplica. Pods without room
        are dropped.
        """
        fits = self._spread.fits
        while pods := pods & self._fitting:
            after = pods >> self._start << self._start or pods if self._start else pods
            lowest = after & -after
            ordinal = lowest.bit_length() - 1
            if fits(ordinal):
                return ordinal
            self._fitting &= ~lowest
        return None
