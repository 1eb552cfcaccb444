"""The rule by which a profile chooses pods for vreplicas that are new, in a sentence."""

from extender.engine.policy.framework import FilterPlugin
from extender.engine.policy.profile import Profile, Ties


def rule_of(profile: Profile) -> str:
    """As one says it beside a vpod's placements. What is placed stays where it is, whatever else
    would be chosen today.
    """
    if not profile.has_plugins:
        if not profile.rules.round_robin:
            return "pods with room are filled one after the other"
        return (
            "one vreplica to each pod with room in turn, by ascending ordinal, those that have "
            "some of it already last in each turn"
        )
    parts = []
    if profile.filters:
        parts.append(f"only where {' and '.join(_filter(one) for one in profile.filters)} allow it")
    scores = ", ".join(f"{one.plugin.name} x{one.weight}" for one in profile.choosing)
    parts.append(f"the best score of {scores}")
    ties = "the lowest ordinal" if profile.ties is Ties.LOWEST_ORDINAL else "the next in turn"
    return f"{'; '.join(parts)}; of equals {ties}"


def _filter(plugin: FilterPlugin) -> str:
    skew = getattr(plugin, "max_skew", None)
    return f"{plugin.name} (MaxSkew {skew})" if isinstance(skew, int) else plugin.name
