"""Guards for third-party plugins: whatever such a plugin does wrong becomes one ``PluginFailed``.

A plugin that raises must not take the service down. A wrong answer must not reach the sums: a nan,
or a score out of range, would place vreplicas wrongly without notice. Our own plugins are tested,
and are called without a guard.
"""

from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar, cast

from extender.engine.policy.framework import (
    MAX_SCORE,
    DeschedulePlugin,
    FilterPlugin,
    NamedPlugin,
    Normalizer,
    PlaceUnknown,
    ScorePlugin,
    moves_nothing,
    scope_of,
)
from extender.engine.policy.spread import Candidate, Spread
from extender.model.errors import VReplicaError

PROBLEM_CHARS_MAX: Final = 200
P = TypeVar("P", bound=NamedPlugin)
S = TypeVar("S", bound=ScorePlugin)


class PluginFailed(VReplicaError):
    """A third-party plugin raised, or gave no valid answer. ``plugin``: its name; ``problem``: what
    it did.
    """

    def __init__(self, plugin: str, problem: str) -> None:
        problem = (
            problem if len(problem) <= PROBLEM_CHARS_MAX else f"{problem[:PROBLEM_CHARS_MAX]}..."
        )
        super().__init__(f"plugin {plugin} failed: {problem}")
        self.plugin = plugin
        self.problem = problem


class _ScoreAndNormalize(ScorePlugin, Normalizer, Protocol):
    """A score plugin that sees the scores of all pods."""


class _Guard(Generic[P]):
    """The common part of all guards: name, scope and equality of the wrapped plugin."""

    def __init__(self, plugin: P) -> None:
        self.plugin = plugin
        self.name = str(getattr(plugin, "name", type(plugin).__name__))
        self.scope = scope_of(plugin)
        self.moves_nothing = moves_nothing(plugin)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and bool(self.plugin == other.plugin)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def _failed(self, call: str, error: Exception) -> PluginFailed:
        return PluginFailed(self.name, f"{call}: {type(error).__name__}: {_said(error)}")

    def _score(self, call: str, found: object) -> int:
        # Not a subclass: it may count and compare as it likes, as bool does.
        if type(found) is not int or not 0 <= found <= MAX_SCORE:
            raise PluginFailed(self.name, f"{call}: {_shown(found)} is no int from 0 to 2^64-1")
        return found


class GuardedFilter(_Guard[FilterPlugin]):
    """Guards a ``FilterPlugin``."""

    def filter(self, candidate: Candidate, spread: Spread) -> str:
        """The plugin's answer. Raises PluginFailed."""
        try:
            found: object = self.plugin.filter(candidate, spread)
        except Exception as error:
            raise self._failed("filter", error) from error
        if type(found) is not str:
            raise PluginFailed(
                self.name, f'filter: {_shown(found)} is no str (where a pod may have it: "")'
            )
        return found


class GuardedScore(_Guard[S]):
    """Guards a ``ScorePlugin`` without ``normalize``."""

    def score(self, candidate: Candidate, spread: Spread) -> int:
        """The plugin's answer. Raises PluginFailed."""
        try:
            found: object = self.plugin.score(candidate, spread)
        except Exception as error:
            raise self._failed("score", error) from error
        return self._score("score", found)


class GuardedNormalizer(GuardedScore[_ScoreAndNormalize]):
    """Guards a ``ScorePlugin`` that is also a ``Normalizer``."""

    def normalize(self, scores: Sequence[int]) -> Sequence[int]:
        """The plugin's answer. Raises PluginFailed."""
        try:
            found: list[object] = list(self.plugin.normalize(tuple(scores)))
        except Exception as error:
            raise self._failed("normalize", error) from error
        if len(found) != len(scores):
            raise PluginFailed(self.name, f"normalize: {len(found)} scores for {len(scores)} pods")
        return [self._score("normalize", one) for one in found]


class GuardedDescheduler(_Guard[DeschedulePlugin]):
    """Guards a ``DeschedulePlugin``."""

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """The plugin's answer. Raises PluginFailed, and PlaceUnknown if the plugin does."""
        try:
            found: object = self.plugin.deschedule(candidate, spread)
        except PlaceUnknown:
            raise
        except Exception as error:
            raise self._failed("deschedule", error) from error
        return self._score("deschedule", found)


def guarded_filter(plugin: FilterPlugin) -> FilterPlugin:
    """Guard the plugin, unless it is our own."""
    return plugin if _is_ours(plugin) else cast("FilterPlugin", GuardedFilter(plugin))


def guarded_score(plugin: ScorePlugin) -> ScorePlugin:
    """Guard the plugin, unless it is our own."""
    if _is_ours(plugin):
        return plugin
    normalizes = hasattr(plugin, "normalize")
    guard = (
        GuardedNormalizer(cast("_ScoreAndNormalize", plugin))
        if normalizes
        else GuardedScore(plugin)
    )
    return cast("ScorePlugin", guard)


def guarded_descheduler(plugin: DeschedulePlugin) -> DeschedulePlugin:
    """Guard the plugin, unless it is our own."""
    return plugin if _is_ours(plugin) else cast("DeschedulePlugin", GuardedDescheduler(plugin))


def _is_ours(plugin: object) -> bool:
    return type(plugin).__module__.startswith(f"{__package__}.")


def _said(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever a stranger's __str__ does
        return "(no text)"


def _shown(value: object) -> str:
    """A wrong answer as text. If its type is not a known one, only the type's name: its repr may do
    anything.
    """
    if type(value) is int:
        return str(value) if value.bit_length() <= 128 else "a far greater int"
    return repr(value) if type(value) in {float, bool, str, type(None)} else type(value).__name__
