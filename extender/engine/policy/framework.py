"""The plugin framework: what a policy is, in the scheduling framework's terms (filter, score,
normalize, deschedule).

One vreplica is placed at a time. Filters say which pods may have it, scores say which of those is
best, weights add the scores up. Taking one away, deschedulers score the pods that have some. A
plugin sees one ``Candidate`` and the ``Spread`` that it is part of, and nothing else: the same
input always gives the same answer.

Scores are plain ints from 0 to ``MAX_SCORE``. A score that counts something bad is ``MAX_SCORE``
minus the count, as in Knative, whose weighted sums wrap modulo 2^64 where ours do not.

A third party's plugin that raises, or answers anything else than it is asked for, fails the
decision about that vpod and nothing more (``guard``): the vpod stands still, with the reason
PluginFailed, until something changes.

**Scope.** Scoring every pod for every vreplica costs time with each pod of the pool. A plugin that
says what its answer depends on is asked once for a whole class of pods that are equal to it
instead. One that says nothing (``Scope.POD``) makes its profile score every pod.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from extender.engine.policy.spread import Candidate, Spread
from extender.model.errors import VReplicaError

MAX_SCORE: Final = 2**64 - 1
"""The best score: math.MaxUint64, as Knative's priorities have it."""


class Scope(IntEnum):
    """What the answers of a plugin depend on, beside the spread's totals; each includes the ones
    before it.
    """

    ZONE = 0
    """The zone and what is in it."""
    NODE = 1
    """And what is on the node, not which node of its zone it is."""
    COUNT = 2
    """And how many of the vreplicas are on the pod, not which pod of its node it is."""
    ORDINAL = 3
    """And the ordinal; of pods equal in all of the above, the lowest is best."""
    POD = 4
    """Anything."""


class PlaceUnknown(VReplicaError):
    """A plugin is asked about a pod whose node or zone is not among those that take work."""


class NamedPlugin(Protocol):
    """A plugin. ``name`` is what configuration calls it. May set ``scope``; without one it is
    ``Scope.POD``.
    """

    name: ClassVar[str]


class FilterPlugin(NamedPlugin, Protocol):
    """Says whether a pod may get one more vreplica."""

    def filter(self, candidate: Candidate, spread: Spread) -> str:
        """Why not, "" if it may: few, short, equal texts, as they are counted by text."""


class ScorePlugin(NamedPlugin, Protocol):
    """Says how good a pod is for one more vreplica.

    May have ``normalize(scores) -> scores``, which sees all pods' scores at once (see
    ``Normalizer``).
    """

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """0 (worst) to ``MAX_SCORE``. Raises ``PlaceUnknown``."""


class Normalizer(Protocol):
    """A score plugin that rescales its scores once all pods are scored; such a profile scores every
    pod.
    """

    def normalize(self, scores: Sequence[int]) -> Sequence[int]:
        """The scores to weigh, in the same order."""


class DeschedulePlugin(NamedPlugin, Protocol):
    """Says how good it is to take one vreplica away from a pod that has some."""

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """0 (keep it) to ``MAX_SCORE``. ``PlaceUnknown``: the pod serves nowhere, so it is taken
        first.
        """


P_co = TypeVar("P_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Weighted(Generic[P_co]):
    """A plugin and how much its score counts; weight 1 to 100."""

    plugin: P_co
    weight: int


def scope_of(plugin: object) -> Scope:
    """What a plugin says its answers depend on."""
    if hasattr(plugin, "normalize"):
        return Scope.POD
    scope = getattr(plugin, "scope", Scope.POD)
    return scope if isinstance(scope, Scope) else Scope.POD
