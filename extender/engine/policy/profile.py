"""``Profile``: a named way to place a pool's vreplicas and to take them away (DESIGN 5.2).

A profile without plugins places by the round robin of ``plan``; one with plugins asks them.
``Rules`` lists our deliberate differences from Knative. The profiles ``knative`` and
``knative-maxfillup`` switch most of them off.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Final

from extender.engine.policy.framework import (
    MAX_SCORE,
    DeschedulePlugin,
    FilterPlugin,
    Scope,
    ScorePlugin,
    Weighted,
    moves_nothing,
    scope_of,
)
from extender.engine.policy.guard import guarded_descheduler, guarded_filter, guarded_score
from extender.engine.policy.least_allocated import LeastAllocated
from extender.engine.policy.ordinals import LowestOrdinalPriority
from extender.engine.policy.spread import Candidate, Spread
from extender.engine.policy.spreading import NodeSpread, PodSpread, ZoneSpread


@dataclass(frozen=True, slots=True)
class Rules:
    """Deliberate differences from Knative. Each can be switched off to get Knative's behaviour.

    - ``keep_on_unavailable``: keep placements on pods that are pending, restarting or on a bad
      node. Knative drops them, so every restart of a pod moves its vreplicas.
    - ``drain_waits_for_room``: what is on a pod that is marked unschedulable, or that runs without
      its ordinal, stays until another pod has room. Knative drops it at once.
    - ``zero_means_none``: a vpod that wants 0 vreplicas gets none. Knative gives it minReplicas.
    - ``scale_by_need``: size the pool by what needs a place. ``scaling.knative`` has Knative's
      formulas.

    Differences only from Knative up to 1.16:

    - ``start_from_decided``: a decision starts from the one before it, even if no status has it
      yet. Knative starts from the status.
    - ``grow_in_place``: adding vreplicas moves none. Knative's policies place the whole vpod
      afresh, and change nothing if not all of it finds room.
    - ``round_robin``: without plugins, vreplicas go to one pod after the other in turn. MAXFILLUP
      fills one pod and then the next.
    """

    keep_on_unavailable: bool = True
    drain_waits_for_room: bool = True
    zero_means_none: bool = True
    scale_by_need: bool = True
    start_from_decided: bool = True
    grow_in_place: bool = True
    round_robin: bool = True


DEFAULT_RULES: Final = Rules()
KNATIVE_RULES: Final = Rules(
    keep_on_unavailable=False,
    drain_waits_for_room=False,
    zero_means_none=False,
    scale_by_need=False,
)
KNATIVE_1_16_RULES: Final = Rules(
    keep_on_unavailable=False,
    drain_waits_for_room=False,
    scale_by_need=False,
    start_from_decided=False,
    grow_in_place=False,
    round_robin=False,
)
"""For policies imported from Knative's ConfigMaps, which must be followed exactly. Without plugins
this is MAXFILLUP.
"""


class Ties(StrEnum):
    """Which of several equally good pods gets a vreplica. Knative takes one at random, but our
    decisions must be repeatable.
    """

    LOWEST_ORDINAL = "LowestOrdinal"
    """The lowest ordinal, so that pods fill up from below."""
    MOST_FREE_ZONE = "MostFreeZone"
    """The lowest ordinal of the zone with the most free slots. So equal zones fill up evenly, and
    inside a zone pods fill up from below, which leaves room for heavy vreplicas.
    """
    ROUND_ROBIN = "RoundRobin"
    """The pods take turns, as the nodes did in kube-scheduler's selectHost up to 1.15. A decision
    takes the next ordinal from the one after those that the decision before gave something. The
    turns begin anew in each process.
    """


class Tier:
    """The filters and scores of a profile that are asked at one step: about a zone, a node or a
    pod.
    """

    __slots__ = ("empty", "filters", "most", "scores")

    def __init__(
        self,
        filters: Iterable[FilterPlugin],
        scores: Iterable[Weighted[ScorePlugin]],
        scopes: Collection[Scope],
    ) -> None:
        self.filters = tuple(one.filter for one in filters if scope_of(one) in scopes)
        self.scores = tuple(
            (one.weight, one.plugin.score) for one in scores if scope_of(one.plugin) in scopes
        )
        self.most = sum(weight for weight, _ in self.scores) * MAX_SCORE
        """The greatest possible sum of this tier."""
        self.empty = not self.filters and not self.scores

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """The weighted sum; -1 if a filter refuses."""
        for refuses in self.filters:
            if refuses(candidate, spread):
                return -1
        total = 0
        for weight, score in self.scores:
            total += weight * score(candidate, spread)
        return total


@dataclass(frozen=True, slots=True)
class Costs:
    """How much less attractive one vreplica makes its zone, node and pod for the next one.
    ``rule``: the hard zone rule, if there is one. ``most_free_zone``: whether ties go to the zone
    with the most free slots (``Ties.MOST_FREE_ZONE``).
    """

    zone: int
    node: int
    pod: int
    rule: ZoneSpread | None
    most_free_zone: bool


class _NoPreference:
    """All pods are alike."""

    name: ClassVar[str] = ""
    scope: ClassVar[Scope] = Scope.ZONE

    def score(self, _candidate: Candidate, _spread: Spread) -> int:
        """Always the same."""
        return MAX_SCORE


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How the vreplicas of a pool are placed.

    ``filters``: all must pass. ``scores``: the pod with the greatest weighted sum wins.
    ``deschedulers``: among the pods that pass ``deschedule_filters``, the one with the greatest
    weighted sum loses a vreplica first. Third-party plugins are guarded: whatever they do wrong is
    a ``PluginFailed``.
    """

    name: str
    rules: Rules = DEFAULT_RULES
    filters: tuple[FilterPlugin, ...] = ()
    scores: tuple[Weighted[ScorePlugin], ...] = ()
    deschedulers: tuple[Weighted[DeschedulePlugin], ...] = ()
    deschedule_filters: tuple[FilterPlugin, ...] = ()
    ties: Ties = field(default=Ties.LOWEST_ORDINAL)

    def __post_init__(self) -> None:
        for name, plugins in (
            ("filters", tuple(guarded_filter(one) for one in self.filters)),
            (
                "scores",
                tuple(replace(one, plugin=guarded_score(one.plugin)) for one in self.scores),
            ),
            (
                "deschedulers",
                tuple(
                    replace(one, plugin=guarded_descheduler(one.plugin))
                    for one in self.deschedulers
                ),
            ),
            ("deschedule_filters", tuple(guarded_filter(one) for one in self.deschedule_filters)),
        ):
            object.__setattr__(self, name, plugins)

    @property
    def has_plugins(self) -> bool:
        """Whether plugins choose the pods. If not, the round robin of ``plan`` does."""
        return bool(self.filters or self.scores)

    @cached_property
    def choosing(self) -> tuple[Weighted[ScorePlugin], ...]:
        """The scores that choose among the pods that pass the filters.

        If a profile has only filters, the pod with the fewest vreplicas is best, as in the round
        robin.
        """
        return self.scores or (Weighted(PodSpread(), 1),)

    @cached_property
    def for_moves(self) -> "Profile":
        """The profile that says whether a placed vreplica would be better elsewhere: without the
        scores of plugins that move nothing.
        """
        moving = tuple(one for one in self.scores if not moves_nothing(one.plugin))
        if len(moving) == len(self.scores):
            return self
        return replace(self, scores=moving or (Weighted(_NoPreference(), 1),))

    @cached_property
    def widest_scope(self) -> Scope:
        """What the answers of all filters and scores together depend on."""
        return max(
            scope_of(one) for one in (*self.filters, *(item.plugin for item in self.choosing))
        )

    @cached_property
    def tiers(self) -> tuple[Tier, Tier, Tier]:
        """The tiers to ask about a zone, a node and a pod, if no plugin has ``Scope.POD``."""
        zone, node, pod = (
            Tier(self.filters, self.choosing, scopes)
            for scopes in ((Scope.ZONE,), (Scope.NODE,), (Scope.COUNT, Scope.ORDINAL))
        )
        return zone, node, pod

    @cached_property
    def costs(self) -> Costs | None:
        """The costs of a profile that only spreads, for ``evenly``; None for any other profile."""
        weights: dict[type, int] = {ZoneSpread: 0, NodeSpread: 0, PodSpread: 0}
        for one in self.choosing:
            if type(one.plugin) not in weights:
                return None
            weights[type(one.plugin)] += one.weight
        rule = next((one for one in self.filters if type(one) is ZoneSpread), None)
        if (
            len(self.filters) > (rule is not None)
            or self.ties is Ties.ROUND_ROBIN
            or not weights[NodeSpread]
        ):
            return None
        by_zone = self.ties is Ties.MOST_FREE_ZONE
        return Costs(weights[ZoneSpread], weights[NodeSpread], weights[PodSpread], rule, by_zone)

    @cached_property
    def fills_lowest(self) -> bool:
        """Whether the lowest ordinal with room is always the best, and no filter is asked."""
        scores = {type(one.plugin) for one in self.choosing if one.weight > 0}
        return scores == {LowestOrdinalPriority} and not self.filters and len(self.choosing) == 1

    @cached_property
    def compares_pods(self) -> bool:
        """Whether a score depends on what other vpods have on a pod (``LeastAllocated``)."""
        return any(isinstance(one.plugin, LeastAllocated) for one in self.choosing)

    @property
    def hard_zone_skew(self) -> int | None:
        """How many more of a vpod's vreplicas one zone may hold than another; None if no filter
        limits it.
        """
        return min(
            (one.max_skew for one in self.filters if isinstance(one, ZoneSpread)), default=None
        )


DEFAULT_PROFILE: Final = Profile(name="default")
