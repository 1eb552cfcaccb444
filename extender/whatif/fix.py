"""``Fix``: one change, described so that a person can make it, and what trying it has shown. Also
the changes that are offered for both a vpod and an adapter pod.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from extender.engine.policy.framework import FilterPlugin
from extender.engine.policy.profile import Profile
from extender.model.counted import first_of
from extender.model.objects import Node
from extender.whatif.bench import Bench, TrialResult

OBJECTS_NAMED_MAX: Final = 10
NAMES_LISTED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """``change`` in words: ``field`` of ``subject`` (kind and name) goes from ``before`` to
    ``after``. ``note`` says what else to know. ``by_itself``: nobody has to do anything.

    For a vpod, the counts are its vreplicas, and ``alone`` says that the change helps only if the
    vpod is served before the others that wait. For an adapter pod, ``nodes`` are the first that
    take it after the change.
    """

    change: str
    subject: str
    field: str
    before: object
    after: object
    note: str = ""
    by_itself: bool = False
    places: int = 0
    left: int = 0
    moves: int = 0
    alone: bool = False
    nodes: tuple[str, ...] = ()

    def seen(self, result: TrialResult, bench: Bench) -> Self:
        """Add the result of a trial."""
        return replace(
            self, places=result.places, left=result.left, moves=result.moves, alone=bench.alone
        )

    def of_vpod(self) -> dict[str, object]:
        """The fix in ``/v1/explain?vpod=``."""
        return {
            **self._named(),
            "places": self.places,
            "left": self.left,
            "moves": self.moves,
            "byItself": self.by_itself,
            "onlyBeforeOthers": self.alone,
            "note": self.note,
        }

    def of_pod(self) -> dict[str, object]:
        """The fix in ``/v1/explain?pod=``."""
        return {**self._named(), "nodes": list(self.nodes), "note": self.note}

    def _named(self) -> dict[str, object]:
        return {
            "change": self.change,
            "object": self.subject,
            "field": self.field,
            "from": self.before,
            "to": self.after,
        }


@dataclass(frozen=True, slots=True)
class Fixes:
    """The changes that help. ``cut_short``: the time was up before everything was tried. ``tried``:
    how many trials were made.
    """

    found: tuple[Fix, ...] = ()
    cut_short: bool = False
    tried: int = 0


def uncordon(nodes: Sequence[Node]) -> Fix:
    """Uncordon one or more nodes."""
    names = [node.name for node in nodes]
    return Fix(
        change=f"uncordon {in_words(names)}",
        subject=objects("Node", names),
        field="spec.unschedulable",
        before=True,
        after=False,
    )


def ready_again(nodes: Sequence[Node]) -> Fix:
    """One or more nodes become Ready."""
    names = [node.name for node in nodes]
    cordoned = any(node.cordoned for node in nodes)
    return Fix(
        change=f"{in_words(names)} {'is' if len(names) == 1 else 'are'} Ready again"
        + (" and uncordoned" if cordoned else ""),
        subject=objects("Node", names),
        field="status.conditions[Ready]",
        before="False",
        after="True",
    )


@dataclass(frozen=True, slots=True)
class SkewLimit:
    """The filter at ``index`` of a profile, and its MaxSkew."""

    index: int
    plugin: FilterPlugin
    skew: int

    def raised(self, profile: Profile, more: int) -> Profile:
        """Return the profile with a MaxSkew that is greater by ``more``."""
        wider = replace(self.plugin, max_skew=self.skew + more)  # type: ignore[type-var]
        return replace(
            profile,
            filters=(*profile.filters[: self.index], wider, *profile.filters[self.index + 1 :]),
        )


def skew_limits(profile: Profile) -> Iterator[SkewLimit]:
    """Yield the profile's filters whose MaxSkew can be changed."""
    for index, plugin in enumerate(profile.filters):
        skew = getattr(plugin, "max_skew", None)
        if isinstance(skew, int) and hasattr(plugin, "__dataclass_fields__"):
            yield SkewLimit(index, plugin, skew)


def greater_skew(profile: Profile, limit: SkewLimit, more: int) -> Fix:
    """Raise the MaxSkew of one of the profile's filters."""
    what = {"ZoneSpread": "zone skew", "NodeSpread": "node skew", "PodSpread": "pod skew"}
    name = limit.plugin.name
    return Fix(
        change=f"{what.get(name, f'{name} skew')} {limit.skew} to {limit.skew + more}",
        subject=f"profile {profile.name}",
        field=f"filters[{name}].args.MaxSkew",
        before=limit.skew,
        after=limit.skew + more,
        note="in a profile of your own: a built-in one stays as it is",
    )


def in_words(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and 5 others``."""
    if len(names) > 3:
        return f"{', '.join(names[:2])} and {len(names) - 2} others"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def listed(names: Sequence[str]) -> str:
    """``a, b, c, d, e, ...``: the first names, ``none`` if there are none."""
    return first_of(names, NAMES_LISTED) or "none"


def objects(kind: str, keys: Sequence[str]) -> str:
    """Kind and name of the first objects."""
    return ", ".join(f"{kind} {key}" for key in keys[:OBJECTS_NAMED_MAX])
