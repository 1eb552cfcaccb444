"""The plugin framework, in the terms of kube-scheduler's scheduling framework (filter, score,
normalize), and Knative's deschedule.

One vreplica is placed at a time. Filters say which pods may have it, scores say which of those is
best, and weights add the scores up. To take one away, deschedulers score the pods that have some. A
plugin sees one ``Candidate`` and the ``Spread`` that it is part of, and nothing else. So the same
input always gives the same answer.

Scores are plain ints from 0 to ``MAX_SCORE``. A score that counts something bad is ``MAX_SCORE``
minus the count, as in Knative. Knative's weighted sums wrap modulo 2^64, and ours do not.

If a third-party plugin raises, or gives no valid answer, only the decision about that vpod
fails (``guard``). The vpod stays as it is, with the reason PluginFailed, until something changes.

**Scope.** Scoring every pod for every vreplica costs more time with each pod of the pool. A plugin
can say what its answer depends on. It is then asked once for a class of pods that are equal in
that. If one plugin says nothing (``Scope.POD``), its profile scores every pod.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from extender.engine.policy.spread import Candidate, Spread
from extender.model.errors import VReplicaError

MAX_SCORE: Final = 2**64 - 1
"""The best score: math.MaxUint64, as in Knative's priorities."""


class Scope(IntEnum):
    """What a plugin's answers depend on, besides the totals of the spread. Each scope includes the
    ones before it.
    """

    ZONE = 0
    """The zone, and what is in it."""
    NODE = 1
    """Also what is on the node, but not which node of its zone it is."""
    COUNT = 2
    """Also how many of the vreplicas are on the pod, but not which pod of its node it is."""
    ORDINAL = 3
    """Also the ordinal: of pods that are equal otherwise, the lowest is best."""
    POD = 4
    """Anything."""


class PlaceUnknown(VReplicaError):
    """A plugin was asked about a pod whose node or zone is not among those that take work."""


class NamedPlugin(Protocol):
    """A plugin. ``name``: its name in configuration. It may set ``scope``; the default is
    ``Scope.POD``.
    """

    name: ClassVar[str]


class FilterPlugin(NamedPlugin, Protocol):
    """Says whether a pod may get one more vreplica."""

    def filter(self, candidate: Candidate, spread: Spread) -> str:
        """Why not, "" if it may. Use few, short, constant texts, since pods are counted by text."""


class ScorePlugin(NamedPlugin, Protocol):
    """Says how good a pod is for one more vreplica.

    If it sets ``moves_nothing = True``, it is asked where a vreplica goes, but not whether one
    would be better elsewhere.

    It may have ``normalize(scores) -> scores``, which sees the scores of all pods (``Normalizer``).
    """

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """0 (worst) to ``MAX_SCORE``. Raises ``PlaceUnknown``."""


class Normalizer(Protocol):
    """A score plugin that rescales its scores once all pods have one. Its profile
    scores every pod.
    """

    def normalize(self, scores: Sequence[int]) -> Sequence[int]:
        """The rescaled scores, in the same order."""


class DeschedulePlugin(NamedPlugin, Protocol):
    """Says how good it is to take one vreplica away from a pod that has some."""

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """0 (keep it) to ``MAX_SCORE``. Raises PlaceUnknown if the pod serves nowhere, so that it
        is taken first.
        """


P_co = TypeVar("P_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Weighted(Generic[P_co]):
    """A plugin and how much its score counts; weight 1 to 100."""

    plugin: P_co
    weight: int


def scope_of(plugin: object) -> Scope:
    """What a plugin says its answers depend on; ``Scope.POD`` if it says nothing valid."""
    if hasattr(plugin, "normalize"):
        return Scope.POD
    scope = getattr(plugin, "scope", Scope.POD)
    return scope if isinstance(scope, Scope) else Scope.POD


def moves_nothing(plugin: object) -> bool:
    """Whether a score plugin says that it only places."""
    return getattr(plugin, "moves_nothing", False) is True
